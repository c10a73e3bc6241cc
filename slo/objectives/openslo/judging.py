"""Whether the promise of an OpenSLO objective was kept in a run, and whether the run shows it.

Two answers, never mixed: what OpenSLO would have said of the counts (met or missed, and the burn rate), and PASS, FAIL
or INCONCLUSIVE, which also knows the size of the sample. No data is INCONCLUSIVE, for each component of a composite.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, entries, succeeded
from plimsoll.slo.objectives.objective import Promise, show
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, Outcome, by_test, no_data
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
from plimsoll.slo.objectives.openslo.place import span
from plimsoll.slo.objectives.sentence import broken
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.confidence import Probability, relative_entropy
from plimsoll.slo.statistics.confidence import n_needed as entries_needed
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.memory import of_ranks, ranks

# -- how sure a run makes us of one component's bad share, and of a sum of several ------------------------------------

# Of plain events it is ``plimsoll.slo.statistics.share``: exact binomial on what the run's memory leaves of them. A
# mean over slices weighs an event by 1 / (slices times events of its slice). For independent events X in [0, 1] with
# weights w that add up to at most 1 and largest weight W, Jensen's inequality twice (E[e^(t w X / W)] <= (1 - p + p
# e^t)^(w / W), and the logarithm is concave) gives Hoeffding's bound with 1 / W events: P[sum w X <= y] <= exp(-KL(y ||
# mean) / W). It holds at every size, and one more bad event always weakens PASS. The memory of the slices' shares
# divides it, as everywhere.
#
# A composite has a budget of burn: the sum of weight times bad share over allowed share is at most 1. Components share
# requests, so nothing is assumed of how they depend: each of m has its bound at 1 - (1 - confidence) / m.

#: No p value is told below this.
_SMALLEST = 1e-12


@dataclass(frozen=True, slots=True)
class Events:
    """Plain events, and how far they are from their limit where that is a time;
    ``failed`` of the bad ones are of requests that failed.
    """

    seen: share.Counted
    far: Distance | None = None
    failed: int = 0

    @property
    def n(self) -> int:
        return self.seen.n

    @property
    def loss(self) -> float:
        return self.seen.bad / self.seen.n if self.seen.n else 0.0

    def p_few(self, limit: Fraction) -> float:
        return share.p_few(self.seen, limit, self.far)

    def p_many(self, limit: Fraction) -> float:
        return share.p_many(self.seen, limit, self.far)

    def bounds(self, alpha: float) -> tuple[float, float]:
        """Lower and upper bound of the bad share, each wrong with probability ``alpha`` at most."""
        return share.interval(self.seen, 1 - Fraction(alpha), self.far)


@dataclass(frozen=True, slots=True)
class SliceMean:
    """The mean of slices' bad shares.

    ``n`` events; ``effective``: 1 / the largest weight of one, over the slices' memory.
    """

    n: int
    loss: float
    effective: float

    def p_few(self, limit: Fraction) -> float:
        return self._p(float(limit), few=True)

    def p_many(self, limit: Fraction) -> float:
        return self._p(float(limit), few=False)

    def _p(self, limit: float, few: bool) -> float:
        if not self.n or (self.loss >= limit if few else self.loss <= limit):
            return 1.0
        return math.exp(-self.effective * relative_entropy(self.loss, limit))

    def bounds(self, alpha: float) -> tuple[float, float]:
        """Lower and upper bound of the mean bad share, each wrong with probability ``alpha`` at most."""
        if not self.n:
            return 0.0, 1.0
        high = _edge(self.loss, 1.0, lambda limit: self._p(limit, few=True) <= alpha)
        low = _edge(self.loss, 0.0, lambda limit: self._p(limit, few=False) <= alpha)
        return low, high


def _edge(inside: float, outside: float, rejected: Callable[[float], bool]) -> float:
    """The nearest limit between a share and the end of the scale that the data rule out; the end where none is."""
    if inside == outside:
        return outside
    for _ in range(50):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if rejected(middle) else (middle, outside)
    return outside


def slice_mean(used: BoolArray, loss: FloatArray, total: IntArray) -> SliceMean:
    """Evidence of the mean of ``loss`` float64[slices] over the used ones, of ``total`` events each."""
    count = int(np.count_nonzero(used))
    events = total[used]
    if not count or not events.any():
        return SliceMean(0, 0.0, 0.0)
    kept = loss[used]
    memory = of_ranks(ranks(kept))
    effective = count * float(events[events > 0].min()) / memory.design
    return SliceMean(int(events.sum()), float(kept.mean()), effective)


@dataclass(frozen=True, slots=True)
class Part:
    """One component of a sum: its evidence, its weight, and the bad share allowed."""

    evidence: Events | SliceMean
    weight: Fraction
    allowed: Fraction

    def burn(self, loss: float) -> float:
        """What a bad share of ``loss`` adds to the burn of the whole."""
        return loss * float(self.weight / self.allowed)


@dataclass(frozen=True, slots=True)
class Sum:
    """Evidence of the burn of several components: 1 is exactly on budget."""

    parts: Sequence[Part]

    @property
    def n(self) -> int:
        """Events of the component with the most."""
        return max(part.evidence.n for part in self.parts)

    @property
    def burn(self) -> float:
        return sum(part.burn(part.evidence.loss) for part in self.parts)

    @property
    def complete(self) -> bool:
        """Whether every component has an event."""
        return all(part.evidence.n for part in self.parts)

    def bounds(self, alpha: float) -> tuple[float, float]:
        """Lower and upper bound of the burn, each wrong with probability ``alpha`` at most."""
        each = [(part, part.evidence.bounds(alpha / len(self.parts))) for part in self.parts]
        return sum(part.burn(low) for part, (low, _) in each), sum(part.burn(high) for part, (_, high) in each)

    def p_few(self) -> float:
        """p value of "the burn is at most 1"."""
        if len(self.parts) == 1:
            return self._one(few=True)
        return _smallest_alpha(lambda alpha: self.bounds(alpha)[1] <= 1)

    def p_many(self) -> float:
        """p value of "the burn is above 1"."""
        if len(self.parts) == 1:
            return self._one(few=False)
        return _smallest_alpha(lambda alpha: self.bounds(alpha)[0] > 1)

    def _one(self, few: bool) -> float:
        part = self.parts[0]
        limit = part.allowed / part.weight
        if limit >= 1:  # it can't burn more than its budget
            return (0.0 if part.evidence.n else 1.0) if few else 1.0
        return part.evidence.p_few(limit) if few else part.evidence.p_many(limit)

    def n_needed(self, alpha: float) -> int | None:
        """About how many events would decide if the burn held: bounds close in with the square root of their number."""
        low, high = self.bounds(alpha)
        gap, width = (1 - self.burn, high - self.burn) if self.burn < 1 else (self.burn - 1, self.burn - low)
        if gap <= 1e-9 or width / gap > 1e5:
            return None
        return max(math.ceil(self.n * (width / gap) ** 2), self.n + 1)


def _smallest_alpha(decides: Callable[[float], bool]) -> float:
    """The smallest chance of error at which the bounds decide; 1 when they don't at any."""
    high, low = math.log(0.5), math.log(_SMALLEST)
    if not decides(0.5):
        return 1.0
    for _ in range(40):
        middle = (high + low) / 2
        high, low = (middle, low) if decides(math.exp(middle)) else (high, middle)
    return math.exp(high)


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
    far = Distance(np.sort(counted.severity), laid.memory) if timed else None
    return Events(laid.count(counted.bad, np.isinf(counted.severity)), far, failed)


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
    of = f"mean of {slices.count} slices of {span(terms.slice_ns)}"
    return found, missing, [of, *_left_out(terms, most_empty, slices)]


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
    detail = "; ".join(filter(None, said))
    return by_test(promise, test, observed, (low, high), detail, missing=missing, by=test.by, entries=what, fault="bad")


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
    outcome: Outcome = "PASS" if few <= alpha else "FAIL" if many <= alpha else "INCONCLUSIVE"
    below, above = total.bounds(alpha)
    unit = float(terms.allowed)
    low, high = _share_of(above * unit), _share_of(below * unit)
    observed = _share_of(total.burn * unit) if total.complete else math.nan
    needed = 0 if outcome != "INCONCLUSIVE" else total.n_needed(alpha) if total.complete else None
    said = [_bounds(observed, low, high, confidence), *notes, *_components(parts), _without(missing)]
    said.append(_plain_answer(promise, total.burn) if total.complete else "")
    if outcome == "INCONCLUSIVE" and total.complete:
        said.append(_more(total.n, needed))
    return ObjectiveVerdict(
        promise,
        outcome,
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
            f"{part.title}: {show(1 - evidence.loss, 'ratio')} of {show(float(part.target), 'ratio')}, burn "
            f"{burn:.4g}{weight}"
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
    wanted = {limit.indicator for part in terms.components for limit in part.events.limits}
    if missing and all(isinstance(part.events, Values) for part in terms.components):
        why = f"none of {missing} successful requests has {' or '.join(sorted(wanted))}. Measure what has it"
    elif terms.slice_ns:
        why = f"the run is shorter than half a slice of {span(terms.slice_ns)}, or sent nothing. Let it go on"
    else:
        why = "nothing was measured; see the errors of the run, then measure again"
    needed = entries_needed(0, 0, terms.allowed, confidence)
    detail = "; ".join([f"no data: {why}", *notes])
    return no_data(promise, detail, needed, missing=missing, p_pass=1.0, p_fail=1.0)
