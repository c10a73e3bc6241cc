"""The recipes of docs/guide/recipes.md: their own commands and files, before real fleets, and what the page claims of
them held against the fleets' own logs. Ports alone are others. About a minute.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.plimsoll import PLIMSOLL, ROOT, plimsoll_here
from tests.e2e.test_impair import played_by
from tests.e2e.test_labels import rows

pytestmark = pytest.mark.e2e

PAGE = (ROOT / "docs/guide/recipes.md").read_text(encoding="utf-8")
FILES = ROOT / "docs/examples/recipes"
MS, S = 1_000_000, 1_000_000_000


def blocks() -> dict[str, list[str]]:
    """The commands below each heading, continued lines joined."""
    found = {}
    for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        if (block := re.search(r"```sh\n(.*?)```", text, re.DOTALL)) is not None:
            found[head] = block[1].replace("\\\n", " ").splitlines()
    return found


@contextmanager
def background(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


@dataclass
class Made:
    """A recipe that was followed: what its run left, and the first server, which still runs."""

    said: str
    run: Path
    url: str

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / "report.json").read_text())
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for row in rows(self.run) if row["phase"] == "measure"]

    @property
    def t0_ns(self) -> int:
        return int(json.loads((self.run / "manifest.json").read_text())["t0_monotonic_ns"])

    @property
    def objectives(self) -> dict[str, Any]:
        return {one["objective"]: one for one in self.report["verdict"]["objectives"]}

    def judged(self, start: str) -> dict[str, Any]:
        (found,) = [one for text, one in self.objectives.items() if text.startswith(start)]
        return dict(found)

    def log(self, path: str = "/fleet/truth") -> list[dict[str, Any]]:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return [json.loads(line) for line in answer.read().splitlines() if line.strip()]

    def fleet(self) -> dict[str, dict[str, Any]]:
        (page,) = self.log("/fleet")
        return {one["name"]: one for one in page["replicas"]}


@contextmanager
def followed(head: str, folder: Path) -> Iterator[Made]:
    """Do what a block says. Servers listen on free ports, and what names the page's ports names those."""
    work = folder / "recipes"
    shutil.copytree(FILES, work)
    urls: dict[str, str] = {}
    made = None
    with ExitStack() as stack:
        for line in blocks()[head]:
            for port, url in urls.items():
                line = line.replace(f"http://127.0.0.1:{port}", url)
            words = shlex.split(line.removesuffix("&"))
            if words[:2] == ["plimsoll", "serve"]:
                port = words[words.index("--http-port") + 1] if "--http-port" in words else "8000"
                command = [*PLIMSOLL, *words[1:], "--http-port", "0"]
                process = stack.enter_context(background(command, work))
                assert process.stdout is not None
                urls[port] = json.loads(process.stdout.readline())["url"]
                for file in work.glob("*.yaml"):
                    file.write_text(file.read_text().replace(f"http://127.0.0.1:{port}", urls[port]))
            elif words[0] == "plimsoll":
                done = plimsoll_here(*words[1:], cwd=work)
                out = work / words[words.index("--out") + 1]
                made = Made(done.stdout + done.stderr, out, urls["8000"])
            else:
                assert line.endswith("&"), line
                stack.enter_context(background([sys.executable, *words[1:]], work))
        assert made is not None
        yield made


def test_every_recipe_is_tried() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [head for head in blocks() if f'followed("{head}"' not in source] == []
    used = " ".join(line for lines in blocks().values() for line in lines)
    inside = "".join(file.read_text(encoding="utf-8") for file in FILES.iterdir())
    assert [file.name for file in FILES.iterdir() if file.name not in used + inside] == []


def ttft(row: dict[str, Any]) -> float:
    return float("inf") if row["first_token_ns"] < 0 else row["first_token_ns"] - row["due_ns"]


def served(made: Made) -> dict[str, list[dict[str, Any]]]:
    """The fleet's own log of the run's requests, by replica."""
    ours = {row["request_id"] for row in made.rows}
    found: dict[str, list[dict[str, Any]]] = {}
    for one in made.log():
        if one["request_id"] in ours:
            found.setdefault(one["replica"], []).append(one)
    return found


def test_a_rolling_restart_drops_no_stream(tmp_path: Path) -> None:
    with followed("Rolling restart", tmp_path) as made:
        assert [row["status"] for row in made.rows if row["status"] != "OK"] == [], made.said
        assert made.report["events"][0]["exit"] == 0
        fleet, log = made.fleet(), served(made)
        assert {(one["state"], one["version"]) for one in fleet.values()} == {("up", "2")}
        assert {"r1", "r2"} & set(fleet) == set()
        assert {one["status"] for part in log.values() for one in part} == {200}
        # Streams were under way at the old ones while they drained: the last outlasts its own arrival by 200 ms.
        assert all(max(one["done_ns"] - one["received_ns"] for one in log[name]) > 190 * MS for name in ("r1", "r2"))
        assert {str(row["label_version"]) for row in made.rows} == {"1", "2"}
        assert made.judged("max(error)")["outcome"] == "PASS"


def test_blue_and_green_change_at_one_instant_and_drop_nothing(tmp_path: Path) -> None:
    with followed("Blue and green", tmp_path) as made:
        assert [row["status"] for row in made.rows if row["status"] != "OK"] == [], made.said
        log = served(made)
        blue, green = ([at["received_ns"] for one in pair for at in log[one]] for pair in (("r1", "r2"), ("r3", "r4")))
        assert max(blue) < min(green)
        switched = made.t0_ns + made.report["events"][0]["ended_ns"]
        assert max(blue) < switched < max(one["done_ns"] for part in log.values() for one in part)
        assert {one["state"] for one in made.fleet().values()} == {"up"}  # the old ones wait for a rollback


def test_a_slice_tells_what_the_median_of_a_canary_hides(tmp_path: Path) -> None:
    with followed("A canary that is worse in one slice", tmp_path) as made:
        median, english, german = (one["outcome"] for one in made.objectives.values())
        assert german == "FAIL", made.said
        assert "FAIL" not in (median, english)
        told: dict[tuple[str, str], list[float]] = {}
        for row in made.rows:
            told.setdefault((row["arm"], row["label_language"]), []).append(ttft(row))
        assert min(told["canary", "de"]) >= 95 * MS
        assert all(sorted(some)[len(some) // 2] < 60 * MS for one, some in told.items() if one != ("canary", "de"))


def test_the_lag_of_an_autoscaler_is_time_out_of_the_objective(tmp_path: Path) -> None:
    with followed("An autoscaler meets a step", tmp_path) as made:
        assert made.judged("max(error)")["outcome"] == "PASS", made.said
        log, fleet = served(made), made.fleet()
        joined = min(one["received_ns"] for one in log["r2"]) - made.t0_ns - S
        assert joined > 200 * MS
        recovered = made.judged("recovered")["observed"]
        assert recovered is None or recovered > joined
        late = [row["due_ns"] for row in made.rows if row["done_ns"] - row["due_ns"] > 200 * MS]
        assert late
        assert min(late) > S
        seen = made.judged("max(server.replicas)")["observed"]
        assert 2 <= seen <= len(fleet) <= 4


def test_users_who_meet_a_cold_replica_are_counted(tmp_path: Path) -> None:
    with followed("A cold replica joins", tmp_path) as made:
        assert made.judged("max(error)")["outcome"] == "PASS", made.said
        assert made.judged("recovered")["outcome"] != "FAIL"
        hit = {row["request_id"] for row in made.rows if row["label_backend"] == "r3" and ttft(row) >= 300 * MS}
        slow = {one["request_id"] for one in served(made)["r3"] if one["answered_ns"] - one["sent_ns"] >= 299 * MS}
        assert hit == slow
        assert 15 <= len(hit) <= 60  # a third of the load for a second, and what the stall held up
        assert made.report["by"]["phase"]["after"]["metrics"]["ttft"]["p99"] >= 300 * MS


def test_goodput_falls_in_a_spike_and_comes_back(tmp_path: Path) -> None:
    with followed("A spike of ten times the load", tmp_path) as made:
        assert [row["status"] for row in made.rows if row["status"] != "OK"] == [], made.said

        def good(start_ms: int, end_ms: int) -> float:
            late = [row["done_ns"] - row["due_ns"] for row in made.rows if start_ms <= row["due_ns"] / MS < end_ms]
            return sum(one <= 500 * MS for one in late) / len(late)

        assert good(0, 900) == 1
        assert good(1300, 1900) < 0.5
        assert good(4000, 5500) > 0.9
        assert 0 < made.judged("recovered")["observed"] < 4 * S


def test_a_noisy_tenant_hurts_the_quiet_one_until_each_has_its_own(tmp_path: Path) -> None:
    with followed("A noisy tenant", tmp_path) as made:
        quiet = [row for row in made.rows if row["class"] == "quiet"]
        refused = [row["due_ns"] for row in quiet if row["status"] == "REFUSED"]
        assert len([at for at in refused if at < 2 * S]) >= 3, made.said
        assert [at for at in refused if at > 2.6 * S] == []
        assert {one["outcome"] for one in made.objectives.values()} <= {"PASS", "INCONCLUSIVE"}, made.said
        switched, tenant = made.t0_ns + made.report["events"][0]["ended_ns"], {}
        for row in made.rows:
            tenant[row["request_id"]] = row["class"]
        after = {
            (tenant[one["request_id"]], name)
            for name, part in served(made).items()
            for one in part
            if one["received_ns"] > switched
        }
        assert after == {("quiet", "r1"), ("noisy", "r2")}


def test_a_zone_that_dies_takes_what_it_was_answering_and_nothing_more(tmp_path: Path) -> None:
    with followed("A zone is lost", tmp_path) as made:
        failed = {row["request_id"]: row for row in made.rows if row["status"] != "OK"}
        assert 2 <= len(failed) <= 30, made.said
        log = served(made)
        broken = {one["request_id"] for name in ("r1", "r2") for one in log[name] if one["status"] != 200}
        begun, ended = (made.report["events"][0][key] for key in ("begun_ns", "ended_ns"))
        assert set(failed) <= broken | {one["request_id"] for name in ("r1", "r2") for one in log[name]}
        assert all(begun - 400 * MS <= row["due_ns"] <= ended + 100 * MS for row in failed.values())
        assert {made.fleet()[name]["state"] for name in ("r1", "r2")} == {"gone"}
        assert {one["status"] for name in ("r3", "r4") for one in log[name]} == {200}
        assert made.judged("recovered")["outcome"] == "PASS"


def test_a_slow_dependency_fails_nothing_and_is_seen_all_the_same(tmp_path: Path) -> None:
    with followed("A slow dependency", tmp_path) as made:
        assert made.judged("max(error)")["outcome"] == "PASS", made.said
        first, last = (one["begun_ns"] for one in made.report["events"])
        inside = [row for row in made.rows if first + 100 * MS < row["due_ns"] < last - 50 * MS]
        assert len(inside) > 30
        assert min(map(ttft, inside)) >= 150 * MS
        found = made.judged("recovered")["observed"]
        assert last - first - 300 * MS <= found <= last - first + 500 * MS


def test_a_bad_uplink_costs_words_on_that_arm_only(tmp_path: Path) -> None:
    with followed("A bad uplink", tmp_path) as made:
        wired, mobile = (made.judged(f"accuracy(wer{{arm={arm}}})")["observed"] for arm in ("wired", "mobile"))
        assert (wired, mobile > 0.1) == (0, True), made.said
        frames = {row["request_id"]: len(row["heard"]) for row in made.log("/truth")}
        for row, played in zip(made.rows, played_by(made.run), strict=True):
            lost = max(0, row["label_frames_lost"])  # -1: a row that has no such label
            assert (lost > 0) is (row["arm"] == "mobile")
            assert frames[row["request_id"]] == played - lost
