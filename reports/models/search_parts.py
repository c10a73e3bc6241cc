"""The parts of a search's document, one class per key of ``search.json``. Schema ``plimsoll.search/1``.

Times are integer nanoseconds, rates per second, shares 0..1. An infinite number is null: in an observed value it means that
failures reach it (or, with ``n`` 0, that there is no data), as the upper end of an interval that no load was shown to fail.
Nothing is computed here.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Number, Outcome, Text
from plimsoll.slo.search.probe import Found, Purpose, Variable

SCHEMA: Final = "plimsoll.search/1"

SearchOutcome = Literal["FOUND", "NONE", "OPEN", "INCONCLUSIVE", "INVALID", "UNREACHABLE", "INTERRUPTED"]


class ObjectivePart(BaseModel, frozen=True, extra="forbid"):
    """One objective as a probe judged it."""

    objective: Text
    observed: Number
    threshold: Number
    outcome: Outcome
    unit: str = ""
    interval: tuple[Number, Number] = (None, None)
    n: int = 0


class ProbePart(BaseModel, frozen=True, extra="forbid"):
    """One run of the search.

    ``outcome``: what it says of the endpoint at this load; an endpoint that did not keep up has failed. ``cut``: stopped early,
    because nothing that was still to come could have changed that. ``took_ns``: from its preparation until its last answer;
    ``rest``: how the endpoint was left.
    """

    number: int
    purpose: Purpose
    load: float
    length: float = Field(description="in multiples of the shortest probe's")
    length_ns: int
    seed: int
    outcome: Found
    reasons: list[Text] = Field(default_factory=list)
    n: int = 0
    n_needed: int | None = None
    cut: bool = False
    run: Text
    objectives: list[ObjectivePart] = Field(default_factory=list)
    achieved_per_s: float | None = None
    requests_per_s: float | None = None
    goodput_per_s: float | None = None
    good_fraction: float | None = None
    unstable: bool = False
    took_ns: int = 0
    rest: Text = ""


class RangePart(BaseModel, frozen=True, extra="forbid"):
    """The answer: it holds at ``best`` and fails at the upper end; null: no such load was found."""

    best: float | None = None
    interval: tuple[float | None, float | None] = (None, None)


class MlperfPart(BaseModel, frozen=True, extra="forbid"):
    """The answer in MLPerf's terms: Server's metric is the highest Poisson rate of a valid run."""

    valid: bool
    target_per_s: float
    completed_per_s: float | None = None
    tokens_per_s: float | None = None
    reasons: list[Text] = Field(default_factory=list)


class AnswerPart(BaseModel, frozen=True, extra="forbid"):
    """What the endpoint did at the answer, in the run that confirmed it (or the longest that passed there).

    ``best_rate_per_gpu`` is DistServe's per-GPU goodput where an objective is on the share of good requests.
    """

    run: Text
    confirmed: bool
    requests_per_s: float
    goodput_per_s: float | None = None
    good_fraction: float | None = None
    output_tokens_per_s: float | None = None
    gpus: int | None = None
    goodput_per_s_per_gpu: float | None = None
    best_rate_per_gpu: float | None = None
    mlperf_server: MlperfPart | None = None


class SearchReport(BaseModel, frozen=True, extra="forbid"):
    """The whole search. ``question`` is what must be the same for it to go on; ``spent_ns`` counts towards the budget."""

    schema_: Literal["plimsoll.search/1"] = Field(default=SCHEMA, alias="schema")
    name: Text
    variable: Variable
    outcome: SearchOutcome
    reasons: list[Text] = Field(default_factory=list)
    rate_per_s: RangePart | None = None
    concurrency: RangePart | None = None
    confidence: float = Field(default=0.95, description="of each verdict")
    interval_confidence: float | None = Field(
        default=None,
        description="that both ends are right together; null: an end rests on a run picked for its outcome",
    )
    objectives: list[Text] = Field(default_factory=list)
    answer: AnswerPart | None = None
    probes: list[ProbePart] = Field(default_factory=list)
    exit_code: int
    out_of_time: bool = Field(
        default=False, description="the budget ended the search: --resume with a longer one goes on"
    )
    hurried: bool = Field(
        default=False, description="time was short, so the search went to its fresh runs early: it is over all the same"
    )
    question: dict[str, Any] = Field(default_factory=dict)
    spent_ns: int = 0
    budget_ns: int | None = None
    started_at: Text = ""
    plimsoll: Text = ""
    command: Text = ""

    @property
    def found(self) -> RangePart:
        """The answer in the unit of ``variable``."""
        return (self.rate_per_s if self.variable == "rate" else self.concurrency) or RangePart()

    def document(self) -> dict[str, Any]:
        """Plain dicts and lists with the public key names; the range of the other variable is not in it."""
        whole = self.model_dump(mode="json", by_alias=True)
        del whole["concurrency" if self.variable == "rate" else "rate_per_s"]
        return whole


def json_schema() -> dict[str, Any]:
    """JSON schema of ``search.json``."""
    schema = SearchReport.model_json_schema(by_alias=True, mode="serialization")
    schema["$id"] = SCHEMA
    return schema
