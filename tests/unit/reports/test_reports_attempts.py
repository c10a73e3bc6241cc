"""A reader is told of attempts that the machine spoiled, and of the host's timer, in every format for people; of
neither where there was none.
"""

from __future__ import annotations

import pytest
from made_reports import MANIFEST, SCENARIO, built, case, facts, records

from plimsoll.reports.documents import words
from plimsoll.reports.format import formats
from plimsoll.reports.parts import provenance
from plimsoll.reports.report import Report
from plimsoll.slo.objectives.objective import parse

LATE = {"number": 1, "outcome": "INVALID", "reasons": ["generator lag p99 8 ms, limit 2 ms. Free the host"]}
TIMER = {
    "late_ns": {"p50": 60_000, "p90": 90_000, "p99": 180_000, "max": 400_000}, "sleeps": 200, "spin_ns": 90_000,
    "core_share": 0.0018,
}  # fmt: skip


def made(**manifest: object) -> Report:
    rows = records()
    return built({**MANIFEST, **manifest}, SCENARIO, rows, facts(rows), [parse("p50(ttft) <= 10s")])


def flat(report: Report, name: str) -> str:
    return " ".join(formats()[name].render(report).decode().replace("│", " ").replace("\\", "").split())


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_people_read_how_often_it_was_sent_and_why(name: str) -> None:
    said = "Attempt 1 was INVALID by the generator alone (generator lag p99 8 ms, limit 2 ms. Free the host) and is kept in attempts/1; this is attempt 2, of the same schedule."  # noqa: E501
    assert said in flat(made(attempts=[LATE]), name)
    assert "by the generator alone" not in flat(made(), name)


def test_all_attempts_are_listed_this_one_last() -> None:
    report = made(attempts=[LATE, {**LATE, "number": 2}])
    assert [(one.number, one.outcome, one.directory) for one in report.attempts] == [
        (1, "INVALID", "attempts/1"),
        (2, "INVALID", "attempts/2"),
        (3, report.verdict.outcome, "."),
    ]
    assert provenance.repeated(report.attempts).startswith(
        "Attempts 1 and 2 were INVALID by the generator alone (the last of them: "
    )
    more = made(attempts=[{**LATE, "number": number} for number in (1, 2, 3)])
    assert provenance.repeated(more.attempts).startswith("Attempts 1 to 3 were")
    assert made().attempts == []


@pytest.mark.parametrize("damage", [None, 7, "x", [], [7], {"number": 1}])
def test_a_damaged_note_costs_no_report(damage: object) -> None:
    assert made(attempts=damage).attempts == []


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_people_read_what_the_host_timer_was_like(name: str) -> None:
    said = "late by p50 60.0 µs, p90 90.0 µs, p99 180 µs, max 400 µs in 200 sleeps of 1 ms; awake for the last 90.0 µs before each due time (0.18 % of a core at most)"  # noqa: E501
    assert said in flat(made(timer=TIMER), name)
    assert "Host timer" not in flat(made(), name)


@pytest.mark.parametrize("damage", [None, {}, {**TIMER, "late_ns": {}}, {**TIMER, "spin_ns": "x"}])
def test_a_damaged_timer_is_none(damage: object) -> None:
    assert made(timer=damage).run.timer is None
    assert words.host_timer(case("fail").run.timer) == ""
