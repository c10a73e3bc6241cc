"""The habits of a client: what it does when an answer fails, is slow or doesn't come. ``client:`` of a scenario.

A *request* is what a user wanted; an *attempt* is what goes over the wire for it. The section is read here and nothing
is sent; ``plimsoll/harness/generator/habits.py`` behaves as it says.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from plimsoll.scenarios.text.fields import STRICT, Duration, format_duration, parse_duration

#: Codes of gRPC from 1 on, each with the code of HTTP that says the same (google.rpc.Code).
GRPC = {
    "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 400,
    "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501, "INTERNAL": 500, "UNAVAILABLE": 503, "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}  # fmt: skip
#: The policy of a kind that tries again where its scenario names none: whatever may be another time.
AGAIN = {"on": [429, "5xx", "connect", "timeout", "cut"]}
#: What may be tried again beside codes: no connection or no answer at all, no answer in time, any 5xx, and an answer
#: that broke after it had begun.
WORDS = ("connect", "timeout", "5xx", "cut")
_SPAN = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+?)(?:\s+exponential)?\s*")
_PERCENTILE = re.compile(r"p([1-9][0-9]?(?:\.[0-9]{1,3})?)")


def _share(value: Any) -> Any:
    """A share of 1 of ``10%`` or 0.1."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,4}(\.\d{1,6})?%", value.strip()):
        return float(value.strip()[:-1]) / 100
    return value


Share = Annotated[
    float,
    BeforeValidator(_share),
    Field(gt=0, le=10),
    PlainSerializer(lambda share: f"{share * 100:.10g}%", return_type=str),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": r"^\d{1,4}(\.\d{1,6})?%$"}, {"type": "number"}]}),
]


def _span(text: str) -> str:
    match = _SPAN.fullmatch(text)
    first, most = (parse_duration(part) for part in (match.groups() if match else (text, text)))
    if first > most:
        raise ValueError(f"{text!r} begins above its end. Write the shorter wait first: 100ms..10s")
    return f"{format_duration(first)}..{format_duration(most)}"


def _retried(on: tuple[int | str, ...]) -> tuple[int | str, ...]:
    for one in on:
        if not ((one in WORDS or one in GRPC) if isinstance(one, str) else 400 <= one <= 599):
            words = f"of {', '.join(WORDS)}, or of gRPC's, such as UNAVAILABLE"
            raise ValueError(f"{one!r} is nothing to try again. Give codes from 400 to 599, words {words}")
    return on


def _after(value: Any) -> Any:
    if isinstance(value, str) and _PERCENTILE.fullmatch(value.strip()):
        return value.strip()
    if isinstance(value, str) and value.strip().startswith("p"):
        raise ValueError(f"{value!r} is no percentile. Write one from p1 to p99.999, such as p95, or a time: 200ms")
    return format_duration(parse_duration(value))


class RetrySection(BaseModel):
    """Try again what failed before its first token: after a wait that doubles, within a budget."""

    model_config = STRICT
    on: Annotated[tuple[int | str, ...], AfterValidator(_retried)] = Field(
        default=(429, 503, "connect"),
        min_length=1,
        strict=False,
        description=f"Codes of HTTP, names of gRPC's codes, and words of {', '.join(WORDS)}.",
    )
    max: int = Field(default=2, ge=1, le=100, description="At most so many retries of a request.")
    backoff: Annotated[str, AfterValidator(_span)] = Field(
        default="100ms..10s", description="The first wait and the longest; it doubles from retry to retry."
    )
    jitter: Literal["full", "equal", "none"] = Field(
        default="full", description="full: any part of the wait; equal: half of it and any part of the rest."
    )
    honour_retry_after: bool = Field(
        default=True, description="Wait as long as Retry-After says, or gRPC's pushback, and the wait on top."
    )
    budget: Share | None = Field(
        default=None, description="At most this share of requests, such as 10%, and 10 more; null: no bound."
    )

    @property
    def span_ns(self) -> tuple[int, int]:
        """The first wait and the longest."""
        first, most = (parse_duration(part) for part in self.backoff.split(".."))
        return first, most


class HedgeSection(BaseModel):
    """Send a request once more while its answer is awaited; the first that answers is kept, the others are dropped."""

    model_config = STRICT
    after: Annotated[str, BeforeValidator(_after)] = Field(
        description="A time, or a percentile such as p95 of this run's own answers, once there are 100."
    )
    max: int = Field(default=1, ge=1, le=10, description="At most so many of a request.")
    to: str | None = Field(default=None, description="URL that hedges go to; null: the target's.")
    until: Literal["first_token", "headers"] = Field(default="first_token", description="What decides who answered.")
    budget: Share | None = Field(
        default=None, description="At most this share of requests, and 10 more; null: no bound."
    )

    @property
    def percentile(self) -> float | None:
        """Of ``p95`` 0.95; None: it is a time."""
        match = _PERCENTILE.fullmatch(self.after)
        return float(match[1]) / 100 if match else None

    @property
    def after_ns(self) -> int:
        """The time; 0 of a percentile."""
        return 0 if self.percentile is not None else parse_duration(self.after)


class ClientSection(BaseModel):
    """What a client does with a request that fails or is slow."""

    model_config = STRICT
    retry: RetrySection | None = None
    hedge: HedgeSection | None = None
    patience_ns: Duration | None = Field(
        default=None, alias="patience", gt=0, description="Leave after so long without a first token; null: never."
    )
    connections: Literal["reuse", "fresh"] = Field(default="reuse", description="fresh: a new one for each attempt.")
    max_amplification: float | None = Field(
        default=None, gt=1, description="End the run where attempts per request over 10 s are more than this."
    )

    @property
    def habitual(self) -> bool:
        """An attempt may be dropped or followed by another."""
        return self.retry is not None or self.hedge is not None or self.patience_ns is not None

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.max_amplification is not None and self.retry is None and self.hedge is None:
            raise ValueError("max_amplification bounds retries and hedges, and there are none. Add retry, or drop it")
        return self

    def mistakes(self, timeout_ns: int, slots: int | None) -> list[tuple[str, str]]:
        """(key, what is wrong) of what the rest of a scenario forbids. ``slots``: of a closed loop."""
        found = []
        timeout = format_duration(timeout_ns)
        after_ns = self.hedge.after_ns if self.hedge is not None else 0
        for key, ns in (("patience", self.patience_ns or 0), ("hedge.after", after_ns)):
            if ns >= timeout_ns:
                found.append((key, f"{format_duration(ns)} is not below timeout {timeout}: it never comes. Shorten it"))
        if self.hedge is not None and slots == 1:
            text = "a hedge is a second request in flight, and this kind has one slot. Use another kind, or drop hedge"
            found.append(("hedge", text))
        return found
