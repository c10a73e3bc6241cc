"""The parts of a capacity plan's document, one class per key. Schema ``plimsoll.capacity/1``.

Times are nanoseconds, rates per second, shares 0..1, money in the currency of the price. An infinite number is null; so is what
nobody knows. Nothing is computed here.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Number, Text

SCHEMA: Final = "plimsoll.capacity/1"


class CapacityPart(BaseModel, frozen=True, extra="forbid"):
    """Requests per second of one replica within its objectives: shown to hold at ``low``, to fail at ``high``."""

    low: float
    best: float
    high: Number = None


class SizedPart(BaseModel, frozen=True, extra="forbid"):
    """A fleet at one capacity; the rule that wants more decides."""

    capacity_per_s: float
    replicas: int
    by_headroom: int
    by_one_down: int
    binding: Literal["headroom", "one down", "both"]
    utilisation: float
    one_down: Number
    per_hour: Number = None


class RowPart(BaseModel, frozen=True, extra="forbid"):
    """One number of replicas, at the lower end of the capacity."""

    replicas: int
    utilisation: float
    one_down: Number
    headroom_kept: bool
    one_down_kept: bool
    per_hour: Number = None


class SafePart(BaseModel, frozen=True, extra="forbid"):
    """What one replica is to be given: ``per_s`` = headroom x the lower end of the capacity."""

    per_s: float
    saturation_per_s: Number = Field(default=None, description="the most that it answered while it did not keep up")
    slo_of_saturation: Number = Field(default=None, description="lower end of the capacity over saturation")
    of_saturation: Number = Field(default=None, description="per_s over saturation: the share of the machine in use")
    per_gpu_per_s: Number = None


class CostPart(BaseModel, frozen=True, extra="forbid"):
    """Of a million. ``full``: every replica at its headroom; ``target``: the whole fleet at the target rate."""

    per: Literal["requests", "good_requests", "output_tokens", "input_tokens"]
    full: float
    full_range: tuple[float, float] | None
    target: float
    target_range: tuple[float, float] | None


class LittlePart(BaseModel, frozen=True, extra="forbid"):
    """Little's law on one run: L against lambda W, and what the edges of the window explain."""

    run: Text
    view: Literal["response", "service"]
    mean: float
    product: float
    bound: float
    wrong: Text = ""


class QueuePart(BaseModel, frozen=True, extra="forbid"):
    """A textbook queue, pinned at the lowest load; ``curve``: rate, p50, p99."""

    model: str
    servers: int
    service_ns: float
    limit_per_s: float
    curve: list[tuple[float, float, float]]


class AgainstPart(BaseModel, frozen=True, extra="forbid"):
    """One run against one queue: measured over predicted; null where the queue has no steady state or the run no figure."""

    model: str
    utilisation: float
    p50: Number
    p99: Number


class LoadPart(BaseModel, frozen=True, extra="forbid"):
    """One run as a point of the chart. ``pin``: the curves go through its mean."""

    run: Text
    rate_per_s: float
    n: int
    failed: int
    stable: bool
    pin: bool
    p50_ns: Number
    p99_ns: Number
    in_flight: Number = Field(
        default=None, description="L by service times, sent to done: a queue inside the server is in it"
    )
    against: list[AgainstPart] = Field(default_factory=list)


class CapacityReport(BaseModel, frozen=True, extra="forbid"):
    """The whole plan."""

    schema_: Literal["plimsoll.capacity/1"] = Field(default=SCHEMA, alias="schema")
    outcome: Literal["SIZED", "NONE"]
    exit_code: int
    reasons: list[Text] = Field(default_factory=list)
    folder: Text
    kind: Literal["search", "sweep", "run"]
    name: Text
    objectives: list[Text] = Field(default_factory=list)
    confidence: float | None = Field(default=None, description="of each verdict that the capacity rests on")
    capacity: CapacityPart | None = None
    target_per_s: float = Field(description="growth included")
    growth: float = 0.0
    headroom: float
    one_down: float
    safe: SafePart | None = None
    sized: SizedPart | None = Field(default=None, description="at the lower end of the capacity")
    sized_high: SizedPart | None = Field(default=None, description="at the upper end: what the uncertainty costs")
    rows: list[RowPart] = Field(default_factory=list)
    price_per_hour: float | None = Field(default=None, description="of one replica")
    currency: Text = ""
    costs: list[CostPart] = Field(default_factory=list)
    gpus: int | None = Field(default=None, description="of one replica")
    gpus_in_all: int | None = None
    price_per_gpu_hour: float | None = None
    laws: list[LittlePart] = Field(default_factory=list)
    loads: list[LoadPart] = Field(default_factory=list)
    queues: list[QueuePart] = Field(default_factory=list)
    warnings: list[Text] = Field(default_factory=list)
    plimsoll: Text = ""
    command: Text = ""

    def document(self) -> dict[str, Any]:
        """Plain dicts and lists with the public key names."""
        return self.model_dump(mode="json", by_alias=True)
