"""Whether the promise of an OpenSLO objective was kept in a run, and whether the run shows it.

Two answers, never mixed: what OpenSLO would have said of the counts (met or missed, and the burn rate), and PASS, FAIL or
INCONCLUSIVE, which also knows the size of the sample. No data is INCONCLUSIVE, for each component of a composite.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, entries, succeeded
from plimsoll.slo.objectives.objective import Promise, show
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict
from plimsoll.slo.objectives.openslo.counting import (
    Component,
    Grid,
    Tally,
    Terms,
    Values,
    by_slice,
    grid,
    slice_losses,
    slice_states,
    tally,
)
from plimsoll.slo.objectives.openslo.duration import span
from plimsoll.slo.objectives.openslo.evidence import Events, Part, SliceMean, Sum, slice_mean
from plimsoll.slo.objectives.sentence import broken
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.confidence import n_needed as entries_needed
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.distribution import exact

_NAN = float("nan")


def judge(
    terms: Terms, promise: Promise, records: Records, confidence: Probability, along: share.Course | None = None
) -> ObjectiveVerdict:
    """The verdict on one promise over the measured rows, whose course ``along`` may be known already."""
    if terms.method == "Timeslices":
        return _timeslices(terms, promise, records, confidence, along is not None and along.growing)
    parts: list[tuple[Component, Events | SliceMean]]
    if terms.method == "RatioTimeslices":
        slices = grid(records, terms.slice_ns)
        parts, missing, notes = _slice_means(terms, records, slices)
    else:
        parts, missing, notes = _plain_events(terms, records, along or share.course(records))
        if len(parts) == 1 and isinstance(evidence := parts[0][1], Events):
            return _occurrences(terms, promise, evidence, missing, confidence)
    return _sum(terms, promise, parts, missing, notes, confidence)


def _plain_events(
    terms: Terms, records: Records, along: share.Course
) -> tuple[list[tuple[Component, Events | SliceMean]], int, list[str]]:
    found: list[tuple[Component, Events | SliceMean]] = []
    missing = 0
    for part in terms.components:
        counted = tally(part.events, records)
        found.append((part, evidence_of(part, counted, along, records)))
        missing = max(missing, counted.missing)
    return found, missing, []


def evidence_of(part: Component, counted: Tally, along: share.Course, records: Records) -> Events:
    """Evidence of plain events: where they are held against limits, all their values show the memory."""
    events, failed = part.events, _failed(part, counted, records)
    if not events.limits or not len(counted.bad):
        in_order = counted.bad[np.argsort(along.place[counted.row], kind="stable")]
        return Events(share.counted(in_order, along.growing), None, failed)
    laid = share.series(counted.severity, counted.row, along)
    timed = all(limit.unit in ("ns", "per_s") for limit in events.limits)
    return Events(
        laid.count(counted.bad, np.isinf(counted.severity)),
        Distance(np.sort(counted.severity), laid.memory) if timed else None,
        failed,
    )


def _failed(part: Component, counted: Tally, records: Records) -> int:
    """Bad events of requests that failed."""
    limited = isinstance(part.events, Values)
    whole = succeeded(catalogue()[part.events.limits[0].indicator], records) if limited else records.ok
    return int(np.count_nonzero(counted.bad & ~whole[counted.row]))


def _fault(part: Component) -> str:
    """What a bad event is."""
    if isinstance(part.events, Values):
        return broken(part.events.limit)
    return "not good" if part.events.limits else "failed"


def _slice_means(
    terms: Terms, records: Records, slices: Grid
) -> tuple[list[tuple[Component, Events | SliceMean]], int, list[str]]:
    found: list[tuple[Component, Events | SliceMean]] = []
    missing, most_empty = 0, 0
    for part in terms.components:
        counted = tally(part.events, records, sliced=True)
        sliced = by_slice(counted, slices)
        used, loss = slice_losses(sliced, terms.empty)
        found.append((part, slice_mean(used, loss, sliced.total)))
        missing = max(missing, counted.missing)
        most_empty = max(most_empty, int(np.count_nonzero(sliced.empty)))
    return (
        found,
        missing,
        [f"mean of {slices.count} slices of {span(terms.slice_ns)}", *_left_out(terms, most_empty, slices)],
    )


def _left_out(terms: Terms, empty: int, slices: Grid) -> list[str]:
    notes = []
    if empty:
        how = {"exclude": "left out", "good": "taken as good", "bad": "taken as bad"}[terms.empty]
        notes.append(f"{empty} empty slice{'s' * (empty != 1)} {how}")
    if slices.cut:
        notes.append("the last slice, less than half of it, left out")
    return notes


def _occurrences(
    terms: Terms, promise: Promise, evidence: Events, missing: int, confidence: Probability
) -> ObjectiveVerdict:
    if not evidence.n:
        return _no_data(terms, promise, missing, confidence, [])
    test = share.weigh(evidence.seen, terms.allowed, confidence, evidence.far)
    part = terms.components[0]
    found = _share(terms, promise, test, entries(part.events.entry), missing, [], confidence)
    return replace(found, fault=_fault(part), failed=evidence.failed)


def _timeslices(
    terms: Terms, promise: Promise, records: Records, confidence: Probability, growing: bool
) -> ObjectiveVerdict:
    slices = grid(records, terms.slice_ns)
    tallies = [tally(part.events, records, sliced=True) for part in terms.components]
    counts = tuple(by_slice(counted, slices) for counted in tallies)
    used, bad = slice_states(terms, counts)
    missing = max(counted.missing for counted in tallies)
    empty = int(np.count_nonzero(np.any([one.empty for one in counts], axis=0)))
    notes = _left_out(terms, empty, slices)
    if not any(one.total.any() for one in counts):
        return _no_data(terms, promise, missing, confidence, notes)
    test = share.weigh(share.counted(bad[used], growing), terms.allowed, confidence)
    found = _share(terms, promise, test, f"slices of {span(terms.slice_ns)}", missing, notes, confidence)
    if found.outcome == "INCONCLUSIVE" and found.n_needed:
        longer = span((found.n_needed - found.n) * terms.slice_ns)
        found = replace(found, detail=f"{found.detail} for {longer}")
    return found


def _share(
    terms: Terms,
    promise: Promise,
    test: share.ShareTest,
    what: str,
    missing: int,
    notes: list[str],
    confidence: Probability,
) -> ObjectiveVerdict:
    """The verdict from a test of plain entries."""
    low, high = 1 - test.interval[1], 1 - test.interval[0]
    observed = (test.n - test.bad) / test.n
    allowed = f"{test.allowed} may" if test.allowed >= 0 else "too few to allow any"
    burn = float(test.bad / (test.n * terms.allowed))
    said = [_bounds(observed, low, high, confidence), f"{test.bad} of {test.n} {what} bad, {allowed}", *notes]
    said += [_without(missing), _plain_answer(promise, burn)]
    if test.design_effect >= 1.5:
        said.append(
            f"they come in clusters, so {test.n} say as much as {test.n / test.design_effect:.0f} independent ones"
        )
    if test.outcome == "INCONCLUSIVE":
        said.append(_more(test.n, test.n_needed))
    return ObjectiveVerdict(
        promise,
        test.outcome,
        observed,
        (low, high),
        test.n,
        test.n_needed,
        "; ".join(filter(None, said)),
        missing,
        test.bad,
        test.allowed,
        test.p_pass,
        test.p_fail,
        test.design_effect,
        by=test.by,
        entries=what,
        fault="bad",
    )


def _sum(
    terms: Terms,
    promise: Promise,
    parts: list[tuple[Component, Events | SliceMean]],
    missing: int,
    notes: list[str],
    confidence: Probability,
) -> ObjectiveVerdict:
    """The verdict from a burn that is a mean over slices, or put together from several components."""
    total = Sum([Part(evidence, part.weight, part.allowed) for part, evidence in parts])
    if not total.n:
        return _no_data(terms, promise, missing, confidence, notes)
    alpha = float(1 - exact(confidence))
    few = total.p_few() if total.complete else 1.0
    many = total.p_many()
    outcome = "PASS" if few <= alpha else "FAIL" if many <= alpha else "INCONCLUSIVE"
    below, above = total.bounds(alpha)
    unit = float(terms.allowed)
    low, high = _share_of(above * unit), _share_of(below * unit)
    observed = _share_of(total.burn * unit) if total.complete else _NAN
    needed = 0 if outcome != "INCONCLUSIVE" else total.n_needed(alpha) if total.complete else None
    said = [_bounds(observed, low, high, confidence), *notes, *_components(parts), _without(missing)]
    said.append(_plain_answer(promise, total.burn) if total.complete else "")
    if outcome == "INCONCLUSIVE" and total.complete:
        said.append(_more(total.n, needed))
    return ObjectiveVerdict(
        promise,
        outcome,  # type: ignore[arg-type]
        observed,
        (low, high),
        total.n,
        needed,
        "; ".join(filter(None, said)),
        missing,
        p_pass=few,
        p_fail=many,
        parts=(*notes, *_components(parts)),
    )


def _components(parts: list[tuple[Component, Events | SliceMean]]) -> list[str]:
    if len(parts) == 1:
        return []
    said = []
    for part, evidence in parts:
        if not evidence.n:
            said.append(f"{part.title}: no data. Drop it, or measure what has it")
            continue
        weight = "" if part.weight == 1 else f" with weight {float(part.weight):g}"
        burn = evidence.loss / float(part.allowed)
        said.append(
            f"{part.title}: {show(1 - evidence.loss, 'ratio')} of {show(float(part.target), 'ratio')}, burn {burn:.4g}{weight}"
        )
    return said


def _share_of(loss: float) -> float:
    return min(max(1.0 - loss, 0.0), 1.0)


def _bounds(observed: float, low: float, high: float, confidence: Probability) -> str:
    if math.isnan(observed):
        return "a part of it has no data"
    sure_of = f"{float(exact(confidence)) * 100:.4g} % sure"
    low_text, high_text = show(low, "ratio"), show(high, "ratio")
    return f"{show(observed, 'ratio')} good observed, {sure_of} above {low_text}, {sure_of} below {high_text}"


def _without(missing: int) -> str:
    return f"{missing} successful request{'s' * (missing != 1)} without a value" if missing else ""


def _plain_answer(promise: Promise, burn: float) -> str:
    kept = "met" if burn <= 1 + 1e-12 else "missed"
    return f"as counted {kept}: burn {burn:.4g} against the target of {show(promise.threshold, 'ratio')}"


def _more(n: int, needed: int | None) -> str:
    if needed is None:
        return "on the limit, so no number decides it: change the target"
    return f"at this share {needed} in all would decide, {needed - n} more: let the run go on"


def _no_data(
    terms: Terms, promise: Promise, missing: int, confidence: Probability, notes: list[str]
) -> ObjectiveVerdict:
    """Nothing to judge by is never a pass."""
    wanted = {limit.indicator for part in terms.components for limit in part.events.limits}
    if missing and all(isinstance(part.events, Values) for part in terms.components):
        why = f"none of {missing} successful requests has {' or '.join(sorted(wanted))}. Measure what has it"
    elif terms.slice_ns:
        why = f"the run is shorter than half a slice of {span(terms.slice_ns)}, or sent nothing. Let it go on"
    else:
        why = "nothing was measured; see the errors of the run, then measure again"
    needed = entries_needed(0, 0, terms.allowed, confidence)
    detail = "; ".join([f"no data: {why}", *notes])
    return ObjectiveVerdict(
        promise, "INCONCLUSIVE", _NAN, (_NAN, _NAN), 0, needed, detail, missing, p_pass=1.0, p_fail=1.0
    )
