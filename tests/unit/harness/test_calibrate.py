"""Calibration without a network: how it climbs, what it takes for kept, and what it holds against the server's
stamps.
"""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from test_calibration_table import probe, table

from plimsoll.harness.calibration import probes
from plimsoll.harness.calibration import probes as calibrate
from plimsoll.harness.calibration.probes import (
    Errors,
    Load,
    Session,
    Standard,
    differences,
    judge,
    parse_budget,
    tables,
)
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.calibration_table import Probe
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts

MS = 1_000_000
SERVER = Standard("oracle", "http://127.0.0.1:1")


def load(asked: float) -> Load:
    return Load("open loop", asked, "http", "server", {"rate": asked})


class Climb(Session):
    """A session whose machine keeps loads up to ``limit``; each probe takes a second of its own clock."""

    def __init__(
        self, limit: float, monkeypatch: pytest.MonkeyPatch, budget_s: float = 100.0, hiccups: int = 0
    ) -> None:
        self.now_s = 0.0
        monkeypatch.setattr("plimsoll.harness.calibration.probes.time.monotonic", lambda: self.now_s)
        super().__init__(Path(), budget_s, lambda text: None, set(), apart=True)
        self.limit = limit
        self.hiccups = hiccups
        self.asked: list[float] = []

    async def _measure(self, server: Standard, load: Load) -> Probe:
        self.now_s += 1.0
        self.asked.append(load.asked)
        self.hiccups -= 1
        return probe(load.asked, kept=load.asked <= self.limit and self.hiccups < 0)

    def climb(self, first: float, top: float, until: float = 1.0) -> list[Probe]:
        return asyncio.run(self._climb(SERVER, load, first, top, until))


@pytest.mark.parametrize("limit", [37.0, 100.0, 4321.0, 90_000.0])
def test_a_climb_ends_close_below_what_is_kept(monkeypatch: pytest.MonkeyPatch, limit: float) -> None:
    found = Climb(limit, monkeypatch).climb(100.0, 1e6)
    best = max(one.asked for one in found if one.kept)
    assert limit / calibrate.CLOSE**2 <= best <= limit


def test_a_climb_does_not_go_above_its_top(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Climb(1e9, monkeypatch)
    assert session.climb(100.0, 500.0)[-1].asked == 500.0
    assert max(session.asked) == 500.0


def test_a_hiccup_gets_a_second_try_and_a_limit_fails_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Climb(1e9, monkeypatch, hiccups=1)
    found = session.climb(100.0, 300.0)
    assert session.asked == [100.0, 100.0, 300.0]
    assert [one.kept for one in found] == [True, True]
    session = Climb(200.0, monkeypatch)
    assert session.climb(100.0, 300.0)[1].kept is False
    assert session.asked[:3] == [100.0, 300.0, 300.0]


def test_a_climb_keeps_to_its_time_but_measures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Climb(1e9, monkeypatch, budget_s=10.0)
    session.climb(1.0, 1e9, until=0.45)
    assert len(session.asked) == 4
    session.climb(1.0, 1e9, until=0.1)
    assert len(session.asked) == 5


def run_of(
    n: int = 200, lag_ns: int = 20_000, late_by_ns: int = 5_000, **changed: Any
) -> tuple[Records, dict[str, Any]]:
    """n streams of 3 tokens at 100/s, each stamp ``late_by_ns`` after the server's own; and the server's truth."""
    due = np.arange(n) * 10 * MS
    writes = due[:, None] + np.array([5, 6, 8]) * MS
    columns: dict[str, Any] = {
        "query_id": np.arange(n), "due_ns": due, "ready_ns": due + lag_ns, "sent_ns": due + lag_ns,
        "headers_ns": writes[:, 0], "first_byte_ns": writes[:, 0], "first_token_ns": writes[:, 0] + late_by_ns,
        "last_token_ns": writes[:, 2] + late_by_ns, "done_ns": writes[:, 2] + late_by_ns, "n_chunks": np.full(n, 3),
        "status": np.zeros(n), "chunks": list(writes + late_by_ns),
    }  # fmt: skip
    truth = {
        f"r-{i}-0": {"tokens": [[int(w), int(w) + 9_000] for w in row], "due_ns": row.tolist()}
        for i, row in enumerate(writes)
    }
    return from_columns(n, **(columns | changed)), truth


IDS = [f"r-{i}-0" for i in range(200)]
STREAMS = Load("tokens", 100, "openai-chat", "server", {"rate": 100.0}, tokens=3)
FACTS = GeneratorFacts(open_loop=True, planned=200, planned_queries=200, worker_cpu=(0.5,))


def test_errors_are_differences_from_the_servers_own_stamps() -> None:
    records, truth = run_of()
    errors = differences(truth, records, IDS, 0)
    assert set(errors.ttft.tolist()) == {5_000}
    assert set(errors.itl.tolist()) == {0}
    assert set(errors.server_late.tolist()) == {0}
    assert (len(errors.ttft), len(errors.itl), errors.unsure) == (200, 400, 0.0)


def test_requests_that_the_server_does_not_know_or_counts_otherwise_are_not_compared() -> None:
    records, truth = run_of()
    del truth["r-0-0"]
    truth["r-1-0"]["tokens"] = truth["r-1-0"]["tokens"][:2]
    assert len(differences(truth, records, IDS, 0).ttft) == 198
    assert len(differences({}, records, IDS, 0).ttft) == 0


def test_a_write_that_the_server_itself_is_unsure_about_is_left_out_and_counted() -> None:
    records, truth = run_of()
    for i in range(20):
        before, _ = truth[f"r-{i}-0"]["tokens"][0]
        truth[f"r-{i}-0"]["tokens"][0] = [before, before + probes.SURE_NS + 1]
    errors = differences(truth, records, IDS, 0)
    assert (len(errors.ttft), len(errors.itl)) == (180, 380)
    assert errors.unsure == pytest.approx(20 / 600)


def test_a_valid_run_with_small_errors_is_kept() -> None:
    records, truth = run_of()
    kept = judge(STREAMS, records, FACTS, differences(truth, records, IDS, 0))
    assert (kept.kept, kept.why) == (True, "")
    assert (kept.ttft_error_ns.p99, kept.itl_error_ns.p99, kept.lag_ns.p99) == (5_000, 0, 20_000)
    assert kept.requests_per_s == pytest.approx(100, rel=0.01)
    assert kept.token_events_per_s == pytest.approx(300, rel=0.01)
    assert kept.cpu == 0.5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"late_by_ns": 2 * MS}, "the error of arrival times p99 2.00 ms, above 1 ms"),
        ({"lag_ns": 3 * MS}, "lag p99 3"),
        ({"status": np.full(200, int(Status.HTTP))}, "200 requests failed"),
    ],
)
def test_a_run_that_is_late_wrong_or_failing_is_not_kept_and_says_why(changed: dict[str, Any], said: str) -> None:
    records, truth = run_of(**changed)
    lost = judge(STREAMS, records, FACTS, differences(truth, records, IDS, 0))
    assert not lost.kept
    assert said in lost.why
    assert not lost.server_limited


def test_a_run_without_anything_to_compare_is_not_kept() -> None:
    records, _ = run_of()
    assert "nothing to compare" in judge(STREAMS, records, FACTS, differences({}, records, IDS, 0)).why


def test_a_server_that_was_late_itself_is_named_as_the_limit() -> None:
    records, truth = run_of(late_by_ns=2 * MS)
    late = Errors(np.full(9, 2 * MS), np.zeros(9, np.int64), np.full(9, 3 * MS))
    assert judge(STREAMS, records, FACTS, late).server_limited
    unsure = differences(truth, records, IDS, 0)
    assert judge(STREAMS, records, FACTS, Errors(unsure.ttft, unsure.itl, unsure.server_late, 0.2)).server_limited


@pytest.mark.parametrize("text", ["4s", "11m", "soon", "-1s"])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(HarnessFault, match="--budget"):
        parse_budget(text)
    assert parse_budget("30s") == 30.0


def test_the_page_shows_the_figures_and_why_a_load_was_not_kept() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    made = table(open_loop=[probe(2000), probe(4000, kept=False, why="lag p99 7 ms; and more", server_limited=True)])
    console.print(*tables(made))
    text = re.sub(r"\s+", " ", console.export_text())
    for part in ("2,000 requests/s", "at least: the server was the limit", "12,800 events/s", "500 streams", "no: the server did not keep up; lag p99 7 ms"):  # fmt: skip  # noqa: E501
        assert part in text
    assert "and more" not in text
