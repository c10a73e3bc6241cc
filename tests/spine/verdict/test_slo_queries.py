"""Queries of several samples, frames and their deadlines: each formula by hand, and what a failed sample does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plimsoll.reports.parts.measures import measures
from plimsoll.slo.comparison.arms import sample
from plimsoll.slo.comparison.quantity import parse as quantity
from plimsoll.slo.metrics.indicator import catalogue, measure, of_successes
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.ledger import ledger_of
from plimsoll.slo.objectives.objective import ObjectiveError, parse
from plimsoll.slo.records.queries import applies, together, with_deadline
from plimsoll.slo.records.records import Phase, Records, Status, concat, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.verdict import judge

MS = 1_000_000
INTERVAL = 33
#: Per frame the latencies of its three samples in ms.
FRAMES = ((10, 20, 30), (10, 10, 10), (20, 40, 20), (33, 1, 1), (5, 5, 5))
INF = float("inf")


def frames(latencies: Any = FRAMES, deadline_ms: int = INTERVAL, **columns: Any) -> Records:
    """One query every 33 ms."""
    n, per = len(latencies), len(latencies[0])
    query = np.repeat(np.arange(n), per)
    due = query * INTERVAL * MS
    given: dict[str, Any] = {
        "query_id": query, "sample_ix": np.tile(np.arange(per), n), "due_ns": due, "ready_ns": due, "sent_ns": due,
        "first_byte_ns": due, "headers_ns": due, "done_ns": due + np.array(latencies).ravel() * MS,
    }  # fmt: skip
    return with_deadline(from_columns(n * per, **(given | columns)), deadline_ms * MS)


def values(name: str, records: Records) -> list[float]:
    size = 1 if catalogue()[name].unit == "1" else MS
    return [value / size for value in measure(catalogue()[name], records).values.tolist()]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("query_latency", [30, 10, 40, 33, 5]),
        ("query_skew", [20, 0, 20, 32, 0]),
        ("frame_jitter", [20, 30, 7, 28]),
        ("frame_missed", [0, 0, 1, 0, 0]),  # exactly at the deadline is in time
        ("frame_overlap", [0, 0, 0, 1, 0]),  # the third is there 7 ms after the fourth was due
    ],
)
def test_each_formula_on_five_frames(name: str, expected: list[float]) -> None:
    assert values(name, frames()) == expected
    assert set(measure(catalogue()[name], frames()).row.tolist()) <= {0, 3, 6, 9, 12}


def sets(offsets_ms: tuple[int, ...] = (0, 0, 0), mixed: bool = False, **columns: Any) -> Records:
    """The same frames of three sensors that look so long after a set begins: each answer ends when it did there."""
    row = np.arange(15)
    due = row // 3 * INTERVAL * MS + np.tile(offsets_ms, 5) * MS
    given: dict[str, Any] = {"query_id": row, "sample_ix": 0, "due_ns": due, "ready_ns": due, "sent_ns": due} | columns
    made = from_columns(
        15,
        **{
            "done_ns": row // 3 * INTERVAL * MS + np.array(FRAMES).ravel() * MS,
            "first_byte_ns": due,
            "headers_ns": due,
        },
        **given,
        labels={"frame_set": (row // 3 * 3).tolist(), "sensor": ["left", "front", "right"] * 5},
    )
    made = with_deadline(made, INTERVAL * MS)
    return made.select(np.random.default_rng(3).permutation(15)) if mixed else made


@pytest.mark.parametrize("mixed", [False, True])
def test_the_queries_of_a_set_are_one_query_that_is_due_with_its_first(mixed: bool) -> None:
    for name in ("query_latency", "query_skew", "frame_jitter", "frame_missed", "frame_overlap"):
        assert sorted(values(name, sets(mixed=mixed))) == sorted(values(name, frames()))
    later = sets((1, 0, 2), mixed=mixed)
    assert sorted(values("query_latency", later)) == sorted(values("query_latency", frames())), (
        "the middle one is first"
    )
    assert sorted(values("query_latency", sets((1, 3, 2), mixed=mixed))) == [4, 9, 29, 32, 39]
    assert later["query_id"][together(later).first].tolist() == [1, 4, 7, 10, 13]
    assert (later["due_ns"][together(later).first] % (INTERVAL * MS) == 0).all()


def test_a_failed_sensor_fails_its_set_and_a_warm_up_query_is_of_none() -> None:
    status, phase = np.zeros(15, int), np.zeros(15, int)
    status[4] = Status.HTTP
    assert values("query_latency", sets(status=status)) == [30, INF, 40, 33, 5]
    assert values("frame_missed", sets(status=status)) == [0, 1, 1, 0, 0]
    phase[:3] = Phase.WARMUP
    warm = sets(phase=phase)
    assert values("query_latency", warm) == [10, 40, 33, 5]
    assert values("latency", warm)[:3] == [10, 10, 10], "each row has its own"


def test_a_failed_sample_is_a_failed_query_and_spoils_two_spacings() -> None:
    status = np.zeros(15, int)
    status[4] = Status.HTTP
    some = frames(status=status)
    assert values("query_latency", some) == [30, INF, 40, 33, 5]
    assert values("query_skew", some) == [20, INF, 20, 32, 0]
    assert values("frame_jitter", some) == [INF, INF, 7, 28]
    assert values("frame_missed", some) == [0, 1, 1, 0, 0]
    assert values("frame_overlap", some) == [0, 0, 0, 1, 0], "it was over all the same"


def test_a_frame_that_never_ends_stays_in_the_way_of_all_that_follow() -> None:
    status = np.zeros(15, int)
    status[0] = Status.UNSENT
    some = frames()
    done = some["done_ns"].copy()
    done[0] = -1
    assert values("frame_overlap", frames(status=status, done_ns=done)) == [0, 1, 1, 2, 1]


def test_the_deadline_need_not_be_the_interval() -> None:
    assert values("frame_missed", frames(deadline_ms=9)) == [1, 1, 1, 1, 0]
    assert values("frame_missed", frames(deadline_ms=40)) == [0, 0, 0, 0, 0]
    assert values("frame_jitter", frames(deadline_ms=9)) == [20, 30, 7, 28]


def test_rows_may_come_in_any_order_and_are_found_again_after_a_selection() -> None:
    some = frames()
    mixed = some.select(np.random.default_rng(3).permutation(15))
    for name in ("query_latency", "query_skew", "frame_jitter", "frame_missed", "frame_overlap"):
        assert sorted(values(name, mixed)) == sorted(values(name, some)), name
    assert values("frame_missed", some.select(some["query_id"] > 1)) == [1, 0, 0]
    assert values("frame_missed", concat([some, frames(query_id=np.repeat(np.arange(5), 3) + 9)])) == 2 * [
        0,
        0,
        1,
        0,
        0,
    ]


def test_a_query_of_the_warm_up_is_another_one_even_with_the_same_id() -> None:
    before = frames(phase=int(Phase.WARMUP), due_ns=np.repeat(np.arange(5) - 9, 3) * INTERVAL * MS)
    both = concat([before, frames()])
    assert len(together(both).first) == 10
    for name in ("query_latency", "frame_jitter", "frame_overlap"):
        assert values(name, both) == values(name, frames()), name


def test_runs_of_single_samples_and_of_one_query_have_no_queries_to_tell_of() -> None:
    single = from_columns(3, due_ns=0, done_ns=5, sample_ix=0)
    offline = from_columns(3, query_id=0, sample_ix=[0, 1, 2], due_ns=0, done_ns=[5, 6, 7])
    several = from_columns(4, query_id=[0, 0, 1, 1], sample_ix=[0, 1, 0, 1], due_ns=0, done_ns=[5, 6, 7, 9])
    assert [applies(some) for some in (single, offline, several, from_columns(0))] == [False, False, True, False]
    assert measure(catalogue()["query_latency"], several).values.tolist() == [6, 9]
    assert measure(catalogue()["frame_missed"], several).n == 0, "LoadGen's closed loop promises no time"


def test_the_share_of_missed_frames_is_an_objective_with_exact_bounds() -> None:
    many = frames([*FRAMES, *([(5, 5, 5)] * 995)])
    facts = GeneratorFacts(open_loop=True, planned=3000, planned_queries=1000, elapsed_ns=10**15)

    def outcome(text: str, some: Records = many) -> tuple[str, int, int | None]:
        (found,) = judge(some, [parse(text)], assess(some, facts)).objectives
        return found.outcome, found.n, found.bad

    assert outcome("ratio(frame_missed) <= 1%") == ("PASS", 1000, 1)
    assert outcome("ratio(frame_missed) <= 0.1%") == ("INCONCLUSIVE", 1000, 1)
    assert outcome("ratio(frame_missed) <= 1%", frames([*FRAMES] * 200)) == ("FAIL", 1000, 200)
    assert outcome("max(frame_missed) <= 0") == ("FAIL", 1000, None)
    assert outcome("p99(query_latency) <= 33ms") == ("PASS", 1000, 1)
    closed = from_columns(4, query_id=[0, 0, 1, 1], sample_ix=[0, 1, 0, 1], due_ns=0, ready_ns=0, done_ns=5)
    assert outcome("ratio(frame_missed) <= 1%", closed)[0] == "INCONCLUSIVE"


def test_more_missed_frames_are_never_the_better_side() -> None:
    with pytest.raises(ObjectiveError, match="lower is better"):
        parse("ratio(frame_missed) >= 1%")
    assert quantity("ratio(frame_missed)").better == "lower"


def test_missed_frames_draw_on_a_budget_and_are_compared_between_runs() -> None:
    ledger = ledger_of(parse("ratio(frame_missed) <= 10%"), frames())
    assert ledger is not None
    assert (ledger.entry, len(ledger.accounts[0].bad), float(ledger.accounts[0].bad.sum())) == ("query", 5, 1.0)
    seen = sample(frames(), [quantity("ratio(frame_missed)"), quantity("p50(query_latency)")])
    assert seen.readings["ratio(frame_missed)"].value == 0.2
    assert seen.readings["p50(query_latency)"].value == 30 * MS


def test_a_limit_on_single_requests_holds_for_every_sample_of_a_query() -> None:
    limit = parse("query_latency <= 33ms")
    assert goodput(frames(), [limit]).good.tolist() == [True] * 6 + [False] * 3 + [True] * 6
    assert goodput(frames(), [parse("frame_jitter <= 25ms")]).good.reshape(5, 3).all(axis=1).tolist() == [
        True, True, False, True, False,
    ]  # fmt: skip


def test_successes_only_are_the_queries_all_of_whose_samples_succeeded() -> None:
    latencies = [*FRAMES] * 8
    status = np.zeros(120, int)
    status[[1, 4, 5, 119]] = Status.TIMEOUT  # a later sample each time: the first one of all three queries succeeded
    some = frames(latencies, status=status)
    kept = {
        "query_latency": 37,
        "query_skew": 37,
        "frame_jitter": 36,
    }  # the frame after the first two lost its spacing too
    for name, n in kept.items():
        found = measure(catalogue()[name], some)
        chosen = found.values[of_successes(catalogue()[name], some, found)]
        assert (len(chosen), found.n - found.failed) == (n, n), name
        assert np.isfinite(chosen).all(), name
        whole = measure(catalogue()[name], frames(latencies))
        assert set(chosen.tolist()) <= set(whole.values.tolist()), name
        statistics = measures(some).metrics[name].of_ok
        assert statistics is not None
        assert (statistics.n, statistics.max) == (n, max(chosen)), name


def test_of_single_requests_successes_are_the_requests_that_succeeded() -> None:
    status = np.where(np.arange(10) % 3 == 0, int(Status.HTTP), int(Status.OK))
    some = from_columns(10, query_id=np.arange(10), due_ns=np.arange(10), done_ns=np.arange(10) + 5, status=status)
    found = measure(catalogue()["latency"], some)
    assert of_successes(catalogue()["latency"], some, found).tolist() == some.ok.tolist()
