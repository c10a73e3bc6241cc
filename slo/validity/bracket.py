"""Between which ends the truth lies when the generator was late, and what an objective is when both ends are judged.

A latency L as recorded is at least what a perfect generator would have seen, and L - G at most that: G of a request is
the largest lateness among those that could have influenced it, which are those due before it was over and since nothing
was last in flight. The lower end is records too, without the failures that lateness may have caused.
docs/reference/validity.md has the derivation, and what it assumes. Whoever judges records judges both ends.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.objective import Objective, show
from plimsoll.slo.objectives.objective_verdict import Ends, ObjectiveVerdict, Outcome
from plimsoll.slo.records.columns import Columns, Lists, blocks
from plimsoll.slo.records.records import COLUMNS, SESSION_TIMES, BoolArray, IntArray, Records, SessionTable, Status
from plimsoll.slo.statistics.distribution import BLOCK, ascending, quantile
from plimsoll.slo.statistics.order import ranked
from plimsoll.slo.validity import lateness
from plimsoll.slo.validity.generator import Check, GeneratorFacts

#: We gave these up, so the endpoint may have gone on with them: as long as we know they are in flight.
GIVEN_UP = (Status.TIMEOUT, Status.CANCELLED, Status.UNFINISHED)
#: Answers of an endpoint that had too much at once.
OVERLOAD = (Status.REFUSED, Status.CONNECT)
#: Lateness is what these measure.
_LATENESS = frozenset({"lag", "generator_lag"})
#: Differences of two latencies: lateness moves them either way, so L is no end of them.
_UNORDERED = frozenset({"frame_jitter"})
_STAMPS = tuple(name for name in COLUMNS if name.endswith("_ns") and name not in ("due_ns", "connect_ns", "media_ns"))
#: Stamps that an answer leaves behind.
_ANSWER = ("headers_ns", "first_byte_ns", "first_token_ns", "first_answer_ns", "last_token_ns")
#: Ends that differ by less than this share of the limit are not worth a word.
_WORTH_A_WORD = 0.01
#: Without objectives: by how much of itself a percentile may be the generator's.
QUOTABLE = 0.1
_FAR = np.iinfo(np.int64).max


def _stretches(records: Records) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """(row, due, over, stretch) of what was sent, in order of due time; a stretch ends where nothing is in flight.

    At a moment that no request's time from due to over covers, the endpoint is empty, and would have been with a
    perfect generator, which is never behind: what was before is forgotten.
    """
    status = records.columns["status"]
    rows = np.flatnonzero(status != Status.UNSENT)
    due = records["due_ns"][rows]
    if bool((due[1:] < due[:-1]).any()):
        order = np.argsort(due, kind="stable")
        rows, due = rows[order], due[order]
    done = records["done_ns"][rows]
    over = np.where((done == -1) | one_of(status[rows], GIVEN_UP), _FAR, done)
    busy = np.maximum.accumulate(over)
    return rows, due, over, np.cumsum(np.append(False, due[1:] >= busy[:-1])[: len(rows)])


def one_of(status: npt.NDArray[np.generic], these: Sequence[Status]) -> BoolArray:
    """bool[n]: the status is one of these."""
    marked = np.zeros(len(Status), np.bool_)
    marked[list(these)] = True
    return np.asarray(marked[status])


def reach(records: Records, own: IntArray) -> IntArray:
    """int64[n]: G of each request, the largest of ``own`` (``plimsoll.slo.validity.lateness.own``) among those that
    could have influenced it.

    They are those of its stretch that were due before it was over.
    """
    result = np.zeros(len(records), np.int64)
    rows, due, _, stretch = _stretches(records)
    if not len(rows):
        return result
    ends = np.append(np.flatnonzero(np.diff(stretch)), len(rows) - 1)
    highest = np.array(own[rows])
    # The running maximum of each stretch: lifted so that a later stretch is above every earlier one.
    lift = int(highest.max()) + 1
    if lift * len(ends) < _FAR:
        highest += stretch * lift
        np.maximum.accumulate(highest, out=highest)
        highest -= stretch * lift
    else:
        for first, end in zip(np.append(0, ends[:-1] + 1).tolist(), (ends + 1).tolist(), strict=True):
            np.maximum.accumulate(highest[first:end], out=highest[first:end])
    # Where no later one of the stretch was later, nothing needs to be looked for.
    rises = np.flatnonzero(highest < highest[ends][stretch])
    done = records["done_ns"][rows[rises]]
    last = np.searchsorted(due, np.where(done == -1, _FAR, done), side="left") - 1
    last = np.minimum(np.maximum(last, rises), ends[stretch[rises]])
    result[rows] = highest
    result[rows[rises]] = highest[last]
    return result


def bunched(records: Records, own: IntArray) -> BoolArray:
    """bool[n]: it left late enough to leave together with one that was due after it: a burst that no perfect generator
    would send.

    Monotone endpoints take no more than G from it. Others may (those that share or reorder), so of these nothing is
    certain. Below what a timer in a busy process gets it is no burst.
    """
    result = np.zeros(len(records), np.bool_)
    if own.max(initial=0) < lateness.LAG_FLOOR_NS:
        return result
    rows, due, _, _ = _stretches(records)
    late = np.flatnonzero(own[rows] >= lateness.LAG_FLOOR_NS)
    result[rows[late]] = _passed(due, due[late], due[late] + own[rows[late]])
    return result


def _passed(moments: IntArray, since: IntArray, until: IntArray) -> BoolArray:
    """Of each stretch of time, after ``since`` and up to ``until``: one of the moments (ascending) lies in it."""
    return np.asarray(np.searchsorted(moments, until, side="right") > np.searchsorted(moments, since, side="right"))


def doubtful(records: Records, own: IntArray, reach_ns: IntArray) -> BoolArray:
    """bool[n]: failures that the generator's lateness may have caused.

    A time-out lasted longer than it may; less G it may not have, unless its own lateness is all of G. That counts only
    where an answer of the run came so close to the time-out: where none did, nothing says that one more moment would
    have helped. What an endpoint with too much at once turned away may come of a burst that lateness made: as many of a
    stretch without a pause as requests left so late that another one was due, or over, meanwhile.
    """
    status = records.columns["status"]
    due, ready, done = (records[name] for name in ("due_ns", "ready_ns", "done_ns"))
    late = status == Status.TIMEOUT
    if late.any():
        late &= (done != -1) & (ready != -1) & (reach_ns > np.maximum(ready - due, 0))
    if late.any():
        waited = done - ready
        close = int(waited[status == Status.TIMEOUT].min()) - int(reach_ns.max())
        late &= bool((records.ok & (ready != -1) & (waited > close)).any())
    away = np.flatnonzero(one_of(status, OVERLOAD) & (done != -1))
    if len(away):
        late[away] = _bursts(records, own, away)
    return np.asarray(late & records.in_measure)


def _bursts(records: Records, own: IntArray, away: IntArray) -> BoolArray:
    """bool[away]: of these rows, the first of each stretch, as many as requests of it changed places with something."""
    order, due, over, stretch = _stretches(records)
    left = due + own[order]
    passed = _passed(due, due, left) | _passed(ascending(over), due, left)
    many = np.bincount(stretch, passed, minlength=int(stretch[-1]) + 1)
    place = np.empty(len(records), np.int64)
    place[order] = stretch
    mine = place[away]
    by_due = np.lexsort((records["due_ns"][away], mine))
    number = np.empty(len(away), np.int64)
    number[by_due] = np.arange(len(away)) - np.searchsorted(mine[by_due], mine[by_due], side="left")
    return np.asarray(number < many[mine])


@dataclass(frozen=True)
class LowerEnd:
    """The other end of some records:

    ``times`` with every time earlier, ``failures`` only without the doubtful failures.
    """

    records: Records
    reach_ns: IntArray
    doubtful: BoolArray
    bunched: BoolArray

    @cached_property
    def failures(self) -> Records:
        """The records with doubtful failures as answers that were whole when we gave them up."""
        if not self.doubtful.any():
            return self.records
        given = self.records
        columns = {"status": np.where(self.doubtful, int(Status.OK), given.columns["status"])}
        for name in _ANSWER:  # only stamps that answers of this run have
            if bool((given.ok & (given[name] != -1)).any()):
                columns[name] = np.where(self.doubtful & (given[name] == -1), given["done_ns"], given[name])
        return given.with_columns(**columns)

    @cached_property
    def times(self) -> Records:
        """``failures``, every time ``by_ns`` earlier but those of chunks; none before it was due."""
        given, session = self.failures, self.failures.session
        columns = self._moved(given.columns, _STAMPS)
        if session is not None:
            session = SessionTable(self._moved(session.columns, SESSION_TIMES), session.ragged, session.slices)
        return given.over(columns, session)

    @cached_property
    def chunks(self) -> Records:
        """``times``, those of chunks as well: apart, because hardly anything needs them."""
        given = self.times
        return given.over(given.columns, chunks=_Earlier(given.chunks, given["due_ns"], self.by_ns))

    def _moved(self, columns: Mapping[str, npt.NDArray[Any]], names: Collection[str]) -> Columns[npt.NDArray[Any]]:
        """The columns, those of these names earlier; each is made when it is asked for."""
        due, by = self.records["due_ns"], self.by_ns
        return Columns(
            tuple(columns), lambda name: _earlier(columns[name], due, by) if name in names else columns[name]
        )

    @cached_property
    def by_ns(self) -> IntArray:
        """int64[n]: how much earlier every time is: G, and of what left in a bunch all that it took."""
        whole = np.where(
            self.bunched, np.maximum(self.records["done_ns"] - self.records["due_ns"], self.reach_ns), self.reach_ns
        )
        return np.where(self.records.in_measure, whole, 0)


def _earlier(times: IntArray, due: IntArray, by: IntArray) -> IntArray:
    found = np.empty(len(times), np.int64)
    for first in range(0, len(times), BLOCK):
        part = slice(first, first + BLOCK)
        at = times[part]
        found[part] = np.where(at == -1, -1, np.maximum(at - by[part], np.minimum(at, due[part] + 1)))
    found.setflags(write=False)
    return found


class _Earlier(Lists):
    """The chunk times of records, each earlier as its row is (``due`` and ``by`` int64[n])."""

    def __init__(self, given: Lists, due: IntArray, by: IntArray) -> None:
        self._given, self._due, self._by = given, due, by

    @property
    def _offsets(self) -> IntArray:  # type: ignore[override]
        return self._given.offsets

    @cached_property
    def _values(self) -> IntArray:  # type: ignore[override]
        found = np.empty(int(self.offsets[-1]), np.int64)
        for begin, end in blocks(self.offsets):
            found[self.offsets[begin] : self.offsets[end]] = self.part(begin, end)
        found.setflags(write=False)
        return found

    def part(self, begin: int, end: int) -> IntArray:
        lengths = np.diff(self.offsets[begin : end + 1])
        due, by = (np.repeat(column[begin:end], lengths) for column in (self._due, self._by))
        return _earlier(self._given.part(begin, end), due, by)


def lower_end(records: Records, pooled: bool) -> LowerEnd | None:
    """The other end; None where nothing was late. ``pooled``: requests waited for one of ``max_connections``.

    Failures of live sessions stand: what else such a session would have brought nobody knows.
    """
    own = lateness.own(records, pooled)
    if not own.any():
        return None
    reached = reach(records, own)
    spared = np.zeros(len(records), np.bool_)
    if records.session is None:
        spared = doubtful(records, own, reached)
    return LowerEnd(records, reached, spared, bunched(records, own))


def both_ends(
    names: Iterable[str], upper: ObjectiveVerdict, low: LowerEnd | None, judge: Callable[[Records], ObjectiveVerdict]
) -> ObjectiveVerdict:
    """``upper``, the verdict on the records as they are, made one on both ends. ``names``: the indicators it reads.

    A time that counts from due is touched by lateness; a success or a failure only where one is doubtful; the rest is
    not.
    """
    if low is None:
        return upper
    end, most = touched(names), int(low.reach_ns[low.records.in_measure].max(initial=0))
    if end == "unordered":
        return unordered(upper, most)
    if end == "failures" and not low.doubtful.any():
        return upper
    return combined(upper, judge({"chunks": low.chunks, "times": low.times}.get(end, low.failures)), most)


def touched(names: Iterable[str]) -> Literal["chunks", "times", "failures", "unordered"]:
    """Which records of the lower end (``LowerEnd``) an objective that reads these is judged on; ``unordered``: on none,
    for lateness moves its values either way.
    """
    names, known = frozenset(names) - _LATENESS, catalogue()
    if names & _UNORDERED:
        return "unordered"
    needs = [frozenset(known[name].needs) for name in names if name in known]
    if any(one >= {"due_ns", "chunk_ns"} for one in needs):
        return "chunks"
    return "times" if any("due_ns" in one for one in needs) or names & {"rate"} else "failures"


def names_of(objective: Objective, limits: Sequence[Objective]) -> frozenset[str]:
    """What an objective over the run reads: indicators, and ``rate`` for the time that the run took."""
    found = {objective.indicator}
    if objective.indicator == "good":
        found |= {one.indicator for one in limits}
    if objective.statistic == "rate":
        found |= {"rate"}
    return frozenset(found)


def combined(upper: ObjectiveVerdict, lower: ObjectiveVerdict, lateness_ns: int) -> ObjectiveVerdict:
    """One verdict of two ends: what is certain at both is said.

    PASS as measured stands, and so does FAIL at the lower end. In between the lateness decides, and the verdict is
    INVALID, unless what was observed lies on the same side of the limit at both ends: then a longer run decides it, and
    it is INCONCLUSIVE.
    """
    ends = Ends(lower.observed, upper.observed, lower.outcome, upper.outcome, lateness_ns)
    outcomes = (upper.outcome, lower.outcome)
    outcome: Outcome
    if outcomes == ("PASS", "FAIL"):
        outcome, base = "INVALID", upper
    elif lower.outcome == upper.outcome or upper.outcome == "PASS":
        outcome, base = upper.outcome, upper
    elif lower.outcome == "FAIL":
        outcome, base = "FAIL", lower
    elif _kept(upper) == _kept(lower):
        outcome, base = "INCONCLUSIVE", upper if upper.outcome == "INCONCLUSIVE" else lower
    else:
        outcome, base = "INVALID", upper
    # Where both ends fail, the lower one has to stand against Holm's correction.
    p_fail = upper.p_fail if upper.p_fail is None or lower.p_fail is None else max(upper.p_fail, lower.p_fail)
    said = _said(outcome, base, ends)
    if outcome == "INCONCLUSIVE" and _kept(upper) != _kept(lower):  # more of the same would not decide
        base = replace(base, n_needed=None, needed_ns=None)
        late = said or f"the generator was up to {show(lateness_ns, 'ns')} late"
        said = (
            f"{late}, and that alone may be what breaks it: measure again on a "
            "quieter host, with more workers or a lower rate"
        )
    detail = said if outcome == "INVALID" else "; ".join(filter(None, (base.detail, said)))
    return replace(base, outcome=outcome, p_fail=p_fail, bracket=ends, detail=detail, lateness=said)


def _kept(one: ObjectiveVerdict) -> bool:
    """What was observed lies on the right side of the limit."""
    if math.isnan(one.observed):
        return False
    compare = {"<=": np.less_equal, "<": np.less, ">=": np.greater_equal, ">": np.greater}
    return bool(compare[one.objective.operator](one.observed, one.threshold))


def _said(outcome: Outcome, base: ObjectiveVerdict, ends: Ends) -> str:
    low, high, most = show(ends.lower, base.unit), show(ends.upper, base.unit), show(ends.lateness_ns, "ns")
    if outcome == "INVALID":
        return (
            f"the generator's own lateness, up to {most}, decides: {ends.outcome_upper} with {high} as measured, "
            f"{ends.outcome_lower} with {low} if it is taken off. Measure again on a quieter host, with more workers "
            "or a lower rate"
        )
    same = ends.outcome_lower == ends.outcome_upper
    apart = abs(ends.upper - ends.lower) > _WORTH_A_WORD * abs(base.threshold)
    if same and not (apart or math.isfinite(ends.upper) != math.isfinite(ends.lower)):
        return ""
    late = f"the generator was up to {most} late"
    if outcome == "PASS" and not same:
        return f"{late}, which can only have made it worse: PASS as measured"
    return f"{late}: {high} as measured, {low} without that, " + (
        f"{outcome} either way" if same else f"{ends.outcome_lower} without and {ends.outcome_upper} with it"
    )


def unordered(upper: ObjectiveVerdict, most: int) -> ObjectiveVerdict:
    """Of a difference of two latencies neither is an end: it stands while lateness, ``most`` ns, is small against its
    limit.
    """
    if most <= max(lateness.LAG_FLOOR_NS, 0.1 * upper.threshold) or upper.outcome == "INCONCLUSIVE":
        return upper
    said = (
        f"the generator was up to {show(most, 'ns')} late, which moves a difference of two latencies either way; "
        f"limit 10 % of it. Measure again on a quieter host"
    )
    return replace(upper, outcome="INVALID", detail=said, lateness=said)


def checks(records: Records, own: IntArray, pooled: bool, judged: bool) -> list[Check]:
    """What lateness does to a run: nothing where objectives are ``judged``, at both ends.

    Without objectives the percentiles themselves are what is asked for, and what is quoted: none may be more than a
    tenth, and more than the floor of lag, the generator's.
    """
    if not len(own):
        return []
    late = lateness.seen(own)
    if judged:
        return [Check("lag", True, f"{late}: objectives are judged with it and with it taken off")]
    found = list(_quoted(records, pooled))
    kept = all(high - low <= max(QUOTABLE * high, lateness.LAG_FLOOR_NS) for _, low, high in found)
    said = ", ".join(f"{name} between {show(low, 'ns')} and {show(high, 'ns')}" for name, low, high in found)
    detail = (
        f"{late}: {said or 'no answer to quote'}; limit {QUOTABLE:.0%} apart, or {show(lateness.LAG_FLOOR_NS, 'ns')}"
    )
    fix = "Lower the rate, add workers, free the host, or give an objective, which is judged at both ends"
    return [Check("lag", kept, detail, fix)]


def _quoted(records: Records, pooled: bool) -> Iterator[tuple[str, float, float]]:
    """(what, without and with the lateness) of the percentiles that a reader quotes, of answers that succeeded."""
    low = lower_end(records, pooled)
    reached = np.zeros(len(records), np.int64) if low is None else low.reach_ns
    for name, stamp in (("ttft", "first_token_ns"), ("latency", "done_ns")):
        rows = records.ok & records.in_measure & (records[stamp] != -1)
        took = (records[stamp] - records["due_ns"])[rows]
        ends = [ranked(values.astype(np.float64)) for values in (np.maximum(took - reached[rows], 0), took)]
        for q in ("0.5", "0.9", "0.99") if len(took) >= lateness.P99_NEEDS else ("0.5",) if len(took) else ():
            without, whole = (float(quantile(one, q)) for one in ends)
            yield f"p{float(q) * 100:g} of {name}", without, whole


# -- requests sent more than once --------------------------------------------------------------------------------------

# Requests that were sent more than once: counted, told, and what the verdicts were if they counted as failed. A request
# is repeated only where the server can't have begun it: it had closed the connection before a byte of it came, or said
# that it refuses the call. That may still be its fault, so what would change if it were is said.


def repeated(records: Records) -> BoolArray:
    """bool[n]: the measured row's request was sent more than once."""
    return np.asarray(records.in_measure & (records["attempts"] > 1))


def repeat_warnings(records: Records, facts: GeneratorFacts) -> list[str]:
    """That some were, and why. An older run counted them and kept no column of it."""
    rows = repeated(records)
    n, failed = int(rows.sum()), int((rows & ~records.ok).sum())
    if not n:
        older = (
            f"{facts.retried} requests were sent again on another connection, none of which is known to be a measured "
            "one (column attempts). If the run is older than that column, the server may have read and dropped some "
            "of them: measure again"
        )
        return [older] if facts.retried else []
    end = f"{failed} of them failed all the same" if failed else "all of them were answered then"
    advice = (
        "" if failed else ". If it closes connections that are idle, a longer keep-alive time-out on it avoids this"
    )
    return [
        f"{n} of {len(records)} requests were sent again, because the server had closed the connection, or refused the "
        f"call, before it could read them; {end}, and their latency includes it (column attempts){advice}"
    ]


def as_failures(records: Records) -> Records | None:
    """The records with every answer to a repeated request as a failure; None where there is none."""
    rows = repeated(records) & records.ok
    if not rows.any():
        return None
    return records.with_columns(status=np.where(rows, int(Status.CONNECT), records.columns["status"]))


def with_repeats_failed(
    found: Sequence[ObjectiveVerdict], records: Records, judge: Callable[[Records], Sequence[ObjectiveVerdict]]
) -> tuple[ObjectiveVerdict, ...]:
    """The same verdicts; those that change when repeated requests count as failed say so. ``judge`` judges records."""
    other = as_failures(records)
    if other is None:
        return tuple(found)
    return said_of_repeats(found, judge(other), int((repeated(records) & records.ok).sum()))


def said_of_repeats(
    found: Sequence[ObjectiveVerdict], others: Sequence[ObjectiveVerdict], n: int
) -> tuple[ObjectiveVerdict, ...]:
    """The same verdicts; those that differ in ``others``, where ``n`` repeated requests failed, say so."""
    result = []
    for one, failing in zip(found, others, strict=True):
        if one.outcome != failing.outcome:
            said = f"with the {n} requests that were sent again counted as failed it is {failing.outcome}"
            one = replace(one, detail=f"{one.detail}; {said}", repeats=said)
        result.append(one)
    return tuple(result)
