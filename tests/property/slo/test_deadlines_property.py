"""Deadlines of all requests at once against the recursions they stand for, and what may never improve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.metrics import deadlines
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.records import Records, from_columns

#: Waits and deadlines of like size, so that everything happens; small numbers, so that ties do.
waits = st.lists(st.lists(st.integers(0, 12), max_size=9), min_size=1, max_size=8)


def build(rows: list[list[int]], tokens: list[int] | None = None, due: int = 3) -> Records:
    """Whole answers, every stamp of them: taken up and sent at once, over just after the last chunk."""
    chunks = [(np.cumsum(row) + due).tolist() if row else [] for row in rows]
    first, last = ([chunk[at] if chunk else -1 for chunk in chunks] for at in (0, -1))
    return from_columns(
        len(rows),
        due_ns=due,
        ready_ns=due,
        sent_ns=due,
        first_byte_ns=first,
        first_token_ns=first,
        first_answer_ns=first,
        last_token_ns=last,
        done_ns=[at + 1 if at >= 0 else -1 for at in last],
        n_out=[len(row) for row in rows] if tokens is None else tokens,
        chunks=chunks,
    )


def by_the_code(gaps: list[int], prefill: int, decode: int) -> tuple[int, int]:
    """(missed, all) deadlines, step by step."""
    slack = missed = on_time = 0
    for i, gap in enumerate(gaps):
        deadline = decode if i else prefill
        if gap <= deadline + slack:
            slack += deadline - gap
            on_time += 1
        else:
            missed += (gap - slack) // decode if i else 1 + (gap - prefill) // decode
            slack = 0
    return missed, on_time + missed


def read_along(arrivals: list[int], pace: int) -> tuple[int, int]:
    """(idle, stalls), step by step."""
    idle = stalls = 0
    done = arrivals[0] + pace
    for at in arrivals[1:]:
        idle += max(0, at - done)
        stalls += at > done
        done = max(at, done) + pace
    return idle, stalls


@given(rows=waits, prefill=st.integers(0, 15), decode=st.integers(1, 6), slab=st.sampled_from([1, 4, 10_000]))
def test_fluidity_is_the_recursion(rows: list[list[int]], prefill: int, decode: int, slab: int) -> None:
    records = build(rows)
    met = deadlines.against(records, records["due_ns"], prefill, decode, deadlines.tokens_of(records), slab)
    for i, gaps in enumerate(rows):
        missed, total = by_the_code(gaps, prefill, decode)
        assert (int(met.missed[i]), int(met.tokens[i] - met.late[i] + met.missed[i])) == (missed, total)


@given(rows=waits, pace=st.integers(1, 6), share=st.integers(1, 4))
def test_reading_is_the_recursion_over_tokens(rows: list[list[int]], pace: int, share: int) -> None:
    """Each chunk of ``share`` tokens, all at its time."""
    records = build(rows, [share * len(row) for row in rows])
    met = deadlines.reading(records, pace)
    for i, gaps in enumerate(rows):
        if gaps:
            arrivals = [at for at in (np.cumsum(gaps) + 3).tolist() for _ in range(share)]
            assert (int(met.waited_ns[i]), int(met.late[i])) == read_along(arrivals, pace)
            assert int(met.tokens[i]) == len(arrivals)


@given(rows=waits, at=st.integers(0, 63), longer=st.integers(1, 40))
def test_a_longer_wait_improves_nothing(rows: list[list[int]], at: int, longer: int) -> None:
    """One wait grows and no other shrinks: what comes after is later by as much."""
    filled = [i for i, row in enumerate(rows) if row]
    if not filled:
        return
    row = filled[at % len(filled)]
    worse = [list(gaps) for gaps in rows]
    worse[row][at % len(worse[row])] += longer
    for unit in (1, 30_000_000):  # small against the deadlines of the indicators, and of their size
        before, after = (build([[wait * unit for wait in gaps] for gaps in some]) for some in (rows, worse))
        for name, indicator in catalogue().items():
            one, other = (np.sort(measure(indicator, some).values) for some in (before, after))
            assert (other >= one).all() if indicator.better == "lower" else (other <= one).all(), name
        scores = [
            deadlines.share_of_deadlines(deadlines.measure(some, some["due_ns"], 5 * unit, 4 * unit))
            for some in (before, after)
        ]
        assert not (scores[1] > scores[0]).any()


# -- many answers at once, chunk by chunk ------------------------------------------------------------------------------

#: Waits before each chunk of a request, in ns; some answers are much longer than others.
answers = st.lists(
    st.lists(st.integers(0, 40), min_size=0, max_size=9) | st.just([3, 50] * 12), min_size=1, max_size=40
)


def plain(times: list[int], wanted: int, pace: int, tokens: int) -> tuple[int, int, int]:
    """(late, waited, missed) of one answer whose first token is wanted at ``wanted``."""
    late = waited = missed = 0
    for place, time in enumerate(times):
        behind = time - (wanted + waited + place * tokens // len(times) * pace)
        if behind > 0:
            late, waited, missed = late + 1, waited + behind, missed + 1 + behind // pace
    return late, waited, missed


def streams(waits: list[list[int]]) -> Records:
    return from_columns(len(waits), due_ns=0, chunks=[np.cumsum(row).astype(int).tolist() for row in waits])


@given(waits=answers, pace=st.integers(1, 30), more=st.integers(0, 5), slab=st.sampled_from([1, 30, 10_000]))
def test_each_deadline_is_met_or_missed_as_one_by_one(waits: list[list[int]], pace: int, more: int, slab: int) -> None:
    records = streams(waits)
    tokens = np.array([len(row) + more if row else 0 for row in waits])
    met = deadlines.against(records, np.zeros(len(waits), np.int64), 5, pace, tokens, slab)
    for row, some in enumerate(waits):
        found = (int(met.late[row]), int(met.waited_ns[row]), int(met.missed[row]))
        times = np.cumsum(some).astype(int).tolist()
        assert found == (plain(times, 5, pace, int(tokens[row])) if some else (0, 0, 0))


@pytest.mark.parametrize("few", [0, 4, 16])
@pytest.mark.parametrize("at_once", [0, 1000])
@given(waits=answers)
def test_the_fluid_pace_is_that_of_halving_one_by_one(few: int, at_once: int, waits: list[list[int]]) -> None:
    usable = [np.cumsum([wait * 10_000 for wait in row]).astype(int).tolist() for row in waits if len(row) > 1]
    low, high = [0] * len(usable), [max(np.diff(times).tolist()) for times in usable]
    while any(top - least > deadlines.PRECISION_NS for least, top in zip(low, high, strict=True)):
        for i, times in enumerate(usable):
            middle = max((low[i] + high[i]) // 2, 1)
            late, _, missed = plain(times, times[0], middle, len(times))
            kept = missed * 10 <= len(times) - 1 - late + missed
            low[i], high[i] = (low[i], middle) if kept else (middle, high[i])
    records = streams([[wait * 10_000 for wait in row] for row in waits])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadlines, "_FEW", few)
        patch.setattr(deadlines, "_AT_ONCE", at_once)
        found = deadlines.fluid_pace(records, np.ones(len(waits), np.bool_))
    assert found.pace_ns.tolist() == high


@given(waits=answers)
def test_the_fluid_pace_does_not_depend_on_how_the_requests_are_cut(waits: list[list[int]]) -> None:
    records, rows = streams([[wait * 10_000 for wait in row] for row in waits]), np.ones(len(waits), np.bool_)
    whole = deadlines.fluid_pace(records, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadlines, "_SEARCHED", 20)
        assert deadlines.fluid_pace(records, rows).pace_ns.tolist() == whole.pace_ns.tolist()
