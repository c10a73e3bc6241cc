"""Fluidity, both definitions: the vectors of SEMANTICS D.7, and what the index can't do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from plimsoll.slo.metrics import deadlines
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Records, Status, from_columns

MS = 1_000_000

#: Waits in ms, deadlines 500 and 100: missed and all deadlines by the code, tokens on time by the documentation.
VECTORS = [
    ([400, 100, 100, 350, 100, 50], 2, 7, 5),
    ([900, 100, 100], 5, 7, 2),
    ([400, 0, 0, 0, 500], 0, 5, 5),
    ([400, 250, 100], 1, 3, 2),
    ([500, 100], 0, 2, 2),  # on the deadline is in time
    ([501, 100], 1, 2, 1),
]


def answer(*waits_ms: float, n_out: int | None = None, **columns: object) -> Records:
    """A request due and sent at 0 whose chunks come after these waits."""
    times = np.cumsum([round(wait * MS) for wait in waits_ms]).tolist()
    tokens = len(times) if n_out is None else n_out
    return from_columns(1, due_ns=0, sent_ns=0, n_out=tokens, chunks=[times], **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(("waits", "missed", "whole", "on_time"), VECTORS)
def test_the_published_vectors(waits: Sequence[int], missed: int, whole: int, on_time: int) -> None:
    records = answer(*waits)
    met = deadlines.measure(records, records["sent_ns"])
    assert int(met.missed[0]) == missed
    assert int(met.tokens[0] - met.late[0] + met.missed[0]) == whole
    assert int(met.tokens[0] - met.late[0]) == on_time
    assert deadlines.share_of_deadlines(met)[0] == pytest.approx(1 - missed / whole, abs=1e-15)
    assert deadlines.share_on_time(met)[0] == on_time / len(waits)


def test_documentation_and_code_disagree_about_a_long_stall() -> None:
    """One token late by ten deadlines: one token of four, or ten of thirteen deadlines."""
    records = answer(400, 100, 1200, 100)
    met = deadlines.measure(records, records["sent_ns"])
    assert deadlines.share_on_time(met)[0] == 0.75
    assert deadlines.share_of_deadlines(met)[0] == pytest.approx(3 / 14)


def test_a_chunk_of_several_tokens_earns_the_slack_of_each() -> None:
    """Four tokens every 350 ms are faster than one every 100 ms, whatever the chunks look like."""
    records = answer(400, 350, 350, 350, n_out=16)
    as_tokens = deadlines.measure(records, records["due_ns"])
    as_chunks = deadlines.measure(records, records["due_ns"], per_chunk=True)
    assert (int(as_tokens.tokens[0]), int(as_tokens.late[0])) == (16, 0)
    assert (int(as_chunks.tokens[0]), int(as_chunks.late[0])) == (4, 3)


def test_tokens_that_do_not_divide_are_spread_by_rounding_down() -> None:
    """Seven tokens in three chunks: 2, 2, 3. The third chunk is wanted 4 * 100 ms after the first was due."""
    assert deadlines.share_on_time(deadlines.measure(answer(500, 200, 200, n_out=7), np.zeros(1, np.int64)))[0] == 1
    assert deadlines.share_on_time(deadlines.measure(answer(500, 200, 201, n_out=7), np.zeros(1, np.int64)))[0] == 6 / 7


def test_other_deadlines_can_be_asked_for() -> None:
    records = answer(250, 30, 30)
    met = deadlines.measure(records, records["due_ns"], 200 * MS, 20 * MS)
    assert int(met.late[0]) == 3
    assert int(met.missed[0]) == 3 + 1 + 1 + 1 - 1  # 1 + floor(50 / 20), then 1 + floor(10 / 20) twice


def test_the_pace_of_the_fluid_token_rate_is_the_shortest_deadline_that_a_tenth_may_miss() -> None:
    """The first wait is left out, so only the gaps 100, 100, 350, 100, 50 count: 350 <= D + 2 (D - 100)."""
    found = deadlines.fluid_pace(answer(9000, 100, 100, 350, 100, 50), np.ones(1, bool))
    assert found.pace_ns[0] == pytest.approx(550 / 3 * MS, abs=deadlines.PRECISION_NS)
    even = answer(*[10] * 12)
    assert deadlines.fluid_pace(even, np.ones(1, bool)).pace_ns[0] == pytest.approx(10 * MS, abs=deadlines.PRECISION_NS)


def test_the_fluid_pace_of_a_long_run_is_of_an_even_pick_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "SEARCHED_CHUNKS", 100)
    chunks = [[10 * MS, 20 * MS, 30 * MS]] * 100
    records = from_columns(100, due_ns=0, n_out=3, chunks=chunks)
    found = deadlines.fluid_pace(records, np.ones(100, bool))
    assert (found.looked_at, found.of) == (34, 100)
    assert deadlines.fluid_pace(records, np.zeros(100, bool)).looked_at == 0


def test_it_is_an_objective_like_any_other_and_a_failure_is_worst() -> None:
    indicator = catalogue()["fluidity"]
    assert str(parse("p5(fluidity) >= 0.9")) == "p5(fluidity) >= 0.9"
    failed = answer(400, 100, status=int(Status.TIMEOUT))
    assert measure(indicator, failed).values.tolist() == [0.0]
    late_to_leave = from_columns(1, due_ns=0, sent_ns=900 * MS, n_out=1, chunks=[[1000 * MS]])
    assert measure(indicator, late_to_leave).values.tolist() == [0.0]  # from the due time, not from when it was sent


def test_holding_back_one_token_alone_can_raise_the_index() -> None:
    """The reason to judge a stream by its reader as well: nobody reads sooner for it."""
    plain = answer(100, 100, 900, 190, n_out=4)
    held = answer(100, 995, 5, 190, n_out=4)
    first, second = (deadlines.measure(some, some["due_ns"]) for some in (plain, held))
    assert deadlines.share_on_time(second)[0] > deadlines.share_on_time(first)[0]
