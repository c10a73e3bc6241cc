"""From records to the run's outcome, generator and all: nothing that makes a request worse, or hides it, helps."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st

from plimsoll.slo.objectives.objective import Objective, parse
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.verdict import Verdict, judge
from tests.memory_held import memory_held

MS = 1_000_000
RANK = {"PASS": 0, "INCONCLUSIVE": 1, "FAIL": 2, "INVALID": 3}

#: Latency in ms of stretches of requests: clusters of every size, and whether they failed.
stretches = st.lists(
    st.tuples(st.integers(1, 60), st.sampled_from([5, 20, 90, 300]), st.sampled_from([0, 0, 0, int(Status.TIMEOUT)])),
    min_size=1,
    max_size=10,
)
asked = st.lists(
    st.sampled_from(
        [
            "p50(latency) <= 50ms",
            "p90(latency) <= 100ms",
            "p99(latency) <= 100ms over 28d",
            "ratio(error) <= 5%",
            "ratio(good) >= 80%",
            "rate(ok) >= 90/s",
            "max(latency) <= 200ms",
            "mean(latency) <= 60ms",
            "p5(output_rate) >= 10/s",
        ]
    ),
    min_size=1,
    max_size=4,
    unique=True,
).map(lambda texts: [parse(text) for text in (*texts, "latency <= 100ms")])


def run(parts: list[tuple[int, int, int]]) -> Records:
    took = np.concatenate([np.full(n, ms * MS) for n, ms, _ in parts])
    status = np.concatenate([np.full(n, code) for n, _, code in parts])
    due = np.arange(len(took)) * 10 * MS
    return from_columns(
        len(took), due_ns=due, ready_ns=due, sent_ns=due, first_byte_ns=due + took, done_ns=due + took, status=status,
        n_out=2
    )  # fmt: skip


def outcome(some: Records, objectives: list[Objective], planned: int, open_loop: bool) -> int:
    return RANK[judged(some, objectives, planned, open_loop).outcome]


def judged(some: Records, objectives: list[Objective], planned: int, open_loop: bool) -> Verdict:
    facts = GeneratorFacts(
        open_loop=open_loop, planned=planned, planned_queries=planned, process="constant" if open_loop else "",
        elapsed_ns=10**15
    )  # fmt: skip
    with memory_held():
        return judge(some, objectives, assess(some, facts, objectives), "0.9")


def least_after_failing(before: Verdict) -> int:
    """The best that it may be when something fails. A FAIL by distance alone is by how far values lie beyond the limit,
    of which a failure says nothing (docs/decisions/slo.md): it may become INCONCLUSIVE, and never PASS.
    """
    failed = [one for one in before.objectives if one.outcome == "FAIL"]
    by_distance = bool(failed) and all(one.by == "distance" for one in failed)
    return RANK["INCONCLUSIVE"] if by_distance else RANK[before.outcome]


def changed(some: Records, **columns: np.ndarray) -> Records:
    return Records({**some.columns, **columns}, some.chunk_ns, some.chunk_offsets, some.errors, some.timings)


@given(parts=stretches, objectives=asked, at=st.integers(0, 600), loop=st.booleans())
def test_removing_a_request_never_improves_the_outcome(
    parts: list[tuple[int, int, int]], objectives: list[Objective], at: int, loop: bool
) -> None:
    some = run(parts)
    left = np.arange(len(some)) != at % len(some)
    before = outcome(some, objectives, len(some), loop)
    assert outcome(some.select(left), objectives, len(some), loop) >= before


@given(parts=stretches, objectives=asked, at=st.integers(0, 600), loop=st.booleans())
def test_failing_a_request_never_improves_the_outcome(
    parts: list[tuple[int, int, int]], objectives: list[Objective], at: int, loop: bool
) -> None:
    some = run(parts)
    status = some.columns["status"].copy()
    status[at % len(some)] = Status.PROTOCOL
    least = least_after_failing(judged(some, objectives, len(some), loop))
    assert outcome(changed(some, status=status), objectives, len(some), loop) >= least


@given(parts=stretches, objectives=asked, at=st.integers(0, 600), by=st.integers(1, 400 * MS))
def test_making_a_request_slower_never_improves_the_outcome(
    parts: list[tuple[int, int, int]], objectives: list[Objective], at: int, by: int
) -> None:
    some = run(parts)
    row = at % len(some)
    late = {}
    for name in ("first_byte_ns", "done_ns"):
        late[name] = some.columns[name].copy()
        late[name][row] += by
    before = outcome(some, objectives, len(some), open_loop=False)
    assert outcome(changed(some, **late), objectives, len(some), open_loop=False) >= before


@given(parts=stretches, objectives=asked, at=st.integers(0, 600), by=st.integers(1, 400 * MS), fails=st.booleans())
def test_no_single_request_turns_a_fail_into_a_pass_by_getting_worse(
    parts: list[tuple[int, int, int]], objectives: list[Objective], at: int, by: int, fails: bool
) -> None:
    """With the memory estimated, which one request may move."""
    some = run(parts)
    row = at % len(some)
    done, status = some.columns["done_ns"].copy(), some.columns["status"].copy()
    done[row] += by
    status[row] = Status.TIMEOUT if fails else status[row]
    facts = GeneratorFacts(open_loop=False, planned=len(some), planned_queries=len(some), elapsed_ns=10**15)
    worse = changed(some, done_ns=done, status=status)
    before, after = (judge(one, objectives, assess(one, facts, objectives), "0.9").objectives for one in (some, worse))
    for one, other in zip(before, after, strict=True):
        assert (one.outcome, other.outcome) != ("FAIL", "PASS")


@given(
    gaps=st.lists(st.lists(st.sampled_from([1, 30]), min_size=9, max_size=9), min_size=2, max_size=12),
    times=st.integers(1, 12),
    at=st.integers(0, 143),
    left=st.integers(0, 9),
    limit=st.sampled_from(["p50(itl) <= 10ms", "p90(itl) <= 10ms", "p99(itl) <= 10ms", "max(itl) <= 40ms"]),
)
@example(gaps=[[1] * 5 + [30] * 4, [1] * 4 + [30] * 5], times=1, at=0, left=3, limit="p90(itl) <= 10ms")
def test_breaking_an_answer_off_never_improves_the_outcome(
    gaps: list[list[int]], times: int, at: int, left: int, limit: str
) -> None:
    """It fails and takes the gaps that it had not had yet with it."""
    rows = [[0, *(np.cumsum(row) * MS).tolist()] for row in gaps] * times
    due = np.arange(len(rows)) * 10 * MS
    columns: dict[str, Any] = {
        "due_ns": due,
        "ready_ns": due,
        "sent_ns": due,
        "first_byte_ns": due,
        "done_ns": due + 400 * MS,
    }
    objectives = [parse(limit)]
    whole = from_columns(len(rows), chunks=rows, **columns)
    status = np.zeros(len(rows), np.int64)
    row = at % len(rows)
    status[row] = Status.PROTOCOL
    rows = [*rows[:row], rows[row][: left + 1], *rows[row + 1 :]]
    cut = from_columns(len(rows), chunks=rows, status=status, **columns)
    least = least_after_failing(judged(whole, objectives, len(rows), open_loop=True))
    assert outcome(cut, objectives, len(rows), open_loop=True) >= least


@given(objectives=asked, loop=st.booleans(), planned=st.integers(0, 5))
def test_empty_data_never_pass(objectives: list[Objective], loop: bool, planned: int) -> None:
    nothing = run([(1, 5, 0)]).select(np.zeros(1, bool))
    assume(objectives)
    assert outcome(nothing, objectives, planned, loop) > RANK["PASS"]
