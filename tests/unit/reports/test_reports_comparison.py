"""A comparison's document and each way to say it: complete, well-formed, harmless, and never greener than the
outcome.
"""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator
from made_comparisons import CASES, arm, case

from plimsoll.reports.documents import comparison as say
from plimsoll.reports.documents.comparison import FORMATS, scatter
from plimsoll.reports.models.comparison_parts import ComparisonReport, build, front_part, json_schema
from plimsoll.reports.svg.forest import Row, forest
from plimsoll.reports.svg.plot import Canvas
from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.compare import compare
from plimsoll.slo.comparison.tiers import Point, front
from tests.page_reader import read

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


@pytest.mark.parametrize("name", CASES)
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


def test_a_headline_gives_one_candidates_numbers_to_that_candidate_alone() -> None:
    base, others = arm("main"), [arm("b", 1.14, seed=2), arm("c", 1.2, seed=3)]
    found = build(compare(base, others), base, others)
    assert re.fullmatch(r"b: p50\(ttft\): .*\)\. REGRESSION too: c\.", say.headline(found))


def test_an_invalid_run_of_the_base_is_not_told_under_the_name_of_the_candidate_alone() -> None:
    base, others = arm("main"), [arm("b", seed=2), arm("c", seed=3)]
    broken = dataclasses.replace(base.runs[0], reasons=("the event loop stalled once",))
    base = dataclasses.replace(base, runs=(broken, *base.runs[1:]))
    said = say.headline(build(compare(base, others), base, others))
    assert said == ("b against main: run runs/main-0 of main is invalid: the event loop stalled once. INVALID too: c.")


def test_an_interval_wholly_beyond_the_axis_is_drawn_at_its_edge() -> None:
    far = {"tolerance": 0.05, "lower_is_better": False, "tone": "regression", "shown": "x"}
    rows = [Row("down", 0.0, 0.0, 0.0, **far), Row("up", 1e9, 1e9, 1e9, **far), Row("near", 1.0, 0.98, 1.02, **far)]
    drawn = forest(rows, True, "label", 900).svg
    at = [float(x) for x in re.findall(r'(?:x1|x2|cx)="(-?[0-9.e+]+)"', drawn)]
    assert len(at) > 8
    assert all(150 <= x <= 750 for x in at)


def test_names_of_points_in_one_place_stand_beside_each_other() -> None:
    points = [Point(name, (10.0,), (10.0,), name) for name in ("a", "b", "c", "d", "e")]
    chart = front_part("t", "x", "y", front([*points, Point("z", (20.0,), (20.0,), "z")]))
    drawn = scatter(chart, {}, "label", Canvas(900, 400, left=60, right=20, top=30, bottom=40)).svg
    places = re.findall(r'<text x="([^"]+)" y="([^"]+)"[^>]*>([abcde])</text>', drawn)
    assert len(places) == 4  # the fifth has no room
    assert len({place[:2] for place in places}) == 4


def test_a_quantity_of_an_invalid_comparison_has_the_same_word_everywhere() -> None:
    made = case("invalid")
    cases = ET.fromstring(FORMATS["junit"](made)).findall(".//testcase")
    assert [child.get("type") for child in cases[0]] == ["INVALID"]
    said = {str(one.get("name")): one[0].get("type") for one in cases[1:] if one[0].tag != "system-out"}
    words = {effect.quantity: effect.outcome for effect in made.candidates[0].effects}
    assert said == {name: word for name, word in words.items() if name in said}
    assert set(said.values()) == {"REGRESSION"}


@pytest.mark.parametrize(
    ("name", "level"), [("inconclusive", "warning"), ("regression", "error"), ("improvement", "notice")]
)
def test_an_annotation_is_as_loud_as_its_outcome(name: str, level: str) -> None:
    made = case(name)
    loud = [line for line in FORMATS["annotations"](made).decode().splitlines() if f"%3A {made.outcome} " in line]
    assert loud
    assert all(line.startswith(f"::{level} ") for line in loud)
