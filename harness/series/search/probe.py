"""One probe: an ordinary run in a sealed directory of its own, and what it says of the endpoint at that load.

A run that the endpoint did not keep up with, and one that was cut short because it could only fail, are INVALID by themselves:
their percentiles are of a queue, or of half a run. Of the endpoint they say FAIL. A run whose generator did not do what it
promised says nothing, whatever it measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from plimsoll.harness.run.promises import Promises
from plimsoll.harness.run.rundir import Sealed
from plimsoll.harness.series.one_run import judge, write_report
from plimsoll.harness.series.search.hopeless import PREFIX
from plimsoll.reports.parts.parts import Number, ObjectiveResult
from plimsoll.reports.report import Report
from plimsoll.reports.search.search_parts import ObjectivePart, ProbePart
from plimsoll.reports.sections.judgement import verdict_part
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import judge_objective
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.search.curtail import hopeless, multiples
from plimsoll.slo.search.probe import Next, Probe
from plimsoll.slo.validity.bracket import lower_end
from plimsoll.slo.validity.strain import paced
from plimsoll.slo.verdict.verdict import Verdict

#: The check of an endpoint that does not keep up.
_STEADY = "steady"


def judged(sealed: Sealed, promises: Promises, wanted: Next, length_ns: int, run: str, took_ns: int) -> ProbePart:
    """Judge a run, write its report, and say what it means for the search."""
    report = judge(sealed, promises)
    write_report(report, sealed.directory)
    stopped = sealed.facts.aborted
    cut = (stopped or "").startswith(PREFIX)
    results: Sequence[ObjectiveResult] = report.verdict.objectives
    outcome, reasons = of_endpoint(report, stopped is not None)
    if stopped is not None:
        results, why = _of_the_part(sealed, promises)
        if outcome == "FAIL":
            outcome, reasons = _shown_by_the_part(report, why, cut)
    n, needed = progress(results)
    return ProbePart(
        number=wanted.number,
        purpose=wanted.purpose,
        load=wanted.load,
        length=wanted.length,
        length_ns=length_ns,
        seed=wanted.seed,
        outcome=outcome,  # type: ignore[arg-type]
        reasons=reasons,
        n=n,
        n_needed=needed if outcome == "INCONCLUSIVE" else None,
        cut=cut,
        run=run,
        objectives=[_objective(one) for one in results],
        achieved_per_s=report.validity.achieved_per_s,
        requests_per_s=report.throughput.requests_per_s,
        goodput_per_s=report.throughput.goodput_per_s,
        good_fraction=report.throughput.good_fraction,
        unstable=_unstable(report),
        took_ns=took_ns,
    )


def of_endpoint(report: Report, stopped: bool) -> tuple[str, list[str]]:
    """What a run says of the endpoint, and why: its own verdict, except that not keeping up and being past hope are FAIL.

    ``stopped``: it did not come to its own end, so its length and what was not sent say nothing of the generator.
    """
    broken = [check for check in report.validity.checks if not check.ok]
    if others := [check.detail for check in broken if check.cause != "endpoint"]:
        return "INVALID", others
    if stopped or broken:
        return "FAIL", list(report.verdict.reasons)
    return report.verdict.outcome, list(report.verdict.reasons)


def _shown_by_the_part(report: Report, why: str | None, cut: bool) -> tuple[str, list[str]]:
    """Of a run that was stopped (by us, or at the ceiling of requests in flight): a FAIL has to be shown by what was sent."""
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
    given = sealed.records
    low = lower_end(given, sealed.facts.pool_waits > 0) if paced(sealed.facts) else None
    rows = (given if low is None else low.chunks).measured()
    sent = rows.select(rows["status"] != Status.UNSENT)
    good = goodput(sent, promises.objectives)
    run = [one for one in promises.objectives if one.scope == "run"]
    found = [judge_objective(one, sent, good, promises.confidence) for one in run]
    whys = [
        hopeless(one, max(sealed.facts.planned, 1), bad, promises.confidence, among(promises), multiple)
        for one, seen in zip(run, found, strict=True)
        if seen.bad is not None
        for multiple, bad in ((1.0, seen.bad), *_far(one, sent))
    ]
    why = next((text for text in whys if text), None)
    shown = verdict_part(Verdict("FAIL", (), tuple(found), 0.0), good).objectives
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
    own = sum(one.scope == "run" for one in promises.objectives)
    return max(1, own + sum(max(1, len(slo.limits)) for slo in promises.slos))


def progress(results: Sequence[ObjectiveResult]) -> tuple[int, int | None]:
    """(values judged, values that would decide) of the objective that has farthest to go; None: unknown, or no number would."""
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
    return ProbePart(
        number=wanted.number,
        purpose=wanted.purpose,
        load=wanted.load,
        length=wanted.length,
        length_ns=length_ns,
        seed=wanted.seed,
        outcome="UNREACHABLE",
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
