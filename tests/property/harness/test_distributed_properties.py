"""Clocks, pieces and interval histograms of distributed runs: what holds for every network, file and run."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.distributed import agents, intervals
from plimsoll.harness.distributed.agents import Echo, Offset
from plimsoll.harness.distributed.fleet_messages import LIMIT, PIECE, Assembly, Damaged, cut, line
from plimsoll.scenarios.plan.arrival import constant_rate
from plimsoll.scenarios.plan.plan import Dealing, Plan, Stop
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.records import Records, concat, from_columns
from plimsoll.slo.statistics.distribution import DEFAULT_HDR, hdr_counts, merge
from plimsoll.slo.validity.lateness import dispersion
from plimsoll.slo.validity.validity import CLOCK_LIMIT_NS
from tests import hdr_log
from tests.due_times import due_times

MS = 1_000_000
DELAYS = st.integers(0, 200 * MS)
OFFSETS = st.integers(-(10**17), 10**17)


@given(OFFSETS, st.lists(st.tuples(DELAYS, DELAYS), min_size=1, max_size=20))
def test_the_offset_is_true_to_its_error_however_unequal_the_ways_are(
    offset: int, delays: list[tuple[int, int]]
) -> None:
    now, echoes = 10**15, []
    for there, back in delays:
        echoes.append(Echo(now, now + there + offset, now + there + back))
        now += there + back + MS
    found = agents.estimate(echoes)
    assert abs(found.offset_ns - offset) <= found.error_ns
    assert found.error_ns == (min(there + back for there, back in delays) + 1) // 2


@given(OFFSETS, st.integers(0, 10**13), st.tuples(DELAYS, DELAYS, DELAYS, DELAYS), st.floats(-5e-5, 5e-5))
def test_a_good_clock_is_never_called_skewed(
    offset: int, elapsed: int, ways: tuple[int, int, int, int], rate: float
) -> None:
    there, back, there_after, back_after = ways
    start, end = 10**15, 10**15 + there + back + elapsed
    before = agents.estimate([Echo(start, start + there + offset, start + there + back)])
    passed = end + there_after - (start + there)
    after = agents.estimate(
        [Echo(end, end + there_after + offset + int(rate * passed), end + there_after + back_after)]
    )
    slack = int(5e-5 * (ways[0] + ways[1] + ways[2] + ways[3])) + 2  # between the middle of a ping and its stamp
    seen = agents.drift(before, after)
    assert abs(seen.moved_ns) <= seen.allowed_ns + slack


@given(OFFSETS, st.integers(10**9, 10**13), st.integers(0, 50 * MS), st.sampled_from([-1, 1]), st.floats(1.1, 50))
def test_a_clock_that_drifts_beyond_its_errors_is_found(
    offset: int, elapsed: int, error: int, way: int, times: float
) -> None:
    before = Offset(offset, error, 10**15)
    allowed = 2 * error + int(agents.DRIFT * elapsed)
    after = Offset(offset + way * (int(allowed * times) + 1), error, 10**15 + elapsed)
    assert not agents.drift(before, after).ok


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**10), st.floats(0, 1))
def test_a_wall_clock_is_accused_only_of_what_no_round_trip_explains(ahead: int, round_trip: int, share: float) -> None:
    back = 1_700_000_000 * 10**9
    came = back - int(round_trip * share)
    found = agents.wall_error(came + ahead, back, round_trip)
    assert abs(found) <= abs(ahead) + 1
    assert found == 0 or (found > 0) == (ahead > 0)
    assert abs(found) >= abs(ahead) - round_trip - 2


@settings(max_examples=25)
@given(st.integers(0, 4 * PIECE + 3), st.randoms(use_true_random=False))
def test_a_file_that_is_cut_comes_together_again_and_every_piece_fits_a_message(
    size: int, chance: random.Random
) -> None:
    data = chance.randbytes(size)
    pieces = list(cut("w001-000000.seg", data))
    assert max(len(line(piece)) for piece in pieces) <= LIMIT
    assembly = Assembly(pieces[0])
    results = [assembly.take(piece) for piece in pieces]
    assert results[:-1] == [None] * (len(pieces) - 1)
    assert results[-1] == data


@settings(max_examples=25)
@given(st.integers(1, 3 * PIECE), st.randoms(use_true_random=False))
def test_a_changed_byte_a_lost_piece_or_a_swapped_one_is_found(size: int, chance: random.Random) -> None:
    data = chance.randbytes(size)
    pieces = list(cut("w001-000000.seg", data))
    other = list(cut("w001-000000.seg", bytes([data[0] ^ 1]) + data[1:]))
    bad = [{**other[0], "sha256": pieces[0]["sha256"]}, *pieces[1:]]
    with pytest.raises(Damaged):
        _together(bad)
    if len(pieces) > 1:
        with pytest.raises(Damaged):
            _together([pieces[0], *pieces[2:], pieces[1]])
        with pytest.raises(Damaged):
            _together(pieces[1:])


def _together(pieces: list[dict[str, object]]) -> bytes | None:
    assembly, found = Assembly(pieces[0]), None
    for piece in pieces:
        found = assembly.take(piece)
    if found is None:
        raise Damaged("never whole")
    return found


def _records(n: int, seed: int) -> Records:
    chance = np.random.default_rng(seed)
    due = np.sort(chance.integers(0, 5 * 10**9, n))
    first = due + chance.integers(1, 10**9, n)
    last = first + chance.integers(1, 10**9, n)
    status = np.where(chance.random(n) < 0.2, 1, 0)
    ids = np.arange(n)
    return from_columns(
        n,
        query_id=ids,
        sample_ix=np.zeros(n, np.int64),
        payload_ix=ids,
        due_ns=due,
        ready_ns=due,
        sent_ns=due,
        first_token_ns=np.where(status == 0, first, -1),
        last_token_ns=np.where(status == 0, last, -1),
        done_ns=last,
        chunks=[
            [int(a), int(a) + 5_000_000, int(b)] if good else []
            for a, b, good in zip(first, last + 5_000_000, status == 0, strict=True)
        ],
        n_out=np.where(status == 0, 9, -1),
        status=status,
        errors=[None] * n,
    )


@given(st.integers(1, 60), st.integers(0, 2**32), st.integers(1, 5))
def test_intervals_of_parts_add_up_to_the_histogram_of_the_whole(n: int, seed: int, parts: int) -> None:
    whole = _records(n, seed)
    merged = intervals.Merged()
    dealt = np.random.default_rng(seed).integers(0, parts, n)
    for part in range(parts):
        rows = intervals.rows_of(whole.select(dealt == part))
        for batch in intervals.split(rows, 2048):
            assert len(line({"type": "intervals", "rows": batch})) <= 2048
            merged.add(batch)
    log = hdr_log.read(merged.log(1_700_000_000 * 10**9))
    for name in intervals.METRICS:
        values = measure(catalogue()[name], whole).values
        wanted = hdr_counts(values[np.isfinite(values)])[0]
        found = [one for one in log.intervals if one.tag == name]
        total = merge([one.counts for one in found]) if found else np.zeros(DEFAULT_HDR.counts_len)
        assert np.array_equal(total, wanted), name
    ok = whole.select(whole.ok)
    if len(ok):
        seconds = {one.start_s for one in log.intervals if one.tag == "latency"}
        assert seconds == {float(second) for second in np.unique(ok["done_ns"] // 10**9)}


def test_the_union_of_intervals_does_not_depend_on_the_order_of_parts() -> None:
    parts = [_records(50, seed) for seed in range(3)]
    logs = []
    for order in ((0, 1, 2), (2, 0, 1)):
        merged = intervals.Merged()
        for part in order:
            merged.add(intervals.rows_of(parts[part]))
        logs.append(merged.log(0))
    together = intervals.Merged()
    together.add(intervals.rows_of(concat(parts)))
    assert logs[0] == logs[1] == together.log(0)


@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 2**32))
def test_what_is_held_of_a_second_is_its_buckets_however_many_agents_report_it(
    agents: int, width: int, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    merged, total = intervals.Merged(), np.zeros(DEFAULT_HDR.counts_len, np.int64)
    for _ in range(agents):
        at = np.unique(5_000 + chance.integers(0, width, width))
        merged.add([(3, "latency", at.tolist(), [1] * len(at))])
        total[at] += 1
    assert merged.held <= 1.5 * int((total > 0).sum()) + 256 + width
    (interval,) = hdr_log.read(merged.log(0)).intervals
    assert np.array_equal(interval.counts, total)


@pytest.mark.parametrize("agents", [4, 40])
def test_arrivals_dealt_by_lot_stay_poisson_whatever_the_clocks_do_and_in_turns_they_do_not(agents: int) -> None:
    rate_per_s = 1_000.0 * agents
    due = due_times("poisson", constant_rate(rate_per_s), 3, min_queries=200_000, min_duration_ns=0)
    plan = Plan(
        due_ns=due,
        query_id=np.arange(len(due)),
        offsets=np.arange(len(due) + 1),
        sample_ix=np.zeros(len(due), np.int64),
        payload_ix=np.zeros(len(due), np.int64),
        after=np.full(len(due), -1),
        stop=Stop(),
        seed=3,
        open_loop=True,
    )
    # Each agent sends every ms, and its clock is off by its own part of what a run may be off by.
    error_ns = np.random.default_rng(agents).permutation(np.arange(agents) * CLOCK_LIMIT_NS // agents)
    dealings: tuple[Dealing, ...] = ("turns", "lots")
    seen = {dealing: dispersion(np.sort(due + error_ns[plan.owners(agents, dealing)]), 1e6) for dealing in dealings}
    assert 0.95 < dispersion(due, 1e6) < 1.05
    assert seen["turns"] < 0.6
    assert seen["lots"] >= 0.9
