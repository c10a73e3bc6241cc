"""Whatever the workers say, there is a page, a document that reads back and a scrape that parses."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from plimsoll.harness.live.state import LiveState
from plimsoll.reports.documents.live import LiveReport, RunPart
from plimsoll.reports.formats import openmetrics
from plimsoll.reports.formats.html_ import live_look
from plimsoll.slo.objectives.objective import parse
from tests.unit.harness.live_runs import S, beginning, open_plan, status

NS = st.lists(st.integers(0, 10**13), max_size=5)
LINES = st.lists(
    st.tuples(st.integers(0, 300 * S), st.integers(0, 2), st.integers(0, 50), st.integers(0, 9), NS, NS), max_size=25
)
OBJECTIVES = (
    "p99(ttft) <= 100ms",
    "p50(latency) < 1s",
    "ratio(good) >= 99.9%",
    "ratio(error) <= 0.1%",
    "max(tpot) <= 1s",
)


class Balanced(HTMLParser):
    """Fails on a tag that is closed and was not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Open and closed at once."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@settings(max_examples=40, deadline=None)
@given(LINES, st.text(max_size=12), st.booleans(), st.integers(-5 * S, 400 * S))
def test_every_state_can_be_shown(
    lines: list[tuple[int, int, int, int, list[int], list[int]]], name: str, over: bool, late: int
) -> None:
    state = LiveState(RunPart(scenario=name, id=name), [parse(text) for text in OBJECTIVES], [name])
    state.begin(beginning(open_plan(10, 100), 0), 0)
    totals, at = {worker: [0, 0] for worker in range(3)}, 0
    for wait, worker, done, failed, ttft, latency in lines:
        at += wait
        totals[worker][0] += done + failed
        totals[worker][1] += failed
        state.heard(worker, status(*(totals[worker][0],) * 2, totals[worker][1], 3, ttft=ttft, latency=latency), at)
    if over:
        state.end(at + max(0, late))
    report = state.report(at + late)
    checked = Balanced()
    checked.feed(live_look(report))
    checked.close()
    assert checked.open == []
    assert LiveReport.model_validate_json(report.model_dump_json(by_alias=True)).sent == sum(
        x[0] for x in totals.values()
    )
    found = {f.name: f for f in text_string_to_metric_families(openmetrics.live(report).decode())}  # type: ignore[no-untyped-call]
    assert found["plimsoll_live_done"].samples[0].value == report.done
