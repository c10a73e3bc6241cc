"""A metric of an outside package, installed beside us, is judged and shown wherever ours are: nothing here names it but its own file."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from html import unescape
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from plimsoll.reports.documents.comparison import FORMATS
from plimsoll.reports.documents.live import look
from plimsoll.reports.format import formats
from plimsoll.reports.models.comparison_parts import build as build_comparison
from plimsoll.reports.models.live_parts import Percentiles
from plimsoll.slo.comparison.arms import Arm, sample
from plimsoll.slo.comparison.compare import compare
from plimsoll.slo.comparison.quantity import parse_all
from plimsoll.slo.metrics import indicator
from tests.unit.reports import made_live, made_reports

FOLDER = Path(__file__).parents[2] / "outside" / "metric"
MS = 1_000_000


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(FOLDER)
    importlib.invalidate_caches()
    indicator.catalogue.cache_clear()
    yield
    indicator.catalogue.cache_clear()


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
def test_an_outside_metric_is_shown_on_the_live_page() -> None:
    seen = Percentiles(n=10, failed=0, p50=5 * MS, p90=6 * MS, p99=7 * MS)
    shown = unescape(look(made_live.look(metrics={"headers": seen, "latency": seen})))
    assert "Time to the headers" in shown


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
        ("outside_metric:MISSING", r"entry point mine \(outside_metric:MISSING\): .*Repair or uninstall"),
        ("outside_metric:_compute", "exports no INDICATOR"),
        ("plimsoll.slo.indicators.ttft:INDICATOR", "ttft exists already"),
    ],
)
@pytest.mark.usefixtures("_installed")
def test_a_broken_metric_of_an_outside_package_is_named(value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indicator, "entry_points", lambda group: [EntryPoint("mine", value, group)] if group else [])
    with pytest.raises(LookupError, match=said):
        indicator.catalogue()
