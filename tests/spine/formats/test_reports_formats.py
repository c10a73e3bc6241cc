"""Conformance of every format in the folder, and what each one promises on its own."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from rich.console import Console

from plimsoll.reports.blocks.terminal import WIDTH
from plimsoll.reports.documents import words
from plimsoll.reports.documents.run import render_terminal
from plimsoll.reports.format import Format, formats
from plimsoll.reports.parts.parts import Metric
from plimsoll.reports.report import Report
from plimsoll.slo.statistics.distribution import decode
from tests.hdr_log import read
from tests.page_reader import without_columns
from tests.unit.reports.made_reports import CASES, case, hostile, rendered

FORMATS = formats()
WANTED = {"text", "json", "markdown", "junit", "csv", "hdrlog", "openmetrics", "html"}


def test_the_folder_has_every_promised_format() -> None:
    assert set(FORMATS) >= WANTED
    assert len({found.suffix for found in FORMATS.values()}) == len(FORMATS)


@pytest.mark.parametrize("found", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_every_format_renders_every_outcome_the_same_way_twice(found: Format, name: str) -> None:
    data = rendered(name, found.name)
    assert without_columns(data) == found.render(Report.model_validate(case(name).document()))
    assert data == found.render(case(name))
    assert data.decode("utf-8").endswith("\n") or found.name == "html"


@pytest.mark.parametrize("found", FORMATS.values(), ids=FORMATS)
def test_no_format_is_broken_by_hostile_text(found: Format) -> None:
    text = found.render(hostile()).decode("utf-8")
    assert not [c for c in text if ord(c) < 32 and c not in "\r\n\t"]
    assert "\u202e" not in text
    if found.name == "junit":
        ET.fromstring(text)
    if found.name in ("html", "markdown"):
        assert "<script>alert(1)" not in text
    if found.name == "json":
        json.loads(text)


@pytest.mark.parametrize("found", FORMATS.values(), ids=FORMATS)
def test_a_format_says_what_it_is_in_one_line(found: Format) -> None:
    assert found.summary
    assert "\n" not in found.summary
    assert found.suffix.startswith(".")


@pytest.mark.parametrize("name", ["pass", "fail", "invalid", "inconclusive"])
@pytest.mark.parametrize("kind", ["text", "markdown", "junit", "csv", "openmetrics"])
def test_golden(golden: Callable[[str, bytes], None], kind: str, name: str) -> None:
    found = FORMATS[kind]
    golden(f"reports/{name}{found.suffix}", rendered(name, kind))


def test_golden_json(golden: Callable[[str, bytes], None]) -> None:
    document = json.loads(rendered("inconclusive", "json"))
    # The deflated bytes depend on the version of zlib, so the counts stand for them.
    document["histograms"] = {name: int(decode(blob)[0].sum()) for name, blob in document["histograms"].items()}
    golden("reports/inconclusive.json", (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


@pytest.mark.parametrize("name", CASES)
def test_text_fits_its_columns_and_has_no_colour(name: str) -> None:
    text = rendered(name, "text").decode()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "\x1b" not in text
    assert case(name).validity.outcome in text


def test_the_terminal_names_the_written_files() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system="standard")
    console.print(render_terminal(case("fail"), {"Report": "runs/a/report.html"}))
    assert "Report: runs/a/report.html" in re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert "\x1b[" in out.getvalue()


@pytest.mark.parametrize(
    ("name", "failures", "errors", "skipped"),
    [("pass", 0, 0, 0), ("fail", 1, 0, 0), ("inconclusive", 1, 0, 0), ("invalid", 0, 1, 3), ("nothing", 0, 1, 1)],
)
def test_junit_counts_what_is_not_green(name: str, failures: int, errors: int, skipped: int) -> None:
    suite = ET.fromstring(rendered(name, "junit")).find("testsuite")
    assert suite is not None
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases) == len(case(name).verdict.objectives) + 1
    assert len(suite.findall("testcase/failure")) == int(suite.attrib["failures"]) == failures
    assert len(suite.findall("testcase/error")) == int(suite.attrib["errors"]) == errors
    assert len(suite.findall("testcase/skipped")) == int(suite.attrib["skipped"]) == skipped


@pytest.mark.parametrize("name", CASES)
def test_openmetrics_is_read_by_the_reference_parser(name: str) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    text = rendered(name, "openmetrics").decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    states = {s.labels["plimsoll_verdict"]: s.value for s in families["plimsoll_verdict"].samples}
    assert states[case(name).verdict.outcome] == 1
    assert sum(states.values()) == 1


def test_openmetrics_says_infinite_for_failures_and_seconds_for_times() -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    text = rendered("fail", "openmetrics").decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {s.labels.get("quantile", s.name): s.value for s in families["plimsoll_ttft_seconds"].samples}
    p50 = case("fail").metrics["ttft"].p50
    assert p50 is not None
    assert samples["0.5"] == pytest.approx(p50 / 1e9)
    assert samples["1.0"] == float("inf")
    assert samples["plimsoll_ttft_seconds_count"] == 2000


def test_hdrlog_is_read_back_with_its_tags_and_counts() -> None:
    made = case("fail")
    text = rendered("fail", "hdrlog").decode()
    log = read(text)
    assert {i.tag: int(i.counts.sum()) for i in log.intervals} == {
        name: made.metrics[name].n - made.metrics[name].failed for name in made.histograms
    }
    assert log.start_epoch_s == pytest.approx(1_773_237_912.0)
    assert "#ttft: 20 more values are infinite" in text


def test_hdrlog_is_read_by_the_hdrhistogram_package() -> None:
    from hdrh.histogram import HdrHistogram

    line = next(text for text in rendered("pass", "hdrlog").decode().splitlines() if "Tag=ttft," in text)
    p50 = case("pass").metrics["ttft"].p50
    histogram = HdrHistogram.decode(line.rsplit(",", 1)[1])
    assert p50 is not None
    assert histogram.get_value_at_percentile(50) == pytest.approx(p50, rel=0.002)


def test_csv_has_a_row_for_each_metric_and_one_for_its_successes() -> None:
    made = case("fail")
    rows = list(csv.DictReader(io.StringIO(rendered("fail", "csv").decode())))
    assert {row["metric"] for row in rows} == set(made.metrics)
    ttft = {row["rows"]: row for row in rows if row["metric"] == "ttft"}
    assert ttft["all"]["max"] == "inf"
    assert int(ttft["ok"]["n"]) == 1980
    assert int(ttft["all"]["p50"]) == made.metrics["ttft"].p50


@pytest.mark.parametrize("name", CASES)
def test_markdown_tables_have_as_many_cells_in_every_row(name: str) -> None:
    text = rendered(name, "markdown").decode()
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in block.strip().splitlines()}
        assert len(widths) == 1


def test_markdown_neither_links_nor_mentions() -> None:
    text = FORMATS["markdown"].render(hostile()).decode()
    assert "https://evil" not in text
    assert "@you" not in text
    assert "#1" not in text


def test_a_row_that_says_the_same_twice_is_left_out_of_tables() -> None:
    first = Metric(
        unit="ns", n=3, mean=5, min=1, p50=5, p90=9, p95=9, p99=9, p99_9=9, max=9, title="Time to first token"
    )
    same = first.model_copy(update={"title": "Time to first answer token"})
    other = same.model_copy(update={"p50": 6})
    assert list(words.shown(Report(metrics={"ttft": first, "ttft_answer": same}))) == ["ttft"]
    assert list(words.shown(Report(metrics={"ttft": first, "ttft_answer": other}))) == ["ttft", "ttft_answer"]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_narrow_terminal_gets_fewer_numbers_and_no_cut_off_ones(width: int) -> None:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(render_terminal(case("fail"), width=width))
    table = out.getvalue().split("Metrics")[1].split("Read with care")[0]
    assert "…" not in table
    assert ("p99.9" in table) == (width >= 100)
    assert "p99" in table
    assert "p99(ttft)" in out.getvalue().replace("\n", "")
