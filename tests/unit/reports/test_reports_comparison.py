"""A comparison's document and each way to say it: complete, well-formed, harmless, and never greener than the outcome."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator
from made_comparisons import CASES, arm, case
from test_reports_html import read

from reports import comparison_words as say
from reports.comparison import build, json_schema
from reports.comparison_formats import FORMATS
from reports.comparison_parts import ComparisonReport
from slo.arms import Arm
from slo.compare import compare

HOSTILE = "<script>alert(1)</script> | `x` @you #1 https://evil.test \x1b[31m \u202e\n\"'&]]>"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_every_outcome_renders_the_same_way_from_its_document(name: str, form: str) -> None:
    made = case(name)
    assert FORMATS[form](made) == FORMATS[form](ComparisonReport.model_validate(made.document()))


@pytest.mark.parametrize("name", CASES)
def test_the_document_fits_its_schema_and_has_no_infinity(name: str) -> None:
    document = json.loads(FORMATS["json"](case(name)))
    Draft202012Validator(json_schema()).validate(document)
    assert document["schema"] == "plimsoll.comparison/1"
    assert document["exit_code"] == {"REGRESSION": 1, "INCONCLUSIVE": 3, "INVALID": 4}.get(document["outcome"], 0)


# The one of single runs holds resampled numbers, and numpy may change its streams.
@pytest.mark.parametrize("name", [name for name in CASES if name != "single"])
@pytest.mark.parametrize("form", ["text", "markdown", "junit"])
def test_golden(name: str, form: str, golden: Callable[[str, bytes], None]) -> None:
    suffix = {"text": "txt", "markdown": "md", "junit": "xml"}[form]
    golden(f"comparisons/{name}.{suffix}", FORMATS[form](case(name)))


@pytest.mark.parametrize("name", CASES)
def test_people_are_told_the_outcome_every_quantity_and_every_change(name: str) -> None:
    made = case(name)
    page = " ".join(" ".join(read(FORMATS["html"](made).decode()).words).split())
    for text in (page, FORMATS["text"](made).decode()):
        assert say.word(made) in text
        for candidate in made.candidates:
            for effect in candidate.effects:
                assert effect.quantity in text
                assert say.change(effect) in text


@pytest.mark.parametrize("name", CASES)
def test_text_fits_a_hundred_columns(name: str) -> None:
    lines = FORMATS["text"](case(name)).decode().splitlines()
    assert max(map(len, lines)) <= 100
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("name", CASES)
def test_the_page_nests_fetches_nothing_and_draws_well_formed_pictures_with_words(name: str) -> None:
    text = FORMATS["html"](case(name)).decode()
    reader = read(text)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|<link", text)
    for drawing in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        root = ET.fromstring(drawing)
        assert root.get("aria-label") or root.get("aria-hidden") == "true"
        assert "NaN" not in drawing
        assert "nan" not in re.sub(r'class="[^"]*"|<text.*?</text>|aria-label="[^"]*"', "", drawing)


@pytest.mark.parametrize("name", CASES)
def test_junit_is_never_greener_than_the_outcome(name: str) -> None:
    made = case(name)
    root = ET.fromstring(FORMATS["junit"](made))
    bad = int(root.get("failures") or 0) + int(root.get("errors") or 0)
    assert bool(bad) == (made.outcome in ("REGRESSION", "INCONCLUSIVE", "INVALID"))
    assert len(root.findall(".//testcase")) == int(root.get("tests") or 0)
    assert len(root.findall(".//failure")) + len(root.findall(".//error")) == bad


@pytest.mark.parametrize("form", FORMATS)
def test_hostile_names_become_text(form: str) -> None:
    base, candidate = arm("main"), arm(HOSTILE, 1.2, seed=2)
    text = FORMATS[form](
        build(compare(base, [candidate]), base, [candidate], title=HOSTILE, warnings=[HOSTILE])
    ).decode()
    assert not [c for c in text if ord(c) < 32 and c not in "\r\n\t"]
    assert "\u202e" not in text
    if form in ("html", "junit"):
        assert "<script>alert" not in text
    if form == "markdown":
        assert "https://evil" not in text
        assert "<script>alert" not in text


def test_a_comparison_of_nothing_says_so_in_every_format() -> None:
    none = Arm("main", ())
    for form, render in FORMATS.items():
        text = render(build(compare(none, []), none, [])).decode()
        assert form == "json" or "othing was compared" in text


def test_changes_read_as_people_write_them() -> None:
    effects = {e.quantity: e for e in case("regression").candidates[0].effects}
    assert say.change(effects["p99(ttft)"]) == "+13.8 %"
    assert re.fullmatch(r"\+[0-9.]+ to \+[0-9.]+ %", say.interval(effects["p99(ttft)"]))
    assert say.change(effects["ratio(error)"]) == "0.00 pt"
    few = case("inconclusive").candidates[0].effects[0]
    assert say.interval(few) == "–"
    unbounded = {e.quantity: e for e in case("failures").candidates[0].effects}["p99(ttft)"]
    assert say.interval(unbounded).endswith("to ∞")
