"""One probe: an ordinary run in a sealed directory of its own, when it is cut short, and what it says of the endpoint
at that load.

A run that the endpoint did not keep up with, and one that was cut short because it could only fail, are INVALID by
themselves and FAIL of the endpoint. A run whose generator did not do what it promised says nothing, whatever it
measured.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plimsoll.harness.run.promises import Promises
from plimsoll.harness.run.retention import limits_lost
from plimsoll.harness.run.rundir import Sealed
from plimsoll.harness.run.tally import Tally
from plimsoll.harness.run.watcher import Beginning, Watcher
from plimsoll.harness.series.one_run import Made
from plimsoll.reports.documents.search import ObjectivePart, ProbePart
from plimsoll.reports.parts.judgement import objective_part
from plimsoll.reports.parts.parts import Number, ObjectiveResult
from plimsoll.reports.report import Report
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import judge_objective
from plimsoll.slo.records.labels import MOST_VALUES
from plimsoll.slo.records.records import IntArray, Records, Status
from plimsoll.slo.search.probe import Found, Next, Probe, hopeless, hopeless_at, multiples
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.validity.bracket import lower_end
from plimsoll.slo.validity.strain import paced

#: How a run that was ended here begins to say why.
PREFIX = "cut short: "
#: The check of an endpoint that does not keep up.
_STEADY = "steady"


def judged(made: Made, promises: Promises, wanted: Next, length_ns: int, run: str, took_ns: int) -> ProbePart:
    """What a run means for the search."""
    sealed, report = made.sealed, made.report
    stopped = sealed.facts.aborted
    cut = (stopped or "").startswith(PREFIX)
    results: Sequence[ObjectiveResult] = report.verdict.objectives
    outcome, reasons = of_endpoint(report, stopped is not None)
    if stopped is not None:
        results, why = _of_the_part(sealed, promises)
        if outcome == "FAIL":
            outcome, reasons = _shown_by_the_part(report, why, cut)
    n, needed = progress(results)
    return _part(wanted, length_ns, run, outcome, reasons, took_ns).model_copy(
        update={
            "n": n,
            "n_needed": needed if outcome == "INCONCLUSIVE" else None,
            "cut": cut,
            "objectives": [_objective(one) for one in results],
            "achieved_per_s": report.validity.achieved_per_s,
            "requests_per_s": report.throughput.requests_per_s,
            "goodput_per_s": report.throughput.goodput_per_s,
            "good_fraction": report.throughput.good_fraction,
            "unstable": _unstable(report),
        }
    )


def of_endpoint(report: Report, stopped: bool) -> tuple[Found, list[str]]:
    """What a run says of the endpoint, and why: its own verdict, except that not keeping up and being past hope are
    FAIL.

    ``stopped``: it did not come to its own end, so its length and what was not sent say nothing of the generator.
    """
    broken = [check for check in report.validity.checks if not check.ok]
    if others := [check.detail for check in broken if check.cause != "endpoint"]:
        return "INVALID", others
    if stopped or broken:
        return "FAIL", list(report.verdict.reasons)
    return report.verdict.outcome, list(report.verdict.reasons)


def _shown_by_the_part(report: Report, why: str | None, cut: bool) -> tuple[Found, list[str]]:
    """Of a run that was stopped (by us, or at the ceiling of requests in flight): a FAIL has to be shown by what was
    sent.
    """
    if why is not None:
        return "FAIL", [why]
    if cut:
        return "INVALID", [
            "it was cut short, but its records do not show that it could only fail, whatever the generator did"
        ]
    return ("FAIL" if _unstable(report) else "INVALID"), list(report.verdict.reasons)


def _unstable(report: Report) -> bool:
    return any(check.name == _STEADY and not check.ok for check in report.validity.checks)


def _of_the_part(sealed: Sealed, promises: Promises) -> tuple[list[ObjectiveResult], str | None]:
    """The objectives over what was sent, and why the whole could only have failed; None: it could have passed.

    With the generator's lateness taken off, where it had any: what fails then fails whatever the generator did.
    """
    if sealed.kept is not None and limits_lost(promises, sealed.kept):
        return [], None  # a search that goes on; its chunk times are gone
    given = sealed.records
    low = lower_end(given, sealed.facts.pool_waits > 0) if paced(sealed.facts) else None
    rows = (given if low is None else low.chunks).measured()
    sent = rows.select(rows["status"] != Status.UNSENT)
    good = goodput(sent, promises.objectives)
    run = [one for one in promises.objectives if one.scope == "run" and one.of_all]
    found = [judge_objective(one, sent, good, promises.confidence) for one in run]
    whys = [
        hopeless(one, max(sealed.facts.planned, 1), bad, promises.confidence, among(promises), multiple)
        for one, seen in zip(run, found, strict=True)
        if seen.bad is not None
        for multiple, bad in ((1.0, seen.bad), *_far(one, sent))
    ]
    why = next((text for text in whys if text), None)
    shown = [objective_part(one) for one in found]
    return [_failed(one) if (why or "").startswith(one.objective) else one for one in shown], why


def _far(objective: Objective, sent: Records) -> list[tuple[float, int]]:
    """How many answered values lie beyond each multiple of the limit."""
    found = [multiple for multiple in multiples(objective) if multiple > 1]
    values = measure(catalogue()[objective.indicator], sent, judged=True).values if found else np.empty(0)
    over = values[np.isfinite(values)] / objective.threshold
    return [(multiple, int(np.count_nonzero(over > multiple))) for multiple in found]


def _failed(one: ObjectiveResult) -> ObjectiveResult:
    return one.model_copy(update={"outcome": "FAIL"})


def among(promises: Promises) -> int:
    """How many results are judged together: what a FAIL has to stand against in Holm's correction."""
    own = sum(MOST_VALUES if one.each else 1 for one in promises.objectives if one.scope == "run")
    return max(1, own + sum(max(1, len(slo.limits)) for slo in promises.slos))


def progress(results: Sequence[ObjectiveResult]) -> tuple[int, int | None]:
    """(values judged, values that would decide) of the objective that has farthest to go; None: unknown, or no number
    would.
    """
    undecided = [one for one in results if one.outcome == "INCONCLUSIVE"]
    if not undecided:
        return min((one.n for one in results), default=0), None
    known = [one for one in undecided if one.n_needed and one.n]
    if not known:
        return undecided[0].n, None
    farthest = max(known, key=lambda one: (one.n_needed or 0) / one.n)
    return farthest.n, farthest.n_needed


def unreachable(wanted: Next, length_ns: int, run: str, reasons: Sequence[str], took_ns: int) -> ProbePart:
    """A probe that met nobody."""
    return _part(wanted, length_ns, run, "UNREACHABLE", reasons, took_ns)


def _part(wanted: Next, length_ns: int, run: str, outcome: Found, reasons: Sequence[str], took_ns: int) -> ProbePart:
    return ProbePart(
        **{name: getattr(wanted, name) for name in ("number", "purpose", "load", "length", "seed")},
        length_ns=length_ns,
        outcome=outcome,
        reasons=list(reasons),
        run=run,
        took_ns=took_ns,
    )


def _objective(one: ObjectiveResult) -> ObjectivePart:
    return ObjectivePart(
        objective=one.objective,
        observed=_finite(one.observed),
        threshold=one.threshold,
        outcome=one.outcome,
        unit=one.unit,
        interval=one.interval,
        n=one.n,
    )


def _finite(value: Number) -> Number:
    return None if value is None or not math.isfinite(value) else value


def decided(part: ProbePart) -> Probe:
    """A probe as ``plimsoll.slo.search.search`` takes it."""
    return Probe(
        number=part.number,
        purpose=part.purpose,
        load=part.load,
        length=part.length,
        seed=part.seed,
        outcome=part.outcome,
        reasons=tuple(part.reasons),
        n=part.n,
        n_needed=part.n_needed,
        cut=part.cut,
    )


def folder_of(wanted: Next | ProbePart) -> str:
    """Where a probe's run directory is, below the search's own folder."""
    return f"probes/{wanted.number:03d}-{wanted.purpose}"


class Hopeless(Watcher):
    """Ends a probe once so many requests are certainly over a limit that the rest could all be good in vain. A
    ``Watcher``.

    Two things are certain while a run goes on. What is answered: ``plimsoll.harness.run.tally`` counts values that are
    over a limit for sure. What is not: a worker of an open loop that has taken up its first m queries says so at or
    after the m-th was due, at s; of those only ``young`` ones were due after s - L, so with F in flight at least F -
    young have been waited for longer than L, and their latency is over a limit of L whenever they end. (Of a TTFT that
    says nothing: the first token may be there.) Whether so many are enough is ``plimsoll.slo.search.probe``'s
    business. Far beyond a limit, at multiples of it, fewer are enough: there only answers count. A worker reads its two
    counts an instant apart, so the sealed records have the last word (``judged``).

    Leaves alone what has no list of requests to be bad of (closed loops, which go on until the time is over) and runs
    in which requests are dropped on purpose. ``among``: how many objectives on shares are judged together, for Holm's
    correction.
    """

    def __init__(self, objectives: Sequence[Objective], confidence: Probability, among: int) -> None:
        self._objectives = tuple(objectives)
        self._confidence = confidence
        self._among = max(1, among)
        self._far = [(one, m, _times(one, m)) for one in objectives for m in multiples(one) if m > 1]
        self._tally = Tally([*objectives, *(scaled for _, _, scaled in self._far)])
        self._n = 0
        self._least: dict[Objective, int] = {}
        self._least_far: dict[Objective, int] = {}
        self._due: tuple[_Due, ...] = ()
        self._waiting: dict[int, dict[int, int]] = {}

    def begin(self, beginning: Beginning) -> None:
        """How many bad values of each objective are enough."""
        plan, scenario = beginning.plan, beginning.scenario
        if plan.cyclic or not plan.open_loop or scenario.cancel or scenario.mix or not plan.n_samples:
            return
        self._n = plan.n_samples
        for one in self._objectives:
            least = hopeless_at(one, self._n, self._confidence, self._among)
            if least is not None:
                self._least[one] = least
        for one, multiple, scaled in self._far:
            least = hopeless_at(one, self._n, self._confidence, self._among, multiple)
            if least is not None:
                self._least_far[scaled] = least
        waits = bool((plan.pieces.head.after >= 0).any())  # nobody knows when turns of sessions are due
        if not scenario.warmup_ns and plan.n_samples == plan.n_queries and not waits:
            shards, dealing = beginning.shards, beginning.dealing
            back_ns = max(self._limits(), default=0)
            self._due = tuple(_Due(plan.pieces.shard(i, shards, dealing), back_ns) for i in range(shards))

    def heard(self, worker: int, message: Mapping[str, Any]) -> None:
        """Add up one status line."""
        self._tally.add(worker, message)
        if worker < len(self._due):
            due, taken = self._due[worker].until(int(message["sent"]))
            self._waiting[worker] = {
                limit: overdue(due, taken, int(message["in_flight"]), limit) for limit in self._limits()
            }

    def _limits(self) -> set[int]:
        """Limits on the whole latency, in ns."""
        return {
            int(one.threshold) for one in self._objectives if one.indicator == "latency" and one.operator in ("<=", "<")
        }

    def enough(self) -> str | None:
        """Why the run can only fail; None while it can do something else."""
        for one, multiple, scaled in self._far:
            bad = self._tally.answered_over(scaled)
            if scaled in self._least_far and bad >= self._least_far[scaled]:
                why = hopeless(one, self._n, bad, self._confidence, self._among, multiple)
                return None if why is None else PREFIX + why
        for count in self._tally.counts():
            least = self._least.get(count.objective)
            bad = count.bad + self._not_answered(count.objective)
            if least is not None and bad >= least:
                why = hopeless(count.objective, self._n, bad, self._confidence, self._among)
                return None if why is None else PREFIX + why
        return None

    def _not_answered(self, objective: Objective) -> int:
        of_one = [
            int(one.threshold)
            for one in self._objectives
            if one.indicator == "latency" and one.scope == "request" and one.of_all and one.operator in ("<=", "<")
        ]
        limits = of_one if objective.indicator == "good" else []
        if objective.indicator == "latency" and objective.operator in ("<=", "<"):
            limits = [int(objective.threshold)]
        return max((sum(waits.get(limit, 0) for waits in self._waiting.values()) for limit in limits), default=0)


class _Due:
    """Due times of one worker's queries, made as it takes them up and kept for as long as a limit looks back."""

    def __init__(self, pieces: Iterable[Plan], back_ns: int) -> None:
        self._pieces, self._back_ns = iter(pieces), back_ns
        self._kept = np.empty(0, np.int64)
        self._gone = 0

    def until(self, taken: int) -> tuple[IntArray, int]:
        """The latest of its due times, and how many of them are of its first ``taken`` queries."""
        while taken > self._gone + len(self._kept):
            more: list[IntArray] = []
            while sum(map(len, more)) <= len(self._kept) // 2 and (piece := next(self._pieces, None)) is not None:
                more.append(piece.due_ns)
            if not any(map(len, more)):
                break
            first_ns = int(next(due[0] for due in more if len(due)))
            old = int(np.searchsorted(self._kept, first_ns - self._back_ns, side="left"))
            self._kept, self._gone = np.concatenate((self._kept[old:], *more)), self._gone + old
        return self._kept, min(taken - self._gone, len(self._kept))


def _times(objective: Objective, multiple: float) -> Objective:
    text = f"{multiple:g} x {objective.threshold_text}"
    return replace(objective, threshold=objective.threshold * multiple, threshold_text=text)


def overdue(due_ns: IntArray, taken: int, in_flight: int, limit_ns: int) -> int:
    """Of ``in_flight`` queries, how many at least have been waited for longer than ``limit_ns``.

    ``due_ns`` ascending, of which the first ``taken`` have been taken up: it is the time of the last of them or later.
    """
    if taken < 1:
        return 0
    young = taken - int(np.searchsorted(due_ns[:taken], int(due_ns[taken - 1]) - limit_ns, side="left"))
    return max(0, in_flight - young)
