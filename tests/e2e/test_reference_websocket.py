"""The WebSocket front-end as a process: official clients, stamps, faults, hostile frames, clients that vanish, and the
server's end.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.raw_websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, RawWebSocket, Refused
from tests.e2e.test_reference_server import Server, running

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parent.parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"
LISTEN = "/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true"
SPEAK = "/v1/speak?encoding=linear16&sample_rate=16000"
N_STREAMS = 6
IDLE_S = 6.0
SENTENCE = "load her to here and she is safe"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    models = ("--model", "recogniser", "--model", "synthesiser", "--model", "scripted")
    limits = ("--max-batch", "4", "--queue-limit", str(N_STREAMS - 4), "--max-body", "400000", "--grace", "300ms")
    limits += ("--read-timeout", f"{IDLE_S:g}s")
    with running(*models, *limits, "--ttft", "5ms", "--itl", "40ms") as started:
        idle = RawWebSocket(started.port, LISTEN, request_id="idle")
        yield started
        with idle, RawWebSocket(started.port, "/v1/realtime") as open_still:
            open_still.until("session.created")
            started.process.send_signal(signal.SIGTERM)
            assert open_still.receive() == (1001, "the server is shutting down")


@pytest.fixture(scope="module")
def audio(server: Server) -> bytes:
    """The sentence at 16 kHz, and a second of silence."""
    with RawWebSocket(server.port, SPEAK) as live:
        live.send({"type": "Speak", "text": SENTENCE})
        live.send({"type": "Close"})
        got = live.messages()
    assert got[-1] == (1000, "")
    return b"".join(message for message in got if isinstance(message, bytes)) + bytes(32_000)


def frames(data: bytes, size: int = 3200) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def finals(messages: list[Any]) -> str:
    results = [m for m in messages if isinstance(m, dict) and m["type"] == "Results" and m["is_final"]]
    return " ".join(m["channel"]["alternatives"][0]["transcript"] for m in results)


def still_serves(server: Server) -> None:
    with RawWebSocket(server.port, LISTEN) as live:
        live.send({"type": "CloseStream"})
        assert live.messages()[-1] == (1000, "")


@pytest.mark.skipif(not PEERS.exists(), reason="needs .venv-peers: make .venv-peers/.installed")
def test_deepgrams_sdk_hears_what_it_had_spoken(server: Server) -> None:
    script = ROOT / "tests" / "peers" / "deepgram_speech.py"
    command = [str(PEERS), str(script), server.ready["url"], SENTENCE, "mind the gap"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    got = json.loads(ran.stdout)
    assert got["spoken"] == {"messages": ["Metadata", "Flushed", "Flushed"], "close": 1000}
    assert finals(got["live"]["messages"]) == f"{SENTENCE} mind the gap"
    assert finals(got["telephone"]["messages"]) == finals(got["finalized"]["messages"]) == got["recorded"] == SENTENCE
    assert [m["from_finalize"] for m in got["finalized"]["messages"] if m.get("is_final")] == [True]
    known = {"ListenV1Results", "ListenV1SpeechStarted", "ListenV1UtteranceEnd", "ListenV1Metadata"}
    assert {m["class"] for m in got["live"]["messages"]} == known
    assert [m["class"] for m in got["live"]["messages"]].count("ListenV1UtteranceEnd") == 2
    assert [got[name]["close"] for name in ("live", "finalized", "telephone")] == [1000] * 3
    assert got["refused"] == 404


class OpenAiWire:
    """What the connection of OpenAI's client needs of the websockets package, which can't be installed beside the
    rest.
    """

    def __init__(self, raw: RawWebSocket) -> None:
        self._raw = raw

    async def send(self, data: str | bytes) -> None:
        self._raw.send(data if isinstance(data, str) else data.decode())

    async def recv(self, *, decode: bool) -> bytes:
        assert not decode
        message = await asyncio.to_thread(self._raw.receive)
        assert isinstance(message, dict), message
        return json.dumps(message).encode()


def test_openais_client_talks_and_is_answered_in_audio(server: Server) -> None:
    from openai.resources.realtime.realtime import AsyncRealtimeConnection
    from openai.types.realtime import realtime_server_event
    from pydantic import TypeAdapter

    known = TypeAdapter(realtime_server_event.RealtimeServerEvent)

    async def main(raw: RawWebSocket) -> list[Any]:
        wire: Any = OpenAiWire(raw)
        connection = AsyncRealtimeConnection(wire)
        transcription: Any = {"model": "recogniser"}
        settings: Any = {"format": {"type": "audio/pcmu"}, "transcription": transcription}
        await connection.session.update(session={"type": "realtime", "audio": {"input": settings}})
        for piece in frames(spoken + b"\xff" * 8000, 1600):
            await connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
        got = []
        while not got or got[-1].type != "response.done":
            got.append(await connection.recv())
        return got

    response, spoken = server.call("/v1/speak?encoding=mulaw&sample_rate=8000", {"text": SENTENCE})
    assert (response.status, response.headers["content-type"]) == (200, "audio/basic;rate=8000")
    with RawWebSocket(server.port, "/v1/realtime?model=recogniser", Sec_WebSocket_Protocol="realtime") as raw:
        assert raw.headers["sec-websocket-protocol"] == "realtime"
        events = asyncio.run(main(raw))
    for event in events:
        known.validate_python(event.model_dump(exclude_unset=True), strict=False)
    said = {event.type: event for event in events}
    assert said["conversation.item.input_audio_transcription.completed"].transcript == SENTENCE
    assert said["response.output_audio_transcript.done"].transcript == f"you said {SENTENCE}"
    answer = b"".join(base64.b64decode(e.delta) for e in events if e.type == "response.output_audio.delta")
    _, heard = server.call("/v1/listen?encoding=linear16&sample_rate=24000", answer)
    alternative = json.loads(heard)["results"]["channels"][0]["alternatives"][0]
    assert alternative["transcript"] == f"you said {SENTENCE}"
    stages = said["response.done"].model_extra["server_timing"]
    assert {"inference.recogniser", "inference.synthesiser"} <= {part.split(";")[0] for part in stages.split(", ")}


def test_speech_interrupts_an_answer_under_way(server: Server, audio: bytes) -> None:
    narrow = server.call("/v1/speak?encoding=alaw&sample_rate=8000", {"text": "stop"})[1] + b"\xd5" * 6000
    with RawWebSocket(server.port, "/v1/realtime?model=scripted") as live:
        settings = {"format": {"type": "audio/pcma"}, "transcription": {"model": "recogniser"}}
        live.send({"type": "session.update", "session": {"type": "realtime", "audio": {"input": settings}}})
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}
        live.send({"type": "conversation.item.create", "item": item})
        live.send({"type": "response.create", "response": {"max_output_tokens": 200}})
        live.until("response.output_audio_transcript.delta")
        for piece in frames(narrow, 800):
            live.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(piece).decode()})
        first = live.until("response.done")[-1]["response"]
        assert (first["status"], first["status_details"]["reason"]) == ("cancelled", "turn_detected")
        got = live.until("response.created")
        assert [m["transcript"] for m in got if m["type"].endswith("transcription.completed")] == ["stop"]


def test_the_truth_has_the_stamps_of_every_message_in_order(server: Server, audio: bytes) -> None:
    with RawWebSocket(server.port, LISTEN, request_id="stamped") as live:
        assert live.headers["x-request-id"] == "stamped"
        for piece in frames(audio):
            live.send(piece)
        live.send({"type": "CloseStream"})
        got = live.until("Metadata")
        assert live.receive() == (1000, "")
        live.frame(CLOSE, b"\x03\xe8")
    row = server.truth("stamped")
    assert (row["status"], row["outcome"], row["model"]) == (101, "ok", "recogniser")
    assert finals(got) == SENTENCE
    assert len(row["tokens"]) == len(got)
    for (before, after), message in zip(row["tokens"], got, strict=True):
        assert row["first_write_ns"] <= before <= after <= row["done_ns"]
        assert before <= message["read_ns"]
    metrics = server.call("/metrics")[1].decode()
    assert 'reference_requests_total{model="recogniser",outcome="ok",status="101"}' in metrics


@contextmanager
def struck_by(server: Server, fault: str) -> Iterator[RawWebSocket]:
    """A voice under a fault; its first message was read, and it is asked for another."""
    placed = json.loads(server.call("/admin/faults", {"fault": fault})[1])
    with RawWebSocket(server.port, SPEAK, request_id=fault) as live:
        assert live.receive()["type"] == "Metadata"
        live.send({"type": "Flush"})
        yield live
    assert server.call(f"/admin/faults/{placed['id']}", method="DELETE")[0].status == 200


def test_faults_strike_at_the_message_they_name(server: Server) -> None:
    with struck_by(server, "cut=at:1") as live, pytest.raises(ConnectionResetError, match="server closed"):
        live.receive()
    with struck_by(server, "reset=at:1") as live, pytest.raises(ConnectionResetError, match="reset by peer"):
        live.receive()
    with struck_by(server, "half_open=at:1") as live:
        live.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            live.receive()
    with struck_by(server, "stream_error=at:1") as live:
        assert live.receive()["type"] == "Error"
        assert live.receive()[0] == 1011
    expected = {"cut=at:1": "cut", "reset=at:1": "cut", "half_open=at:1": "cut", "stream_error=at:1": "error"}
    assert {fault: server.truth(fault)["outcome"] for fault in expected} == expected


def test_a_slow_drip_slows_and_changes_nothing(server: Server) -> None:
    began_s = time.monotonic()
    with struck_by(server, "slow_drip=bytes:8,by:2ms") as live:
        flushed = live.receive()
        live.send({"type": "Close"})
        assert live.messages() == [(1000, "")]
    n_bytes = len(json.dumps(flushed)) + 2
    assert time.monotonic() - began_s > n_bytes / 8 * 0.002


def test_a_full_recogniser_refuses_before_the_upgrade_and_clients_that_vanish_free_it(
    server: Server, audio: bytes
) -> None:
    crowd: list[RawWebSocket] = []

    def come() -> None:
        crowd.append(RawWebSocket(server.port, LISTEN, request_id=f"crowd-{len(crowd)}"))
        crowd[-1].send(audio[:6400])

    with pytest.raises(Refused) as refused:
        [come() for _ in range(N_STREAMS + 1)]
    assert len(crowd) in (N_STREAMS, N_STREAMS - 1)  # the idle one may still be there
    assert (refused.value.status, refused.value.headers["retry-after"]) == (503, "1")
    assert json.loads(refused.value.body)["err_code"] == "TOO_MANY_STREAMS"
    assert "streams are open" in refused.value.headers["dg-error"]
    for index, live in enumerate(crowd):
        if index % 2:  # half of them reset the connection, half close it without a word
            live.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        live.socket.close()
    for index in range(len(crowd)):
        assert server.truth(f"crowd-{index}")["outcome"] == "cancelled"
    again = [RawWebSocket(server.port, LISTEN) for _ in range(len(crowd))]
    for live in again:
        live.send({"type": "CloseStream"})
        assert live.messages()[-1] == (1000, "")
        live.socket.close()


def test_a_client_that_vanishes_silences_the_voice(server: Server) -> None:
    with RawWebSocket(server.port, SPEAK, request_id="gone") as live:
        for _ in range(10):
            live.send({"type": "Speak", "text": f"{SENTENCE} " * 50})
            live.send({"type": "Flush"})
        live.until("Metadata")
    assert server.truth("gone")["outcome"] in ("cancelled", "cut")
    still_serves(server)


@pytest.mark.parametrize(
    ("path", "named", "status"),
    [
        ("/v1/listen?encoding=opus&sample_rate=16000", "encoding", 400),
        ("/v1/listen?encoding=linear16&sample_rate=16000&diarize=true", "diarize", 400),
        ("/v1/listen?encoding=linear16&sample_rate=1", "sample_rate", 400),
        ("/v1/listen?encoding=linear16&sample_rate=16000&x%0d%0aa:%00%1b%F0%9F%8E%A7=1", "unknown", 400),
        ("/v1/speak?encoding=mp3", "encoding", 400),
        ("/v1/speak?model=aura-2", "model", 404),
        ("/v1/realtime?model=gpt-realtime", "model", 404),
        ("/v1/realtime?model=synthesiser", "model", 400),
    ],
)
def test_what_cant_be_done_is_refused_before_the_upgrade(server: Server, path: str, named: str, status: int) -> None:
    with pytest.raises(Refused, match=named) as refused:
        RawWebSocket(server.port, path)
    assert refused.value.status == status
    response, body = server.call(path)  # no handshake at all
    assert (response.status, response.headers["upgrade"]) == (426, "websocket")
    assert b"WebSocket" in body


def hostile(live: RawWebSocket, kind: str) -> None:
    match kind:
        case "a frame that is not begun":
            live.frame(CONTINUATION, b"x")
        case "text within a fragmented message":
            live.frame(TEXT, b"{", final=False)
            live.frame(TEXT, b"}")
        case "an opcode that doesn't exist":
            live.frame(3, b"x")
        case "reserved bits":
            live.frame(TEXT | 0x40, b"{}")
        case "a giant ping":
            live.frame(PING, bytes(126))
        case "a giant frame":
            live.frame(BINARY, b"x", length=1 << 40)
        case "a giant message in fragments":
            for _ in range(7):  # the last is one too many: bytes that nobody reads would reset the connection
                live.frame(CONTINUATION if _ else BINARY, bytes(60_000), final=False)
        case "text that is not UTF-8":
            live.frame(TEXT, b"\xff\xfe")
        case "a close code that doesn't exist":
            live.frame(CLOSE, b"\x00\x01")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("a frame that is not begun", 1002),
        ("text within a fragmented message", 1002),
        ("an opcode that doesn't exist", 1002),
        ("reserved bits", 1002),
        ("a giant ping", 1002),
        ("a giant frame", 1009),
        ("a giant message in fragments", 1009),
        ("text that is not UTF-8", 1007),
        ("a close code that doesn't exist", 1002),
    ],
)
def test_broken_frames_get_the_close_code_of_what_was_wrong(server: Server, kind: str, code: int) -> None:
    request_id = kind.replace(" ", "-")
    with RawWebSocket(server.port, "/v1/realtime", request_id=request_id) as live:
        live.until("session.created")
        hostile(live, kind)
        assert live.receive()[0] == code
    assert server.truth(request_id)["outcome"] == "error"
    still_serves(server)


def test_garbage_in_whole_messages_gets_the_protocols_error(server: Server) -> None:
    with RawWebSocket(server.port, "/v1/realtime") as live:
        live.until("session.created")
        for garbage in ("{", b"\x00\x01", '{"type": "session.explode"}', "[" * 50_000):
            live.send(garbage)
            assert live.receive()["type"] == "error"
        live.send({"type": "input_audio_buffer.clear"})
        assert live.receive()["type"] == "input_audio_buffer.cleared"
    with RawWebSocket(server.port, LISTEN) as live:
        live.send("garbage")
        error, (code, reason) = live.messages()
        assert (error["type"], code, reason[:9]) == ("Error", 1008, "DATA-0000")


def test_fragments_and_a_flood_of_pings_change_nothing(server: Server, audio: bytes) -> None:
    pinged = 0
    with RawWebSocket(server.port, LISTEN) as live:
        for index, piece in enumerate(frames(audio)):
            live.frame(BINARY, piece[:1001], final=False)
            for _ in range(20):
                live.frame(PING, b"%d" % index)
            live.frame(CONTINUATION, piece[1001:])
        live.send({"type": "CloseStream"})
        got = []
        while True:
            opcode, payload = live.receive_frame()
            pinged += opcode == PONG
            if opcode == CLOSE:
                break
            if opcode == TEXT:
                got.append(json.loads(payload))
    assert finals(got) == SENTENCE
    assert pinged == 20 * len(frames(audio))


def test_nothing_is_compressed_whatever_is_offered(server: Server) -> None:
    offer = {"Sec_WebSocket_Extensions": "permessage-deflate; client_max_window_bits", "Sec_WebSocket_Protocol": "mqtt"}
    with RawWebSocket(server.port, LISTEN, **offer) as live:
        assert not {"sec-websocket-extensions", "sec-websocket-protocol"} & set(live.headers)


def test_a_client_that_says_nothing_is_closed_in_time(server: Server) -> None:
    deadline_s = time.monotonic() + 15
    while (row := json.loads(server.call("/truth/idle")[1]))["outcome"] == "open" and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert row["outcome"] == "error"
    assert IDLE_S <= (row["done_ns"] - row["first_write_ns"]) / 1e9 < IDLE_S + 4


def test_a_name_that_no_model_has_makes_no_new_counter(server: Server) -> None:
    with pytest.raises(Refused) as refused:
        RawWebSocket(server.port, "/v1/realtime?model=made-up-by-a-client")
    assert refused.value.status == 404
    assert b"made-up-by-a-client" not in server.call("/metrics")[1]
