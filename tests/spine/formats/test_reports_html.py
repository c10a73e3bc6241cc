"""The page: offline, escaped, small, complete, and readable without colour, pointer or script."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from plimsoll.reports.documents import words
from plimsoll.reports.format import formats
from plimsoll.reports.formats.html_ import said
from plimsoll.reports.parts.charts import Band, LagBand, Timeline
from plimsoll.reports.svg.plot import Canvas
from plimsoll.reports.svg.strip import Strip, band_layers, strip
from plimsoll.reports.wording.phrases import expression
from tests.page_reader import read
from tests.unit.reports.made_reports import CASES, case, hostile, records, rendered, report

RENDER = formats()["html"].render


def shown(name: str) -> str:
    return rendered(name, "html").decode()


@pytest.mark.parametrize("name", CASES)
def test_the_page_nests_and_is_small(name: str) -> None:
    reader = read(shown(name))
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert len(rendered(name, "html")) < 2_000_000


@pytest.mark.parametrize("name", CASES)
def test_the_page_fetches_nothing(name: str) -> None:
    text = shown(name)
    assert not [a for a in read(shown(name)).attributes if a[1] in ("src", "href", "srcset", "xlink:href", "action")]
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|<link", text)


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_its_reason_and_every_objective_are_in_words(name: str) -> None:
    made = case(name)
    text = " ".join(" ".join(read(shown(name)).words).split())
    assert words.outcome(made) in text
    assert " ".join(words.headline(made).split()) in text
    for result in made.verdict.objectives:
        assert expression(result.objective) in text
    for reason in made.validity.reasons if made.validity.outcome == "INVALID" else []:
        assert reason in text


def test_hostile_strings_become_text() -> None:
    text = RENDER(hostile()).decode()
    reader = read(text)
    assert reader.open == []
    assert not [a for a in reader.attributes if a[1].startswith("on")]
    assert "<script>alert(1)</script>" in "".join(reader.words)
    assert sum(tag == "script" for tag, name, _ in reader.attributes if name == "type") > 0
    assert text.count("alert(1)") == text.count("&lt;script&gt;alert(1)")


@pytest.mark.parametrize("name", CASES)
def test_every_drawing_is_well_formed_and_says_what_it_shows(name: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", shown(name), flags=re.DOTALL)
    for drawing in drawings:
        root = ET.fromstring(drawing)
        assert root.get("aria-label") or root.get("aria-hidden") == "true"
        assert "NaN" not in drawing
        assert "inf" not in re.sub(r'class="[^"]*"|<text.*?</text>|aria-label="[^"]*"', "", drawing)


@pytest.mark.parametrize("name", ["pass", "fail", "latency_only"])
def test_read_outs_have_a_value_for_each_position(name: str) -> None:
    blocks = re.findall(r'<script type="application/json">(.*?)</script>', shown(name), flags=re.DOTALL)
    assert len(blocks) >= 10
    for block in blocks:
        data = json.loads(block)
        assert data["x"] == sorted(data["x"])
        assert len(data["head"]) == len(data["x"])
        for line in data["series"]:
            assert len(line["y"]) == len(line["text"]) == len(data["x"])
            known = [y for y in line["y"] if y is not None]
            assert all(data["top"] - 1 <= y <= data["base"] + 1 for y in known)


def test_a_run_with_tokens_has_all_its_charts() -> None:
    text = " ".join(read(shown("fail")).words)
    for title in (
        "Latency by percentile",
        "Time between tokens by percentile",
        "Time to first token: distribution",
        "Time per output token: distribution",
        "Requests per second",
        "Requests in flight",
        "Output tokens per second",
        "Schedule lag",
    ):
        assert title in text


def test_failed_requests_are_drawn_as_infinite_not_left_out() -> None:
    assert "TTFT ∞" in shown("fail")
    assert "TTFT ∞" not in shown("pass")
    assert "20 failed requests without a finite value, and no bar" in shown("fail")


def test_limits_are_drawn_where_they_bind() -> None:
    text = shown("fail")
    assert "p99 TTFT ≤ 120 ms" in text
    assert "TTFT ≤ 400 ms" in text
    assert "p99 TTFT" not in shown("measured")


def test_an_invalid_page_warns_before_any_number() -> None:
    text = " ".join(read(shown("invalid")).words)
    assert text.index("Why this run is invalid") < text.index("Completed")
    assert "✓ PASS" not in re.sub(r"\s+", " ", text)


def test_budgets_that_nobody_asked_for_stand_folded_below_the_key_figures() -> None:
    text = " ".join(read(shown("pass")).words)
    assert text.index("Completed") < text.index("The numbers") < text.index("Error budgets over the usual 30 days")
    asked = " ".join(read(RENDER(report(records(), ("p99(ttft) <= 500ms over 30d",))).decode()).words)
    assert asked.index("Completed") < asked.index("Error budgets") < asked.index("How fast")


def test_what_is_to_be_typed_is_set_as_code_and_no_backtick_is_left() -> None:
    for name in CASES:
        assert "`" not in " ".join(read(shown(name)).words), name
    assert said("run `plimsoll x <b>`; `") == "run <code>plimsoll x &lt;b&gt;</code>; `"


def test_one_failure_makes_no_gap_and_a_mark_at_the_top_says_where_it_is() -> None:
    timeline = Timeline(
        bucket_ns=1, start_ns=0, end_ns=5, due=[1] * 5, planned_per_s=[1] * 5, sent_per_s=[1] * 5,
        completed_per_s=[1] * 5,
        errors_per_s=[0] * 5, in_flight_max=[1] * 5, in_flight_mean=[1] * 5, lag=LagBand(p50=[1] * 5, p99=[1] * 5,
            max=[1] * 5),
    )  # fmt: skip
    high: list[int | float | None] = [2, 2, None, 2, 2]
    band = Band(p50=[1] * 5, p99=high, failed=[0, 0, 1, 0, 0], p99_ok=[2, 2, 1.5, 2, 2])
    canvas = Canvas(500, 100)
    found = strip(Strip("x", "count", band_layers("x", band, timeline.due)), timeline, "x", canvas, False)
    [shape] = re.findall(r'class="s-x area"[^>]*|<path[^>]*s-x area[^>]*>', str(found.svg))
    assert shape.count("M") == 1, "one piece, over the bucket that lost a request too"
    assert str(found.svg).count('class="s-error bar"') == 1
    told = {line["label"]: line["text"] for line in found.hover["series"]}
    assert told["p99"] == ["2", "2", "∞", "2", "2"]
    assert told["failed"] == ["0", "0", "1", "0", "0"]
    assert "p99 of the successful" in told


def test_few_requests_make_no_picture_but_keep_their_numbers() -> None:
    text = shown("one")
    assert "Too few requests to draw" in text
    assert "Latency by percentile" not in text
    assert "Time to first token" in text


def test_no_success_is_said_plainly() -> None:
    assert "No request succeeded" in shown("all_failed")


def test_a_page_with_many_objectives_and_errors_stays_small() -> None:
    many = tuple(f"p{p}(ttft) <= {p}0ms" for p in range(10, 99))
    assert len(RENDER(report(records(2000, fail_every=7), many))) < 2_000_000
