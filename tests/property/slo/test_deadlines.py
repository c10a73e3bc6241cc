"""Token deadlines for all requests at once are those of the recursion, written out one chunk after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.metrics import deadlines
from plimsoll.slo.records.records import Records, from_columns

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


@pytest.mark.parametrize("few", [0, 4, 16])
@given(waits=answers, pace=st.integers(1, 30), more=st.integers(0, 5), slab=st.sampled_from([1, 30, 10_000]))
def test_each_deadline_is_met_or_missed_as_one_by_one(
    few: int, waits: list[list[int]], pace: int, more: int, slab: int
) -> None:
    records = streams(waits)
    tokens = np.array([len(row) + more if row else 0 for row in waits])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadlines, "_FEW", few)
        met = deadlines.against(records, np.zeros(len(waits), np.int64), 5, pace, tokens, slab)
    for row, some in enumerate(waits):
        found = (int(met.late[row]), int(met.waited_ns[row]), int(met.missed[row]))
        times = np.cumsum(some).astype(int).tolist()
        assert found == (plain(times, 5, pace, int(tokens[row])) if some else (0, 0, 0))


@given(waits=answers)
def test_the_fluid_pace_does_not_depend_on_how_the_requests_are_cut(waits: list[list[int]]) -> None:
    records, rows = streams([[wait * 10_000 for wait in row] for row in waits]), np.ones(len(waits), np.bool_)
    whole = deadlines.fluid_pace(records, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadlines.slabs, "__defaults__", (20,))
        assert deadlines.fluid_pace(records, rows).pace_ns.tolist() == whole.pace_ns.tolist()
