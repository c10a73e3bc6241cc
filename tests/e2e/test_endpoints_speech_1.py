"""Live speech through whole runs and single sessions: Deepgram, AssemblyAI, OpenAI's realtime protocol and vLLM's
dialect of it.

Runs go against the bundled server, whose own stamps say when each message left; single sessions against fakes that
police what the vendors police. Stamps are never before the truth and close behind it. About 25 seconds in all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
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
from tests.e2e.live_session import MS, against, audio_payload, clip_of
from tests.e2e.plimsoll import ROOT, Server, plimsoll_here, server
from tests.fakes import assemblyai, deepgram_flux, openai_realtime_vllm
from tests.fakes.websocket_fake import Fake, Knobs

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


# -- fakes of the vendors -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vendor:
    """A protocol and its fake.

    ``finals``: which of the log's messages make text final, ``ends``: which are the endpoint.
    """

    build: Callable[[Knobs], Fake]
    protocol: str
    options: dict[str, Any]
    partial: str
    final: Callable[[dict[str, Any]], bool]
    ends: bool = True


VENDORS = (
    Vendor(deepgram_flux.build, "deepgram-flux", {}, "StartOfTurn", lambda entry: entry["kind"] == "EndOfTurn"),
    Vendor(
        assemblyai.build,
        "assemblyai",
        {"format_turns": True},
        "Turn",
        lambda entry: bool(entry["kind"] == "Turn" and entry["formatted"]),
    ),
    Vendor(
        openai_realtime_vllm.build,
        "openai-realtime",
        {"dialect": "vllm"},
        "delta",
        lambda entry: entry["kind"] == "done",
        ends=False,
    ),
)
each_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.protocol)
HEADERS = (("Authorization", f"Bearer {KEY}"),)


def heard(vendor: Vendor, knobs: Knobs, timeout_ms: int = 5000, **options: Any) -> Any:
    payload = audio_payload(knobs, trail_ms=130)
    given = {**vendor.options, **options}
    model = "flux-general-en" if vendor.protocol == "deepgram-flux" else "m"
    return against(
        vendor.build, knobs, vendor.protocol, payload, given, headers=HEADERS, model=model, timeout_ns=timeout_ms * MS
    )


@each_vendor
def test_a_session_with_a_fake_is_stamped_when_the_fake_said_it(vendor: Vendor) -> None:
    exchange, log = heard(vendor, Knobs())
    stamps = exchange.session
    assert (Status(exchange.status), exchange.error) == (Status.OK, None)
    assert not [entry for entry in log if entry["kind"] == "violation"]
    assert (stamps.words, stamps.word_errors, stamps.false_endpoints) == (3, 0, 0)
    assert stamps.open_ns <= stamps.media_start_ns
    first = next(entry["t_ns"] for entry in log if entry["kind"] == vendor.partial)
    final = [entry["t_ns"] for entry in log if vendor.final(entry)][-1]
    for stamp, truth in ((stamps.first_partial_ns, first), (stamps.final_ns, final)):
        assert -EARLY_NS <= stamp - truth < 20 * MS
    # The first word ends at 200 ms of audio; the frame that holds its end leaves when it ends.
    assert stamps.first_partial_ns - stamps.media_start_ns >= 200 * MS
    assert (stamps.endpoint_ns >= stamps.speech_end_ns) == vendor.ends
    assert len(stamps.word_lag_ns) == 3
    assert min(stamps.word_lag_ns) >= 0
    assert len(stamps.frame_lag_ns) >= 5


def test_a_turn_that_ends_twice_has_its_endpoint_first_and_its_text_second() -> None:
    exchange, log = heard(VENDORS[1], Knobs(final_delay_ms=40))
    plain, formatted = [entry["t_ns"] for entry in log if entry["kind"] == "Turn" and entry["end_of_turn"]]
    stamps = exchange.session
    assert -EARLY_NS <= stamps.endpoint_ns - plain < 20 * MS
    assert -EARLY_NS <= stamps.final_ns - formatted < 20 * MS
    assert stamps.first_final_ns == stamps.endpoint_ns < stamps.final_ns


@each_vendor
def test_a_refused_handshake_keeps_its_status_and_its_reason_and_no_key(vendor: Vendor) -> None:
    for code, status in ((401, Status.HTTP), (429, Status.REFUSED), (503, Status.REFUSED)):
        exchange, _ = heard(vendor, Knobs(fault=f"refuse={code}"))
        assert (Status(exchange.status), exchange.code) == (status, code)
        assert "told to refuse" in exchange.error
        assert exchange.session.words == -1


@each_vendor
def test_an_error_in_the_middle_is_the_servers_word_and_what_was_heard_is_kept(vendor: Vendor) -> None:
    exchange, log = heard(vendor, Knobs(fault="error", fault_after=6))
    assert Status(exchange.status) is Status.HTTP
    assert "told to fail" in exchange.error
    assert exchange.n_chunks >= 1
    assert exchange.session.first_partial_ns >= 0
    assert [entry for entry in log if entry["kind"] == "close"]


@each_vendor
@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("reset", Status.CONNECT, "connection closed in the middle of the session"),
        ("close=1011", Status.HTTP, "1011 told to"),
        ("close=1013", Status.REFUSED, "1013"),
        ("garbage", Status.PROTOCOL, "is not JSON"),
    ],
)
def test_a_session_that_breaks_keeps_what_was_heard(vendor: Vendor, fault: str, status: Status, said: str) -> None:
    exchange, log = heard(vendor, Knobs(fault=fault, fault_after=6))
    assert Status(exchange.status) is status
    assert said in exchange.error
    assert exchange.n_chunks >= 1
    assert sum(entry["kind"] == "open" for entry in log) == 1


@each_vendor
def test_a_final_that_never_comes_is_a_timeout_with_its_partials(vendor: Vendor) -> None:
    # The time-out begins when all silence is out; a vendor's own default of it is seconds.
    knobs = Knobs(fault="hang", fault_after=6)
    exchange, log = heard(vendor, knobs, timeout_ms=600, audio={"trailing_silence": "300ms"})
    assert Status(exchange.status) is Status.TIMEOUT
    assert exchange.n_chunks >= 1
    assert exchange.session.final_ns == -1
    assert [entry for entry in log if entry["kind"] == "client_closed"]


@pytest.mark.parametrize("vendor", [VENDORS[0], VENDORS[2]], ids=lambda vendor: vendor.protocol)
def test_a_server_that_stops_reading_shows_in_the_bytes_that_it_did_not_take(vendor: Vendor) -> None:
    """A minute of audio at once: what is live fits into any socket for long."""
    knobs = Knobs(first_ms=60_000, fault="stop-reading", fault_after=2)
    exchange, _ = heard(vendor, knobs, timeout_ms=900, audio={"pace": "burst", "frame": "80ms"})
    assert Status(exchange.status) is Status.TIMEOUT
    assert exchange.session.unsent_bytes > 100_000
    assert exchange.session.pace == 0


@pytest.mark.parametrize(("frame_ms", "gap_ms", "said"), [(20, 20, "Duration Violation"), (100, 1, "Rate Exceeded")])
def test_the_fake_hangs_up_on_frames_that_assemblyai_refuses(frame_ms: int, gap_ms: int, said: str) -> None:
    """By the generic protocol, which knows no vendor's rules."""
    knobs = Knobs(first_ms=1500)
    options = {
        "path": "/v3/ws?sample_rate=16000",
        "audio": {"frame": f"{frame_ms}ms", "pace": f"{frame_ms / gap_ms:g}x"},
        "ready": '"Begin"',
        "text_path": "transcript",
    }
    headers = (("Authorization", KEY),)
    exchange, log = against(assemblyai.build, knobs, "websocket", audio_payload(knobs), options, headers=headers)
    assert said in next(entry["text"] for entry in log if entry["kind"] == "violation")
    assert Status(exchange.status) is not Status.OK


def test_flux_refuses_what_belongs_to_listen_and_keys_are_checked() -> None:
    flux, assembly = VENDORS[0], VENDORS[1]
    refused, _ = heard(flux, Knobs(), query={"interim_results": True})
    assert (Status(refused.status), refused.code) == (Status.HTTP, 400)
    assert "interim_results" in refused.error
    unknown, _ = heard(assembly, Knobs(), auth="bearer")
    assert (Status(unknown.status), unknown.code) == (Status.HTTP, 401)


def test_vllm_without_a_model_says_so() -> None:
    knobs, vendor = Knobs(), VENDORS[2]
    exchange, _ = against(vendor.build, knobs, vendor.protocol, audio_payload(knobs), vendor.options)
    assert (Status(exchange.status), exchange.error) == (
        Status.HTTP,
        "Model not validated. Send session.update first. (model_not_validated)",
    )


def test_a_whole_run_with_recordings_against_a_fake_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_API_KEY", KEY)
    clip = clip_of(Knobs(), trail_ms=100)
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(clip.rate)
        file.writeframes(clip.pcm.tobytes())
    label = {"file": "a.wav", "text": clip.transcript, "start": 0.1, "end": clip.offset_ns / 1e9}
    (tmp_path / "m.jsonl").write_text(json.dumps(label) + "\n")
    command = [sys.executable, "-m", "tests.fakes.assemblyai", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as fake:
        try:
            assert fake.stdout is not None
            url = json.loads(fake.stdout.readline())["url"]
            source = {"kind": "audio", "manifest": "m.jsonl"}
            flags = ("--kind", "concurrency", "--concurrency", "3", "--queries", "6")
            found = run(tmp_path, url, "assemblyai", source, *flags, format_turns=True)
        finally:
            fake.terminate()
    assert (found.records["word_errors"] == 0).all()
    assert (found.records["endpoint_ns"] < found.records["final_ns"]).all()
    assert not [path for path in (tmp_path / "r").iterdir() if KEY.encode() in path.read_bytes()]
