"""``plimsoll canary`` against two real servers: what it promotes, what it aborts early, and what it runs then. 60 s."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from tests.e2e.plimsoll import plimsoll_valid, server

pytestmark = pytest.mark.e2e

SCRIPTED = ("--model", "scripted", "--itl", "1ms")
LOAD = {
    "name": "chat", "kind": "server", "params": {"rate": 80}, "timeout": "2s", "target": {"protocol": "openai-chat"},
    "source": {"kind": "synthetic_text", "prompt_tokens": 8, "output_tokens": 4},
}  # fmt: skip


def write(folder: Path, **more: object) -> Path:
    path = folder / "chat.yaml"
    path.write_text(yaml.safe_dump({**LOAD, **more}))
    return path


def test_a_canary_that_fails_is_aborted_before_its_time_and_the_command_of_that_runs(tmp_path: Path) -> None:
    with (
        server(*SCRIPTED, "--ttft", "20ms") as old,
        server(*SCRIPTED, "--ttft", "20ms", "--fault", "error_rate=0.5") as new,
    ):
        said = "echo $PLIMSOLL_OUTCOME $PLIMSOLL_RUN > said"
        done = plimsoll_valid(
            "canary", str(write(tmp_path)), "--url", old.url, "--canary", new.url, "--steps", "20%,50%", "--step-time",
            "20s", "--abort", said, "--promote", "touch promoted", "--json",
            cwd=tmp_path, out="out",
        )  # fmt: skip
        there = {
            row["arm"]: 0 for row in pq.read_table(tmp_path / "out" / "requests.parquet", columns=["arm"]).to_pylist()
        }
        answered = len(old.truth())
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert found["outcome"] == "ABORT"
    assert "ratio(error)" in found["reasons"][0]
    assert "worse than tolerated with 20 % of the queries" in found["reasons"][0]
    assert found == json.loads((tmp_path / "out" / "canary.json").read_text())
    assert found["command"] == {"exit": 0, "output": ""}
    assert (tmp_path / "said").read_text() == "ABORT out\n"
    assert not (tmp_path / "promoted").exists()
    assert set(there) == {"base", "canary"}
    assert found["steps"][0]["looks"] < 16
    assert found["steps"][1]["requests"] == [0, 0]
    assert answered < 80 * 20, "the second step was never sent"


def test_a_canary_that_is_faster_is_promoted_and_the_command_of_that_runs(tmp_path: Path) -> None:
    with server(*SCRIPTED, "--ttft", "300ms") as old, server(*SCRIPTED, "--ttft", "100ms") as new:
        arms = {"base": {"target": {"url": old.url}}, "canary": {"target": {"url": new.url}}}
        for one, share in zip(arms.values(), ("90%", "10%"), strict=True):
            one["share"] = share  # type: ignore[assignment]  # what the steps say takes its place
        done = plimsoll_valid(
            "canary", str(write(tmp_path, arms=arms)), "--steps", "50%", "--step-time", "40s", "--metric",
            "p50(ttft)", "--metric", "p90(ttft)", "--metric", "ratio(error) 3%", "--promote", "exit 7",
            "--format", "junit=canary.xml", cwd=tmp_path, out="out",
        )  # fmt: skip
    found = json.loads((tmp_path / "out" / "canary.json").read_text())
    assert found["outcome"] == "PROMOTE", done.stdout
    assert found["command"]["exit"] == 7
    assert done.returncode == 2, "it may go on, and what was to do that failed"
    assert "--promote: the command ended with exit code 7" in done.stderr
    assert "PROMOTE" in done.stdout
    assert 'name="chat"' in (tmp_path / "canary.xml").read_text()
