"""The page's panels say what the report holds, drawn or in words; accuracy, stages and attempts stand in every format
for people.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from made_reports import (
    CASES,
    GOOD,
    MANIFEST,
    MS,
    SCENARIO,
    S,
    built,
    case,
    every,
    facts,
    records,
    rendered,
    report,
    texts,
)

from plimsoll.reports.blocks.document import Card, Cell, Drawings, Facts, Figures, Folded, Sentence, Table
from plimsoll.reports.documents import pictures, words
from plimsoll.reports.documents.run import check_rows, document, merged_sentence
from plimsoll.reports.format import formats
from plimsoll.reports.parts import provenance
from plimsoll.reports.parts.parts import Check, MergedChunks, Validity
from plimsoll.reports.report import Report
from plimsoll.reports.sections import slowest
from plimsoll.reports.sections import steadiness as steady
from plimsoll.reports.sections.accuracy import Accuracy, AccuracyScore
from plimsoll.reports.sections.anatomy import HELD, REST, anatomy_part, rows
from plimsoll.reports.sections.budgets import MAX_PANELS, NOT_OBSERVABLE, BudgetPart, budgets_part, panels
from plimsoll.reports.sections.peers import row
from plimsoll.reports.sections.steadiness import Drift, Proposal, SteadinessPart, SteadyStretch
from plimsoll.reports.svg.bars import between
from plimsoll.reports.svg.plot import Chart
from plimsoll.reports.svg.spreads import LEVELS, level
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.anatomy import anatomy
from plimsoll.slo.objectives.budget import budgeted
from plimsoll.slo.objectives.ledger import Account, AlertRule, Ledger
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Records
from tests.page_reader import read
from tests.unit.reports.made_reports import hostile

DAY_NS = 86_400 * S


def text_of(name: str) -> str:
    return " ".join(" ".join(read(rendered(name, "html").decode()).words).split())


# -- error budgets --------------------------------------------------------------------------------------------


def budget(bad_every: int, *, period_ns: int = 28 * DAY_NS, n: int = 3000, **more: Any) -> BudgetPart:
    at = np.arange(n) * 20 * MS
    bad = np.zeros(n)
    if bad_every:
        bad[::bad_every] = 1.0
    account = Account(at, bad, Fraction(1, 100))
    ledger = Ledger("chat", "ratio(good) >= 99%", Fraction(99, 100), period_ns, "request", (account,), **more)
    return budgets_part([budgeted(ledger, int(at[-1]))])[0]


def panel(part: BudgetPart) -> Card:
    (found,) = panels([part])
    assert isinstance(found, Card)
    return found


def alerts(part: BudgetPart) -> list[list[str]]:
    (table,) = every(panel(part).blocks, Table)
    return [texts(row) for row in table.rows]


def charts(part: BudgetPart) -> list[Chart]:
    (figures,) = every(panel(part).blocks, Figures)
    return [*figures.drawn()]


def unseen(part: BudgetPart) -> list[str]:
    return [folded.summary for folded in every(panel(part).blocks, Folded)]


def test_a_window_longer_than_the_run_is_called_not_observable() -> None:
    found = panel(budget(20))
    (table,), (_, windows) = every(found.blocks, Table), every(found.blocks, Facts)
    assert {texts(row)[2] for row in table.rows} == {NOT_OBSERVABLE}
    assert {value for _, value in windows.pairs} == {NOT_OBSERVABLE}
    assert all(isinstance(row.cells[2], Cell) and row.cells[2].aside for row in table.rows)


def test_an_alert_that_fires_is_marked_on_the_burn_rate() -> None:
    rule = AlertRule("fast burn", "page", 5 * S, S, 2.0)
    part = budget(20, rules=(rule,))
    (chart,) = charts(part)
    assert alerts(part)[0][2].startswith("fired at ")
    assert "fast burn (page)" in chart.wide.svg
    assert "spends" not in chart.wide.svg  # what the line at 1 means stands in no bar's way, but in the note
    assert "budget lasts exactly its period" in chart.note
    assert "alert fires" in [key.label for key in chart.legend]
    quiet = budget(1000, rules=(rule,))
    assert alerts(quiet)[0][2] == "did not fire"
    assert "fast burn" not in charts(quiet)[0].wide.svg.partition("aria-label")[2].partition(">")[2]


def test_an_alert_that_hangs_on_what_was_not_seen_is_marked_with_a_question_mark() -> None:
    alert = (
        budget(20)
        .alerts[0]
        .model_copy(
            update={"fired": None, "observable": "truncated", "fired_alone_at_ns": 9 * S, "reason": "cut at t0"}
        )
    )
    part = budget(20).model_copy(update={"alerts": [alert]})
    (chart,) = charts(part)
    assert alerts(part)[0][2].startswith("not observable; might have fired at 9.00 s")
    assert "page quick (page)?" in chart.narrow.svg
    assert "might fire" in [key.label for key in chart.legend]
    held = alert.model_copy(update={"fired_alone_at_ns": None, "held_back": True})
    part = budget(20).model_copy(update={"alerts": [held]})
    assert alerts(part)[0][2] == "held back by its 5 min window"
    assert unseen(part) == []


def test_a_run_in_which_nothing_was_bad_has_no_picture_of_its_burn_rate() -> None:
    assert charts(budget(0)) == []


def test_the_gauges_say_in_words_what_they_draw() -> None:
    found = panel(budget(20))
    (gauges,) = every(found.blocks, Drawings)
    bad, spent = (str(draw()) for _, draw in gauges.draw)
    assert "5 % bad, 1 % allowed" in bad
    assert "of the period" in spent
    assert found.look == "budget bad"
    facts = dict(next(every(found.blocks, Facts)).pairs)
    assert facts["Bad in this run"] == "150 of 3,000 (5 %)"
    assert str(facts["Burn rate"]).startswith("5.00")
    assert panel(budget(0)).look == "budget"


def test_a_budget_without_data_draws_nothing_and_says_why() -> None:
    empty = Account(np.empty(0, np.int64), np.empty(0), Fraction(1, 100))
    ledger = Ledger("chat", "ratio(good) >= 99%", Fraction(99, 100), DAY_NS, "request", (empty,))
    (part,) = budgets_part([budgeted(ledger, S)])
    assert not [*every(panel(part).blocks, Drawings)]
    assert charts(part) == []
    assert "No request was counted." in [one.text for one in every(panel(part).blocks, Sentence)]


def test_only_so_many_budgets_are_drawn_those_that_burn_fastest_and_the_others_are_listed() -> None:
    *drawn, others = panels([budget(bad) for bad in (0, 900, 800, 700, 20, 600, 500, 400, 0)])
    assert len(drawn) == MAX_PANELS
    assert [card.look for card in drawn if isinstance(card, Card)].count("budget bad") == 1
    (table,) = every([others], Table)
    assert [texts(row)[2] for row in table.rows] == ["0 %", units.percent(4 / 3000, 3), "0 %"]


def test_alerts_that_can_t_be_seen_are_one_sentence_and_stay_behind_it() -> None:
    said = "4 alerts, not observable: the shortest window is 5 min, the run covers 60.0 s"
    assert unseen(budget(20)) == [said]
    assert unseen(budget(20, rules=(AlertRule("a", "page", S, S, 2.0),))) == []


# -- maps -----------------------------------------------------------------------------------------------------


def test_a_deeper_cell_holds_a_larger_share() -> None:
    assert [level(share) for share in (0.001, 0.02, 0.07, 0.1, 0.3, 1.0)] == [1, 2, 3, 4, 5, 6]
    assert len(LEVELS) == 6


def test_the_heat_map_has_a_row_of_failures_only_where_requests_failed() -> None:
    (lost,), (fine,) = pictures.heat_chart(case("fail")), pictures.heat_chart(case("pass"))
    assert "lost-" in lost.wide.svg
    assert "20 failed requests without a finite value are the row at the top" in lost.note
    assert "lost-" not in fine.wide.svg
    assert fine.wide.hover["series"][0]["label"] == "p99"


def test_a_success_that_never_brought_a_token_is_not_said_to_have_failed() -> None:
    report = case("fail")
    one = report.model_copy(update={"counts": report.counts.model_copy(update={"failed": 12})})
    (lost,) = pictures.heat_chart(one)
    assert "20 requests without a finite value (12 failed, 8 never brought one) are the row at the top" in lost.note


def test_the_chart_by_prompt_length_is_there_only_where_lengths_vary() -> None:
    assert pictures.prompt_chart(case("pass")) == []
    rows = records(600, fail_every=50)
    columns = {**rows.columns, "n_in": 50 + np.arange(600) % 37 * 10, "payload_ix": np.arange(600) % 37}
    (made,) = pictures.prompt_chart(report(type(rows)(columns, rows.chunk_ns, rows.chunk_offsets, rows.errors)))
    assert made.title == "TTFT by prompt length"
    assert "failures" in [key.label for key in made.legend]
    heads = made.wide.hover["head"]
    assert heads[0].endswith("input tokens")


# -- failures and slowest -------------------------------------------------------------------------------------


def failure_cards(made: Report) -> list[Card]:
    return [card for card in every(document(made).blocks, Card) if card.look == "failure"]


def test_every_kind_of_failure_has_its_block_with_ids() -> None:
    made = case("fail")
    assert [card.aside.partition(",")[0] for card in failure_cards(made)] == ["13", "7"]
    text = text_of("fail")
    for kind in made.failures.kinds:
        assert ", ".join(kind.request_ids) in text
    assert "How requests ended" in text_of("pass")


def test_ids_that_were_not_sent_are_not_called_request_ids() -> None:
    scenario = {"target": {"options": {"request_id": False}}}
    made = report(records(300, fail_every=10), GOOD, scenario)
    (facts,) = every(failure_cards(made)[0].blocks, Facts)
    names = [name for name, _ in facts.pairs]
    assert "Rows (ids were not sent)" in names
    assert "Request ids" not in names
    assert "Ids were not sent" in slowest.note(made.slowest)


def test_the_slowest_are_drawn_by_stage_and_listed_by_stamp() -> None:
    blocks = slowest.blocks(case("pass").slowest, None)
    charts = [chart for figures in every(blocks, Figures) for chart in figures.drawn()]
    assert [chart.title for chart in charts] == ["Slowest to their first token", "Slowest to their end"]
    for chart, table in zip(charts, every(blocks, Table), strict=True):
        assert len(table.rows) == 10
        assert all(len(row.cells) == len(table.columns) for row in table.rows)
        for one in table.rows:
            assert isinstance(one.cells[0], Cell)
            assert one.cells[0].code in chart.wide.svg
    (figures,) = every(slowest.blocks(case("latency_only").slowest, None), Figures)
    assert [chart.title for chart in figures.drawn()] == ["Slowest to their end"]
    assert "20 failed requests rank as slower than all of these" in slowest.note(case("fail").slowest)


def test_a_stage_lies_between_neighbouring_stamps_that_happened() -> None:
    stamps = [("ready", 1), ("sent", 3), ("first_byte", None), ("done", 10)]
    assert between(stamps) == [("to-ready", 0, 1), ("to-sent", 1, 3), ("to-done", 3, 10)]


# -- the generator and the run --------------------------------------------------------------------------------


def test_every_check_shows_what_was_seen_and_the_broken_ones_come_first() -> None:
    for name in ("pass", "invalid", "unstable"):
        rows = check_rows(case(name).validity)
        assert all(texts(row)[1] for row in rows)
        assert [row.class_ for row in rows] == sorted((row.class_ for row in rows), reverse=True)
        assert len(rows) == len(case(name).validity.checks)
    seen = dict(texts(row) for row in rows)
    assert "limit" in seen["rate"]
    assert "generator lag p99" in seen["lag"]


def test_a_kept_check_does_not_tell_what_a_broken_one_means() -> None:
    seen = {check.name: check for check in case("pass").validity.checks}
    assert all(check.ok and not check.detail for check in seen.values())
    assert "what was measured is the generator" not in seen["generator CPU"].seen
    assert "can't be compared" not in seen["stamps"].seen
    assert "unstable" not in seen["steady"].seen


def test_merged_chunks_are_told_with_their_error() -> None:
    told = merged_sentence(MergedChunks(count=1200, share=0.04, uncertainty_p99_ns=2 * MS))
    assert told == (
        "1,200 chunks (4 %) came in one read with a later one and carry its time, at most 2.00 ms too late (p99)."
    )
    assert merged_sentence(MergedChunks()) == ""


def steadiness(**more: Any) -> SteadinessPart:
    proposal = Proposal(proposed=True, drop=130, until_ns=4 * S, before_ns=90 * MS, after_ns=60 * MS)
    return SteadinessPart(metric="ttft", n=2000, warmup=proposal, **more)


def test_a_proposed_cut_is_marked_and_said_to_be_a_proposal() -> None:
    part = steadiness(notes=["the first 4 s look like warm-up"], steady=SteadyStretch(verdict="not_found"))
    blocks = steady.blocks(part, None)
    facts = dict(next(every(blocks, Facts)).pairs)
    assert str(facts["Warm-up (MSER-5)"]).startswith("the first 4.00 s, 130 requests; median 90.0 ms before")
    assert "proposal" in str(facts["Left out of the numbers"])
    assert facts["Steady stretch"] == "not found"
    assert [one.text for one in every(blocks, Sentence)] == ["The first 4 s look like warm-up."]
    assert pictures.cut_marks(part) == [(4 * S, "proposed end of warm-up")]
    assert pictures.cut_marks(None) == []


def test_a_drift_says_which_way_and_how_surely() -> None:
    drift = Drift(percentile="p99", direction="up", p=0.0004, change=0.31, shift_at_ns=9 * S, value_ns=[5 * MS, None])
    (table,) = every(steady.blocks(steadiness(drift=[drift], edges_ns=[0, S, 2 * S]), None), Table)
    assert [texts(row) for row in table.rows] == [["p99", "rises by 31 %", "< 0.001", "at 9.00 s", "5.00 ms", "∞"]]
    assert table.columns[0].head == "ttft in 2 windows"


def test_other_tools_numbers_are_listed_with_their_definitions() -> None:
    rows = [row(name, peer) for name, peer in report(records(500)).peers.items()]
    assert len(rows) > 10
    assert all(cells[0] and isinstance(cells[-1], Cell) and cells[-1].text for cells in rows)


# -- the whole page -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_headings_go_down_one_level_at_a_time_and_sections_are_named(name: str) -> None:
    page = rendered(name, "html").decode()
    assert page.count("<h1>") == 1
    heads = re.findall(r'<h2 id="([^"]+)"', page)
    assert len(heads) == len(set(heads))
    for label in re.findall(r'aria-labelledby="([^"]+)"', page):
        assert f'id="{label}"' in page


def test_hostile_errors_and_ids_stay_text_in_every_panel() -> None:
    page = formats()["html"].render(hostile()).decode()
    assert "<script>alert(1)" not in page
    for drawing in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ET.fromstring(drawing)


def test_a_broken_check_is_told_by_its_detail() -> None:
    validity = Validity(
        checks=[Check(name="a", ok=True, seen="1 of 2"), Check(name="b", ok=False, detail="broke", seen="x")]
    )
    assert [(texts(row), row.class_) for row in check_rows(validity)] == [
        (["b", "broke"], "bad"),
        (["a", "1 of 2"], ""),
    ]


# -- OpenMetrics ----------------------------------------------------------------------------------------------


def samples(made: Report, family: str) -> dict[str, float]:
    lines = formats()["openmetrics"].render(made).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(family + "{")}


def test_openmetrics_has_a_state_for_each_objective_and_a_budget_for_each_slo() -> None:
    made = case("fail")
    states = samples(made, "plimsoll_objective")
    assert sum(states.values()) == len(made.verdict.objectives)
    assert states['plimsoll_objective{objective="p99(ttft) <= 120ms",plimsoll_objective="FAIL"}'] == 1
    burns = samples(made, "plimsoll_budget_burn_rate")
    assert list(burns.values()) == pytest.approx(
        [part.burn for part in made.budgets if part.burn is not None], rel=1e-6
    )
    assert burns


def test_openmetrics_says_nothing_of_what_could_not_be_observed() -> None:
    assert not samples(case("fail"), "plimsoll_budget_alert_fired")
    rules = (AlertRule("fast burn", "page", 5 * S, S, 2.0), AlertRule("slow burn", "ticket", DAY_NS, DAY_NS, 2.0))
    made = case("fail").model_copy(update={"budgets": [budget(20, rules=rules)]})
    assert list(samples(made, "plimsoll_budget_alert_fired").values()) == [1]
    assert len(samples(made, "plimsoll_budget_window_burn_rate_max")) == 2


# -- accuracy -------------------------------------------------------------------------------------------------------

SCORES = Accuracy(
    samples=40,
    answered=39,
    scores={
        "exact_match": AccuracyScore(value=0.9, right=36, of=40, interval=(0.77, 0.97)),
        "token_match": AccuracyScore(value=0.95, right=190, of=200),
        "wer": AccuracyScore(value=None, of=200, errors=12),
    },
)


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_the_scores_are_shown_with_their_counts(name: str) -> None:
    page = formats()[name].render(Report(accuracy=SCORES)).decode().replace("\\_", "_")
    for text in (
        "39 of 40 samples answered",
        "36 of 40 samples right",
        "190 of 200 words right",
        "12 errors in 200 words",
    ):
        assert text in page, text
    assert "∞" in page
    assert "samples answered" not in formats()[name].render(Report()).decode()


# -- stages ---------------------------------------------------------------------------------------------------------


def staged(text: str = "queue;dur=1.5, preprocess;dur=2, preprocess.resize;dur=1, decode;dur=30") -> Records:
    plain = records(2000)
    columns = dict(plain.columns) | {"server_timing": np.zeros(len(plain), dtype=np.int32)}
    return replace(plain, columns=columns, timings=(text,))


def test_the_rows_are_the_whole_latency_and_parts_stand_below_their_whole() -> None:
    part = anatomy_part(anatomy(staged()))
    assert part is not None
    assert [(row.cells[0], row.class_) for row in rows(part)] == [
        (HELD, ""),
        ("queue", ""),
        ("preprocess", ""),
        ("\u2003resize", "part"),
        ("decode", ""),
        (REST, ""),
    ]
    for band in part.bands:
        whole = sum(stage.ns for stage in band.stages if not stage.part_of)
        assert band.held_ns + whole + band.rest_ns == band.latency_ns


def test_every_page_says_it() -> None:
    made = report(staged())
    for name in ("text", "markdown", "html"):
        page = formats()[name].render(made).decode()
        assert "Where the time goes" in page, name
        for word in ("queue", "decode", REST):
            assert word in page, (name, word)
    assert made.document()["anatomy"]["bands"][1]["percentile"] == 99.0


def test_a_silent_server_has_no_such_part() -> None:
    made = report(records(200))
    assert made.anatomy is None
    assert b"Where the time goes" not in formats()["html"].render(made)


def test_stage_names_are_escaped_and_overlap_is_a_negative_rest() -> None:
    made = report(staged("a|b`*_;dur=200, c;dur=200"))
    assert made.anatomy is not None
    assert made.anatomy.bands[0].rest_ns < 0
    for name in ("text", "markdown", "html"):
        assert formats()[name].render(made)
    assert "\u2212" in formats()["text"].render(made).decode()


# -- attempts -------------------------------------------------------------------------------------------------------

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
