"""A metric of an outside package, installed beside us, is judged and shown wherever ours are: nothing here names it but
its own file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from html import unescape
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from plimsoll.harness.generator.recorder import Recorder, spread
from plimsoll.harness.generator.worker import others_of
from plimsoll.harness.live.state import LiveState
from plimsoll.reports.documents.comparison import FORMATS
from plimsoll.reports.documents.live import RunPart
from plimsoll.reports.format import formats
from plimsoll.reports.formats.html_ import live_look as look
from plimsoll.reports.models.comparison_parts import build as build_comparison
from plimsoll.slo.comparison.arms import Arm, sample
from plimsoll.slo.comparison.compare import compare
from plimsoll.slo.comparison.quantity import parse_all
from plimsoll.slo.metrics import indicator
from plimsoll.slo.metrics.plugin import PluginError, every
from tests.unit.harness import live_runs
from tests.unit.reports import made_reports
from tests.virtual_time import VirtualClock

FOLDER = Path(__file__).parents[2] / "outside" / "metric"


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(FOLDER)
    importlib.invalidate_caches()
    indicator.catalogue.cache_clear()
    every.cache_clear()
    yield
    indicator.catalogue.cache_clear()
    every.cache_clear()


@pytest.mark.usefixtures("_installed")
def test_an_outside_metric_is_judged_and_shown_in_the_report() -> None:
    report = made_reports.report(made_reports.records(), ("p99(headers) <= 300ms",))
    assert [one.objective for one in report.verdict.objectives] == ["p99(headers) <= 300ms"]
    assert (report.verdict.outcome, report.metrics["headers"].title) == ("PASS", "Time to the headers")
    assert list(report.metrics).index("headers") < list(report.metrics).index("lag"), "by its group and rank"
    assert {"headers"} <= report.charts.curves.keys() & report.charts.distributions.keys()
    assert report.charts.timeline is not None
    assert "headers" in report.charts.timeline.bands
    assert "headers" in formats()["text"].render(report).decode()
    html = unescape(formats()["html"].render(report).decode())
    assert "Time to the headers: distribution" in html
    assert "headers: p50 " in html, "a line in the chart of latency by percentile"


@pytest.mark.usefixtures("_installed")
def test_an_outside_metric_goes_from_the_recorder_to_the_live_page() -> None:
    """Of measured successes alone, by segment; tests/unit/harness/test_plugins.py has a whole run."""
    rows = made_reports.records(300, fail_every=10)
    recorder = Recorder(VirtualClock(), lambda exchange: None, lambda: 1 << 62, lambda records: None, 0)
    recorder.others = others_of(indicator.live_ones())
    recorder.keep_records(rows)
    fresh = recorder.take_fresh()
    assert indicator.live_ones() == ("headers",)
    assert len(fresh.others["headers"]) == int((rows.ok & rows.in_measure).sum())
    assert not recorder.take_fresh().others
    state = LiveState(RunPart(scenario="made up", kind="server"), [])
    state.begin(live_runs.beginning(live_runs.open_plan(100, 60), 0), 0)
    others = {name: spread(values) for name, values in fresh.others.items()}
    state.heard(0, {**live_runs.status(300, 300), "others": others}, 2_000_000_000)
    report = state.report(3_000_000_000)
    assert report.metrics["headers"].n == len(fresh.others["headers"])
    assert "Time to the headers" in unescape(look(report))


@pytest.mark.usefixtures("_installed")
def test_an_outside_metric_is_compared() -> None:
    asked = parse_all(["p99(headers)"])
    arms = [
        Arm(name, tuple(sample(made_reports.records(200, slow=by + 0.01 * i), asked) for i in range(6)))
        for name, by in (("main", 1.0), ("slower", 2.0))
    ]
    found = compare(arms[0], arms[1:], asked)
    assert found.outcome == "REGRESSION"
    html = unescape(FORMATS["html"](build_comparison(found, arms[0], arms[1:])).decode())
    assert "Time to the headers by percentile" in html


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("outside_metric:MISSING", r"plug-in mine = outside_metric:MISSING of group .*Mend or uninstall"),
        ("outside_metric:_compute", "no INDICATOR"),
        ("plimsoll.slo.indicators.ttft:INDICATOR", "ttft exists already"),
    ],
)
@pytest.mark.usefixtures("_installed")
def test_a_broken_metric_of_an_outside_package_is_named(value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indicator, "announced", lambda group: [EntryPoint("mine", value, group)] if group else [])
    with pytest.raises(PluginError, match=said):
        indicator.catalogue()
