"""The page's panels: error budgets, maps, drill-downs and checks say what the report holds, drawn or in words."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from made_reports import CASES, GOOD, MS, S, case, records, rendered, report
from test_reports_formats import hostile
from test_reports_html import read

from plimsoll.reports.format import formats
from plimsoll.reports.formats.html_ import render
from plimsoll.reports.page import budget as page_budget
from plimsoll.reports.page import content as page_failures
from plimsoll.reports.page import content as page_slowest
from plimsoll.reports.page import content as page_validity
from plimsoll.reports.page import pictures as page_spread
from plimsoll.reports.page.content import peer_rows
from plimsoll.reports.parts.parts import Check, MergedChunks, Validity
from plimsoll.reports.report import Report
from plimsoll.reports.sections.budgets import BudgetPart, budgets_part
from plimsoll.reports.sections.steadiness import Drift, Proposal, SteadinessPart, SteadyStretch
from plimsoll.reports.svg.bars import between
from plimsoll.reports.svg.spreads import LEVELS, level
from plimsoll.reports.wording import units
from plimsoll.slo.objectives.budgets.alerts import budgeted
from plimsoll.slo.objectives.budgets.ledger import Account, AlertRule, Ledger

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


def test_a_window_longer_than_the_run_is_called_not_observable() -> None:
    panel = page_budget.budget_panels([budget(20)])[0]
    assert {alert["outcome"] for alert in panel["alerts"]} == {page_budget.NOT_OBSERVABLE}
    assert all(window["seen"] == page_budget.NOT_OBSERVABLE for window in panel["windows"])
    assert all(alert["reason"] for alert in panel["alerts"])


def test_an_alert_that_fires_is_marked_on_the_burn_rate() -> None:
    rule = AlertRule("fast burn", "page", 5 * S, S, 2.0)
    part = budget(20, rules=(rule,))
    panel = page_budget.budget_panels([part])[0]
    alert = panel["alerts"][0]
    assert alert["outcome"].startswith("fired at ")
    assert "fast burn (page)" in panel["chart"].wide.svg
    assert "spends" not in panel["chart"].wide.svg  # what the line at 1 means stands in no bar's way, but in the note
    assert "budget lasts exactly its period" in panel["chart"].note
    assert "alert fires" in [key.label for key in panel["chart"].legend]
    quiet = page_budget.budget_panels([budget(1000, rules=(rule,))])[0]
    assert quiet["alerts"][0]["outcome"] == "did not fire"
    assert "fast burn" not in quiet["chart"].wide.svg.partition("aria-label")[2].partition(">")[2]


def test_an_alert_that_hangs_on_what_was_not_seen_is_marked_with_a_question_mark() -> None:
    alert = (
        budget(20)
        .alerts[0]
        .model_copy(
            update={"fired": None, "observable": "truncated", "fired_alone_at_ns": 9 * S, "reason": "cut at t0"}
        )
    )
    panel = page_budget.budget_panels([budget(20).model_copy(update={"alerts": [alert]})])[0]
    assert panel["alerts"][0]["outcome"].startswith("not observable; might have fired at 9.00 s")
    assert "page quick (page)?" in panel["chart"].narrow.svg
    assert "might fire" in [key.label for key in panel["chart"].legend]
    held = alert.model_copy(update={"fired_alone_at_ns": None, "held_back": True})
    panel = page_budget.budget_panels([budget(20).model_copy(update={"alerts": [held]})])[0]
    assert panel["alerts"][0]["outcome"] == "held back by its 5 min window"
    assert panel["unseen"] == ""


def test_a_run_in_which_nothing_was_bad_has_no_picture_of_its_burn_rate() -> None:
    assert page_budget.budget_panels([budget(0)])[0]["chart"] is None


def test_the_gauges_say_in_words_what_they_draw() -> None:
    panel = page_budget.budget_panels([budget(20)])[0]
    assert "5 % bad, 1 % allowed" in panel["gauge"]
    assert "of the period" in panel["tank"]
    assert panel["class"] == "bad"
    facts = dict(panel["facts"])
    assert facts["Bad in this run"] == "150 of 3,000 (5 %)"
    assert facts["Burn rate"].startswith("5.00")
    assert page_budget.budget_panels([budget(0)])[0]["class"] == ""


def test_a_budget_without_data_draws_nothing_and_says_why() -> None:
    empty = Account(np.empty(0, np.int64), np.empty(0), Fraction(1, 100))
    ledger = Ledger("chat", "ratio(good) >= 99%", Fraction(99, 100), DAY_NS, "request", (empty,))
    panel = page_budget.budget_panels(budgets_part([budgeted(ledger, S)]))[0]
    assert panel["gauge"] is None
    assert panel["chart"] is None
    assert panel["reason"]


def test_only_so_many_budgets_are_drawn_those_that_burn_fastest_and_the_others_are_listed() -> None:
    parts = [budget(every) for every in (0, 900, 800, 700, 20, 600, 500, 400, 0)]
    drawn, listed = page_budget.budget_panels(parts), page_budget.budget_rows(parts)
    assert len(drawn) == page_budget.MAX_PANELS
    assert [panel["class"] for panel in drawn].count("bad") == 1
    assert [row["bad"] for row in listed] == ["0 %", units.percent(4 / 3000, 3), "0 %"]


def test_alerts_that_can_t_be_seen_are_one_sentence_and_stay_behind_it() -> None:
    panel = page_budget.budget_panels([budget(20)])[0]
    assert panel["unseen"] == "4 alerts, not observable: the shortest window is 5 min, the run covers 60.0 s"
    assert page_budget.budget_panels([budget(20, rules=(AlertRule("a", "page", S, S, 2.0),))])[0]["unseen"] == ""


# -- maps -----------------------------------------------------------------------------------------------------


def test_a_deeper_cell_holds_a_larger_share() -> None:
    assert [level(share) for share in (0.001, 0.02, 0.07, 0.1, 0.3, 1.0)] == [1, 2, 3, 4, 5, 6]
    assert len(LEVELS) == 6


def test_the_heat_map_has_a_row_of_failures_only_where_requests_failed() -> None:
    lost, fine = page_spread.heat_chart(case("fail")), page_spread.heat_chart(case("pass"))
    assert lost is not None
    assert fine is not None
    assert "lost-" in lost.wide.svg
    assert "20 failed requests without a finite value are the row at the top" in lost.note
    assert "lost-" not in fine.wide.svg
    assert fine.wide.hover["series"][0]["label"] == "p99"


def test_a_success_that_never_brought_a_token_is_not_said_to_have_failed() -> None:
    report = case("fail")
    one = report.model_copy(update={"counts": report.counts.model_copy(update={"failed": 12})})
    lost = page_spread.heat_chart(one)
    assert lost is not None
    assert "20 requests without a finite value (12 failed, 8 never brought one) are the row at the top" in lost.note


def test_the_chart_by_prompt_length_is_there_only_where_lengths_vary() -> None:
    assert page_spread.prompt_chart(case("pass")) is None
    rows = records(600, fail_every=50)
    columns = {**rows.columns, "n_in": 50 + np.arange(600) % 37 * 10, "payload_ix": np.arange(600) % 37}
    made = page_spread.prompt_chart(report(type(rows)(columns, rows.chunk_ns, rows.chunk_offsets, rows.errors)))
    assert made is not None
    assert made.title == "TTFT by prompt length"
    assert "failures" in [key.label for key in made.legend]
    heads = made.wide.hover["head"]
    assert heads[0].endswith("input tokens")


# -- failures and slowest -------------------------------------------------------------------------------------


def test_every_kind_of_failure_has_its_block_with_ids() -> None:
    made = case("fail")
    blocks = page_failures.failure_blocks(made)
    assert [block["count"] for block in blocks] == ["13", "7"]
    text = text_of("fail")
    for kind in made.failures.kinds:
        assert ", ".join(kind.request_ids) in text
    assert "How requests ended" in text_of("pass")


def test_ids_that_were_not_sent_are_not_called_request_ids() -> None:
    scenario = {"target": {"options": {"request_id": False}}}
    made = report(records(300, fail_every=10), GOOD, scenario)
    names = [name for name, _ in page_failures.failure_blocks(made)[0]["facts"]]
    assert "Rows (ids were not sent)" in names
    assert "Request ids" not in names
    assert "Ids were not sent" in page_slowest.slowest_note(made)


def test_the_slowest_are_drawn_by_stage_and_listed_by_stamp() -> None:
    groups = page_slowest.slowest_groups(case("pass"))
    assert [group["chart"].title for group in groups] == ["Slowest to their first token", "Slowest to their end"]
    for group in groups:
        assert len(group["rows"]) == 10
        assert all(len(row["stamps"]) == len(group["stages"]) for row in group["rows"])
        for row in group["rows"]:
            assert row["id"] in group["chart"].wide.svg
    assert [group["chart"].title for group in page_slowest.slowest_groups(case("latency_only"))] == [
        "Slowest to their end"
    ]
    assert "20 failed requests rank as slower than all of these" in page_slowest.slowest_note(case("fail"))


def test_a_stage_lies_between_neighbouring_stamps_that_happened() -> None:
    stamps = [("ready", 1), ("sent", 3), ("first_byte", None), ("done", 10)]
    assert between(stamps) == [("to-ready", 0, 1), ("to-sent", 1, 3), ("to-done", 3, 10)]


# -- the generator and the run --------------------------------------------------------------------------------


def test_every_check_shows_what_was_seen_and_the_broken_ones_come_first() -> None:
    for name in ("pass", "invalid", "unstable"):
        rows = page_validity.check_rows(case(name).validity)
        assert all(row["seen"] for row in rows)
        assert [row["ok"] for row in rows] == sorted(row["ok"] for row in rows)
        assert len(rows) == len(case(name).validity.checks)
    assert "limit" in next(row["seen"] for row in rows if row["name"] == "rate")
    assert "generator lag p99" in next(row["seen"] for row in rows if row["name"] == "lag")


def test_a_kept_check_does_not_tell_what_a_broken_one_means() -> None:
    seen = {check.name: check for check in case("pass").validity.checks}
    assert all(check.ok and not check.detail for check in seen.values())
    assert "what was measured is the generator" not in seen["generator CPU"].seen
    assert "can't be compared" not in seen["stamps"].seen
    assert "unstable" not in seen["steady"].seen


def test_merged_chunks_are_told_with_their_error() -> None:
    told = page_validity.merged_sentence(MergedChunks(count=1200, share=0.04, uncertainty_p99_ns=2 * MS))
    assert told == (
        "1,200 chunks (4 %) came in one read with a later one and carry its time, at most 2.00 ms too late (p99)."
    )
    assert page_validity.merged_sentence(MergedChunks()) == ""


def steadiness(**more: Any) -> SteadinessPart:
    proposal = Proposal(proposed=True, drop=130, until_ns=4 * S, before_ns=90 * MS, after_ns=60 * MS)
    return SteadinessPart(metric="ttft", n=2000, warmup=proposal, **more)


def test_a_proposed_cut_is_marked_and_said_to_be_a_proposal() -> None:
    part = steadiness(notes=["the first 4 s look like warm-up"], steady=SteadyStretch(verdict="not_found"))
    panel = page_validity.steadiness_panel(part)
    assert panel is not None
    facts = dict(panel["facts"])
    assert facts["Warm-up (MSER-5)"].startswith("the first 4.00 s, 130 requests; median 90.0 ms before")
    assert "proposal" in facts["Left out of the numbers"]
    assert facts["Steady stretch"] == "not found"
    assert panel["notes"] == ["The first 4 s look like warm-up."]
    assert page_spread.cut_marks(part) == [(4 * S, "proposed end of warm-up")]
    assert page_spread.cut_marks(None) == []


def test_a_drift_says_which_way_and_how_surely() -> None:
    drift = Drift(percentile="p99", direction="up", p=0.0004, change=0.31, shift_at_ns=9 * S, value_ns=[5 * MS, None])
    panel = page_validity.steadiness_panel(steadiness(drift=[drift], edges_ns=[0, S, 2 * S]))
    assert panel is not None
    assert panel["drift"] == [
        {
            "percentile": "p99",
            "trend": "rises by 31 %",
            "p": "< 0.001",
            "shift": "at 9.00 s",
            "low": "5.00 ms",
            "high": "∞",
        }
    ]
    assert panel["windows"] == 2


def test_other_tools_numbers_are_listed_with_their_definitions() -> None:
    rows = peer_rows(report(records(500)).peers)
    assert len(rows) > 10
    assert all(row["name"] and row["definition"] for row in rows)


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
    page = render(hostile()).decode()
    assert "<script>alert(1)" not in page
    for drawing in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ET.fromstring(drawing)


def test_a_broken_check_is_told_by_its_detail() -> None:
    validity = Validity(
        checks=[Check(name="a", ok=True, seen="1 of 2"), Check(name="b", ok=False, detail="broke", seen="x")]
    )
    assert page_validity.check_rows(validity) == [
        {"name": "b", "ok": False, "seen": "broke"},
        {"name": "a", "ok": True, "seen": "1 of 2"},
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
