"""The page: offline, escaped, small, complete, and readable without colour, pointer or script."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from made_reports import CASES, case, records, rendered, report
from test_reports_formats import hostile

from reports import words
from reports.format import formats

RENDER = formats()["html"].render
VOID = {"meta", "link", "br", "img", "input", "hr"}


def shown(name: str) -> str:
    return rendered(name, "html").decode()


class Reader(HTMLParser):
    """Checks that elements nest, and keeps ids, attributes and the text outside of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


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
        assert words.expression(result.objective) in text
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
    assert "20 failed requests have no finite value and no bar" in shown("fail")


def test_limits_are_drawn_where_they_bind() -> None:
    text = shown("fail")
    assert "p99 TTFT ≤ 120 ms" in text
    assert "TTFT ≤ 400 ms" in text
    assert "p99 TTFT" not in shown("measured")


def test_an_invalid_page_warns_before_any_number() -> None:
    text = " ".join(read(shown("invalid")).words)
    assert text.index("Why this run is invalid") < text.index("Completed")
    assert "✓ PASS" not in re.sub(r"\s+", " ", text)


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
