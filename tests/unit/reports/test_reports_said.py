"""What a reader is told: one deciding sentence everywhere, one kind of bounds, the bad end of every metric, each
failure once.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_reports import CASES, GOOD, MANIFEST, SCENARIO, built, case, every, facts, records, rendered, report

from plimsoll.reports.blocks.document import Card, Cell, On, Sentence, Table
from plimsoll.reports.blocks.terminal import plain
from plimsoll.reports.documents import words
from plimsoll.reports.documents.run import document, render_terminal
from plimsoll.reports.format import formats
from plimsoll.reports.parts.parts import Verdict
from plimsoll.reports.report import Report
from plimsoll.reports.wording import units
from plimsoll.reports.wording.phrases import sentence
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.openslo.reading import load
from plimsoll.slo.statistics.distribution import quantile

WITH_FAILURES = ("p99.9(ttft) <= 120ms", "ratio(good) >= 97%", "ttft <= 400ms")


def squeezed(data: bytes) -> str:
    """A text without the lines' ends, frames and escapes that its format put in."""
    text = re.sub(r"[│┃]\s*\n[│┃]", " ", data.decode())
    return " ".join(re.sub(r"\\(.)", r"\1", text).split())


@pytest.mark.parametrize("name", CASES)
def test_every_format_for_people_says_the_same_sentence(name: str) -> None:
    made = case(name)
    line = " ".join(words.headline(made).replace("\u00a0", " ").split())
    assert line in squeezed(rendered(name, "text").replace("\u00a0".encode(), b" "))
    assert line in squeezed(rendered(name, "markdown").replace("\u00a0".encode(), b" "))
    page = document(made)
    assert page.headline == words.headline(made)
    cards = [card for card in every(page.blocks, Card) if card.look.startswith("objective")]
    for result, card in zip(made.verdict.objectives, cards, strict=True):
        assert result.sentence
        assert sentence(result.sentence) in [one.text for one in every(card.blocks, Sentence)]
        assert f"{result.outcome} {result.objective}: {result.sentence}" in words.lines(made)
        if made.verdict.outcome != "INVALID":
            assert result.sentence in "".join(
                [*(e.get("message", "") for e in ET.fromstring(rendered(name, "junit")).iter()), *_texts(name)]
            )
            assert result.sentence.replace("%", "%25") in rendered(name, "annotations").decode()


@pytest.mark.parametrize("form", ["annotations", "csv", "html", "junit", "markdown", "text"])
def test_a_run_is_rendered_as_the_document_that_it_is(form: str) -> None:
    made, where = case("fail"), {"html": On.ALL, "text": On.TERMINAL}.get(form, On.MARKDOWN)
    known = formats()[form]
    assert known.document is not None
    assert known.render(made) == known.document(document(made, where))


def test_a_run_that_could_not_decide_anything_is_a_warning_in_a_ci_log() -> None:
    made = case("pass")
    made = made.model_copy(update={"verdict": Verdict(outcome="INCONCLUSIVE", reasons=["too few"])})
    assert formats()["annotations"].render(made).startswith(b"::warning ")


def _texts(name: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(rendered(name, "junit")).iter("system-out")]


def test_a_percentile_that_is_a_failure_is_never_called_infinite() -> None:
    made = report(records(fail_every=100), WITH_FAILURES)
    first = made.verdict.objectives[0]
    assert (first.observed, first.failed) == (None, 20)
    of_ok = made.metrics["ttft"].of_ok
    assert of_ok is not None
    assert first.observed_ok == of_ok.p99_9
    assert made.verdict.decides == "p99.9(ttft) <= 120ms"
    said = words.headline(made)
    assert "20 of them failed; p99.9 of the successful 600.5 ms" in said
    assert "infinite" not in said
    assert words.observed(first) == words.interval(first) == "a failure"
    assert all("infinite" not in text for text in made.verdict.reasons)


def test_the_reasons_are_the_sentences_of_what_did_not_pass() -> None:
    made = case("fail")
    failed = [result for result in made.verdict.objectives if result.outcome != "PASS"]
    assert made.verdict.reasons == [f"{result.objective}: {result.sentence}" for result in failed]


def test_a_pass_names_the_objective_nearest_to_its_limit() -> None:
    made = case("pass")
    assert made.verdict.decides == "p99(ttft) <= 500ms"
    assert "Nearest to its limit is p99(ttft) ≤ 500ms: 4 of 2,000 requests later than 500 ms where 1 % may be" in (
        words.headline(made)
    )
    assert case("invalid").verdict.decides == ""


@pytest.mark.parametrize("name", ["pass", "fail", "inconclusive", "invalid"])
def test_bounds_are_of_one_kind_and_say_so(name: str) -> None:
    made = case(name)
    note = words.bounds_note(made)
    assert "each one-sided; 90 % for both at once" in note
    assert note in squeezed(rendered(name, "text"))
    assert note in squeezed(rendered(name, "markdown"))
    page = rendered(name, "html").decode().replace("\xa0", " ")  # between a number and its unit
    assert page.count(note) == 1
    assert "95 % interval" not in page
    assert units.bounds(made.confidence) == "bounds, 95 % each"
    assert "| bounds, 95 % each |" in rendered(name, "markdown").decode()


def test_a_ratio_has_the_same_bounds_as_its_budget_where_bad_ones_lie_evenly() -> None:
    made = report(records(600, fail_every=60), ("ratio(error) <= 5%",))
    (result,), (budget,) = made.verdict.objectives, made.budgets
    assert result.design_effect == 1.0
    low, high = budget.sli_interval
    assert low is not None
    assert high is not None
    assert result.interval == pytest.approx((1 - high, 1 - low), abs=1e-9)
    assert budget.confidence == made.confidence


def test_facts_alone_need_no_word_on_bounds() -> None:
    made = report(records(300), ("max(ttft) <= 1s",))
    assert not words.bounded(made)
    assert "Bounds:" not in plain(render_terminal(made)).decode()


# -- the bad end of a metric ----------------------------------------------------------------------------------


def test_what_more_is_better_of_shows_its_low_end_by_nearest_rank() -> None:
    made_records = records(900, fail_every=45)
    made = report(made_records, GOOD)
    lower, higher = words.metric_tables(made)
    assert [head for _, head in lower.columns] == ["p50", "p90", "p95", "p99", "p99.9", "max"]
    assert [head for _, head in higher.columns] == ["p50", "p10", "p5", "p1", "p0.1", "min"]
    assert "output_rate" in higher.metrics
    assert {*higher.metrics} == {name for name in words.shown(made) if catalogue()[name].better == "higher"}
    found = measure(catalogue()["output_rate"], made_records)
    metric = made.metrics["output_rate"]
    for some, values in ((metric, found.values), (metric.of_ok, found.values[made_records.ok[found.row]])):
        assert some is not None
        assert some.low is not None
        for key, share in (("p10", "0.1"), ("p5", "0.05"), ("p1", "0.01"), ("p0_1", "0.001")):
            assert getattr(some.low, key) == quantile(np.sort(values), share)
        assert some.p99 == quantile(np.sort(values), "0.99"), "report.json keeps the nearest rank of its name"
    assert made.metrics["ttft"].low is None
    assert set(made.document()["metrics"]["output_rate"]["low"]) == {"p10", "p5", "p1", "p0.1"}


def test_no_table_shows_the_best_end_of_what_more_is_better_of() -> None:
    made = case("fail")
    best = units.human(made.metrics["output_rate"].p99, "per_s")
    worst = units.human(made.metrics["output_rate"].low.p1, "per_s")  # type: ignore[union-attr]
    for kind in ("text", "markdown"):
        (row,) = (
            line for line in rendered("fail", kind).decode().splitlines() if re.match(r"(\| )?output\\?_rate", line)
        )
        assert best not in row
        assert worst in row
    table = [table for table in every(document(made).blocks, Table) if table.look == "metrics"][1]
    (row_,) = (row for row in table.rows if isinstance(row.cells[0], Cell) and row.cells[0].code == "output_rate")
    assert best not in row_.cells
    assert row_.cells[[column.head for column in table.columns].index("p1")] == worst


# -- failures -------------------------------------------------------------------------------------------------


def twenty() -> Report:
    """20 failures of one cause, whose texts differ in a number each."""
    made = records(400, fail_every=20)
    errors = [f"request 8a41f3c09b{at:02d} timed out after {at} ms" for at in range(20)]
    number = np.full(400, -1)
    number[made["status"] != 0] = np.arange(20)
    columns = {**made.columns, "error": number, "status": np.where(number >= 0, 3, 0)}
    return report(replace(made, columns=columns, errors=tuple(errors)), ("ratio(error) <= 1%",))


def failure_cards(made: Report) -> list[Card]:
    return [card for card in every(document(made).blocks, Card) if card.look == "failure"]


@pytest.mark.parametrize("kind", ["text", "markdown"])
def test_failures_that_differ_in_numbers_only_are_one_line(kind: str) -> None:
    text = squeezed(formats()[kind].render(twenty()))
    assert text.count("timed out after") == 1
    assert "(20 texts that differ in" in text


def test_the_page_counts_each_failure_once() -> None:
    made = twenty()
    assert [card.aside for card in failure_cards(made)] == ["20, 5 % of all"]
    page = formats()["html"].render(made).decode()
    assert page.count("20 texts that differ in numbers only") == 1
    assert "of other kinds" not in page


def test_kinds_that_are_not_listed_are_counted() -> None:
    made = records(600, fail_every=20)
    number = np.full(600, -1)
    number[made["status"] != 0] = np.arange(30)
    texts = tuple(f"trouble {chr(97 + at % 26)}{chr(97 + at // 26)}" for at in range(30))
    columns = {**made.columns, "error": number}
    found = report(replace(made, columns=columns, errors=texts), ())
    assert len(failure_cards(found)) == 12
    written = formats()["markdown"].render(found).decode()
    assert "|  | other kinds | 18 |" in written
    assert "18 more failures of other kinds." in formats()["html"].render(found).decode()


def test_an_objective_of_an_openslo_document_is_shown_by_what_it_is_called() -> None:
    slos = load(Path(__file__).parents[3] / "docs" / "examples" / "openslo-chat.yaml").slos
    made = records(400)
    shown = built(MANIFEST, SCENARIO, made, facts(made), [], slos=tuple(slos))
    for kind in ("text", "markdown", "html"):
        page = formats()[kind].render(shown).decode().replace("\\", "")
        assert ("First token" if kind == "text" else "First token within 200 ms") in page, kind  # a table breaks lines
