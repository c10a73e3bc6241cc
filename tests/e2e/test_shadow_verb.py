"""``plimsoll shadow`` and ``replay --reference`` against real servers: what drifts is said, and a shadow that
breaks down leaves the primary alone. 25 s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from tests.e2e.plimsoll import plimsoll_here, server

pytestmark = pytest.mark.e2e

SCRIPTED = ("--model", "scripted", "--itl", "1ms")
LOAD = {
    "name": "chat", "kind": "server", "params": {"rate": 100}, "timeout": "1s", "target": {"protocol": "openai-chat"},
    "source": {"kind": "synthetic_text", "prompt_tokens": 8, "output_tokens": 4},
    "stop": {"min_queries": 320, "min_duration": "3s"}, "objectives": ["ratio(error) <= 2%"],
}  # fmt: skip


def write(folder: Path, **more: object) -> str:
    (folder / "chat.yaml").write_text(yaml.safe_dump({**LOAD, **more}))
    return str(folder / "chat.yaml")


def report_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_what_the_shadow_answers_otherwise_is_drift_and_the_primary_is_judged_alone(tmp_path: Path) -> None:
    with (
        server(*SCRIPTED, "--ttft", "20ms") as old,
        server(*SCRIPTED, "--ttft", "45ms", "--fault", "other_words=0.2") as new,
    ):
        done = plimsoll_here(
            "shadow", write(tmp_path), "--url", old.url, "--shadow", new.url, "--out", "out", "--json", cwd=tmp_path
        )
        asked = len(new.truth())
        again = plimsoll_here(
            "replay", "out", "--class", "primary", "--reference", "out/classes/primary", "--url", old.url,
            "--out", "again", "--compare", "tokens", "--slo", "ratio(error) <= 2%", cwd=tmp_path,
        )  # fmt: skip
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert found == json.loads((tmp_path / "out" / "drift.json").read_text())
    assert (found["outcome"], found["primary"]) == ("FAIL", "PASS")
    drift = found["drift"]
    n = drift["n"]
    assert n == asked >= 320
    assert 0.1 * n < drift["differing"] < 0.3 * n
    assert drift["missing"] == drift["unpaired"] == 0
    assert drift["examples"][0]["reference"] != drift["examples"][0]["answer"]
    later = {one["indicator"]: one for one in found["later"]}
    assert 12e6 < later["ttft"]["p50"][0] < 50e6, "the planted difference is 25 ms"
    assert later["ttft"]["slower"][0] > 0.7
    rows = pq.read_table(tmp_path / "out" / "requests.parquet", columns=["arm", "query_id", "due_ns"]).to_pylist()
    due = {arm: sorted(row["due_ns"] for row in rows if row["arm"] == arm) for arm in ("primary", "shadow")}
    assert due["primary"] == due["shadow"]
    report = report_of(tmp_path / "out")
    assert report["counts"]["ok"] == n, "the shadow's rows are in no figure of the report"
    assert again.returncode == 0, again.stdout
    said = json.loads((tmp_path / "again" / "drift.json").read_text())
    assert (said["kind"], said["outcome"], said["drift"]["n"], said["drift"]["differing"]) == (
        "reference",
        "PASS",
        n,
        0,
    )


def test_answers_to_prompts_that_have_changed_since_are_no_reference(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"question {i}"}) + "\n" for i in range(8)))
    load = write(
        tmp_path,
        source={"kind": "jsonl", "path": "prompts.jsonl"},
        objectives=[],
        stop={"min_queries": 8, "min_duration": 0},
    )
    with server(*SCRIPTED, "--ttft", "1ms") as old:
        done = plimsoll_here("run", load, "--url", old.url, "--keep-answers", "--out", "out", cwd=tmp_path)
        assert done.returncode in (0, 4), done.stderr  # INVALID where the host was busy: the answers are kept
        prompts.write_text(prompts.read_text().replace("question 7", "quest 7"))
        sent = len(old.truth())
        again = plimsoll_here("replay", "out", "--reference", "out", "--out", "again", cwd=tmp_path)
        assert (again.returncode, len(old.truth())) == (2, sent)
    assert "out answers other prompts: the files of its source have changed since" in again.stderr
    assert not (tmp_path / "again").exists()


def test_a_shadow_that_stalls_and_fails_never_moves_the_primary(tmp_path: Path) -> None:
    lags, firsts = [], []
    with server(*SCRIPTED, "--ttft", "20ms") as old:
        for faults in ((), ("--fault", "stall=at:500ms,for:30s")):
            with server(*SCRIPTED, "--ttft", "20ms", *faults) as new:
                out = tmp_path / f"out{len(faults)}"
                done = plimsoll_here(
                    "shadow", write(tmp_path), "--url", old.url, "--shadow", new.url, "--out", str(out), cwd=tmp_path
                )
                assert done.returncode == (1 if faults else 0), done.stdout
                if faults:
                    new.kill()
            rows = pq.read_table(out / "requests.parquet").to_pandas()
            primary = rows[rows["arm"] == "primary"]
            assert (primary["status"] == "OK").all()
            lags.append(float(np.median(primary["ready_ns"] - primary["due_ns"])))
            firsts.append(float(np.median(primary["first_token_ns"] - primary["due_ns"])))
            report = report_of(out)
            assert report["verdict"]["outcome"] == "PASS"
            assert report["validity"]["outcome"] == "VALID"
            assert report["validity"]["sent"] == report["validity"]["planned"] == len(primary)
    # What waited for the shadow would be late by its time-out, 1 s; two runs on a busy host differ by tens of ms.
    assert abs(firsts[1] - firsts[0]) < 250e6, "TTFT of the primary beside a stalled shadow"
    assert lags[1] - lags[0] < 250e6
    stalled = json.loads((out / "drift.json").read_text())
    assert stalled["primary"] == "PASS"
    assert stalled["drift"]["missing"] > 200
    assert stalled["later"][0]["failed"] == stalled["drift"]["missing"]
    reasons = [text.split() for text in stalled["warnings"] if " failed: " in text]
    assert sum(int(words[3]) for words in reasons) == stalled["drift"]["missing"], stalled["warnings"]
    assert stalled["later"][0]["p99"][0] is None, "a failure is later than any time"
