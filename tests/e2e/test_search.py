"""``plimsoll search`` as a user runs it: against a server of known capacity, stopped and gone on with, without an endpoint.

Real time, at most eight requests in flight. How a search decides is tested in the unit tests of ``slo``; here that the whole of it
works: two slots of 60 ms each answer C requests in flight in 30 C ms. Runs are too short for the generator's own p99 to be judged.
"""  # noqa: E501

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.plimsoll import plimsoll_here

pytestmark = pytest.mark.e2e

CLOSED = (
    "search", "--over", "concurrency", "--start", "4", "--highest", "8", "--resolution", "50%", "--slo", "p50(latency) <= 210ms",  # noqa: E501
    "--probe", "600ms", "--no-confirm", "--cooldown", "0s", "--prompt-tokens", "8", "--output-tokens", "1", "--out", "s", "--gpus", "2",  # noqa: E501
)  # fmt: skip


def test_the_bundled_server_is_started_once_and_a_hopeless_rate_is_cut_short(tmp_path: Path) -> None:
    done = plimsoll_here(
        "search", "--model", "scripted", "--slo", "p99(latency) <= 500ms", "--start", "40", "--lowest", "40", "--probe", "5s",  # noqa: E501
        "--output-tokens", "60", "--cooldown", "0s", "--no-confirm", "--out", "s", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr + done.stdout
    assert done.stderr.count("starting the bundled reference server") == 1
    assert "does not hold even at the lowest load tried, 40/s" in " ".join(done.stdout.split())
    result = json.loads((tmp_path / "s/search.json").read_text())
    assert [one["cut"] for one in result["probes"]] == [True]
    facts = json.loads((tmp_path / "s/probes/001-bracket/generator.json").read_text())["facts"]
    assert facts["aborted"].startswith("cut short: p99(latency) <= 500ms")


def test_a_dead_port_is_exit_5_and_nothing_is_left(tmp_path: Path) -> None:
    done = plimsoll_here(
        "search", "--url", "http://127.0.0.1:1", "--slo", "p50(ttft) <= 1s", "--out", "s", cwd=tmp_path
    )
    assert done.returncode == 5
    assert "cannot connect" in done.stderr
    assert not (tmp_path / "s").exists()


def test_every_mistake_on_the_command_line_is_told_at_once(tmp_path: Path) -> None:
    done = plimsoll_here(
        "search", "nowhere", "--over", "users", "--probe", "long", "--slo", "p99(zz) <= 3ms", "--format", "x=y", "--resume",  # noqa: E501
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    for part in ("nowhere", "--over users", "--probe", "zz", "--format x=y", "--resume"):
        assert part in done.stderr, part
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
