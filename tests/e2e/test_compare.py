"""``plimsoll compare`` as a user runs it: interleaved against servers of known times, stopped and gone on with, gated.

Real time; each run is half a second of a closed loop of four requests in flight, at no more than 80 requests/s. The
gate itself is judged in the unit tests of ``slo``; here only that the whole of it works.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.plimsoll import begin, plimsoll_here, server, wait_for

pytestmark = pytest.mark.e2e

SCENARIO = """
kind: concurrency
params: {concurrency: 4}
source: {kind: synthetic_text, prompt_tokens: 16, output_tokens: 4, count: 8}
stop: {min_queries: 8, min_duration: 400ms}
timeout: 5s
"""
MEDIAN = ("--metric", "p50(ttft)", "--cooldown", "0s")


def interleave(folder: Path, *arguments: str) -> tuple[str, ...]:
    (folder / "s.yaml").write_text(SCENARIO)
    return ("compare", "--interleave", "s.yaml", *MEDIAN, "--out", "ab", *arguments)


def states(out: Path) -> list[str]:
    return [run["state"] for run in json.loads((out / "interleave.json").read_text())["runs"]]


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    """Five runs each of a server with a TTFT of 50 ms and one of 60 ms."""
    folder = tmp_path_factory.mktemp("regression")
    with (
        server("--model", "scripted", "--ttft", "50ms", "--itl", "1ms") as base,
        server("--model", "scripted", "--ttft", "60ms", "--itl", "1ms") as new,
    ):
        arms = ("--arm", f"base={base.url}", "--arm", f"new={new.url}")
        yield (
            folder,
            plimsoll_here(*interleave(folder, *arms, "--repeats", "5", "--retries", "2", "--json"), cwd=folder),
        )


Regression = tuple[Path, subprocess.CompletedProcess[str]]


def test_a_slower_endpoint_is_a_regression_and_the_runs_are_interleaved(regression: Regression) -> None:
    folder, done = regression
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert result["schema"] == "plimsoll.comparison/1"
    assert result["outcome"] == "REGRESSION"
    document = json.loads((folder / "ab/interleave.json").read_text())
    assert [run["arm"][0] for run in document["runs"]] == [*"bnnbbnnbbn"]
    seeds = [[run["seed"] for run in document["runs"] if run["arm"] == arm] for arm in ("base", "new")]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 5
    assert {path.name for path in (folder / "ab").iterdir()} >= {"comparison.json", "comparison.html", "runs"}
    assert all((folder / "ab" / run["folder"] / "report.json").is_file() for run in document["runs"])


def test_the_folder_can_be_compared_again_without_sending_anything(regression: Regression) -> None:
    folder, first = regression
    again = plimsoll_here("compare", "ab", "--metric", "p50(ttft)", "--json", "--format", "junit=gate.xml", cwd=folder)
    assert again.returncode == 1
    assert json.loads(again.stdout)["candidates"] == json.loads(first.stdout)["candidates"]
    assert b"<testcase" in (folder / "gate.xml").read_bytes()


def test_a_baseline_file_gates_later_runs(regression: Regression) -> None:
    folder, _ = regression
    saved = plimsoll_here("compare", "base=ab/runs/*-base", "--save-baseline", "baseline.json", cwd=folder)
    assert saved.returncode == 0, saved.stderr
    done = plimsoll_here(
        "compare", "baseline.json", "new=ab/runs/*-new", "--metric", "p50(ttft)", "--save-baseline", "next.json",
        cwd=folder
    )  # fmt: skip
    assert done.returncode == 1
    assert "next.json is not written" in done.stderr
    assert not (folder / "next.json").exists()


def test_ctrl_c_keeps_what_is_done_and_resume_makes_only_the_rest(tmp_path: Path) -> None:
    with server("--model", "scripted", "--ttft", "20ms", "--itl", "1ms") as target:
        command = interleave(tmp_path, "--arm", f"a={target.url}", "--arm", f"b={target.url}", "--repeats", "2")
        process = begin(*command, cwd=tmp_path)
        wait_for(tmp_path / "ab/runs/002-b/segments", 30)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 130, errors
        assert "1 of 4 runs are in ab" in errors
        assert states(tmp_path / "ab") == ["done", "pending", "pending", "pending"]
        first = (tmp_path / "ab/runs/001-a/manifest.json").read_bytes()
        unasked = plimsoll_here(*command, cwd=tmp_path)
        assert unasked.returncode == 2
        assert "Add --resume" in unasked.stderr
        done = plimsoll_here(*command, "--resume", cwd=tmp_path)
    assert done.returncode == 3, done.stderr  # two runs an arm decide nothing
    assert states(tmp_path / "ab") == ["done"] * 4
    assert (tmp_path / "ab/runs/001-a/manifest.json").read_bytes() == first


def test_an_endpoint_that_is_down_before_the_start_is_exit_5_and_nothing_is_sent(tmp_path: Path) -> None:
    with server("--model", "scripted") as target:
        done = plimsoll_here(
            *interleave(tmp_path, "--arm", f"up={target.url}", "--arm", "down=http://127.0.0.1:1"), cwd=tmp_path
        )  # fmt: skip
        assert target.truth() == {}
    assert done.returncode == 5
    assert "arm down: " in done.stderr
    assert not (tmp_path / "ab").exists()


def test_an_endpoint_that_dies_on_the_way_is_written_down_and_never_passes(tmp_path: Path) -> None:
    with (
        server("--model", "scripted", "--ttft", "20ms") as base,
        server("--model", "scripted", "--ttft", "20ms") as new,
    ):
        arms = ("--arm", f"base={base.url}", "--arm", f"new={new.url}", "--repeats", "2")
        process = begin(*interleave(tmp_path, *arms), cwd=tmp_path)
        wait_for(tmp_path / "ab/runs/002-new/report.html", 60)
        new.kill()
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (1, 3, 4), errors
    assert "cannot connect" in errors or "failed" in errors
    assert states(tmp_path / "ab")[3] == "done"  # the others were made all the same


def test_a_bakeoff_runs_every_endpoint_at_every_load_and_leaves_a_page(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    with server("--model", "scripted", "--ttft", "10ms", "--itl", "1ms") as target:
        arms = [{"name": name, "url": target.url, "price_per_hour": 2} for name in "ab"]
        file = {"scenario": "s.yaml", "arms": arms, "repeats": 1, "cooldown": "0s", "sweep": {"concurrencies": [1, 2]}}
        (tmp_path / "b.yaml").write_text(json.dumps(file))
        done = plimsoll_here("bakeoff", "b.yaml", "--out", "bake", cwd=tmp_path)
    assert done.returncode in (3, 4), done.stderr  # one run each ranks nobody
    assert states(tmp_path / "bake") == ["done"] * 4
    assert (tmp_path / "bake/bakeoff.html").stat().st_size > 10_000
    again = plimsoll_here("bakeoff", "b.yaml", "--out", "bake", "--again", "--json", cwd=tmp_path)
    assert again.returncode == done.returncode
    assert [level["level"] for level in json.loads(again.stdout)["levels"]] == ["concurrency-1", "concurrency-2"]


def test_every_mistake_on_the_command_line_is_told_at_once(tmp_path: Path) -> None:
    done = plimsoll_here(
        "compare", "--interleave", "nowhere", "--arm", "a=http://127.0.0.1:1,bogus=1", "--arm", "b=nonsense",
        "--repeats", "0",
        "--cooldown", "long", "--metric", "p99(zz)", "--tolerance", "much", "--slo", "ttft <= 3", "--format", "x=y",
        "run",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    for part in (
        "nowhere",
        "bogus",
        "nonsense",
        "--repeats",
        "--cooldown",
        "zz",
        "much",
        "bare number",
        "'x'",
        "run: ",
    ):
        assert part in done.stderr, part
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_secret_of_one_arm_is_in_no_file_of_any(tmp_path: Path) -> None:
    secret = "sk-live-0123456789abcdef"
    with server("--model", "scripted", "--ttft", "5ms") as target:
        done = plimsoll_here(
            *interleave(tmp_path, "--arm", f"a={target.url},api_key_env=KEY_A", "--repeats", "1"),
            "--arm", f"b={target.url}?key={secret},header.X-Token=${{env:KEY_A}}",
            cwd=tmp_path, env={"KEY_A": secret + "x"},
        )  # fmt: skip
    assert done.returncode in (0, 3, 4), done.stderr  # 4: a busy machine
    files = [path for path in (tmp_path / "ab").rglob("*") if path.is_file()]
    assert len(files) > 15
    assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert secret not in done.stdout + done.stderr
