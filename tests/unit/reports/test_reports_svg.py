"""Axes, labels and whiskers: ticks are round and apart, labels never overlap, limits stay in sight. Chart data is
exact, bounded, and says where failures are. Numbers for people: digits, prefixes, and what rounding may never say.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reports.parts.charts import Curve, Distribution, curve, distribution, grouped, number
from plimsoll.reports.parts.parts import MAX_CURVE_POINTS, ObjectiveResult
from plimsoll.reports.svg.axis import clock, from_zero, logarithmic, nice_step, tail, tail_at
from plimsoll.reports.svg.bars import whisker
from plimsoll.reports.svg.curves import percentiles
from plimsoll.reports.svg.ink import element, path, spread, text_width
from plimsoll.reports.svg.plot import FONT, Canvas
from plimsoll.reports.svg.spreads import Mark, histogram
from plimsoll.reports.wording import units
from plimsoll.slo.statistics.distribution import quantile


@given(st.floats(1e-3, 1e13), st.sampled_from(["ns", "per_s", "count", "ratio", "bytes"]))
def test_a_linear_axis_covers_its_data_with_few_round_ticks(high: float, unit: str) -> None:
    axis = from_zero(high, 100, 0, unit)
    assert axis.high >= high * (1 - 1e-9)
    assert 2 <= len(axis.ticks) <= 7
    assert axis.ticks[0] == (0, "0")
    labels = [label for _, label in axis.ticks]
    assert len(set(labels)) == len(labels)


def test_bytes_are_binary_on_an_axis_as_in_a_table() -> None:
    labels = [[label for _, label in from_zero(high, 100, 0, "bytes").ticks] for high in (300.0 * 2**20, 1.6 * 2**30)]
    assert labels[0] == ["0", "100 MiB", "200 MiB", "300 MiB"]
    assert labels[1] == ["0", "512 MiB", "1 GiB", "1.5 GiB", "2 GiB"]
    assert units.human(300.0 * 2**20, "bytes") == "300 MiB"


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


# -- chart data -----------------------------------------------------------------------------------------------------

values = st.lists(st.one_of(st.integers(1, 10**12), st.just(float("inf"))), min_size=1, max_size=300)


@given(values)
def test_every_point_of_a_curve_is_the_exact_quantile(drawn: list[float]) -> None:
    ordered = np.sort(np.array(drawn, float))
    made = curve(ordered, "ns")
    for q, value in zip(made.q, made.value, strict=True):
        assert value == number(float(ordered[round(q * len(ordered)) - 1]), "ns")
    assert made.q == sorted(set(made.q))
    assert made.q[-1] == 1.0
    assert made.failed == drawn.count(float("inf"))


@given(values)
def test_a_curve_has_the_last_value_before_the_failures(drawn: list[float]) -> None:
    finite = [v for v in drawn if v != float("inf")]
    known = [v for v in curve(np.sort(np.array(drawn, float)), "ns").value if v is not None]
    assert (max(known) if known else None) == (max(finite) if finite else None)


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 1_000_000])
def test_a_curve_is_bounded_and_holds_the_usual_percentiles(n: int) -> None:
    ordered = np.arange(1, n + 1, dtype=float)
    made = curve(ordered, "ns")
    assert len(made.q) <= MAX_CURVE_POINTS
    for p in ("0.5", "0.9", "0.99", "0.999"):
        assert quantile(ordered, p) in made.value


def test_a_curve_of_nothing_is_empty() -> None:
    assert curve(np.empty(0), "ns").q == []


@given(values)
def test_a_histogram_counts_every_value_once(drawn: list[float]) -> None:
    made = distribution(np.sort(np.array(drawn, float)), "ns")
    assert sum(made.counts) + made.infinite == made.n == len(drawn)
    assert len(made.edges) == (len(made.counts) + 1 if made.counts else 0)
    assert len(made.counts) <= 48


def test_a_few_gaps_of_nothing_do_not_stretch_a_histogram_over_decades() -> None:
    made = distribution(np.sort(np.array([0.0, 0.0, 1.0, *[5e6 + i * 1e3 for i in range(500)]])), "ns")
    assert made.edges[0] == pytest.approx(5e6 / 1000, rel=0.1)
    assert made.counts[0] == 3
    assert sum(made.counts) == 503


@given(st.lists(st.tuples(st.one_of(st.integers(0, 99), st.just(float("inf"))), st.integers(0, 4)), max_size=60))
def test_grouped_quantiles_are_those_of_each_group_alone(rows: list[tuple[float, int]]) -> None:
    v = np.array([row[0] for row in rows], float)
    g = np.array([row[1] for row in rows], np.int64)
    (p50, p99) = grouped(v, g, 5, ("0.5", "0.99"))
    for group in range(5):
        part = np.sort(v[g == group])
        if len(part) == 0:
            assert np.isnan(p50[group])
        else:
            assert (p50[group], p99[group]) == (quantile(part, "0.5"), quantile(part, "0.99"))


def test_an_infinity_becomes_null_and_a_time_becomes_whole() -> None:
    assert number(float("inf"), "ns") is None
    assert number(float("nan"), "1") is None
    assert number(1.6, "ns") == 2
    assert number(0.5, "1") == 0.5


# -- units ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ms"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_234, "1.23 µs"),
        (999_600, "1.00 ms"),
        (12_345_678, "12.3 ms"),
        (999_950_000, "1.00 s"),
        (75_000_000_000, "75.0 s"),
        (750_000_000_000, "12 min 30 s"),
        (4_000_000_000_000, "1 h 06 min"),
    ],
)
def test_a_time_has_three_digits_and_the_prefix_that_fits(value: int, text: str) -> None:
    assert units.duration(value) == text


@given(st.integers(1, 10**12))
def test_a_time_never_shows_a_thousand_of_a_smaller_unit(value: int) -> None:
    number = float(units.duration(value).split()[0])
    assert number < 1000


@given(st.floats(1e-9, 1.0, exclude_max=True))
def test_a_share_below_one_is_never_shown_as_all_or_nothing(share: float) -> None:
    shown = units.percent(share)
    assert shown != "0 %"
    if share < 1 - 1e-9:
        assert float(shown.removesuffix(" %")) < 100


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "ns", "∞"),
        (0.9956, "ratio", "99.56 %"),
        (48.21, "per_s", "48.2/s"),
        (12_345.6, "per_s", "12,346/s"),
        (128, "1", "128"),
        (0.1234, "1", "0.123"),
    ],
)
def test_each_unit_has_one_spelling(value: float | None, unit: str, text: str) -> None:
    assert units.human(value, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (200_000_000, "ns", "200 ms"),
        (1_500_000_000, "ns", "1.5 s"),
        (0.995, "ratio", "99.5 %"),
        (40.0, "per_s", "40/s"),
        (1200.0, "per_s", "1,200/s"),
    ],
)
def test_a_limit_reads_as_its_author_wrote_it(value: float, unit: str, text: str) -> None:
    assert units.limit(value, unit) == text


@pytest.mark.parametrize(
    ("q", "name"),
    [(0.0, "min"), (0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (1.0, "max")],
)
def test_quantiles_are_named_as_people_say_them(q: float, name: str) -> None:
    assert units.quantile_name(q) == name
