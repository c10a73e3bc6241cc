"""The generic WebSocket protocol: scripts from templates, meaning from paths."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols.websocket import WebSocketDialogue, path_of
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Script
from plimsoll.harness.transport.live.websocket_session import Prepared
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import MS, finished

CLIP = Clip((3000 * np.sin(np.arange(16_000) * 0.1)).astype(np.int16), 16_000, 0, 900 * MS, "one two")
START = 0


def dialogue(**options: Any) -> WebSocketDialogue:
    return WebSocketDialogue(Target("ws://127.0.0.1:1/base", "websocket", "m", options=options))


def settled(
    talk: WebSocketDialogue, messages: list[bytes | dict[str, Any]], payload: Payload, status: Status = Status.OK
) -> Exchange:
    """A session in which message i came at (i + 1) ms; mappings are text, bytes binary."""
    data = [json.dumps(one).encode() if isinstance(one, dict) else one for one in messages]
    exchange = finished(data, code=101, content_type=None, status=status)
    exchange.session = SessionStamps()
    exchange.session.texts = bytearray(isinstance(one, dict) for one in messages)
    exchange.session.media_start_ns = START
    exchange.request = Prepared(talk.encode(payload), b"", (), b"")
    talk.settle(exchange)
    return exchange


TEXT = Payload(prompt="hi", max_output_tokens=7)
AUDIO = Payload(data={"clip": CLIP})


def test_messages_are_templates_on_a_schedule() -> None:
    script: Script = dialogue(
        opening=['{"type":"setup","model":{{ model | tojson }}}'],
        messages=['{"say":{{ prompt | tojson }}}', '{"n":{{ max_output_tokens }}}'],
        interval="250ms",
        closing=['{"type":"bye"}'],
        subprotocols=["realtime"],
        headers={"x-a": "b"},
    ).encode(TEXT)
    assert [one.data for one in script.opening] == [b'{"type":"setup","model":"m"}']
    assert [one.data for one in script.frames] == [b'{"say":"hi"}', b'{"n":7}']
    assert all(one.text for one in (*script.opening, *script.frames, *script.closing))
    assert tuple(script.due_ns) == (0, 250 * MS)
    assert (script.closing_ns, script.waits, script.ends_on_close) == (250 * MS, False, True)
    assert (script.path, script.headers, script.subprotocols) == ("/base", (("x-a", "b"),), ("realtime",))


def test_audio_goes_out_as_binary_frames_or_inside_a_text_message() -> None:
    plain = dialogue(audio={"frame": "20ms"}).encode(AUDIO)
    assert len(plain.frames) == 50
    assert b"".join(one.data for one in plain.frames) == CLIP.pcm.tobytes()
    assert not any(one.text for one in plain.frames)
    wrapped = dialogue(audio={"frame": "500ms"}, audio_message='{"audio":{{ data.audio | tojson }}}').encode(AUDIO)
    sent = b"".join(base64.b64decode(json.loads(one.data)["audio"]) for one in wrapped.frames)
    assert sent == CLIP.pcm.tobytes()
    assert wrapped.clip is not None


def test_nothing_to_say_is_refused_before_the_run() -> None:
    with pytest.raises(HarnessFault, match="nothing would be said"):
        dialogue().encode(TEXT)
    with pytest.raises(HarnessFault, match="the source is audio"):
        dialogue(messages=["x"]).encode(AUDIO)


def test_needles_say_ready_endpoint_and_done() -> None:
    talk = dialogue(opening=["x"], ready='"begin"', endpoint='"eos"', done='"end"')
    blank = Exchange(0, 0, 0, 0, None)
    heard = [
        talk.hear(blank, data, True) for data in (b'{"type":"begin"}', b'{"type":"eos"}', b'{"type":"end"}', b"{}")
    ]
    assert heard == [READY, ENDPOINT, DONE, NOTHING]
    assert talk.hear(blank, b'"end"', False) == NOTHING


TRANSCRIBE = {"text_path": "text", "final_path": "final", "cursor_path": "upto", "endpoint": '"eos":true'}


def test_texts_by_path_are_transcripts_with_finals_segments_and_cursors() -> None:
    exchange = settled(
        dialogue(**TRANSCRIBE),
        [
            {"hello": 1},
            {"text": "won", "upto": 0.5},
            {"text": "one", "final": True, "upto": 0.75, "eos": True},
            {"text": "two"},
        ],
        AUDIO,
    )
    stamps = exchange.session
    assert stamps is not None
    assert exchange.status == Status.OK
    assert (stamps.first_partial_ns, stamps.first_final_ns, stamps.n_partials) == (2 * MS, 3 * MS, 2)
    assert stamps.final_ns == -1  # "two" was still open
    assert (stamps.words, stamps.word_errors) == (2, 0)
    assert stamps.chunk_cursor_ns.tolist() == [500 * MS, 750 * MS, -1]


def test_text_without_audio_is_tokens_and_usage() -> None:
    talk = dialogue(
        messages=["{{ prompt }}"], text_path="delta if type == token", output_tokens_path="usage.out", done="end"
    )
    exchange = settled(
        talk,
        [
            {"type": "token", "delta": "a"},
            {"type": "ping", "delta": "x"},
            {"type": "token", "delta": "b"},
            {"usage": {"out": 5}},
        ],
        TEXT,
    )
    assert exchange.chunk_ns.tolist() == [MS, 3 * MS]
    assert (exchange.first_token_ns, exchange.n_out, exchange.tokens_from) == (MS, 5, TokensFrom.USAGE)


@pytest.mark.parametrize("inside", [True, False])
def test_audio_comes_as_binary_messages_or_in_base64(inside: bool) -> None:
    pcm = (9000 * np.sin(np.arange(2400) * 0.2)).astype("<i2").tobytes()
    options = {"audio_path": "audio"} if inside else {"binary": "audio"}
    messages: list[bytes | dict[str, Any]] = [{"type": "start"}]
    messages += [{"audio": base64.b64encode(pcm).decode()} if inside else pcm] * 2
    exchange = settled(dialogue(messages=["{{ prompt }}"], **options), messages, TEXT)
    assert exchange.status == Status.OK
    assert exchange.session is not None
    assert (exchange.session.first_audio_ns, exchange.session.media_out_ns) == (2 * MS, 200 * MS)
    assert exchange.first_token_ns == -1


@pytest.mark.parametrize(
    ("messages", "status", "part"),
    [
        ([{"text": "one"}, {"error": "boom"}], Status.HTTP, "boom"),
        ([{"text": "one"}, {"error": {"message": "slow down", "code": 429}}], Status.REFUSED, "slow down"),
        ([], Status.PROTOCOL, "no output"),
        ([{"x": 1}], Status.PROTOCOL, "no output"),
    ],
)
def test_failures_inside_a_session_are_told_and_keep_what_was_heard(
    messages: list[Any], status: Status, part: str
) -> None:
    exchange = settled(dialogue(**TRANSCRIBE), messages, AUDIO)
    assert exchange.status == status
    assert part in str(exchange.error)
    assert exchange.n_chunks == sum("text" in one for one in messages)


def test_what_a_session_that_was_given_up_had_heard_is_kept() -> None:
    exchange = settled(dialogue(**TRANSCRIBE), [{"text": "one"}], AUDIO, Status.TIMEOUT)
    assert exchange.status == Status.TIMEOUT
    assert exchange.session is not None
    assert exchange.session.first_partial_ns == MS


def test_the_urls_own_path_and_query_are_used_unless_a_path_is_given() -> None:
    assert path_of("wss://host/v1/x?key=1", None) == "/v1/x?key=1"
    assert path_of("ws://host", "/a?b=c") == "/a?b=c"
    assert path_of("ws://host?z=1", "/a") == "/a?z=1"
    assert path_of("http://host:80", None, "/default") == "/default"
