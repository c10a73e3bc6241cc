"""The fakes are what the vendors' own SDKs take for the vendor: whole sessions by each SDK, in a process and an
environment of its own.

A script in tests/peers/vendors holds its sessions and prints what the SDK understood; here that is compared with what
the fake was told to do. Messages are held against the SDK's classes too, where it has some: nothing may be missing, of
another type or unknown. And the bundled server is spoken to by SDKs that can't be installed beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.plimsoll import ROOT, server
from tests.fakes import (
    anthropic,
    assemblyai,
    azure_speech,
    cartesia,
    deepgram_flux,
    elevenlabs,
    google_speech,
    google_tts,
    grpc_stage,
    ollama,
    riva,
    tgi,
)
from tests.fakes.websocket_fake import Fake, Knobs

VENDORS = ROOT / ".venv-vendors" / "bin" / "python"
PEERS = ROOT / ".venv-peers" / "bin" / "python"
SCRIPTS = ROOT / "tests" / "peers"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not VENDORS.exists(), reason="needs .venv-vendors: make .venv-vendors/.installed"),
]
SAID = "one two three"
GROWING = ["one", "one two", SAID]
#: What the bundled server adds to OpenAI's events, and what only some of its classes of a session know.
EXTENSIONS = ("server_timing", "session.id", "session.object", "session.expires_at")


@contextmanager
def hearing(build: Callable[[Knobs], Fake], **knobs: Any) -> Iterator[Fake]:
    """A WebSocket fake in a thread for the time of a block."""
    fake, loop = build(Knobs(**knobs)), asyncio.new_event_loop()
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        await fake.start()
        ready.set()
        await over.wait()
        await fake.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        assert ready.wait(10), "the fake did not start"
        yield fake
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


def violations(fake: Fake) -> list[str]:
    """What the fake had against its client."""
    return [entry["text"] for entry in fake.log if entry["kind"] == "violation"]


def by_sdk(script: str, *arguments: str, python: Path = VENDORS) -> dict[str, Any]:
    """What a script prints. Bytecode is kept: without it the SDKs take seconds to import."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [str(python), str(SCRIPTS / script), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=kept)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_assemblyai() -> None:
    with hearing(assemblyai.build) as fake:
        got = by_sdk("vendors/assemblyai_.py", fake.url)
    heard = got["heard"]
    assert (heard["errors"], heard["wrong"], heard["logs"]) == ([], [], [])
    begin, *turns, termination = heard["events"]
    assert (begin["type"], termination["type"]) == ("Begin", "Termination")
    assert [turn["transcript"] for turn in turns] == [*GROWING, SAID, "One two three."]
    assert [(turn["end_of_turn"], turn["turn_is_formatted"]) for turn in turns[2:]] == [
        (False, False),
        (True, False),
        (True, True),
    ]
    assert [word["end"] for word in turns[-1]["words"]] == [200, 300, 400]
    assert got["short"]["errors"] == [[3007, "Input Duration Violation: 20.0 ms. Expected between 50 and 1000 ms"]]
    assert got["refused"]["errors"] == [[401, "WebSocket handshake rejected (HTTP 401)"]]


def test_cartesia() -> None:
    with hearing(cartesia.build) as fake:
        got = by_sdk("vendors/cartesia_.py", fake.url)
    assert {name: part["wrong"] for name, part in got.items() if part["wrong"]} == {}
    assert [(e["type"], e.get("text"), e.get("is_final")) for e in got["by_hand"]["first"]] == [
        ("transcript", "one", False),
        ("transcript", "one two", False),
        ("transcript", "one two", True),
        ("flush_done", None, None),
    ]
    assert [(e["type"], e.get("text"), e.get("is_final")) for e in got["by_hand"]["rest"]] == [
        ("transcript", " three", False),
        ("transcript", " three", True),
        ("done", None, None),
    ]
    assert got["by_hand"]["ended"]
    assert got["by_turns"]["ended"]
    turns = [(event["type"], event.get("transcript")) for event in got["by_turns"]["events"]]
    assert turns[:2] == [("connected", None), ("turn.start", None)]
    assert turns[2:] == [
        *(("turn.update", text) for text in GROWING),
        ("turn.eager_end", SAID),
        ("turn.end", SAID),
    ]
    assert got["spoken"]["kinds"] == ["chunk"] * 6 + ["done"]
    assert (got["spoken"]["bytes"], got["named"]["bytes"]) == (9600, 3200)  # 100 ms a word
    assert [event["error_code"] for event in got["failed"]["events"]] == ["concurrency_limited"]
    assert violations(fake) == ["unknown command 'nonsense'"]


def test_elevenlabs() -> None:
    with hearing(elevenlabs.build) as fake, hearing(elevenlabs.build, fault="error") as failing:
        got = by_sdk("vendors/elevenlabs_.py", fake.url, failing.url)
    assert got["wrong"] == []
    for name in ("by_hand", "by_silence"):
        events = got[name]
        assert [event for event, _ in events] == [
            "session_started",
            *["partial_transcript"] * 3,
            "committed_transcript",
            "committed_transcript_with_timestamps",
            "close",
        ]
        assert [data["text"] for _, data in events[1:6]] == [*GROWING, SAID, SAID]
        assert events[-1][1]["code"] == 1000
    assert got["spoken"] == {"chunks": 6, "bytes": 9600}
    assert [event for event, _ in got["heard_failing"][-3:]] == ["rate_limited", "error", "close"]
    assert got["spoken_failing"]["error"] == [1008, "quota_exceeded"]
    assert violations(fake) == []


def test_azure() -> None:
    with hearing(azure_speech.build) as fake, hearing(azure_speech.build, fault="refuse=401") as failing:
        got = by_sdk("vendors/azure_.py", fake.url, failing.url)
    for name in ("heard", "detailed"):
        assert got[name]["ended"]
        assert got[name]["events"] == [
            ["session_started"],
            *(["recognizing", text] for text in GROWING),
            ["speech_end", 6_000_000],
            ["recognized", SAID, 4_000_000],
            ["recognized", "", 3_000_000],  # the SDK asks again about the silence that no phrase had covered
            ["canceled", "EndOfStream", "NoError", ""],
        ]
    assert got["spoken"]["reason"] == "SynthesizingAudioCompleted"
    assert (got["spoken"]["chunks"], got["spoken"]["bytes"]) == ([2400] * 6, 14_400)
    assert int(got["spoken"]["first_ms"]) < 5000  # the SDK's own measure of the first byte: it took the stream for one
    assert [got["failing"][name] for name in ("reason", "code")] == ["Error", "AuthenticationFailure"]
    assert violations(fake) == []


def test_google_and_riva() -> None:
    with ExitStack() as stack:
        fakes = [
            stack.enter_context(grpc_stage.serving(services, **knobs))
            for services, knobs in (
                (google_speech.SERVICES, {}),
                (google_speech.SERVICES, {"fault": "status=RESOURCE_EXHAUSTED"}),
                (google_tts.SERVICES, {}),
                (riva.SERVICES, {}),
            )
        ]
        got = by_sdk("vendors/google_riva.py", *(fake.url for fake in fakes))
    assert {name: part["strange"] for name, part in got.items() if part.get("strange")} == {}
    pieces = [[["one", False, False]], [["one", False, True], [" two", False, False]]]
    pieces.append([["one two", False, True], [" three", False, False]])
    whole = [[SAID, True, False]]
    for name, none, end in (
        ("v1", "SPEECH_EVENT_UNSPECIFIED", "SPEECH_ACTIVITY_END"),
        ("v1_single", "SPEECH_EVENT_UNSPECIFIED", "END_OF_SINGLE_UTTERANCE"),
        ("v2", "SPEECH_EVENT_TYPE_UNSPECIFIED", "SPEECH_ACTIVITY_END"),
    ):
        assert got[name]["responses"] == [*([none, *piece] for piece in pieces), [end], [none, *whole]]
    assert got["v1_cut_short"]["responses"][-1] == ["SPEECH_EVENT_UNSPECIFIED", ["one two", True, False]]
    assert got["v1_failing"]["error"] == ["ResourceExhausted", "scripted failure"]
    assert len(got["v1_failing"]["responses"]) == 1
    assert got["v2_too_long"]["error"] == ["InvalidArgument", "Audio chunk can be of a maximum of 25600 bytes"]
    assert got["v2_no_recognizer"]["error"][0] == got["unspoken"]["error"][0] == "InvalidArgument"
    assert got["spoken"]["chunks"] == got["riva"]["chunks"] == [1600] * 6
    heard = [(text, final) for text, final, _ in got["riva"]["heard"]]
    assert heard == [*((f"{text} ", False) for text in GROWING), (f"{SAID} ", True)]
    assert [audio_s for *_, audio_s in got["riva"]["heard"]] == [0.2, 0.3, 0.4, 0.6]
    assert [word for word, _, _ in got["riva"]["words"]] == SAID.split()
    assert got["riva"]["refused"][0] == "INVALID_ARGUMENT"


def test_anthropic_ollama_and_tgi() -> None:
    with anthropic.serve() as claude, ollama.serve() as llama, tgi.serve() as generator:
        got = by_sdk("vendors/http_llm.py", claude.url, llama.url, generator.url)
    said = got["anthropic"]
    assert said["wrong"] == []
    assert said["whole"] == ["load lines are painted on ", "end_turn", 5]
    assert (said["thought"], said["text"]) == ("load lines ", "are painted on the hull ")
    assert said["usage"] == [9, 4, 7]
    assert (said["kinds"][0], said["kinds"][-1]) == ("message_start", "message_stop")
    assert {"thinking", "signature", "text"} <= set(said["kinds"])
    assert [said[name][:2] for name in ("overloaded", "limited")] == [["OverloadedError", 529], ["RateLimitError", 429]]
    assert "Overloaded" in said["broken"][2]
    lines = got["ollama"]
    assert lines["wrong"] == []
    assert (lines["generated"], lines["counts"]) == (["load ", "lines ", "are ", ""], [True, "stop", 11, 3, True])
    assert [thought for _, thought in lines["chatted"]][:3] == ["load ", "lines ", None]
    assert "".join(content for content, _ in lines["chatted"]) == "are painted on the hull "
    assert lines["whole"] == ["load lines are painted on ", True]
    assert lines["busy"][:2] == ["ResponseError", 503]
    assert "it broke" in lines["broken"][2]
    generated = got["tgi"]
    assert [part["token"]["text"] for part in generated["streamed"]] == ["load ", "lines ", "are ", "</s>"]
    assert generated["streamed"][-1]["details"]["generated_tokens"] == 4
    assert generated["streamed"][-1]["generated_text"] == generated["whole"][0] == "load lines are "
    assert generated["busy"] == ["OverloadedError", "Model is overloaded"]
    assert generated["broken"] == ["GenerationError", "Request failed during generation: it broke"]


@pytest.mark.skipif(not PEERS.exists(), reason="needs .venv-peers: make .venv-peers/.installed")
def test_deepgram_flux() -> None:
    with hearing(deepgram_flux.build) as fake:
        got = by_sdk("deepgram_flux.py", fake.url, python=PEERS)
    connected, configured, *turn = got["heard"]["messages"]
    assert (connected["class"], configured["class"]) == ("ListenV2Connected", "ListenV2ConfigureSuccess")
    assert {message["class"] for message in turn} == {"ListenV2TurnInfo"}
    assert [message["event"] for message in turn] == ["StartOfTurn", "Update", "Update", "Update", "EndOfTurn"]
    assert [message["transcript"] for message in turn] == [*GROWING, SAID, SAID]
    assert got["heard"]["close"] == 1000
    assert (got["nonsense"]["messages"][-1]["class"], got["nonsense"]["close"]) == ("ListenV2FatalError", 1008)
    assert got["heard"]["strange"] == got["nonsense"]["strange"] == []
    assert got["refused"] == 400
    assert len(violations(fake)) == 2


def test_openais_and_ollamas_sdks_on_the_bundled_server() -> None:
    pytest.importorskip("torch", reason="speech needs torch")
    models = [flag for name in ("recogniser", "synthesiser", "scripted") for flag in ("--model", name)]
    with server(*models, "--ttft", "5ms", "--itl", "2ms", "--device", "cpu", "--threads", "1") as bundled:
        got = by_sdk("vendors/openai_live.py", bundled.url, "her line is painted")
    heard, talked, lines = got["transcribed"], got["conversed"], got["lines"]
    assert heard["transcript"] == "her line is painted"
    assert heard["names"][:2] == ["session.created", "session.updated"]
    assert {"input_audio_buffer.committed", "conversation.item.added"} <= set(heard["names"])
    assert (talked["said"], talked["status"], talked["n_out"]) == ([" the line is painted"], "incomplete", 4)
    assert talked["refused"] == "event 'nonsense' is not known here"
    strange = [fault for fault in heard["wrong"] + talked["wrong"] if not fault.endswith(": unknown")]
    assert strange == []
    added = [fault.removesuffix(": unknown") for fault in heard["wrong"] + talked["wrong"]]
    assert [name for name in added if not name.endswith(EXTENSIONS)] == []
    assert lines["wrong"] == []
    assert (lines["generated"], lines["counts"]) == ([" the", " line", " is", ""], [True, "length", 3])
    assert "".join(lines["chatted"]) == " the line is"
    assert lines["refused"][0] == 404
