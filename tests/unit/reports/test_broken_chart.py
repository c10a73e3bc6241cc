"""Of a FAIL the first screen has the chart of what was broken, whatever the objective is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.reports.documents.pictures import broken_chart
from plimsoll.reports.report import Report, build
from plimsoll.reports.sections.server import NamePart, ServerPart
from plimsoll.reports.svg.plot import Chart
from plimsoll.slo.judge import judge
from plimsoll.slo.objectives import openslo
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import Records
from tests.memory_held import memory_held
from tests.unit.reports.made_reports import MANIFEST, SCENARIO, facts, records


def made() -> Records:
    """Batch is every third request and all that fails."""
    names = ["batch" if i % 3 == 2 else "chat" for i in range(2000)]
    return records(2000, fail_every=30).labelled(LabelTable.of({"class": names}))


def report(*objectives: str, rows: Records | None = None) -> Report:
    rows = made() if rows is None else rows
    with memory_held():
        told = judge(rows, facts(rows), Promises(tuple(parse(text) for text in objectives)))
    return build(MANIFEST, SCENARIO, rows, told)


def drawn(found: Report) -> tuple[Chart, dict[str, Any]]:
    """The chart, and what it reads out by series."""
    (chart,), group = broken_chart(found)
    assert found.charts.timeline is not None
    assert (group == "time") == (len(chart.wide.hover["x"]) == len(found.charts.timeline.due))
    return chart, {one["label"]: one["text"] for one in chart.wide.hover["series"]}


def test_of_a_class_it_has_the_rows_of_that_class_alone() -> None:
    found = report("p99(ttft{class=batch}) <= 70ms", "p99(ttft) <= 30s")
    chart, read = drawn(found)
    assert chart.title == "Where p99(ttft{class=batch}) ≤ 70ms was broken"
    assert found.charts.timeline is not None
    whole = found.charts.timeline.bands["ttft"]
    assert whole.failed
    assert [int(text) for text in read["failed"]] == whole.failed  # only batch fails
    chat, read = drawn(report("p99(ttft{class=chat}) <= 70ms"))
    assert "failed" not in read
    assert "limit 70 ms" in str(chat.wide.svg)


@pytest.mark.parametrize(
    ("text", "label", "share"),
    [
        ("ratio(error{class=batch}) <= 1%", "share: failed", 0.1),
        ("ratio(error{class=chat}) <= 0.01%", "", 0.0),
        ("ratio(good{class=batch}) >= 99%", "share that is good", 0.9),
    ],
)
def test_of_a_share_it_has_the_share_by_time(text: str, label: str, share: float) -> None:
    found = report(text, "ttft <= 10s")
    if not label:
        assert broken_chart(found) == ([], "")  # it is no FAIL
        return
    chart, read = drawn(found)
    assert [*read] == [label]
    shares = np.array([float(one.removesuffix(" %")) / 100 for one in read[label] if one != "–"])
    assert shares.mean() == pytest.approx(share, abs=0.02)
    assert "limit 1 %" in str(chart.wide.svg) or "limit 99 %" in str(chart.wide.svg)


@pytest.mark.parametrize(
    ("text", "series"),
    [("p99(generator_lag) <= 1us", "p99"), ("rate(good) >= 500/s", "completed"), ("p50(ttfb) <= 1ms", "p99")],
)
def test_of_what_no_other_chart_has_it_is_drawn_all_the_same(text: str, series: str) -> None:
    assert series in drawn(report(text, "ttft <= 10s"))[1]


def test_of_a_document_it_is_how_its_budget_burnt() -> None:
    rows = made()
    text = (Path(__file__).parents[3] / "docs/examples/openslo-chat.yaml").read_text().replace("value: 200", "value: 2")
    told = judge(rows, facts(rows), Promises((), tuple(openslo.parse(text).to_judge())))
    chart, read = drawn(build(MANIFEST, SCENARIO, rows, told))
    assert chart.title == "Where slo(chat-ttft) ≥ 99.5% was broken"
    assert "200" in "".join(read["burn rate"])  # all are bad, and 0.5 % may be


def test_of_the_server_it_has_what_the_server_said() -> None:
    found = report("p99(ttft) <= 30s")
    n = len(found.charts.timeline.due) if found.charts.timeline is not None else 0
    base = {"title": "KV cache in use", "unit": "ratio", "kind": "gauge", "engine": "vllm", "families": ["x"]}
    name = NamePart.model_validate({**base, "sources": ["a"], "series": 1, "samples": n, "by_bucket": [0.97] * n})
    result = found.verdict.objectives[0].model_copy(
        update={"objective": "max(server.kv_usage) <= 95%", "indicator": "server.kv_usage", "statistic": "max"}
        | {"threshold": 0.95, "unit": "ratio", "outcome": "FAIL"}
    )
    verdict = found.verdict.model_copy(update={"outcome": "FAIL", "objectives": [result], "decides": result.objective})
    chart, read = drawn(
        found.model_copy(update={"verdict": verdict, "server": ServerPart(sources={}, names={"server.kv_usage": name})})
    )
    assert read == {"server.kv_usage": ["97.0 %"] * n} or read == {"server.kv_usage": ["97 %"] * n}
    assert "limit 95 %" in str(chart.wide.svg)
