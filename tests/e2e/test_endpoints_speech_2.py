"""Live speech against fakes of the vendors' servers: one table of protocols, each in a session and in every way in
which a session can fail, some in a real run.

The fakes log the instant of each write on the clock that this host shares, so that stamps are held against the truth.
Load: four sessions at once, each of less than half a second of audio.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
import urllib.request
import wave
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from plimsoll.harness.exchange import Exchange
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.validity.accounts import contradictions
from tests.e2e.live_session import MS, against, audio_payload, clip_of, session
from tests.e2e.plimsoll import ROOT, plimsoll_valid
from tests.fakes.websocket_fake import Fake, Knobs

pytestmark = pytest.mark.e2e

KNOBS = Knobs(first_ms=160.0, word_ms=80.0)
TEXT = "one two three"
KEY = "sk-a-secret-key"
#: A stamp may be so much later than the server's own instant; earlier only by what the two clocks' map is unsure of.
LATE_NS, EARLY_NS = 50 * MS, 300_000


@dataclass(frozen=True)
class Case:
    """A protocol with options, its fake, the log's kinds of its first and last words, and whether it tells an end of
    speech.
    """

    fake: str
    protocol: str
    options: Mapping[str, Any] = field(default_factory=dict)
    first: str = "partial"
    final: str = "final"
    ends: bool = False
    faults_after: int = 4
    model: str = ""

    @property
    def synthesis(self) -> bool:
        return self.protocol.endswith("tts")

    def build(self, knobs: Knobs) -> Fake:
        built: Fake = importlib.import_module(f"tests.fakes.{self.fake}").build(knobs)
        return built

    def payload(self, knobs: Knobs) -> Payload:
        return Payload(prompt=TEXT, n_in=3) if self.synthesis else audio_payload(knobs)


FLUX = Case("deepgram_flux", "deepgram-flux", {}, "StartOfTurn", "EndOfTurn", True, 6)
ASSEMBLY = Case("assemblyai", "assemblyai", {"format_turns": True}, "Turn", "Turn", True, 6)
VLLM = Case("openai_realtime_vllm", "openai-realtime", {"dialect": "vllm"}, "delta", "done", False, 6, "m")
CASES = (
    FLUX,
    ASSEMBLY,
    VLLM,
    Case("elevenlabs", "elevenlabs-scribe"),
    Case("elevenlabs", "elevenlabs-tts", {"words_per_second": 50.0}),
    Case("cartesia", "cartesia-stt"),
    Case("cartesia", "cartesia-turns", ends=True),
    Case("cartesia", "cartesia-tts", {"words_per_second": 50.0}, faults_after=3),
    Case("vosk", "vosk"),
    Case("sherpa", "sherpa-onnx"),
    Case("whisperlive", "whisperlive", {"audio": {"frame": "64ms"}}, ends=True, faults_after=6),
    Case("whisperlivekit", "whisperlivekit"),
    Case("kyutai", "kyutai-stt", first="word", final="done"),
    Case("kyutai", "kyutai-tts"),
    Case("azure_speech", "azure-stt", faults_after=6),
    Case("azure_speech", "azure-tts", faults_after=3),
)
VARIANTS = (
    Case("elevenlabs", "elevenlabs-scribe", {"commit_strategy": "vad", "vad_silence_threshold_secs": 0.2}, ends=True),
    Case("elevenlabs", "elevenlabs-scribe", {"include_timestamps": True, "audio_format": "ulaw_8000"}),
    Case("elevenlabs", "elevenlabs-tts", {"chunk_length_schedule": [50], "auto_mode": True}),
    Case("cartesia", "cartesia-stt", {"finish": ["finalize", "close"], "encoding": "pcm_f32le"}),
    Case(
        "cartesia", "cartesia-turns", {"turn": {"eager": True}, "sample_rate": 8000, "encoding": "pcm_mulaw"}, ends=True
    ),
    Case("cartesia", "cartesia-tts", {"encoding": "pcm_f32le", "sample_rate": 16000}),
    Case("vosk", "vosk", {"audio": {"pace": "burst"}, "max_alternatives": 0, "phrase_list": ["one two"]}),
    Case("sherpa", "sherpa-onnx", {"server": "python", "path": "/python"}),
    Case("whisperlivekit", "whisperlivekit", {"mode": "diff", "language": "en"}),
    Case("kyutai", "kyutai-stt", {"pause_threshold": 0.5}, "word", "done", True),
    Case("azure_speech", "azure-stt", {"format": "simple", "mode": "dictation", "sample_rate": 8000}),
    Case("azure_speech", "azure-tts", {"output_format": "raw-16khz-16bit-mono-pcm"}),
)
#: One for each way of writing messages (JSON, MessagePack, a vendor's own) and one that speaks: between their records
#: and those of the others lies only ``settle``, which sessions in this process show.
RUNS = ("assemblyai", "elevenlabs-scribe", "kyutai-stt", "azure-stt", "cartesia-tts")
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.protocol)
each_variant = pytest.mark.parametrize(
    "case", [*CASES, *VARIANTS], ids=lambda case: f"{case.protocol} {dict(case.options)}"
)


# -- real runs ------------------------------------------------------------------------------------------------------


@contextmanager
def served(name: str) -> Iterator[str]:
    """A fake in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.fakes.{name}", "--port", "0", "--first-ms", "160", "--word-ms", "80"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def log_of(url: str) -> dict[str, list[dict[str, Any]]]:
    """What the fake noted, by request id."""
    with urllib.request.urlopen(f"{url}/log", timeout=10) as answer:
        entries = [json.loads(line) for line in answer.read().splitlines()]
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        found.setdefault(entry["request_id"], []).append(entry)
    return found


def scenario(folder: Path, case: Case, url: str) -> Path:
    """A scenario of four sessions at once."""
    source: dict[str, Any] = {"kind": "jsonl", "path": "texts.jsonl"}
    if case.synthesis:
        (folder / "texts.jsonl").write_text(json.dumps({"prompt": TEXT}) + "\n")
    else:
        clip = clip_of(KNOBS)
        with wave.open(str(folder / "a.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(clip.rate)
            file.writeframes(clip.pcm.tobytes())
        words = [{"text": w.text, "start": w.start_ns / 1e9, "end": w.end_ns / 1e9} for w in clip.words]
        known = {"file": "a.wav", "text": clip.transcript, "start": clip.onset_ns / 1e9, "end": clip.offset_ns / 1e9}
        (folder / "clips.jsonl").write_text(json.dumps({**known, "words": words}) + "\n")
        source = {"kind": "audio", "manifest": "clips.jsonl"}
    (folder / "key").write_text(KEY)
    path = folder / "s.yaml"
    path.write_text(
        json.dumps(
            {
                "name": "speech", "description": "live sessions", "kind": "concurrency", "params": {"concurrency": 4},
                "target": {"url": url, "protocol": case.protocol, "options": dict(case.options), "api_key_file": "key"},
                "source": source, "stop": {"min_queries": 4, "min_duration": "0s"}, "timeout": "5s",
            }
        )
    )  # fmt: skip
    return path


def request_ids(run: Path) -> list[str]:
    import pyarrow.parquet as pq

    return list(pq.read_table(run / "requests.parquet", columns=["request_id"])["request_id"].to_pylist())


def instant(entries: list[dict[str, Any]], kind: str, which: int = 0) -> int:
    found: int = [entry["t_ns"] for entry in entries if entry["kind"] == kind][which]
    return found


def check_close(stamped_ns: int, true_ns: int) -> None:
    assert -EARLY_NS <= stamped_ns - true_ns <= LATE_NS, f"{(stamped_ns - true_ns) / 1e6} ms off"


@pytest.mark.parametrize("case", [case for case in CASES if case.protocol in RUNS], ids=lambda case: case.protocol)
def test_a_run_of_several_sessions_agrees_with_the_servers_own_log(case: Case, tmp_path: Path) -> None:
    with served(case.fake) as url:
        path = scenario(tmp_path, case, url)
        done = plimsoll_valid("run", str(path), "--json", cwd=tmp_path)
        log = log_of(url)
    assert done.returncode == 0, done.stderr[-2000:]
    run = tmp_path / "r"
    records = tables.load(run)
    assert contradictions(records) == []
    assert records["status"].tolist() == [Status.OK] * 4
    assert json.loads((run / "report.json").read_text())["validity"]["stamp"] == "kernel"
    assert all(KEY not in file.read_text(errors="replace") for file in run.iterdir())
    t0_ns = json.loads((run / "manifest.json").read_text())["t0_monotonic_ns"]
    for row, request_id in enumerate(request_ids(run)):
        entries = log[request_id]
        assert not [entry for entry in entries if entry["kind"] == "violation"]
        stamps = {name: int(records[name][row]) for name in (*_INSTANTS, *_COUNTS)}
        stamps |= {name: stamps[name] + t0_ns for name in _INSTANTS if stamps[name] >= 0}
        if case.synthesis:
            arrived = records.chunk_ns[records.chunk_offsets[row] : records.chunk_offsets[row + 1]] + t0_ns
            check_speech(stamps, arrived.tolist(), ragged(records, "chunk_audio_ns", row), entries)
        else:
            check_text(case, stamps, ragged(records, "word_lag_ns", row), entries)


def ragged(records: Records, name: str, row: int) -> list[int]:
    values, offsets = records.ragged(name)
    return list(values[offsets[row] : offsets[row + 1]].tolist())


def check_text(case: Case, at: Mapping[str, int], lags: Sequence[int], entries: list[dict[str, Any]]) -> None:
    check_close(at["first_partial_ns"], instant(entries, case.first))
    check_close(at["final_ns"], instant(entries, case.final, -1))
    assert (at["words"], at["word_errors"], at["pace"], at["false_endpoints"]) == (3, 0, 1, 0)
    assert at["speech_end_ns"] == at["media_start_ns"] + round(KNOBS.speech_end_ms * MS)
    assert 0 <= at["open_ns"] <= at["media_start_ns"] < at["first_partial_ns"]
    assert len(lags) == 3
    # A word can't be known before the frame that holds its end was sent; scripted delays are below 350 ms.
    assert 0 < min(lags) < max(lags) < 500 * MS


_INSTANTS = ("open_ns", "media_start_ns", "speech_end_ns", "first_partial_ns", "final_ns", "first_audio_ns")
_COUNTS = ("words", "word_errors", "pace", "false_endpoints", "media_out_ns", "leading_silence_ns")


def check_speech(
    at: Mapping[str, int], arrived: Sequence[int], lasts: Sequence[int], entries: list[dict[str, Any]]
) -> None:
    check_close(at["first_audio_ns"], instant(entries, "audio"))
    assert at["media_out_ns"] == round(3 * KNOBS.audio_per_word_ms * MS)
    # The window of 10 ms that first is audible begins up to 10 ms before the tone does.
    assert KNOBS.leading_silence_ms - 10 <= at["leading_silence_ns"] / MS <= KNOBS.leading_silence_ms
    sent = [entry["t_ns"] for entry in entries if entry["kind"] == "audio"]
    assert list(lasts) == [50 * MS] * len(sent)
    for stamped_ns, true_ns in zip(arrived, sent, strict=True):
        check_close(stamped_ns, true_ns)


# -- every dialect --------------------------------------------------------------------------------------------------


def one(case: Case, knobs: Knobs = KNOBS, **more: Any) -> tuple[Exchange, list[dict[str, Any]]]:
    headers = (("Authorization", f"Bearer {KEY}"),)
    return against(
        case.build,
        knobs,
        case.protocol,
        case.payload(knobs),
        case.options,
        **{"headers": headers, "timeout_ns": 5000 * MS, "model": case.model, **more},
    )


@each_variant
def test_a_session_says_what_the_server_wants_and_its_stamps_are_the_servers(case: Case) -> None:
    exchange, log = one(case)
    stamps = exchange.session
    assert stamps is not None
    assert (exchange.status, exchange.error) == (Status.OK, None)
    assert not [entry for entry in log if entry["kind"] == "violation"]
    if case.synthesis:
        said = "".join(entry["text"] for entry in log if entry["kind"] == "text")
        assert said.replace(" ", "") == TEXT.replace(" ", "")
        check_close(stamps.first_audio_ns, instant(log, "audio"))
        assert stamps.media_out_ns == round(3 * KNOBS.audio_per_word_ms * MS)
    else:
        check_close(stamps.final_ns, instant(log, case.final, -1))
        assert (stamps.words, stamps.word_errors, stamps.n_revised) == (3, 0, 0)
        assert (stamps.endpoint_ns >= stamps.speech_end_ns) == case.ends
    if case in CASES:
        at = {name: getattr(stamps, name) for name in (*_INSTANTS, *_COUNTS)}
        if case.synthesis:
            check_speech(at, exchange.chunk_ns, stamps.chunk_audio_ns, log)
        else:
            check_text(case, at, stamps.word_lag_ns, log)


def test_text_is_fed_at_the_speed_that_was_asked_for() -> None:
    for fake, protocol in (("elevenlabs", "elevenlabs-tts"), ("cartesia", "cartesia-tts"), ("kyutai", "kyutai-tts")):
        _, log = one(Case(fake, protocol, {"words_per_second": 20.0}))
        at = [entry["t_ns"] for entry in log if entry["kind"] == "text" and entry["text"].strip()]
        assert len(at) == 3
        assert all(35 * MS < gap < 90 * MS for gap in np.diff(at).tolist())
        _, log = one(Case(fake, protocol))
        at = [entry["t_ns"] for entry in log if entry["kind"] == "text" and entry["text"].strip()]
        assert at[-1] - at[0] < 20 * MS


def test_kyutais_marker_comes_back_only_because_silence_follows_it() -> None:
    exchange, log = one(Case("kyutai", "kyutai-stt"))
    stamps = exchange.session
    assert stamps is not None
    asked, answered = instant(log, "marker_asked"), instant(log, "done")
    assert answered - asked > (KNOBS.endpoint_ms - 80) * MS
    assert stamps.input_end_ns - stamps.media_start_ns == round(KNOBS.speech_end_ms * MS)
    assert stamps.final_ns == exchange.done_ns


def test_silence_ends_with_the_turn() -> None:
    exchange, _ = one(Case("cartesia", "cartesia-turns"))
    stamps = exchange.session
    assert stamps is not None
    assert stamps.endpoint_ns == stamps.final_ns
    assert stamps.input_end_ns - stamps.media_start_ns < 1500 * MS  # 3 s of it were ready


def test_a_turn_that_ends_twice_has_its_endpoint_first_and_its_text_second() -> None:
    exchange, log = one(ASSEMBLY, Knobs(final_delay_ms=40))
    plain, formatted = [entry["t_ns"] for entry in log if entry["kind"] == "Turn" and entry["end_of_turn"]]
    stamps = exchange.session
    assert stamps is not None
    check_close(stamps.endpoint_ns, plain)
    check_close(stamps.final_ns, formatted)
    assert stamps.first_final_ns == stamps.endpoint_ns < stamps.final_ns


@pytest.mark.parametrize("case", [FLUX, VLLM], ids=lambda case: case.protocol)
def test_a_server_that_stops_reading_shows_in_the_bytes_that_it_did_not_take(case: Case) -> None:
    """A minute of audio at once: what is live fits into any socket for long."""
    knobs = Knobs(first_ms=60_000, fault="stop-reading", fault_after=2)
    hurried = replace(case, options={**case.options, "audio": {"pace": "burst", "frame": "80ms"}})
    exchange, _ = one(hurried, knobs, timeout_ns=900 * MS)
    assert Status(exchange.status) is Status.TIMEOUT
    assert exchange.session is not None
    assert exchange.session.unsent_bytes > 100_000
    assert exchange.session.pace == 0


# -- what a vendor polices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("frame_ms", "gap_ms", "said"), [(20, 20, "Duration Violation"), (100, 1, "Rate Exceeded")])
def test_the_fake_hangs_up_on_frames_that_assemblyai_refuses(frame_ms: int, gap_ms: int, said: str) -> None:
    """By the generic protocol, which knows no vendor's rules."""
    options = {
        "path": "/v3/ws?sample_rate=16000",
        "audio": {"frame": f"{frame_ms}ms", "pace": f"{frame_ms / gap_ms:g}x"},
        "ready": '"Begin"',
        "text_path": "transcript",
    }
    generic = Case("assemblyai", "websocket", options)
    exchange, log = one(generic, Knobs(first_ms=1500), headers=(("Authorization", KEY),))
    assert said in next(entry["text"] for entry in log if entry["kind"] == "violation")
    assert Status(exchange.status) is not Status.OK


@pytest.mark.parametrize(
    ("case", "code", "said"),
    [
        (replace(FLUX, options={"query": {"interim_results": True}}), 400, "interim_results"),
        (replace(ASSEMBLY, options={"auth": "bearer"}), 401, ""),
        (replace(VLLM, model=""), 101, "Model not validated. Send session.update first. (model_not_validated)"),
    ],
    ids=["what belongs to listen", "a key that is none", "no model"],
)
def test_what_a_vendor_refuses_is_told_in_its_words(case: Case, code: int, said: str) -> None:
    exchange, _ = one(case)
    assert (Status(exchange.status), exchange.code) == (Status.HTTP, code)
    assert said in str(exchange.error)


# -- every failure --------------------------------------------------------------------------------------------------

FAULTS = (
    "refuse=429", "refuse=503", "refuse=403", "error", "close=1011", "close=1013", "reset", "hang", "garbage",
)  # fmt: skip


async def all_faults(case: Case) -> dict[str, Exchange]:
    """One session for each fault, all at once."""

    async def struck(fault: str) -> Exchange:
        knobs = replace(KNOBS, fault=fault, fault_after=case.faults_after)
        fake = case.build(knobs)
        await fake.start()
        try:
            headers = (("Authorization", f"Bearer {KEY}"),)
            target = {"headers": headers, "timeout_ns": 800 * MS, "model": case.model}
            options = dict(case.options)
            if (
                fault == "hang" and not case.synthesis
            ):  # the time-out begins when all silence is out: some send 15 s of it
                options["audio"] = {**options.get("audio", {}), "trailing_silence": "300ms"}
            exchange = await session(fake.url, case.protocol, case.payload(knobs), options, **target)
            assert fake.open_now == 0 or fault == "hang"
            return exchange
        finally:
            await fake.stop()

    return dict(zip(FAULTS, await asyncio.gather(*map(struck, FAULTS)), strict=True))


@each
def test_failures_have_their_status_and_their_words_and_keep_what_was_heard(case: Case) -> None:
    found = uvloop.run(all_faults(case))
    assert {fault: Status(exchange.status) for fault, exchange in found.items() if fault != "error"} == {
        "refuse=429": Status.REFUSED, "refuse=503": Status.REFUSED, "refuse=403": Status.HTTP,
        "close=1011": Status.HTTP, "close=1013": Status.REFUSED, "reset": Status.CONNECT, "hang": Status.TIMEOUT,
        "garbage": Status.PROTOCOL,
    }  # fmt: skip
    status, words = _ERRORS[case.protocol]
    assert (Status(found["error"].status), words in str(found["error"].error)) == (status, True), found["error"].error
    assert "told to refuse" in str(found["refuse=403"].error)
    assert found["refuse=403"].code == 403
    assert KEY not in str(found["refuse=403"].error)
    assert "told to" in str(found["close=1011"].error)
    assert "connection closed in the middle of the session" in str(found["reset"].error)
    if not case.synthesis and case.protocol != "azure-stt":  # its first messages are not audio
        for fault in ("error", "close=1011", "reset", "hang", "garbage"):
            exchange = found[fault]
            assert exchange.session is not None
            assert exchange.session.first_partial_ns > 0, fault
            assert exchange.n_chunks > 0
            assert exchange.session.frame_lag_ns


_ERRORS = {
    "deepgram-flux": (Status.HTTP, "told to fail"),
    "assemblyai": (Status.HTTP, "told to fail"),
    "openai-realtime": (Status.HTTP, "told to fail"),
    "elevenlabs-scribe": (Status.REFUSED, "slow down (rate_limited)"),
    "elevenlabs-tts": (Status.REFUSED, "no characters left"),
    "cartesia-stt": (Status.REFUSED, "concurrency limit reached"),
    "cartesia-turns": (Status.REFUSED, "concurrency limit reached"),
    "cartesia-tts": (Status.REFUSED, "concurrency limit reached"),
    "vosk": (Status.HTTP, "1011"),
    "sherpa-onnx": (Status.HTTP, "decoder failed"),
    "whisperlive": (Status.REFUSED, "the server is full: wait 2.5 minutes"),
    "whisperlivekit": (Status.HTTP, "FFmpeg failed"),
    "kyutai-stt": (Status.REFUSED, "no free channels"),
    "kyutai-tts": (Status.REFUSED, "no free channels"),
    "azure-stt": (Status.REFUSED, "Too many requests"),
    "azure-tts": (Status.REFUSED, "Too many requests"),
}


@pytest.mark.parametrize("case", [case for case in CASES if case.synthesis], ids=lambda case: case.protocol)
@pytest.mark.parametrize(("fault", "status"), [("reset", Status.CONNECT), ("close=1011", Status.HTTP)])
def test_audio_that_came_before_a_break_is_kept(case: Case, fault: str, status: Status) -> None:
    exchange, log = one(case, replace(KNOBS, fault=fault, fault_after_audio=2))
    assert exchange.session is not None
    assert exchange.status == status
    assert exchange.session.media_out_ns == 100 * MS
    check_close(exchange.session.first_audio_ns, instant(log, "audio"))
