"""A sweep in every format: what a program reads, and what a page may show and to whom."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET

from plimsoll.reports.documents.sweep import FORMATS
from plimsoll.reports.models.sweep_parts import SweepReport
from tests.unit.reports.made_sweeps import place, seen, sweep, two_series


def test_the_document_reads_back_as_itself() -> None:
    made = sweep(place(20), place(120))
    document = json.loads(FORMATS["json"](made))
    assert document["schema"] == "plimsoll.sweep/1"
    assert set(document["series"][0]["points"][0]) >= {
        *("settings", "x", "offered_per_s", "achieved_per_s", "goodput_per_s", "output_tokens_per_s"),
        *("outcome", "reasons", "unstable", "metrics", "runs"),
    }
    assert SweepReport.model_validate(document) == made


def test_a_spreadsheet_gets_one_row_a_point_and_no_formula() -> None:
    made = sweep(place(20, seen(20, run="=cmd()")), place(40))
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](made).decode())))
    assert [row["x"] for row in rows] == ["20.0", "40.0"]
    assert rows[0]["runs"] == "'=cmd()"
    assert float(rows[0]["latency_p99_ns"]) > float(rows[0]["latency_p50_ns"])


def test_the_page_holds_every_point_its_run_and_nothing_to_fetch() -> None:
    page = FORMATS["html"](sweep(*(place(rate) for rate in (20, 40, 60, 80, 120)))).decode()
    assert 'href="runs/20/report.html"' in page
    assert "UNSTABLE" in page
    assert "knee 60/s" in page
    assert re.search(r"line 7\d(\.\d+)?/s", page)
    assert not re.search(r'(src|href)="(https?:)?//', page)


def test_names_of_the_user_s_are_escaped() -> None:
    made = sweep(place(20), place(40), name="<script>alert(1)</script>")
    assert b"<script>alert(1)" not in FORMATS["html"](made)
    assert b"<script>" not in FORMATS["markdown"](made)


def test_an_unstable_point_stands_hollow_and_its_latency_is_in_no_table() -> None:
    page = FORMATS["html"](sweep(place(20), place(40), place(120))).decode()
    assert "mark hollow" in page
    assert "120/s: p99: UNSTABLE" in page
    text = FORMATS["text"](sweep(place(20), place(40), place(120))).decode()
    assert re.search(r"120 .*–.*UNSTABLE", text)


def test_an_invalid_point_is_a_cross_on_the_axis_of_every_chart_over_the_load() -> None:
    page = FORMATS["html"](sweep(place(20), place(40, seen(40, "INVALID")), place(60))).decode()
    assert page.count("40/s: INVALID, it says nothing") >= 3
    assert "A cross on the axis: INVALID" in page
    assert "INVALID, it says nothing" not in FORMATS["html"](sweep(place(20), place(60))).decode()


def test_text_and_markdown_name_knee_and_line() -> None:
    made = sweep(*(place(rate) for rate in (20, 40, 60, 80)))
    text = " ".join(FORMATS["text"](made).decode().replace("│", " ").split())
    assert "The line lies between 60/s (passes) and 80/s (fails)" in text
    assert "← knee" in text
    assert "| 60/s |" in FORMATS["markdown"](made).decode()


def test_more_series_than_colours_are_still_drawn_and_named() -> None:
    page = FORMATS["html"](two_series()).decode()
    assert page.count("slots 2") > 3


def test_points_that_were_never_measured_make_a_page_all_the_same() -> None:
    for made in (sweep(place(20, seen(20, "INVALID"))), sweep(place(120)), sweep(place(20))):
        assert b"<html" in FORMATS["html"](made)
        assert FORMATS["text"](made)
        assert FORMATS["markdown"](made)


def test_a_value_of_the_user_s_steers_no_terminal() -> None:
    made = sweep(place(20), place(40)).model_copy(
        update={"name": "a\x1b[31mb", "variables": {"user": ["n\x1b[31mred"]}}
    )
    for name in FORMATS:
        assert "\x1b" not in FORMATS[name](made).decode(), name
    assert "n\ufffd[31mred" in FORMATS["html"](made).decode()


def test_ci_sees_the_whole_and_each_point_with_its_own_outcome() -> None:
    made = sweep(place(20), place(40, seen(40, "INVALID")), place(120))
    cases = ET.fromstring(FORMATS["junit"](made)).findall(".//testcase")
    assert [case.get("name") for case in cases] == [made.name, "20/s", "40/s", "120/s"]
    assert [[child.tag for child in case] for case in cases][1:] == [[], ["error"], ["failure"]]
    assert len(FORMATS["annotations"](made).decode().splitlines()) == 4
