"""Axes, labels and whiskers: ticks are round and apart, labels never overlap, limits stay in sight."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reports.parts.charts import Curve, Distribution
from plimsoll.reports.parts.parts import ObjectiveResult
from plimsoll.reports.svg.axis import clock, from_zero, logarithmic, nice_step, tail, tail_at
from plimsoll.reports.svg.bars import whisker
from plimsoll.reports.svg.curves import percentiles
from plimsoll.reports.svg.ink import element, path, spread, text_width
from plimsoll.reports.svg.plot import FONT, Canvas
from plimsoll.reports.svg.spreads import Mark, histogram


@given(st.floats(1e-3, 1e13), st.sampled_from(["ns", "per_s", "count", "ratio"]))
def test_a_linear_axis_covers_its_data_with_few_round_ticks(high: float, unit: str) -> None:
    axis = from_zero(high, 100, 0, unit)
    assert axis.high >= high * (1 - 1e-9)
    assert 2 <= len(axis.ticks) <= 7
    assert axis.ticks[0] == (0, "0")
    labels = [label for _, label in axis.ticks]
    assert len(set(labels)) == len(labels)


@given(st.floats(1, 1e10), st.floats(1.0, 1e5))
def test_ticks_of_a_logarithmic_axis_lie_inside_and_apart(low: float, ratio: float) -> None:
    axis = logarithmic(low, low * ratio, 0, 400, "ns", gap=50)
    assert len(axis.ticks) >= 1
    places = [axis.at(v) for v, _ in axis.ticks]
    assert all(-1 <= at <= 401 for at in places)
    assert places == sorted(places)


@given(st.floats(1e6, 1e14))
def test_the_clock_has_a_handful_of_ticks_and_starts_at_zero(span: float) -> None:
    axis = clock(0, span, 0, 1000)
    assert axis.ticks[0] == (0, "0")
    assert len(axis.ticks) <= 10


def test_each_nine_takes_the_same_room() -> None:
    axis = tail(100_000, 0, 500)
    places = [axis.at(tail_at(q, 100_000)) for q in (0.9, 0.99, 0.999, 0.9999)]
    steps = [b - a for a, b in pairwise(places)]
    assert steps == pytest.approx([steps[0]] * 3)
    assert [label for _, label in axis.ticks] == ["0", "50", "90", "99", "99.9", "99.99", "99.999"]
    assert axis.at(tail_at(1.0, 100_000)) == pytest.approx(500)


@given(st.lists(st.floats(0, 200), min_size=1, max_size=8))
def test_labels_never_overlap_and_stay_inside_while_there_is_room(wanted: list[float]) -> None:
    placed = spread(wanted, 15, 0, 200)
    ordered = sorted(placed)
    assert all(b - a >= 15 - 1e-9 for a, b in pairwise(ordered))
    assert ordered[0] >= -1e-9
    assert ordered[-1] <= 200 + 1e-9


@given(st.floats(1e-6, 1e12), st.integers(1, 10))
def test_a_nice_step_is_one_two_or_five(span: float, count: int) -> None:
    step = nice_step(span, count)
    assert span / step <= count * (1 + 1e-9)
    assert float(f"{step:.0e}"[0]) in (1, 2, 5)


def test_elements_escape_what_they_are_given() -> None:
    assert str(element("text", "<b>&", x=1.25, class_='a"b')) == '<text x="1.2" class="a&#34;b">&lt;b&gt;&amp;</text>'


def test_a_line_breaks_where_there_is_no_value() -> None:
    drawn = str(path([(0, 0), (1, 1), None, (3, 3), None, (5, 5), (6, 6)], "s"))
    assert drawn.count("M") == 2
    assert drawn.count("<circle") == 1


def result(**changed: object) -> ObjectiveResult:
    base: dict[str, object] = {
        "objective": "p99(ttft) <= 200ms",
        "outcome": "PASS",
        "observed": 150,
        "threshold": 200,
        "unit": "ns",
        "interval": (140, 170),
        "n": 1000,
        "operator": "<=",
    }
    return ObjectiveResult.model_validate(base | changed)


def test_no_data_has_no_whisker() -> None:
    assert whisker(result(n=0, observed=None)) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"observed": None, "interval": (150, None), "outcome": "FAIL"},
        {"observed": None, "interval": (None, None), "outcome": "FAIL"},
        {"interval": (0, None)},
        {"observed": 200, "interval": (200, 200)},
        {"unit": "ratio", "observed": 1.0, "threshold": 0.995, "interval": (0.99, 1.0), "operator": ">="},
        {"observed": 0, "threshold": 0, "interval": (0, 0), "unit": "1"},
        {"observed": 10**15, "threshold": 1, "interval": (10**14, None)},
    ],
)
def test_a_whisker_is_drawn_for_every_shape_of_interval(changed: dict[str, object]) -> None:
    drawn = whisker(result(**changed))
    assert drawn is not None
    assert "threshold" in drawn
    assert "nan" not in str(drawn).lower()


def test_the_bad_side_depends_on_the_operator() -> None:
    below, above = str(whisker(result())), str(whisker(result(operator=">=")))
    assert below.index("zone good") < below.index("zone bad")
    assert 'x="4"' in above.split("zone bad")[0].rsplit("<rect", 1)[1]


def test_a_value_of_zero_stays_on_a_logarithmic_axis() -> None:
    curve = Curve(unit="ns", n=4, q=[0.25, 0.5, 0.75, 1.0], value=[0, 1_000_000, 2_000_000, 90_000_000])
    canvas = Canvas(600, 300)
    picture = percentiles({"itl": curve}, [], "itl", canvas)
    bottom = max(canvas.y_range)
    ys = [float(y) for y in re.findall(r"[ML][\d.]+[ ,]([\d.]+)", str(picture.svg))]
    assert ys
    assert max(ys) <= bottom


def test_a_mark_over_the_first_bar_keeps_off_the_numbers_of_the_axis() -> None:
    data = Distribution(n=700, edges=[30.0, 31.0, 500.0, 510.0], counts=[600, 0, 100])
    canvas = Canvas(420, 200, left=40, right=10, top=10, bottom=30)
    drawn = histogram("ttft", data, [Mark(30.4, "p50 30.4 ms", "quantile")], "label", canvas).svg
    [(centre, width)] = re.findall(r'<text x="([0-9.]+)"[^>]*>(p50 30\.4 ms)<', drawn)
    assert float(centre) - text_width(width, FONT) / 2 >= 39.9
