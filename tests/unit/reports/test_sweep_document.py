"""What a sweep says: the line in its bracket, the knee, the outcome and the exit code, whatever became of the runs. A
sweep in every format: what a program reads, and what a page may show and to whom.
"""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET

import pytest

from plimsoll.reports.documents import sweep as say
from plimsoll.reports.documents.sweep import FORMATS
from plimsoll.reports.models.sweep_building import About, Course, Place, Seen, build, figures
from plimsoll.reports.models.sweep_parts import SweepReport
from plimsoll.reports.report import Report
from tests.unit.reports.made_reports import case
from tests.unit.reports.made_sweeps import LIMIT_NS, MU, place, seen, sweep, two_series

#: Where ln(100) / (mu - lambda) is 200 ms.
TRUTH = MU - 4.605170186 / (LIMIT_NS / 1e9)


def test_the_line_of_a_known_queue_is_interpolated_within_a_per_cent_of_the_closed_form() -> None:
    made = sweep(*(place(rate) for rate in (20, 40, 60, 70, 80, 90)))
    line = made.series[0].line
    assert line is not None
    assert (line.low, line.high) == (70, 80)
    assert line.interpolated == pytest.approx(TRUTH, rel=0.01)
    assert line.by == "p99(latency) <= 200ms"
    assert made.series[0].knee is not None
    assert made.series[0].knee.x == 70
    assert (made.outcome, made.exit_code) == ("FOUND", 0)


def test_attainment_is_given_beside_it_and_named() -> None:
    line = sweep(*(place(rate) for rate in (60, 70, 80))).series[0].line
    assert line is not None
    assert line.attainment is not None
    assert line.attainment.x == pytest.approx(70 + 10 * 7 / 37)
    assert line.attainment.target == 0.9
    assert "DistServe" in line.attainment.method


def test_attainment_is_read_between_neighbours_that_say_something_and_never_above_saturation() -> None:
    unknown = place(75, seen(75, "INVALID"))
    for places in ((place(70), place(120)), (place(70), unknown, place(80)), (place(80), place(85))):
        line = sweep(*places).series[0].line
        assert line is not None
        assert line.attainment is None


def test_no_line_is_read_off_an_unstable_point() -> None:
    made = sweep(place(40), place(70), place(120))
    line = made.series[0].line
    assert line is not None
    assert (line.low, line.high, line.interpolated) == (70, 120, None)
    assert "did not keep up" in line.crossings[0].why
    assert made.series[0].points[-1].unstable
    assert "no crossing can be read off" in say.sentence(made.series[0], made)


def test_an_undecided_point_below_an_unstable_one_still_shows_where_the_limit_is_crossed() -> None:
    line = sweep(place(40), place(70), place(80, seen(80, "INCONCLUSIVE")), place(120)).series[0].line
    assert line is not None
    assert line.undecided == [80]
    assert line.interpolated == pytest.approx(TRUTH, rel=0.02)


def test_an_invalid_point_gives_no_figure_and_does_not_break_the_curve() -> None:
    made = sweep(*(place(rate, seen(rate, "INVALID" if rate == 75 else None)) for rate in (60, 70, 75, 80)))
    spoiled = made.series[0].points[2]
    assert (spoiled.outcome, spoiled.metrics, spoiled.achieved_per_s) == ("INVALID", {}, None)
    line = made.series[0].line
    assert line is not None
    assert line.interpolated == pytest.approx(TRUTH, rel=0.01)
    assert any("INVALID" in text for text in made.warnings)


@pytest.mark.parametrize(
    ("outcomes", "outcome", "code"),
    [
        (("PASS", "PASS"), "HOLDS", 0),
        (("PASS", "FAIL"), "FOUND", 0),
        (("FAIL", "FAIL"), "FAIL", 1),
        (("INCONCLUSIVE", "FAIL"), "INCONCLUSIVE", 3),
        (("PASS", "INCONCLUSIVE"), "HOLDS", 0),
        (("INVALID", "INVALID"), "INVALID", 4),
        (("INVALID", "FAIL"), "FAIL", 4),
        (("PASS", "INVALID"), "HOLDS", 4),
    ],
)
def test_the_exit_code_says_whether_a_point_holds(outcomes: tuple[str, str], outcome: str, code: int) -> None:
    made = sweep(*(place(rate, seen(rate, judged)) for rate, judged in zip((20, 40), outcomes, strict=True)))  # type: ignore[arg-type]
    assert (made.outcome, made.exit_code) == (outcome, code)


def test_every_series_that_reaches_the_highest_load_is_named() -> None:
    assert say.headline(two_series()).endswith("the highest load that holds is 40/s, with slots 1 and slots 2.")


def test_where_more_load_gives_less_the_sentence_says_so() -> None:
    runs = {20: seen(20), 40: seen(40, achieved_per_s=11.0)}
    made = sweep(*(place(rate, one) for rate, one in runs.items()))
    knee = made.series[0].knee
    assert knee is not None
    assert (knee.x, knee.most_x, knee.most_per_s) == (40, 20, 20)
    assert "More load gives less: 20.0/s answered at 20/s, 11.0/s at 40/s." in say.headline(made)
    assert "More load" not in say.headline(sweep(place(20), place(40)))


def test_an_endpoint_that_was_never_reached_is_exit_5_and_one_that_went_away_is_a_warning() -> None:
    gone = Seen("runs/2", "unreachable", error="cannot connect")
    assert sweep(place(20, gone)).exit_code == 5
    made = sweep(place(20), place(40, gone))
    assert (made.exit_code, made.series[0].points[1].outcome) == (0, "UNREACHABLE")
    assert "cannot connect" in made.warnings[0]


def test_a_sweep_that_was_stopped_before_its_first_run_says_so_and_judges_nothing() -> None:
    made = sweep(place(20, Seen("runs/1", "pending")))
    assert (made.outcome, made.exit_code) == ("INCONCLUSIVE", 3)
    assert "--resume" in made.warnings[0]
    assert say.headline(made) == "Nothing was measured: the sweep was stopped before its first run ended."


def test_without_a_limit_on_a_request_no_share_is_called_good() -> None:
    made = sweep(*(place(rate, seen(rate, good_fraction=None)) for rate in (60, 70, 80)))
    line = made.series[0].line
    assert line is not None
    assert line.attainment is None
    assert made.fronts[1].title == "Throughput against p99(latency)"


def test_points_that_were_left_out_say_why() -> None:
    made = sweep(place(20), place(400, Seen("runs/9", "skipped", error="already saturated at 200/s")))
    assert made.series[0].points[1].outcome == "SKIPPED"
    assert made.series[0].points[1].reasons == ["already saturated at 200/s"]
    assert made.exit_code == 0


def test_runs_of_a_point_that_differ_are_undecided_and_its_figures_are_medians() -> None:
    runs = [seen(20, run="a"), seen(20, "FAIL", "b", achieved_per_s=18.0), seen(20, run="c", achieved_per_s=19.0)]
    point = sweep(place(20, *runs)).series[0].points[0]
    assert point.outcome == "INCONCLUSIVE"
    assert point.reasons[0] == "the runs differ: 2 PASS, 1 FAIL"
    assert point.achieved_per_s == 19.0
    assert point.achieved_range == (18.0, 20.0)
    assert point.runs == ["a", "b", "c"]


def test_without_an_objective_the_carried_load_is_told_and_no_line() -> None:
    made = sweep(place(20, seen(20, good_fraction=None)), place(120, seen(120, good_fraction=None)), promised=False)
    assert made.series[0].line is None
    assert made.outcome == "MEASURED"
    assert "Carried up to 20/s" in say.headline(made)


def test_along_a_setting_that_is_no_load_nothing_is_called_a_knee() -> None:
    judged = (seen(60, "FAIL"), seen(60, "PASS"))
    places = tuple(Place({"server.slots": n}, n, (one,)) for n, one in zip((1.0, 2.0), judged, strict=True))
    made = build(About("q", {"server.slots": [1, 2]}, "server.slots", True, ["o"]), [Course({}, places)])
    (series,) = made.series
    assert (series.knee, series.line, series.bend, series.saturated_at) == (None, None, None, None)
    assert say.headline(made) == "Passes at slots 2. Fails at slots 1."
    assert made.exit_code == 0


def test_fronts_leave_out_what_did_not_keep_up() -> None:
    made = sweep(*(place(rate) for rate in (20, 40, 120)))
    assert [front.title for front in made.fronts] == [
        "Throughput against interactivity",
        "Goodput against p99(latency)",
    ]
    assert {point.name for front in made.fronts for point in front.points} == {"20/s", "40/s"}
    assert made.fronts[1].x_better == "lower"


def test_of_very_many_points_only_the_edge_of_the_front_is_kept() -> None:
    rates = [20 + n / 4 for n in range(201)]
    made = sweep(*(place(rate, seen(rate, achieved_per_s=20.0, goodput_per_s=20.0)) for rate in rates))
    # All have the same goodput, so the earliest beats the rest.
    assert [point.name for point in made.fronts[1].points] == ["20/s"]
    assert made.fronts[1].title.endswith("the edge of 201 points")


def test_every_series_has_its_own_sentence() -> None:
    made = two_series()
    assert [series.label for series in made.series] == ["slots 1", "slots 2"]
    assert "the highest load that holds is 40/s" in say.headline(made)
    assert all("between 40/s (passes) and 80/s (fails)" in say.sentence(s, made) for s in made.series)


def test_the_figures_of_a_report_are_its_own() -> None:
    report: Report = case("pass")
    found = figures(report)
    assert found.achieved_per_s == report.throughput.requests_per_s
    assert found.completion == report.counts.ok / (report.counts.ok + report.counts.failed)
    assert found.metrics["ttft"].p99 == report.metrics["ttft"].p99
    assert "lag" not in found.metrics


# -- formats --------------------------------------------------------------------------------------------------------


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
