"""A search for people and programs: every outcome in every format, from a document made of plain numbers."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from typing import Any, get_args

import pytest

from plimsoll.reports.documents import search as picture
from plimsoll.reports.documents import search as say
from plimsoll.reports.documents.search import (
    FORMATS,
    AnswerPart,
    MlperfPart,
    ObjectivePart,
    ProbePart,
    RangePart,
    SearchOutcome,
    SearchReport,
)

MS = 1_000_000
SLO = "p99(ttft) <= 200ms"


def probe(number: int, load: float, outcome: str, observed_ms: float | None = 150.0, **more: Any) -> ProbePart:
    objective = ObjectivePart(
        objective=SLO,
        observed=None if observed_ms is None else int(observed_ms * MS),
        threshold=200 * MS,
        outcome=outcome if outcome in ("PASS", "FAIL", "INCONCLUSIVE") else "INVALID",  # type: ignore[arg-type]
        unit="ns",
        n=400,
    )
    given: dict[str, Any] = {
        "number": number, "purpose": "bisect", "load": load, "length": 1.0, "length_ns": 20 * 10**9, "seed": number,
        "outcome": outcome, "n": 400, "run": f"probes/{number:03d}-bisect", "objectives": [objective],
        "took_ns": 23 * 10**9,
        "achieved_per_s": load, "goodput_per_s": load * 0.99, "rest": "all answers came back, 2.00 s of silence",
    }  # fmt: skip
    return ProbePart(**(given | more))


PROBES = [
    probe(1, 100, "PASS", 80.0, purpose="bracket"),
    probe(2, 800, "FAIL", None, purpose="bracket", cut=True, unstable=True, took_ns=6 * 10**9),
    probe(3, 412, "INCONCLUSIVE", 187.0, n_needed=4603),
    probe(4, 420, "INVALID", 90.0, reasons=["generator lag p99 9 ms, limit 2 ms"]),
    probe(5, 420, "FAIL", 230.0, purpose="ceiling"),
    probe(6, 412, "PASS", 187.0, purpose="confirm"),
]


def report(outcome: str = "FOUND", **more: Any) -> SearchReport:
    ranges: dict[str, RangePart] = {
        "FOUND": RangePart(best=412, interval=(412, 420)),
        "OPEN": RangePart(best=412, interval=(412, None)),
        "NONE": RangePart(best=None, interval=(None, 100)),
    }
    codes = {"FOUND": 0, "NONE": 1, "OPEN": 3, "INCONCLUSIVE": 3, "INVALID": 4, "UNREACHABLE": 5, "INTERRUPTED": 130}
    given: dict[str, Any] = {
        "name": "chat", "variable": "rate", "outcome": outcome, "exit_code": codes[outcome], "probes": PROBES,
        "rate_per_s": ranges.get(outcome, RangePart(best=100, interval=(100, 420))), "objectives": [SLO],
        "spent_ns": 140 * 10**9,
    }  # fmt: skip
    return SearchReport(**(given | more))


WORTH = AnswerPart(
    run="probes/006-bisect", confirmed=True, requests_per_s=411.0, goodput_per_s=409.0, good_fraction=0.995, gpus=4,
    output_tokens_per_s=52_000.0, goodput_per_s_per_gpu=102.25, best_rate_per_gpu=103.0,
    mlperf_server=MlperfPart(valid=True, target_per_s=412.0, completed_per_s=410.5),
)  # fmt: skip


def test_the_answer_is_one_sentence_with_both_ends_and_what_failed() -> None:
    said = say.headline(report(interval_confidence=0.9))
    assert said == (
        "Holds at 412/s (95 % confidence), fails at 420/s: p99(ttft) 230.0 ms, limit 200 ms. Both ends are right "
        "with at least 90 % confidence."
    )
    assert say.headline(report()).endswith("No fresh run confirmed it.")
    open_end = report(rate_per_s=RangePart(best=412, interval=(412, None)), interval_confidence=0.95)
    assert say.headline(open_end) == "Holds at 412/s (95 % confidence), and no higher load was to be tried."
    closed = report(variable="concurrency", rate_per_s=None, concurrency=RangePart(best=32, interval=(32, 33)))
    assert "Holds at 32 in flight" in say.headline(closed)


def test_why_there_is_no_answer_is_a_sentence_of_the_headline_and_said_once() -> None:
    made = report("INCONCLUSIVE", reasons=["the budget of 60 s left no room", "undecided at 110/s"], out_of_time=True)
    assert say.headline(made).endswith(". The budget of 60 s left no room.")
    assert say.unsaid(made) == ["undecided at 110/s"]
    for name in ("text", "markdown", "html"):
        shown = " ".join(FORMATS[name](made).decode().replace("│", " ").lower().split())
        assert shown.count("the budget of 60 s left no room") == 1


def test_a_search_that_was_short_of_time_is_not_told_to_make_its_probes_longer() -> None:
    assert say.next_step(report("OPEN", hurried=True)).startswith("Search into a new folder with a longer --budget")
    assert "--longest" not in say.next_step(report("INCONCLUSIVE", hurried=True))


@pytest.mark.parametrize("outcome", get_args(SearchOutcome))
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_outcome_can_be_said_in_every_format(outcome: str, name: str) -> None:
    for made in (report(outcome), report(outcome, probes=[], rate_per_s=RangePart())):
        shown = FORMATS[name](made).decode()
        assert outcome in shown
        assert "None" not in shown.replace("NoneType", "")
        assert say.next_step(made) or outcome == "FOUND"


def test_whatever_has_no_answer_has_a_next_step() -> None:
    assert "--resume" in say.next_step(report("INCONCLUSIVE", out_of_time=True))
    assert "--longest" in say.next_step(report("INCONCLUSIVE"))
    assert "--start 412" in say.next_step(report("OPEN"))


def test_the_document_has_the_key_of_its_own_variable_alone_and_comes_back_whole() -> None:
    made = report(answer=WORTH)
    document = json.loads(FORMATS["json"](made))
    assert document["schema"] == "plimsoll.search/1"
    assert document["rate_per_s"] == {"best": 412.0, "interval": [412.0, 420.0]}
    assert "concurrency" not in document
    assert document["probes"][1]["objectives"][0]["observed"] is None
    assert SearchReport.model_validate(document) == made


def test_goodput_per_gpu_and_the_server_peak_are_told_with_the_answer() -> None:
    facts = dict(say.facts(report(answer=WORTH)))
    assert facts["rate per GPU (of 4)"] == "103/s"
    assert facts["goodput per GPU (of 4)"] == "102/s"
    assert facts["MLPerf Server"] == "VALID at a target of 412/s, 410/s completed"
    short = MlperfPart(valid=False, target_per_s=412.0, reasons=["Min duration: 600 s"])
    assert "INVALID; Min duration" in say.mlperf(WORTH.model_copy(update={"mlperf_server": short}))


def test_the_page_fetches_nothing_and_links_every_run() -> None:
    page = FORMATS["html"](report(answer=WORTH)).decode()
    assert not re.findall(r'(?:src|href)="(?!probes/)', page)
    assert page.count("/report.html") == len(PROBES) + 1
    for outcome in ("pass", "fail", "inconclusive", "invalid"):
        assert f"probe-{outcome}" in page
    assert "<svg" in page


def test_the_picture_has_a_mark_for_every_probe_and_the_band_of_the_answer() -> None:
    observed, order = picture.charts(report())
    for drawn in (observed.wide.svg, observed.narrow.svg, order.wide.svg):
        assert drawn.count('class="probe probe-') == len(PROBES)
        assert "probe-line bar" in drawn
    assert "limit 200 ms" in observed.wide.svg
    assert picture.charts(report(probes=[])) == []
    assert "probe-line bar" not in picture.charts(report("NONE"))[0].wide.svg


def test_one_probe_alone_and_loads_decades_apart_can_be_drawn() -> None:
    for probes in (PROBES[:1], [probe(1, 1, "PASS"), probe(2, 1000, "FAIL", 90_000.0)], [probe(1, 7, "FAIL", 0.0)]):
        for chart in picture.charts(report("NONE", probes=probes)):
            assert "nan" not in chart.wide.svg
            assert "inf" not in chart.wide.svg


def test_text_from_outside_steers_no_page_and_no_comment() -> None:
    name = '<script>alert(1)</script> [x](http://e) "q"'
    made = report(name=name, reasons=["<b>|x|</b>"])
    assert "<script>alert" not in FORMATS["html"](made).decode()
    assert "<script>alert" not in FORMATS["markdown"](made).decode()
    ET.fromstring(FORMATS["junit"](made))


def test_ci_sees_a_line_that_was_not_found_as_what_it_is() -> None:
    def case(outcome: str) -> ET.Element:
        found = ET.fromstring(FORMATS["junit"](report(outcome))).find("testsuite/testcase")
        assert found is not None
        return found

    assert [child.tag for child in case("FOUND")] == ["system-out"]
    assert case("NONE")[0].tag == "failure"
    assert case("INVALID")[0].tag == "error"


def test_an_outcome_is_as_loud_in_every_format() -> None:
    for outcome, level, tag, sign in (
        ("FOUND", "notice", "system-out", "✅"),
        ("OPEN", "warning", "failure", "❔"),
        ("INCONCLUSIVE", "warning", "failure", "❔"),
        ("NONE", "error", "failure", "❌"),
        ("UNREACHABLE", "error", "error", "⛔"),
    ):
        made = report(outcome)
        case = ET.fromstring(FORMATS["junit"](made)).find("testsuite/testcase")
        assert case is not None
        assert case[0].tag == tag, outcome
        (line,) = FORMATS["annotations"](made).decode().splitlines()
        assert line.startswith(f"::{level} title="), outcome
        assert line.count(made.name) == 1, "the name twice in a title"
        assert FORMATS["markdown"](made).decode().startswith(f"### {sign} {outcome}")


def test_a_spreadsheet_gets_the_outcome_and_every_table() -> None:
    made = report(answer=WORTH)
    rows = list(csv.reader(io.StringIO(FORMATS["csv"](made).decode())))
    assert rows[1][:3] == ["search", made.name, "FOUND"]
    heads = next(row for row in rows if "load" in row)
    at = rows.index(heads) + 1
    assert [row[heads.index("outcome")] for row in rows[at : at + len(PROBES)]] == [one.outcome for one in PROBES]
    assert rows.count(heads) == 1, "a table twice"


def test_the_table_says_what_was_cut_and_what_failures_reached() -> None:
    shown = FORMATS["text"](report()).decode()
    assert "FAIL (cut)" in shown
    assert "∞" in shown
    assert len([line for line in shown.splitlines() if re.match(r" *\d+ ", line)]) >= len(PROBES)
