"""``plimsoll overload`` names what planted servers do with a multiple of their line: one sheds and keeps its goodput,
one queues and drains, one is kept down by its clients' retries when the load has gone. 35 s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.plimsoll import plimsoll_here, server

pytestmark = pytest.mark.e2e

#: Four slots of 40 ms: 100 requests/s.
SLOTS = ("--model", "scripted", "--ttft", "40ms", "--itl", "0ms", "--slots", "4")
RETRY = {"on": [503], "max": 10, "backoff": "50ms..400ms", "jitter": "none", "honour_retry_after": False}
SOURCE = {"kind": "synthetic_text", "prompt_tokens": 16, "output_tokens": 4}


def overload(
    folder: Path, *served: str, timeout: str = "20s", top: int = 3, limit: str = "400ms", **more: object
) -> tuple[int, dict[str, Any], str]:
    """Exit code, report.json and what is said, of 0.5, 1 and ``top`` times 90 requests/s and then 0.5 times."""
    chat = {"name": "chat", "kind": "server", "timeout": timeout, "source": SOURCE, **more}
    (folder / "chat.yaml").write_text(yaml.safe_dump(chat))
    with server(*served) as at:
        done = plimsoll_here(
            "overload", "chat.yaml", "--url", at.url, "--line", "90", "--steps", f"0.5,1,{top}", "--step-time", "1s",
            "--after", "5s", "--slo", f"ttft <= {limit}", "--slo", "retained >= 50%",
            "--slo", "recovered(ratio(good) >= 90%) <= 2s", "--out", "o", cwd=folder,
        )  # fmt: skip
    return done.returncode, json.loads((folder / "o" / "run" / "report.json").read_text()), done.stdout


def test_a_server_that_sheds_keeps_its_goodput_and_is_back_at_once(tmp_path: Path) -> None:
    code, report, said = overload(tmp_path, *SLOTS, "--queue-limit", "8", limit="1s")
    found = report["overload"]
    x3 = found["steps"][2]
    assert (code, found["after"]["state"]) == (0, "recovered"), said
    assert [step["name"] for step in found["steps"]] == ["x0.5", "x1", "x3", "after"]
    assert x3["retained"] >= 0.7
    assert 0.4 < x3["refused"] < 0.8
    assert x3["refusal_ns"] < 200_000_000
    assert x3["admitted"] > 0.9
    assert found["after"]["back_ns"] < 1_000_000_000


def test_a_server_that_queues_loses_its_goodput_and_is_told_to_be_draining(tmp_path: Path) -> None:
    code, report, said = overload(tmp_path, *SLOTS, "--queue-limit", "100000", top=5)
    found = report["overload"]
    assert (code, found["after"]["state"]) == (1, "draining"), said
    assert found["steps"][2]["retained"] < 0.6
    assert found["steps"][2]["refused"] == 0
    assert found["after"]["waiting"][0] > found["after"]["waiting"][1]


def test_a_server_that_retries_keep_down_is_metastable(tmp_path: Path) -> None:
    served = ("--model", "scripted", "--ttft", "80ms", "--itl", "0ms", "--fault", "retry_storm=limit:8,cost:20ms")
    code, report, said = overload(tmp_path, *served, timeout="1200ms", client={"retry": RETRY})
    assert (code, report["overload"]["after"]["state"]) == (1, "metastable"), said
    assert report["overload"]["steps"][3]["retained"] < 0.3
    assert "METASTABLE: still broken" in said
