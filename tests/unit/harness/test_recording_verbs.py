"""Verbs on recordings: what ``replay --describe`` and ``import`` say and write, and what they refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.calibration_table import Probe, Spread, Table, engine_of, save, this_host
from plimsoll.harness.run import originals, rundir
from plimsoll.harness.sealing.samples_file import SAMPLES
from plimsoll.harness.transport.client import Target
from plimsoll.reports.documents.recording import RecordingReport, document
from plimsoll.scenarios import spec
from plimsoll.scenarios.samples.recording import Recording
from plimsoll.scenarios.samples.traces import read
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.slo.records import records as rec
from plimsoll.slo.validity.generator import GeneratorFacts
from tests.command import invoke

TRACES = Path(__file__).parents[2] / "traces"
MOONCAKE, AZURE = TRACES / "mooncake_conversation_excerpt.jsonl", TRACES / "azure_llm_2023_conv_excerpt.csv"


def said(*words: str | Path) -> dict[str, Any]:
    result = invoke(*map(str, words), "--json")
    assert result.exception is None, result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refused(*words: str | Path) -> Sequence[str]:
    result = invoke(*map(str, words))
    assert isinstance(result.exception, HarnessFault | ScenarioError), result.stdout
    return list(result.exception.errors)


def test_a_description_tells_ticks_lengths_and_what_is_missing() -> None:
    found = said("replay", MOONCAKE, "--describe")
    rows = [json.loads(line) for line in MOONCAKE.read_text().splitlines()]
    assert (found["format"], found["rows"]) == ("mooncake", len(rows))
    assert found["instants"] == len({row["timestamp"] for row in rows})
    assert found["ticks"]
    assert found["input_tokens"]["max"] == max(row["input_length"] for row in rows)
    assert found["missing"] == ["sessions", "how requests ended", "original latencies",
                                "original times to the first token"]  # fmt: skip
    assert found["replayed"] is None
    text = " ".join(invoke("replay", str(MOONCAKE), "--describe").stdout.split())
    assert "at once: not the traffic's own bursts" in text
    assert "--spread puts them at random times" in text


def test_a_description_shows_what_the_flags_would_send() -> None:
    found = said("replay", AZURE, "--describe", "--speed", "2", "--load", "3", "--window", "0s..20s")
    recorded = read(AZURE, "x").rows().at_ns
    assert 2 * (recorded < 15e9).sum() <= found["replayed"]["rows"] <= 3 * (recorded < 20e9).sum()
    assert found["replayed"]["duration_ns"] <= 10_000_000_000
    assert found["rows"] == len(recorded)
    assert found["notes"][0].startswith("replay: load 3 resamples whole sessions; dispersion ")
    assert found["prefix_hit_share"] is None


def test_a_description_is_written_in_every_format(tmp_path: Path) -> None:
    page, rows = tmp_path / "d.html", tmp_path / "d.csv"
    formats = ("--format", f"html={page}", "--format", f"csv={rows}")
    result = invoke("replay", str(MOONCAKE), "--describe", "--spread", *formats)
    assert result.exception is None
    assert "ideal prefix hits" in page.read_text()
    assert rows.read_text().splitlines()[0] == "quantity,recorded,as replayed"


def test_the_busiest_second_stands_beside_what_this_machine_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(asked: float) -> Probe:
        return Probe(asked=asked, kept=True, requests_per_s=asked, token_events_per_s=asked)

    monkeypatch.setenv("PLIMSOLL_CALIBRATION", str(tmp_path / "c.json"))
    assert "run `plimsoll calibrate`" in said("replay", AZURE, "--describe")["limits"]
    host = this_host(engine_of(Target("http://127.0.0.1:1", "openai-chat")))
    table = Table(
        measured_at=datetime.now(UTC), took_s=30.0, host=host, server="oracle", pinned=True, open_files=9, ports=9,
        timer_late_ns=Spread(), closed_loop=probe(9), open_loop=[probe(20)], tokens=[probe(9)], streams=[probe(9)],
        added=None,
    )  # fmt: skip
    save(table, tmp_path / "c.json")
    found = said("replay", AZURE, "--describe")
    assert f"the busiest second has {found['peak']} requests, and a worker of this machine keeps 20" in found["limits"]
    assert "beyond what this machine does honestly" not in found["limits"]
    faster = said("replay", AZURE, "--describe", "--speed", "1000")
    assert faster["replayed"]["peak"] == 40
    assert "40 requests/s from one worker is beyond what this machine does honestly: 20 a worker" in faster["limits"]


def test_bursts_of_the_traffic_are_not_called_ticks() -> None:
    bursts = RecordingReport(path="x", rows=300, duration_ns=10, instants=100, grain_ns=1_000_000)
    facts = document(bursts).blocks[0].blocks[1]  # type: ignore[union-attr]
    pairs = dict(facts.blocks[0].pairs)
    assert pairs["clock"] == "times in steps of 1 ms, 3 requests an instant, at irregular times: the traffic's own"


def test_a_session_file_says_its_sessions_and_the_window_that_cuts_them(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps({"time": at, "who": at % 4, "took": 0.1}) + "\n" for at in range(40)))
    words = ["replay", path, "--describe", "--column", "session=who", "--column", "latency=took"]
    found = said(*words, "--window", "10s..20s")
    assert (found["sessions"], found["replayed"]["sessions"]) == (4, 4)
    turns, note = found["notes"]
    assert turns.startswith("replay: 4 recorded sessions are sent by their own times")
    assert note == "replay: the window cuts 4 recorded sessions that began before it, and 4 going on after it"
    assert not {"sessions", "original latencies"} & {*found["missing"]}


def test_one_recorded_session_is_one(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps({"time": at, "who": 1}) + "\n" for at in range(4)))
    words = ["replay", path, "--describe", "--column", "session=who"]
    assert said(*words)["notes"][0].startswith("replay: 1 recorded session is sent by its own times")
    assert said(*words, "--sessions", "turns")["notes"][0].startswith("replay: 1 recorded session begins at its own")


def test_an_import_keeps_everything_but_the_ids_of_blocks(tmp_path: Path) -> None:
    key, out = tmp_path / "key", [tmp_path / f"{n}.jsonl" for n in range(3)]
    key.write_bytes(bytes(range(32)))
    for path, more in zip(out, (["--key-file", key], ["--key-file", key], []), strict=True):
        assert invoke(*map(str, ["import", MOONCAKE, "--out", path, *more])).exception is None
    assert out[0].read_bytes() == out[1].read_bytes() != out[2].read_bytes()
    was, now = read(MOONCAKE, "x").rows(), read(out[0], "x").rows()
    for name in ("at_ns", "n_in", "n_out"):
        assert np.array_equal(getattr(was, name), getattr(now, name))
    assert was.blocks is not None
    assert now.blocks is not None
    pairs = {(a, b) for one, two in zip(was.blocks, now.blocks, strict=True) for a, b in zip(one, two, strict=True)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}), "one hidden id for each"
    assert not {a for a, _ in pairs} & {b for _, b in pairs}
    assert (
        said("replay", out[2], "--describe")["prefix_hit_share"]
        == said("replay", MOONCAKE, "--describe")["prefix_hit_share"]
    )


def test_what_can_be_known_before_is_refused_at_once(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"short")
    found = refused("import", tmp_path / "nope", "--out", tmp_path / "no" / "x", "--key-file", key)
    assert [text.partition(":")[0] for text in found] == ["--key-file", "--out", "params.trace"]
    own = tmp_path / "own.jsonl"
    own.write_bytes(MOONCAKE.read_bytes())
    (itself,) = refused("import", own, "--out", own)
    assert "is the recording itself; its ids would be gone for good" in itself
    assert own.read_bytes() == MOONCAKE.read_bytes()
    (late,) = refused("replay", AZURE, "--describe", "--window", "10h..11h")
    assert late.endswith("params.window holds no request: the recording lasts 24.1463 s. Give a part with some.")
    both = refused("replay", AZURE, "--describe", "--load", "0", "--speed", "0")
    assert both == ["--speed: is 0.0. Give a value above 0.", "--load: is 0.0. Give a value above 0."]
    assert "'pdf' is no format of a recording" in refused("replay", AZURE, "--describe", "--format", "pdf=x")[0]
    result = invoke("replay", str(AZURE), "--describe", "--load", "0", "--json")
    assert json.loads(result.stdout) == {"errors": both[1:]}


def test_a_replay_leaves_what_was_recorded_beside_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.csv"
    path.write_text("time,took\n" + "".join(f"{at},{at / 10 if at % 3 else ''}\n" for at in range(30)))
    scenario = spec.with_flags(trace=str(path), columns={"latency": "took"}, window="5s..25s", max_queries=12)
    originals.leave(tmp_path, scenario)
    found = originals.load(tmp_path)
    assert found is not None
    assert found["query_id"].tolist() == [*range(12)]
    assert found["at_ns"].tolist() == [at * 10**9 for at in range(5, 17)]
    assert found["latency_ns"].tolist() == [at * 10**8 if at % 3 else -1 for at in range(5, 17)]
    monkeypatch.setattr(Recording, "knows", lambda self, name: False)
    (tmp_path / originals.NAME).unlink()
    originals.leave(tmp_path, scenario)
    assert originals.load(tmp_path) is None


@pytest.mark.parametrize("name", [originals.NAME, SAMPLES])
def test_what_was_recorded_goes_where_a_run_is_sealed_whose_disk_is_full(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"as recorded")
    facts = GeneratorFacts(open_loop=True, planned=0, planned_queries=0, min_queries=0, elapsed_ns=0, kernel_reads=0)
    sealed = rundir.Sealed(rundir.RunDirectory(tmp_path), {}, {}, rec.empty(), facts)
    moved = rundir._sealed_elsewhere(sealed, lambda one: None, OSError(28, "No space left on device")).directory.path
    assert moved != tmp_path
    assert (moved / name).read_bytes() == b"as recorded"
    shutil.rmtree(moved)
