"""The part of a report on sessions: what it counts, and how it is shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plimsoll.reports.blocks.document import Facts, Section, Table
from plimsoll.reports.sections import sessions as section
from plimsoll.slo.indicators.session_duration import INDICATOR
from plimsoll.slo.metrics.indicator import measure
from plimsoll.slo.metrics.sessions import sessions, spans
from plimsoll.slo.objectives.selector import parse, selected
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import Phase, Records, Status

MS = 1_000_000
OK, HTTP, UNSENT = int(Status.OK), int(Status.HTTP), int(Status.UNSENT)


def rows(*talks: list[tuple[int, int, int]], classes: list[str] | None = None, number: bool = True) -> Records:
    """Sessions of turns (due ms, done ms, status); rows in the order of their due times."""
    flat = sorted(
        (due, done, status, s, t + 1) for s, talk in enumerate(talks) for t, (due, done, status) in enumerate(talk)
    )
    due, done, status, session, turn = (np.array(column) for column in zip(*flat, strict=True))
    columns: dict[str, Any] = {"query_id": np.arange(len(flat)), "due_ns": due * MS, "status": status.astype(np.int8)}
    sent = np.where(status == UNSENT, -1, due * MS)
    done = np.where(status == UNSENT, -1, done * MS)
    first = np.where(status == OK, due * MS + 5 * MS, -1)
    columns |= {"ready_ns": sent, "sent_ns": sent, "done_ns": done, "first_token_ns": first}
    labels: dict[str, list[str | int | None]] = {"session": session.tolist(), "turn": turn.tolist()}
    if classes is not None:
        labels |= {"session": [0] * len(flat), "class": [classes[one] for one in session.tolist()]}
    return rec.from_columns(len(flat), **columns).labelled(LabelTable.of(labels) if number else None)


GOOD = [(0, 100, OK), (150, 250, OK), (300, 380, OK)]
LEFT = [(50, 90, OK), (140, 190, HTTP)]
CUT = [(200, 260, OK), (310, -1, UNSENT)]


def test_sessions_are_finished_abandoned_or_cut_and_only_finished_ones_have_a_length() -> None:
    found = sessions(rows(GOOD, LEFT, CUT), unreached=3)
    assert found is not None
    assert (found.offered, found.started, found.finished, found.abandoned, found.cut) == (3, 3, 1, 1, 1)
    assert (found.turns, found.turns_not_reached) == (7, 3)
    assert found.duration_p50_ns == found.duration_max_ns == float("inf")
    assert [(one.turn, one.n, one.failed) for one in found.by_turn] == [(1, 3, 0), (2, 3, 2), (3, 1, 0)]
    assert [one.latency_p50_ns for one in found.by_turn] == [60 * MS, float("inf"), 80 * MS]
    assert found.by_turn[0].ttft_p99_ns == 5 * MS
    assert sessions(rows(GOOD, number=False)) is None


def test_living_sessions_are_counted_from_the_first_due_time_to_the_last_answer() -> None:
    found = sessions(rows(GOOD, LEFT))
    assert found is not None
    truth = [sum(talk[0][0] <= at / MS < talk[-1][1] for talk in (GOOD, LEFT)) for at in found.at_ns]
    assert list(found.live) == truth
    assert max(truth) == 2


def test_a_session_that_never_began_is_not_alive() -> None:
    """A run that was interrupted: what was planned for later did not go on, and its moments are those of the others."""
    never = [[(1_000 * later, -1, UNSENT)] for later in range(1, 4)]
    found = sessions(rows(GOOD, CUT, *never))
    assert found is not None
    assert (found.offered, found.started, found.cut) == (5, 2, 4)
    assert (max(found.live), found.live[-1], found.at_ns[-1]) == (2, 1, 380 * MS)


def test_classes_number_their_sessions_by_themselves() -> None:
    found = spans(rows(GOOD, LEFT, classes=["a", "b"]))
    assert found is not None
    assert len(found.first) == 2


@pytest.mark.parametrize("order", [0, 1])
def test_session_duration_has_one_value_a_session_infinite_unless_it_is_finished(order: int) -> None:
    given = rows(GOOD, LEFT)
    given = given.select(np.random.default_rng(order).permutation(len(given)))
    found = measure(INDICATOR, given)
    assert sorted(found.values.tolist()) == [380 * MS, float("inf")]


def test_a_part_of_the_rows_has_the_sessions_that_end_there_and_as_long_as_they_were() -> None:
    """A turn picked alone is no session: its latency is not the session's."""
    given = rows(GOOD, LEFT)
    lasted = [measure(INDICATOR, selected(given, parse(f"turn{turn}"))).values for turn in ("=1", "=2", "=3", ">0")]
    assert [values.tolist() for values in lasted] == [[], [np.inf], [380 * MS], [np.inf, 380 * MS]]
    twice = selected(selected(given, parse("turn>1")), parse("turn=3"))
    assert measure(INDICATOR, twice).values.tolist() == [380 * MS]


def test_single_attempts_are_no_turns() -> None:
    """Their rows have the labels of the turn, and whichever comes last, the session ends with the request's."""
    given = rows(GOOD, LEFT)
    again = np.repeat(np.arange(len(given)), 3)
    phase = np.where(np.arange(len(again)) % 3 == 1, int(Phase.MEASURE), int(Phase.ATTEMPT))
    found = measure(INDICATOR, given.select(again).with_columns(phase=phase))
    assert (sorted(found.values.tolist()), found.failed) == ([380 * MS, float("inf")], 1)


def test_the_section_shows_every_turn_and_says_infinite_where_it_is() -> None:
    part = section.sessions_part(sessions(rows(GOOD, LEFT, CUT), unreached=3))
    assert part is not None
    told_of = part.model_dump(mode="json")
    assert told_of["duration_p50_ns"] is None
    times = [told_of, *told_of["by_turn"]]
    assert {type(one[name]) for one in times for name in one if name.endswith("_ns")} == {list, int, type(None)}
    (made,) = section.blocks(part, None)
    assert isinstance(made, Section)
    facts, table = made.blocks[0].blocks  # type: ignore[attr-defined]
    assert isinstance(facts, Facts)
    assert isinstance(table, Table)
    told = dict(facts.pairs)
    assert told["Sessions"] == "3 offered, 3 started: 1 finished, 1 abandoned, 1 cut"
    assert told["Turns"] == "7 due, 3 never due"
    assert "∞" in str(told["Duration"])
    assert [row.cells[0] for row in table.rows] == ["1", "2", "3"]
    assert section.sessions_part(None) is None


def test_the_figures_of_a_turn_are_shown_once() -> None:
    part = section.sessions_part(sessions(rows(GOOD, LEFT, CUT), unreached=3))
    assert part is not None
    for by, tables in ((None, 1), ({"class": {}}, 1), ({"turn": {}}, 0)):
        (made,) = section.blocks(part, SimpleNamespace(by=by))
        assert isinstance(made, Section)
        held = made.blocks[0].blocks  # type: ignore[attr-defined]
        assert sum(isinstance(one, Table) for one in held) == tables
        told = [dict(one.pairs) for one in held if isinstance(one, Facts)]
        assert [one.get("Each turn") for one in told] == [None if tables else "see By turn"]
