"""However a run's lines fall and however often intervals are put together, nothing is lost and nothing made up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.live.state import MOST, Intervals

S = 1_000_000_000
LINES = st.lists(
    st.tuples(
        st.integers(1, 40 * S),  # since the line before
        st.integers(0, 500),  # sent
        st.integers(0, 500),  # done
        st.integers(0, 5),  # failed
        st.dictionaries(st.integers(0, 1200).map(str), st.integers(1, 9), max_size=4),
    ),
    min_size=1,
    max_size=120,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(-5 * S, 0), LINES)
def test_folding_intervals_keeps_totals(start: int, lines: list[tuple[int, int, int, int, dict[str, int]]]) -> None:
    intervals = Intervals(start, 1)
    at = start
    bins: dict[int, int] = {}
    for wait, sent, done, failed, histogram in lines:
        before, at = at, at + wait
        intervals.spread(before, at, sent, done)
        here = intervals.at((before + at) // 2)
        here.failed += failed
        here.flying(sent)
        here.add("latency", histogram)
        here.judged(0, done, failed)
        for key, count in histogram.items():
            bins[int(key)] = bins.get(int(key), 0) + count
        assert len(intervals) <= MOST
    shown = intervals.shown(None, at)
    assert sum(one.sent for one in shown) == pytest.approx(sum(line[1] for line in lines))
    assert sum(one.done for one in shown) == pytest.approx(sum(line[2] for line in lines))
    assert sum(one.failed for one in shown) == sum(line[3] for line in lines)
    assert max(one.in_flight or 0 for one in shown) == max(line[1] for line in lines)
    assert [sum(one.counts[0][i] for one in shown) for i in (0, 1)] == [
        sum(x[2] for x in lines),
        sum(x[3] for x in lines),
    ]
    merged: dict[int, int] = {}
    for one in shown:
        for place, count in one.spreads.get("latency", {}).items():
            merged[place] = merged.get(place, 0) + count
    assert merged == bins
    assert start + len(intervals) * intervals.width_ns >= at
    assert all(one.sent >= 0 and one.done >= 0 for one in shown)
