"""Every live protocol under attack: messages of its own kinds and members with whatever in them, some broken, some
binary. A protocol without a row here fails the last test.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import Dialogue, Script
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, TEXT, begun

URL = "http://127.0.0.1:1"
Session = list[tuple[bytes, bool]]

_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4)
)


def alike(kinds: str, members: str) -> st.SearchStrategy[Session]:
    """Sessions of messages that look like a protocol's JSON."""
    names, words = st.sampled_from([*members.split(), "type"]), kinds.split()
    values = st.recursive(
        _SCALARS | st.sampled_from(words),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
        max_leaves=8,
    )
    objects = st.builds(
        lambda kind, rest: json.dumps({"type": kind, **rest}).encode(),
        st.sampled_from(words),
        st.dictionaries(names, values, max_size=6),
    )
    text = objects | values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=12)
    return sessions(text, st.binary(max_size=9))


def sessions(text: st.SearchStrategy[bytes], binary: st.SearchStrategy[bytes]) -> st.SearchStrategy[Session]:
    return st.lists(st.tuples(text, st.just(True)) | st.tuples(binary, st.just(False)), max_size=8)


def azure_sound(body: bytes) -> bytes:
    head = b"X-RequestId:abc\r\nPath:audio\r\n"
    return struct.pack(">H", len(head)) + head + body


_AZURE_VALUES = (
    st.none() | st.integers() | st.text(max_size=4) | st.lists(st.dictionaries(st.just("Display"), st.text(max_size=3)))
)
AZURE = sessions(
    st.builds(
        lambda path, body: f"X-RequestId:abc\r\nPATH:{path}\r\n\r\n{json.dumps(body)}".encode(),
        st.sampled_from(
            ["turn.start", "speech.hypothesis", "speech.phrase", "speech.endDetected", "audio", "turn.end"]
        ),
        st.dictionaries(
            st.sampled_from(["Text", "Offset", "Duration", "RecognitionStatus", "NBest", "DisplayText"]),
            _AZURE_VALUES,
            max_size=4,
        )
        | _AZURE_VALUES,
    )
    | st.binary(max_size=9),
    st.binary(max_size=9) | st.binary(max_size=7).map(azure_sound),
)
_PACKED_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 40) | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["text", "pcm"]), inner, max_size=3),
    max_leaves=6,
)
_PACKED = st.builds(
    lambda kind, rest: bytes(msgpack.packb({"type": kind, **rest})),
    st.sampled_from(["Ready", "Word", "EndWord", "Step", "Marker", "Audio", "Error"]),
    st.dictionaries(
        st.sampled_from(["text", "start_time", "stop_time", "prs", "pcm", "message", "id"]), _PACKED_VALUES, max_size=4
    ),
)
KYUTAI = sessions(_PACKED | st.binary(max_size=12), _PACKED | st.binary(max_size=12))

CARTESIA = alike(
    "transcript turn.update turn.end chunk done error connected",
    "text words end is_final transcript data done message status_code",
)
DEEPGRAM = alike(
    "Results UtteranceEnd Metadata Error TurnInfo Connected EndOfTurn Flushed Warning",
    "channel alternatives transcript start duration is_final speech_final channel_index event turn_index "
    "audio_window_end code description server_timing from_finalize",
)
ELEVENLABS = alike(
    "session_started partial_transcript committed_transcript committed_transcript_with_timestamps error",
    "message_type text words error audio isFinal code",
)
REALTIME = alike(
    "session.updated error input_audio_buffer.speech_started input_audio_buffer.speech_stopped "
    "input_audio_buffer.committed conversation.item.input_audio_transcription.delta "
    "conversation.item.input_audio_transcription.completed conversation.item.input_audio_transcription.failed "
    "response.created response.output_audio.delta response.audio.delta response.output_text.delta response.done "
    "transcription.delta transcription.done session.created",
    "item_id delta transcript audio_end_ms response status status_details usage error message code output_tokens text "
    "server_timing",
)
SHERPA = alike("x", "text segment is_final is_eof timestamps start_time error")


class Case(NamedTuple):
    protocol: str
    sessions: st.SearchStrategy[Session]
    options: Mapping[str, Any] = MappingProxyType({})
    payload: Any = AUDIO


CASES: Sequence[Case] = (
    Case(
        "assemblyai",
        alike(
            "Begin Turn Termination Error Warning",
            "turn_order end_of_turn transcript words end error error_code turn_is_formatted",
        ),
    ),
    Case("azure-stt", AZURE),
    Case("azure-tts", AZURE, payload=TEXT),
    Case("cartesia-stt", CARTESIA),
    Case("cartesia-turns", CARTESIA),
    Case("cartesia-tts", CARTESIA, payload=TEXT),
    Case("deepgram-listen", DEEPGRAM),
    Case("deepgram-flux", DEEPGRAM),
    Case("deepgram-speak", DEEPGRAM, payload=TEXT),
    Case("elevenlabs-scribe", ELEVENLABS, {"include_timestamps": True}),
    Case("elevenlabs-tts", ELEVENLABS, payload=TEXT),
    Case("kyutai-stt", KYUTAI, {"pause_threshold": 0.5}),
    Case("kyutai-tts", KYUTAI, payload=TEXT),
    Case("openai-realtime", REALTIME),
    Case("openai-realtime", REALTIME, {"turn_detection": "none"}),
    Case("openai-realtime", REALTIME, {"mode": "conversation", "transcription_model": "t"}),
    Case("openai-realtime", REALTIME, {"mode": "conversation", "output": "text"}, TEXT),
    Case("openai-realtime", REALTIME, {"dialect": "vllm"}),
    Case("sherpa-onnx", SHERPA),
    Case("sherpa-onnx", SHERPA, {"server": "python"}),
    Case("vosk", alike("x", "partial text result alternatives end")),
    Case("websocket", alike("partial final", "text is_final end error"), {"text_path": "text", "error_path": "error"}),
    Case("whisperlive", alike("WAIT ERROR", "uid segments start end text completed status message")),
    Case(
        "whisperlivekit",
        alike(
            "config snapshot diff ready_to_stop",
            "lines text speaker error new_lines n_lines lines_pruned buffer_transcription useAudioWorklet",
        ),
    ),
)


@cache
def talk_of(number: int) -> tuple[Dialogue, Script]:
    """The dialogue of a case and its script. Made once: making them is no part of what is tested."""
    case = CASES[number]
    client: Any = protocols()[case.protocol].build(Target(URL, case.protocol, "m", (), case.options), None)
    return client.dialogue, client.dialogue.encode(case.payload)


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number].protocol)
@settings(max_examples=100, deadline=None)
@given(data=st.data(), before=st.sampled_from([Status.OK, Status.PROTOCOL, Status.TIMEOUT, Status.CANCELLED]))
def test_nothing_that_a_server_says_raises(number: int, data: st.DataObject, before: Status) -> None:
    """Whatever came, hearing and settling raise nothing; a failure is explained and never undone."""
    talk, script = talk_of(number)
    exchange = begun(script)
    assert exchange.session is not None
    for i, (message, text) in enumerate(data.draw(CASES[number].sessions)):
        exchange.body += message
        exchange.mark_ns.append(i * 300 * MS)
        exchange.mark_end.append(len(exchange.body))
        exchange.session.texts.append(text)
        assert talk.hear(exchange, message, text) in (0, 1, 2, 3)
    exchange.status = int(before)
    exchange.error = None if before is Status.OK else "the transport gave it up"
    talk.settle(exchange)
    after = Status(exchange.status)
    if before not in (Status.OK, Status.PROTOCOL):
        assert after is before
    assert (exchange.error is None) == (after is Status.OK)
    assert exchange.n_chunks == len(exchange.chunk_ns)
    assert list(exchange.chunk_ns) == sorted(exchange.chunk_ns)
    for name in ("chunk_cursor_ns", "chunk_audio_ns"):
        assert len(getattr(exchange.session, name)) in (0, exchange.n_chunks)


def test_every_live_protocol_has_a_row() -> None:
    clients = {name: spec.build(Target(URL, name, "m"), None) for name, spec in protocols().items()}
    assert {name for name, client in clients.items() if hasattr(client, "dialogue")} == {
        case.protocol for case in CASES
    }
