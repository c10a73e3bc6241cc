"""The parts of a cold start's document, one class per key of ``coldstart.json``. Schema ``plimsoll.coldstart/1``.

Times are integer nanoseconds from the instant at which the command was spawned, where no other beginning is named; null: it did not happen.
The file is also what ``--resume`` goes on from. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Number, Text

SCHEMA: Final = "plimsoll.coldstart/1"

#: name -> what it is, in the order in which they happen.
QUANTITIES: Mapping[str, str] = MappingProxyType(
    {
        "port": "spawn to the first accepted connection",
        "ready": "spawn to ready",
        "first_ttft": "first request: due to its first token",
        "first_latency": "first request: due to done",
        "first_answer": "spawn to the first token of an answer asked for when ready",
        "steady": "spawn to the first request at the steady level",
        "steady_level": "latency at the steady level (median)",
        "excess": "what the requests before took more than that, in sum",
    }
)
#: STOPPED: something other than the server ended it (--between failed, or something still answered after a stop).
Outcome = Literal["MEASURED", "PASS", "FAIL", "INVALID", "INTERRUPTED", "UNREACHABLE", "STOPPED"]


class RepeatPart(BaseModel, frozen=True, extra="forbid"):
    """One start."""

    number: int
    complete: bool = Field(description="false: it was cut short, and counts nowhere")
    notes: list[Text] = Field(default_factory=list)
    started_at: Text = ""
    port_ns: int | None = None
    port_late_ns: int = Field(default=0, description="port_ns may be that much too late")
    ready_ns: int | None = None
    ready_late_ns: int = 0
    route: Text = Field(
        default="", description="the health route that said so; empty: the port was all there was to ask"
    )
    first_status: Text = ""
    first_ttft_ns: int | None = None
    first_latency_ns: int | None = None
    first_answer_ns: int | None = None
    steady_ns: int | None = None
    steady_after: int | None = Field(
        default=None, description="requests before the steady level, the first one included"
    )
    steady_level_ns: int | None = None
    excess_ns: int | None = None
    unsettled: Text = Field(default="", description="why there is no steady state")
    idle_ns: int = Field(
        default=0, description="ready to first request, and first answer to curve: nothing was in flight"
    )
    requests: int = 0
    failed: int = 0
    invalid: list[Text] = Field(default_factory=list, description="why the generator's part of the curve is INVALID")
    curve: list[tuple[int, Number]] = Field(
        default_factory=list, description="request number from 1, and latency (ns; null: failed); thinned out when long"
    )
    stop_forced: bool | None = Field(default=None, description="SIGKILL was needed to stop it")
    stop_ns: int | None = None
    folder: Text = ""


class SpreadPart(BaseModel, frozen=True, extra="forbid"):
    """One quantity over the complete repeats that have it."""

    quantity: str
    n: int
    median: Number
    least: Number
    greatest: Number
    first: Number = Field(description="of the first repeat")
    later: Number = Field(description="median of the others")
    first_differs: bool
    interval: tuple[Number, Number] | None = Field(description="of the median at the confidence; null: too few repeats")
    range_confidence: float = Field(description="with which least to greatest holds the median")


class GoalPart(BaseModel, frozen=True, extra="forbid"):
    """One ``--slo``: every complete repeat must keep it."""

    objective: Text
    outcome: Literal["PASS", "FAIL"]
    worst: Number
    kept: int
    of: int


class ColdstartReport(BaseModel, frozen=True, extra="forbid"):
    """The whole measurement."""

    schema_: Literal["plimsoll.coldstart/1"] = Field(default=SCHEMA, alias="schema")
    outcome: Outcome
    exit_code: int
    start: Text = Field(description="the command, without secrets")
    url: Text
    settings: dict[str, Text] = Field(default_factory=dict, description="what must be the same to go on (--resume)")
    wanted: int = Field(description="repeats asked for")
    confidence: float = 0.95
    repeats_for_interval: int = 6
    repeats: list[RepeatPart]
    spreads: list[SpreadPart]
    goals: list[GoalPart] = Field(default_factory=list)
    warnings: list[Text] = Field(default_factory=list)
    plimsoll: Text = ""
    command: Text = ""

    def document(self) -> dict[str, Any]:
        """Plain dicts and lists with the public key names."""
        return self.model_dump(mode="json", by_alias=True)
