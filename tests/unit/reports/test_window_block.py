"""The columns that a page judges parts of a run by: bounded, in no other format, frank about what they can't tell."""

from __future__ import annotations

import json

import numpy as np
import pytest

from plimsoll.reports.format import formats
from plimsoll.reports.parts import window
from plimsoll.reports.report import Report
from plimsoll.slo.records.records import from_columns
from tests.unit.reports.made_reports import S, case, records, rendered, report


def noisy(n: int) -> Report:
    """Latencies of which no two are alike, and failures by chance: nothing to compress."""
    rng = np.random.default_rng(5)
    due = np.sort(rng.integers(0, 600 * S, n))
    took = rng.lognormal(18, 1, n).astype(np.int64)
    made = from_columns(
        n,
        due_ns=due,
        ready_ns=due,
        sent_ns=due,
        first_byte_ns=due + took // 2,
        first_token_ns=due + took // 2,
        last_token_ns=due + took,
        done_ns=due + took,
        status=np.where(rng.random(n) < 0.02, 1, 0),
    )
    return report(made, ("p99(ttft) <= 2s", "p99(latency) <= 2s", "ratio(good) >= 90%", "latency <= 1s"))


def test_the_columns_of_a_page_have_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "ROWS", window.ROWS // 4)  # a quarter of the most, to be quick
    for n, cells in ((19_900, False), (20_100, True)):
        made = noisy(n)
        assert made.window is not None
        assert bool(made.window.block["cells"]) is cells
        assert sum(one["unit"] != "flag" for one in made.window.block["series"]) == 3
        assert len(made.window.block["columns"]) < (300_000 if not cells else 330_000)


def test_the_columns_are_in_the_page_and_in_no_other_format() -> None:
    assert b'id="columns"' in rendered("fail", "html")
    for kind in ("json", "markdown", "text", "csv"):
        assert b"columns" not in rendered("fail", kind) or kind == "json"
    assert "window" not in json.loads(rendered("fail", "json"))
    assert case("nothing").window is None
    again = Report.model_validate_json(rendered("fail", "json"))
    assert again.window is None
    assert b'id="columns"' not in formats()["html"].render(again)


def test_what_the_page_cannot_judge_is_there_with_the_reason() -> None:
    goals = ("p99(itl) <= 1s", "mean(ttft) <= 1s", "rate(good) >= 1/s", "p90(ttft) < 1s", "p10(output_rate) >= 1/s")
    made = report(records(500), (*goals, "p90(ttft{prompt_tokens>=10}) <= 1s", "p90(ttft) <= 1s"))
    assert made.window is not None
    told = {one["text"]: one.get("why", "") for one in made.window.block["objectives"]}
    assert list(told.values()) == [
        "gaps between chunks are not in the page",
        "a fact about the whole run",
        "a fact about the whole run",
        "times in the page are rounded up, which tells only what is above a limit",
        "the page has no column of output_rate",
        "it is about rows that the page doesn't tell apart",
        "",
    ]


def test_a_step_divides_every_limit_and_is_small_against_the_values() -> None:
    values = np.full(10, 5e7)
    assert window._step(values, frozenset([2e8])) == 1000
    assert window._step(values, frozenset([2e8, 1_500_100])) == 100
    assert window._step(np.full(10, 2e5), frozenset()) == 10
    assert window._step(values, frozenset([123_456_789])) == 1
