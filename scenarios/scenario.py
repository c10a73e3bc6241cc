"""Scenario: everything one run is asked to do, validated and frozen. Durations are whole nanoseconds.

It builds plans and payload sources. It sends nothing, holds no secret and doesn't read objectives: their
grammar belongs to the judge.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import numpy as np
from pydantic import (
    BaseModel,
    Field,
    InstanceOf,
    SerializeAsAny,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from plimsoll.scenarios.discovery import kinds, sources
from plimsoll.scenarios.kind import Frame, Kind, Warmup
from plimsoll.scenarios.plan.cancellation import CancelSection
from plimsoll.scenarios.plan.plan import IntArray, Plan, Stop
from plimsoll.scenarios.plan.sampling import choose, require_samples
from plimsoll.scenarios.plan.seeds import SEED_MAX, child
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.scenarios.text.durations import Duration, format_duration
from plimsoll.scenarios.text.errors import ScenarioError
from plimsoll.scenarios.text.paths import FileName
from plimsoll.scenarios.text.strict import STRICT


def accuracy_plan(kind: Kind, params: BaseModel, stop: Stop, n_samples: int, seed: int) -> Plan:
    """The kind's own plan, cut to one pass over the source. Raises ``ValueError`` for a source without samples.

    A multi-stream's last query has what is left. Of the stop rule only ``max_duration`` stays: a run that takes longer than
    it is cut short, and says so.
    """
    require_samples(n_samples)
    once = Stop(n_samples, 0, stop.max_duration_ns, n_samples)
    plan = kind.build(_one_pass(params, n_samples), once, n_samples, seed)
    chosen = choose("permutation", child(seed, "accuracy"), n_samples, n_samples)
    if plan.open_loop and plan.n_samples == n_samples:
        return replace(plan, payload_ix=chosen, stop=once if plan.n_queries > 1 else replace(once, min_queries=1))
    return _cut(plan, chosen, once)


def _one_pass(params: BaseModel, n_samples: int) -> BaseModel:
    """Params that make no more samples than there are, and whose order is ours."""
    own: dict[str, Any] = {"samples": n_samples} if "samples" in type(params).model_fields else {}
    fields = type(params).model_fields
    if "order" in fields:
        own["order"] = fields["order"].default
    return params.model_copy(update=own)


def _cut(plan: Plan, chosen: IntArray, once: Stop) -> Plan:
    """As many rows, of as many samples each, as it takes."""
    per_query = int(plan.offsets[1])
    rows = -(-len(chosen) // per_query)
    offsets = np.minimum(np.arange(rows + 1) * per_query, len(chosen))
    return replace(
        plan,
        due_ns=plan.due_ns[:rows],
        query_id=np.arange(rows),
        offsets=offsets,
        sample_ix=np.arange(len(chosen)) % per_query,
        payload_ix=chosen,
        after=np.full(rows, -1),
        stop=replace(once, min_queries=rows, max_queries=rows),
    )


_SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie", "api-key", "x-api-key", "x-goog-api-key")
_REFERENCE = re.compile(r"\$\{(env|file):[^}]+\}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

NonEmpty = Annotated[str, Field(min_length=1)]


class TargetSection(BaseModel):
    """Where to send. Secrets stay out of scenario files: name the variable or file that holds them."""

    model_config = STRICT
    url: str | None = Field(default=None, description="Origin plus optional base path; null: the bundled server.")
    protocol: NonEmpty = Field(default="openai-chat", description="Name of a client.")
    model: str = Field(default="", description="Model name to ask for; empty: the server's only or first one.")
    headers: dict[str, str] = Field(default_factory=dict, description="Extra request headers; no secrets.")
    headers_file: FileName | None = Field(default=None, description="File of `Name: value` lines; may hold secrets.")
    api_key_env: NonEmpty | None = Field(default=None, description="Environment variable that holds the API key.")
    api_key_file: FileName | None = Field(default=None, description="File that holds the API key.")
    options: dict[str, Any] = Field(default_factory=dict, description="The protocol's own options.")
    tls_verify: bool = Field(default=True, description="Check the server's certificate.")
    ca_file: FileName | None = Field(default=None, description="Extra certificate authorities, PEM.")

    @field_validator("url")
    @classmethod
    def _whole_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if not parts.scheme or not parts.netloc or any(c.isspace() for c in url):
            shown = url.partition("?")[0].rpartition("@")[2]  # what is left out may be a credential
            raise ValueError(f"{shown!r} is not a URL. Write scheme, host and port: http://127.0.0.1:8000")
        if parts.username or parts.password:
            raise ValueError("the URL holds a user or password. Take it out and use api_key_env or headers_file")
        return url

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if name.lower() in _SECRET_HEADERS and not _REFERENCE.search(value):
                raise ValueError(
                    f"header {name!r} would put a secret into every report. Write its value as ${{env:NAME}} or "
                    "${file:PATH}, or use api_key_env or headers_file"
                )
            if not _HEADER_NAME.fullmatch(name) or any(ord(c) < 32 and c != "\t" for c in value):
                raise ValueError(f"header {name!r} is not a valid HTTP header. Remove spaces and line breaks")
        return headers

    @model_validator(mode="after")
    def _one_key(self) -> TargetSection:
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("api_key_env and api_key_file are both given. Keep one of them")
        return self


class StopSection(BaseModel):
    """When to stop issuing: both minima must be met, maxima cut off. Defaults: LoadGen's."""

    model_config = STRICT
    min_queries: int = Field(default=100, ge=1, description="At least this many queries.")
    min_duration_ns: Duration = Field(default=10_000_000_000, alias="min_duration", description="At least this long.")
    max_duration_ns: Duration | None = Field(default=None, alias="max_duration", description="Issue nothing after it.")
    max_queries: int | None = Field(default=None, ge=1, description="Issue exactly this many at most.")

    @model_validator(mode="after")
    def _possible(self) -> StopSection:
        if self.max_queries is not None and self.max_queries < self.min_queries:
            raise ValueError(
                f"max_queries {self.max_queries} is below min_queries {self.min_queries}. Lower the minimum"
            )
        if self.max_duration_ns is not None and 0 < self.max_duration_ns <= self.min_duration_ns:
            most, least = format_duration(self.max_duration_ns), format_duration(self.min_duration_ns)
            raise ValueError(
                f"max_duration {most} is not above min_duration {least}, which alone ends a run (with the first query due "
                "after it). Raise the maximum or drop it"
            )
        if self.max_duration_ns == 0:
            raise ValueError("max_duration is 0: nothing would be sent. Give a time, or drop it")
        return self

    def stop(self) -> Stop:
        """As a plan holds it."""
        return Stop(self.min_queries, self.min_duration_ns, self.max_duration_ns, self.max_queries)


class Scenario(BaseModel):
    """One run, described. Made by ``spec.load``, ``spec.parse`` or ``spec.with_flags``."""

    model_config = STRICT
    name: str = Field(
        default="scenario",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$",
        max_length=100,
        description="Letters, digits, - . _",
    )
    description: str = Field(default="", description="One line: what this load stands for.")
    kind: str = Field(description="How queries are issued.")
    mode: Literal["performance", "accuracy"] = Field(
        default="performance", description="accuracy: each sample once, answers kept and compared."
    )
    reference: FileName | None = Field(default=None, description="Accuracy mode: JSON Lines of id and expected answer.")
    params: SerializeAsAny[Annotated[InstanceOf[BaseModel], WithJsonSchema({"type": "object"})]]
    target: TargetSection = Field(default_factory=TargetSection)
    source: SerializeAsAny[Annotated[InstanceOf[BaseModel], WithJsonSchema({"type": "object"})]]
    seed: int = Field(default=42, ge=0, le=SEED_MAX, description="Everything random comes from it.")
    stop: StopSection = Field(default_factory=StopSection)
    warmup_ns: Duration = Field(default=0, alias="warmup", description="Load before the measured run, not judged.")
    timeout_ns: Duration = Field(
        default=60_000_000_000, alias="timeout", gt=0, description="Per request, from sending."
    )
    connect_timeout_ns: Duration = Field(default=10_000_000_000, alias="connect_timeout", gt=0)
    drain_given_ns: Duration | None = Field(
        default=None,
        alias="drain",
        description="Wait for answers after the last query; null: as long as timeout.",
    )
    cancel: CancelSection | None = Field(
        default=None, description="Queries to drop after a delay: {share: 0.1, after: 500ms}; null: none."
    )
    objectives: tuple[NonEmpty, ...] = Field(default=(), strict=False, description='For example "p99(ttft) <= 200ms".')
    workers: int = Field(default=1, ge=1, le=1024, description="Load-generating processes.")
    retries: int = Field(
        default=0, ge=0, le=100, description="So often is a run repeated that is INVALID by the generator alone."
    )

    @model_validator(mode="after")
    def _accuracy_has_its_own_times(self) -> Scenario:
        if self.mode == "accuracy" and self.kind == "replay":
            raise ValueError(
                "mode accuracy sends each sample once, and kind replay repeats a recording. Use another kind"
            )
        return self

    @model_validator(mode="after")
    def _cancels_what_lives(self) -> Scenario:
        if self.cancel is not None and self.cancel.least_ns() >= self.timeout_ns:
            least, most = format_duration(self.cancel.least_ns()), format_duration(self.timeout_ns)
            raise ValueError(
                f"cancel.after {least} is not below timeout {most}: no request lives that long. Shorten it"
            )
        if self.cancel is not None and self.kind == "offline":
            raise ValueError(
                "cancel drops whole queries, and kind offline has one. Use another kind, or leave cancel out"
            )
        if self.cancel is not None and self.mode == "accuracy":
            raise ValueError("cancel takes answers away that mode accuracy compares. Leave one of them out")
        return self

    @property
    def drain_ns(self) -> int:
        """How long to wait for outstanding answers after the last query was issued."""
        return self.timeout_ns if self.drain_given_ns is None else self.drain_given_ns

    @property
    def open_loop(self) -> bool:
        """Queries do not wait for answers."""
        return kinds()[self.kind].open_loop(self.params)

    @property
    def frame(self) -> Frame | None:
        """When queries come at a fixed interval with a deadline each (``multi_stream`` with ``frame_interval``)."""
        return kinds()[self.kind].frame(self.params)

    def build(self, n_samples: int) -> Plan:
        """The whole plan over a payload source of ``n_samples``. Raises ``ScenarioError``."""
        kind, stop = kinds()[self.kind], self.stop.stop()
        try:
            if self.mode == "accuracy":
                return accuracy_plan(kind, self.params, stop, n_samples, self.seed)
            return kind.build(self.params, stop, n_samples, self.seed)
        except ScenarioError:
            raise
        except ValueError as error:
            raise ScenarioError([f"{self.name}: {error}."]) from error

    def build_warmup(self, n_samples: int) -> Plan | None:
        """The plan before t0, or None. Its query ids start at 0 again. Raises ``ScenarioError``."""
        if not self.warmup_ns:
            return None
        warmup = Warmup(self.warmup_ns, n_samples, child(self.seed, "warmup"), self.workers)
        try:
            return kinds()[self.kind].warmup(self.params, warmup)
        except ScenarioError:
            raise
        except ValueError as error:
            raise ScenarioError([f"{self.name}: warmup: {error}."]) from error

    def source_object(self) -> PayloadSource:
        """The payload source, its files read. Raises ``ScenarioError`` with every problem of those files."""
        return sources()[getattr(self.source, "kind")].build(self.source, self.seed)  # noqa: B009

    def to_mapping(self) -> dict[str, Any]:
        """The scenario as its file would say it, with every default; ``parse`` gives an equal one back."""
        return self.model_dump(mode="json", by_alias=True)
