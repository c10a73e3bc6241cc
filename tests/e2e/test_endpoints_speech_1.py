"""Live speech through whole runs against the bundled server: Deepgram's and OpenAI's realtime protocol.

The server's own stamps say when each message left: ours are never before them and close behind. About 20 seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.validity.accounts import contradictions
from tests.e2e.live_session import MS
from tests.e2e.plimsoll import Server, plimsoll_here, server

pytestmark = pytest.mark.e2e

IntArray = npt.NDArray[np.int64]
#: A kernel's stamp may be so much earlier than the sender's own clock reading.
EARLY_NS = 100_000
SENTENCES = ("load her to here", "mind the gap", "and she is safe")
KEY = "vendor-secret-key"


@pytest.fixture(scope="module")
def speech() -> Iterator[Server]:
    models = ("--model", "recogniser", "--model", "synthesiser", "--model", "scripted")
    with server(*models, "--ttft", "20ms", "--itl", "5ms") as started:
        yield started


@dataclass(frozen=True)
class Run:
    """What a run directory says."""

    records: Records
    ids: list[str]
    errors: list[str | None]
    report: dict[str, Any]
    t0: int

    def at(self, name: str) -> IntArray:
        """A column of instants, absolute ns; -1 stays."""
        column: IntArray = self.records[name]
        return np.where(column >= 0, column + self.t0, -1)

    def arrivals(self, row: int) -> IntArray:
        records = self.records
        chunks: IntArray = records.chunk_ns[records.chunk_offsets[row] : records.chunk_offsets[row + 1]] + self.t0
        return chunks

    def p50_ms(self, metric: str) -> float:
        return float(self.report["metrics"][metric]["p50"]) / 1e6


def run(folder: Path, url: str, protocol: str, source: dict[str, Any], *flags: str, **options: Any) -> Run:
    """A whole run by the command line."""
    target = {"protocol": protocol, "options": options}
    (folder / "s.json").write_text(
        json.dumps({"name": "s", "kind": "single_stream", "source": source, "target": target})
    )
    (folder / "s.json").rename(folder / "s.yaml")  # JSON is YAML
    ran = plimsoll_here("run", "s.yaml", "--url", url, "--timeout", "8s", "--out", "r", *flags, cwd=folder)
    assert (folder / "r" / "report.json").is_file(), ran.stderr
    records = tables.load(folder / "r")
    assert contradictions(records) == []
    table = pq.read_table(folder / "r" / "requests.parquet", columns=["request_id", "error"]).to_pydict()
    t0 = json.loads((folder / "r" / "manifest.json").read_text())["t0_monotonic_ns"]
    report = json.loads((folder / "r" / "report.json").read_text())
    assert (records["status"] == Status.OK).all(), (table["error"], ran.stderr)
    return Run(records, table["request_id"], table["error"], report, t0)


def audio(words: int = 2, count: int = 4) -> dict[str, Any]:
    return {"kind": "audio", "words": words, "count": count, "lead": "50ms", "trail": "50ms"}


def texts(folder: Path) -> dict[str, Any]:
    lines = "".join(json.dumps({"prompt": sentence}) + "\n" for sentence in SENTENCES)
    (folder / "texts.jsonl").write_text(lines)
    return {"kind": "jsonl", "path": "texts.jsonl"}


def behind(arrivals: IntArray, left_ns: IntArray) -> IntArray:
    """How far each arrival is behind the latest message that had left by then."""
    place = np.searchsorted(left_ns, arrivals + EARLY_NS, side="right") - 1
    assert (place >= 0).all(), "something arrived before anything was sent"
    delays: IntArray = arrivals - left_ns[place]
    return delays


def check_against_truth(found: Run, server_: Server) -> None:
    """Each stamped chunk is behind a message of the server's own log, most of them closely."""
    truth, delays = server_.truth(), []
    for row, request_id in enumerate(found.ids):
        left = np.array([before for before, _ in truth[request_id]["tokens"]], np.int64)
        assert truth[request_id]["outcome"] in ("ok", "cancelled")  # the latter where it is for us to hang up
        arrivals = found.arrivals(row)
        assert len(arrivals) <= len(left)
        delays += behind(arrivals, left).tolist()
    assert np.median(delays) < 5 * MS


# -- the bundled server -------------------------------------------------------------------------------------------


def test_recognition_under_a_schedule_is_right_word_for_word_and_on_the_servers_clock(
    speech: Server, tmp_path: Path
) -> None:
    flags = ("--kind", "server", "--rate", "4", "--queries", "6", "--model", "recogniser")
    found = run(tmp_path, speech.url, "deepgram-listen", audio(), *flags, endpointing=300)
    records = found.records
    assert (records["word_errors"] == 0).all()
    assert (records["words"] == 2).all()
    check_against_truth(found, speech)
    # The recogniser ends an utterance 300 ms of audio after its last word, and frames of 100 ms bring that audio.
    delay = (found.at("endpoint_ns") - found.at("speech_end_ns")) / MS
    assert (delay >= 300 - 60).all()
    assert np.median(delay) < 600
    assert (found.at("final_ns") == found.at("endpoint_ns")).all()
    assert (found.at("first_partial_ns") > found.at("speech_start_ns")).all()
    assert (records["pace"] == 1).all()
    cursors, offsets = records.ragged("chunk_cursor_ns")
    assert (np.diff(offsets) == np.diff(records.chunk_offsets)).all()
    assert (cursors >= 0).all()


def test_a_forced_end_comes_at_the_clips_true_end(speech: Server, tmp_path: Path) -> None:
    flags = ("--kind", "concurrency", "--concurrency", "2", "--queries", "2", "--model", "recogniser")
    found = run(tmp_path, speech.url, "deepgram-listen", audio(), *flags, finish="finalize", encoding="mulaw")
    assert (found.records["word_errors"] == 0).all()
    assert (found.records["endpoint_ns"] == -1).all()
    # 50 ms of silence follow the speech in the clip; the input is over with them.
    assert np.allclose((found.at("input_end_ns") - found.at("speech_end_ns")) / MS, 50, atol=1)
    since_input = (found.at("final_ns") - found.at("input_end_ns")) / MS
    assert (since_input > -100).all()
    assert np.median(since_input) < 400
    check_against_truth(found, speech)


@pytest.mark.parametrize("turn_detection", ["server_vad", "none"])
def test_realtime_transcription_by_turns_and_by_commit(speech: Server, tmp_path: Path, turn_detection: str) -> None:
    flags = ("--kind", "concurrency", "--concurrency", "3", "--queries", "3", "--model", "recogniser")
    found = run(tmp_path, speech.url, "openai-realtime", audio(), *flags, turn_detection=turn_detection)
    assert (found.records["word_errors"] == 0).all()
    assert (found.records["final_ns"] >= 0).all()
    assert ((found.records["endpoint_ns"] >= 0) == (turn_detection == "server_vad")).all()
    check_against_truth(found, speech)


def test_voice_to_voice_has_both_sides_of_the_turn_on_one_row(speech: Server, tmp_path: Path) -> None:
    flags = ("--kind", "concurrency", "--concurrency", "2", "--queries", "2", "--model", "recogniser")
    options = {"mode": "conversation", "transcription_model": "recogniser", "silence_duration_ms": 300}
    found = run(tmp_path, speech.url, "openai-realtime", audio(), *flags, **options)
    records = found.records
    assert (records["word_errors"] == 0).all()
    assert (records["n_out"] > 0).all()
    chain = ("speech_end_ns", "endpoint_ns", "first_audio_ns", "audible_ns", "done_ns")
    for before, after in pairwise(chain):
        assert (found.at(before) <= found.at(after)).all(), (before, after)
    assert (records["media_out_ns"] > 500 * MS).all()
    assert 200 < found.p50_ms("voice_to_voice") < 1500
    assert found.p50_ms("voice_to_voice") >= found.p50_ms("endpointing")
    check_against_truth(found, speech)


@pytest.mark.parametrize(
    "options",
    [{}, {"words_per_second": 40, "finish": "close", "encoding": "alaw"}],
    ids=["at once", "by word"],
)
def test_a_voice_is_heard_and_stamped_as_it_comes(speech: Server, tmp_path: Path, options: dict[str, Any]) -> None:
    flags = ("--kind", "concurrency", "--concurrency", "3", "--queries", "6", "--model", "synthesiser")
    found = run(tmp_path, speech.url, "deepgram-speak", texts(tmp_path), *flags, **options)
    records = found.records
    # A symbol takes 60 ms, and there are 60 ms of silence around it.
    expected = {(60 * len(sentence) + 60) * MS for sentence in SENTENCES}
    assert set(records["media_out_ns"].tolist()) == expected
    assert (found.at("first_audio_ns") > found.at("input_end_ns")).all()
    if options:
        assert (found.at("input_end_ns") - found.at("open_ns") > 40 * MS).all()
    values, offsets = records.ragged("chunk_audio_ns")
    assert (np.add.reduceat(values, offsets[:-1]) == records["media_out_ns"]).all()
    check_against_truth(found, speech)


def test_text_is_answered_in_text_token_by_token(speech: Server, tmp_path: Path) -> None:
    flags = ("--queries", "3", "--model", "scripted")
    options = {"mode": "conversation", "output": "text"}
    found = run(tmp_path, speech.url, "openai-realtime", texts(tmp_path), *flags, **options)
    assert (found.records["n_out"] > 0).all()
    assert 4 < found.p50_ms("tpot") < 8
    check_against_truth(found, speech)
