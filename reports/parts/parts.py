"""The parts of a report: frozen values a renderer may show, one class per key of ``report.json``.

Conventions of every part: times are integer nanoseconds, rates are per second, fractions lie in 0..1. A number that is
infinite (a failed request ranks as infinitely slow) is ``null`` in JSON, because JSON has no infinity; the ``failed``
or ``n`` beside it says why. ``part`` makes one of a value of ``slo``; nothing is computed or formatted here.
"""

from operator import not_
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, GetCoreSchemaHandler
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from plimsoll.reports.wording.units import Number as Number
from plimsoll.slo.records.foreign import printable as printable


class _Printable:
    """What makes a text ``printable``. pydantic's own AfterValidator reads a function's signature for every field anew:
    20 ms of every run.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(printable, handler(source))


#: Text from outside: a scenario, a server, a command line.
Text = Annotated[str, _Printable]

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]

#: Upper bounds of what a report may hold, whatever the size of the run.
MAX_CURVE_POINTS = 200
MAX_BUCKETS = 300


_Part = TypeVar("_Part", bound=BaseModel)


def part(kind: type[_Part], *values: object, **given: Any) -> _Part:
    """A part that says ``values``: its fields are theirs of the same name, the first one's that has it, but for what is
    ``given``.
    """
    found: dict[str, Any] = {}
    for name in kind.model_fields.keys() - given.keys():
        of = next((value for value in values if hasattr(value, name)), None)
        if of is not None:
            found[name] = getattr(of, name)
    return kind.model_validate({**found, **given}, from_attributes=True)


class Result(BaseModel, frozen=True, extra="forbid"):
    """What a command finds, as it writes it to a file of its own."""

    def document(self) -> dict[str, Any]:
        """Plain dicts and lists with the public key names."""
        return self.model_dump(mode="json", by_alias=True)


class Scenario(BaseModel, frozen=True, extra="forbid"):
    """What was asked for."""

    name: Text = ""
    kind: Text = ""
    description: Text = ""


class Target(BaseModel, frozen=True, extra="forbid"):
    """Where the load went. ``url`` has no user, no password, no query and no fragment."""

    url: Text = ""
    protocol: Text = ""


class Timer(BaseModel, frozen=True, extra="forbid"):
    """How late the host woke a sleeper, and how long the engine therefore stayed awake before each due time."""

    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int
    sleeps: int = Field(description="of 1 ms each")
    spin_ns: int
    core_share: float = Field(description="of a core at most, for staying awake, in each worker")


class Run(BaseModel, frozen=True, extra="forbid"):
    """What makes the run repeatable, as its manifest tells it."""

    id: Text = ""
    started_at: Text = Field(default="", description="ISO 8601 with offset; empty when the manifest does not say")
    started_at_epoch_ns: int | None = None
    plimsoll: Text = Field(default="", description="version of Plimsoll that sent the load")
    host: dict[Text, Text] = Field(default_factory=dict)
    scenario: Scenario = Scenario()
    target: Target = Target()
    seed: int | None = None
    plan_fingerprint: Text = ""
    workers: int | None = None
    libraries: dict[Text, Text] = Field(default_factory=dict)
    command: Text = Field(default="", description="the command line, secrets removed")
    directory: Text = ""
    open_loop: bool | None = None
    timer: Timer | None = Field(default=None, description="null: it would have changed nothing, so nobody asked")
    kept: Text = Field(default="", description="what stayed of chunk times and answers; absent: everything")


class Lag(BaseModel, frozen=True, extra="forbid"):
    """A lateness in nanoseconds; null when nothing was sent. In ``lag_ns``: sent minus due."""

    p50: int | None = None
    p99: int | None = None
    max: int | None = None


class Check(BaseModel, frozen=True, extra="forbid"):
    """One promise of the generator; ``detail`` says what broke it, ``seen`` what was seen and what is allowed,
    ``cause`` whose doing it is (where it is broken).
    """

    name: str
    ok: bool
    detail: Text = ""
    seen: Text = ""
    cause: Literal["generator", "endpoint", "user"] = "generator"


class Arrivals(BaseModel, frozen=True, extra="forbid"):
    """Index of dispersion of the planned, taken-up and sent times; ``ks_p`` only for a Poisson process."""

    dispersion_planned: float | None = None
    dispersion_ready: float | None = None
    dispersion_sent: float | None = None
    ks_p: float | None = None


class ErrorSpread(BaseModel, frozen=True, extra="forbid"):
    """Absolute differences in nanoseconds between what was recorded and what a server of known times wrote."""

    p50: int
    p99: int


class GeneratorError(BaseModel, frozen=True, extra="forbid"):
    """How far the percentiles may be off through the generator alone; ``note`` says why a part is null."""

    added_ttft_ns: ErrorSpread | None = Field(default=None, description="error of first arrivals, by the calibration")
    added_itl_ns: ErrorSpread | None = Field(default=None, description="error of gaps between arrivals, likewise")
    at_token_events_per_s: float | None = Field(default=None, description="load per worker at which it was calibrated")
    calibrated_at: Text | None = Field(default=None, description="ISO 8601; null without a calibration")
    engine: Text = Field(default="", description="native or python: what was calibrated")
    lag_p99_ns: int | None = Field(default=None, description="of this run: taken up minus due")
    stamp: str = Field(default="", description="of this run, as in validity")
    note: Text = ""


class MergedChunks(BaseModel, frozen=True, extra="forbid"):
    """Chunks that one read brought with a later one of their stream, whose time they carry."""

    count: int = 0
    share: float = 0.0
    uncertainty_p99_ns: int | None = Field(default=None, description="how much earlier they may have come")


class Validity(BaseModel, frozen=True, extra="forbid"):
    """Did the generator keep its promise? If not, no other number counts."""

    outcome: Literal["VALID", "INVALID"] = "VALID"
    reasons: list[Text] = Field(default_factory=list)
    planned: int = 0
    sent: int = 0
    unsent: int = 0
    offered_per_s: float = 0.0
    achieved_per_s: float = 0.0
    lag_ns: Lag = Lag()
    stamp: str = Field(default="", description="kernel, user, or mixed: where arrival times come from")
    checks: list[Check] = Field(default_factory=list)
    generator_lag_ns: Lag = Field(default_factory=Lag, description="taken up minus due: the generator's own part")
    kernel_share: float = Field(default=0.0, description="share of answers that the kernel stamped")
    merged_chunks: MergedChunks = MergedChunks()
    arrivals: Arrivals | None = None
    loop_stall_count: int = 0
    loop_stall_max_ns: int = 0
    worker_cpu: list[float] = Field(default_factory=list, description="share of one core each worker used")
    engine_cpu: list[float] = Field(
        default_factory=list, description="share of one core each worker's native engine used; empty without one"
    )
    gc_pause_count: int = Field(default=0, description="runs of Python's garbage collector while requests were timed")
    gc_pause_max_ns: int = 0
    pool_waits: int = Field(
        default=0,
        description="requests that waited for one of max_connections connections, or over gRPC for a place on a "
        "connection",
    )
    pool_wait_p99_ns: int = 0
    generator_error: GeneratorError = GeneratorError()


class Bracket(BaseModel, frozen=True, extra="forbid"):
    """An objective at both ends of the generator's own lateness: ``upper`` as measured, ``lower`` with it taken off."""

    lower: int | float | None = None
    upper: int | float | None = None
    outcome_lower: str
    outcome_upper: str
    lateness_ns: int = Field(description="the most of it that may be in any request's time")


class ObjectiveResult(BaseModel, frozen=True, extra="forbid"):
    """One run-scope objective, judged.

    ``observed`` and either end of ``interval`` are null when infinite (or when ``n`` is 0: no data).
    """

    objective: str
    title: Text = Field(
        default="", description="what an OpenSLO document calls it; empty: it says nothing else than its name"
    )
    outcome: Outcome
    observed: Number = None
    threshold: Number = None
    unit: str = ""
    interval: tuple[Number, Number] = (None, None)
    n: int = 0
    n_needed: int | None = None
    indicator: str = ""
    where: str = Field(default="", description="the rows that it is about; absent: all", exclude_if=not_)
    statistic: str = ""
    operator: str = "<="
    missing: int = 0
    bad: int | None = Field(default=None, description="values that break the limit")
    max_bad_allowed: int | None = Field(
        default=None, description="as many of n may break it; -1: n is too small for any"
    )
    reason: Text = ""
    p_pass: float | None = Field(
        default=None, description="how often a share on the limit would look as good; null: a fact"
    )
    p_fail: float | None = Field(
        default=None, description="how often a share on the limit would look as bad, before Holm"
    )
    design_effect: float = Field(
        default=1.0, description="how many values count as one, because neighbours share their fate"
    )
    by: Text = Field(default="", description="what decided: number or distance; empty: nothing, or a fact")
    needed_ns: int | None = Field(default=None, description="how long n_needed take at this run's rate")
    sentence: Text = Field(default="", description="what decides it, in plain words: the counts and the size")
    failed: int | None = Field(
        default=None,
        description="of the bad values (of a mean, an extreme, a rate: of all) those of requests that failed",
    )
    observed_ok: Number = Field(
        default=None, description="observed over the successful ones alone; null: none failed, or none is left"
    )
    bracket: Bracket | None = Field(
        default=None, description="both ends; null: the generator's lateness touches nothing"
    )


class Attainment(BaseModel, frozen=True, extra="forbid"):
    """One request-scope objective: how many of all measured requests met it on its own."""

    objective: str
    met: int
    n: int
    attainment: float | None = None
    indicator: str = ""
    where: str = Field(default="", description="the rows that it is about; absent: all", exclude_if=not_)
    operator: str = "<="
    threshold: Number = None
    unit: str = ""


class Verdict(BaseModel, frozen=True, extra="forbid"):
    """The outcome of the run and of every objective."""

    outcome: Outcome = "PASS"
    reasons: list[Text] = Field(default_factory=list)
    decides: Text = Field(
        default="", description="the objective that decides the outcome; empty: none does, as when the run is INVALID"
    )
    objectives: list[ObjectiveResult] = Field(default_factory=list)
    request_objectives: list[Attainment] = Field(default_factory=list)


class LowEnd(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """The low percentiles of an indicator of which more is better: the slow end, as p90 and above are of a time."""

    p10: Number = None
    p5: Number = None
    p1: Number = None
    p0_1: Annotated[Number, Field(alias="p0.1")] = None


class Statistics(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """Statistics of one indicator over some rows; all in the indicator's unit."""

    n: int = 0
    mean: Number = None
    min: Number = None
    p50: Number = None
    p90: Number = None
    p95: Number = None
    p99: Number = None
    p99_9: Annotated[Number, Field(alias="p99.9")] = None
    max: Number = None
    low: LowEnd | None = Field(default=None, description="where more is better; null: less is")


class Metric(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """One indicator over every measured request, failures ranked as infinitely bad; ``of_ok`` leaves failures out."""

    unit: str
    n: int = 0
    missing: int = Field(default=0, description="requests the indicator's definition does not cover")
    mean: Number = None
    min: Number = None
    p50: Number = None
    p90: Number = None
    p95: Number = None
    p99: Number = None
    p99_9: Annotated[Number, Field(alias="p99.9")] = None
    max: Number = None
    failed: int = Field(default=0, description="values that are infinite because the request failed")
    title: str = ""
    better: str = Field(default="lower", description="higher: p99 and max are the best values, and low has the others")
    low: LowEnd | None = Field(default=None, description="where more is better; null: less is")
    of_ok: Statistics | None = None


class Throughput(BaseModel, frozen=True, extra="forbid"):
    """What the endpoint got done per second of ``span_ns``."""

    requests_per_s: float = 0.0
    output_tokens_per_s: float | None = None
    goodput_per_s: float | None = None
    good_fraction: float | None = None
    input_tokens_per_s: float | None = None
    output_tokens: int | None = None
    input_tokens: int | None = Field(default=None, description="of requests whose server counted them")
    input_tokens_planned: int | None = Field(
        default=None, description="of requests whose server counted none: the plan's lengths, in no rate"
    )
    span_ns: int = 0


class ErrorCount(BaseModel, frozen=True, extra="forbid"):
    """One error text and how often it was seen."""

    text: Text
    status: str
    count: int
    texts: int = Field(default=1, description="so many that differ in numbers only were taken as one")


class Counts(BaseModel, frozen=True, extra="forbid"):
    """How the measured requests ended. ``errors`` holds the most frequent texts only."""

    ok: int = 0
    failed: int = 0
    by_status: dict[str, int] = Field(default_factory=dict)
    errors: list[ErrorCount] = Field(default_factory=list)
    other_errors: int = Field(default=0, description="failures whose text is not among errors")
    warmup: int = 0
    asked_exactly: int = Field(
        default=0,
        description="successes of which an exact number of output tokens was asked and whose server counted them",
    )
    short_of_asked: int = Field(default=0, description="those of them that had fewer")
