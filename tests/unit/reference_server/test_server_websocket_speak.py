"""Live speech as Deepgram has it, between a scripted client and a voice that speaks a sample a character."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.reference_server.dialects.deepgram import MAX_CHARACTERS, Speaking
from plimsoll.reference_server.dialects.deepgram_wire import SpeakWriter, speak_options
from plimsoll.reference_server.transports.websocket import Ending
from plimsoll.reference_server.values.errors import RequestError
from tests.websocket_peers import LATE, FakeSynthesiser, ScriptedPeer, Step, talk

FLUSH: Step = {"type": "Flush"}
CLEAR: Step = {"type": "Clear"}
CLOSE: Step = {"type": "Close"}


def say(text: Any) -> Step:
    return {"type": "Speak", "text": text}


def speaking(**given: str) -> Speaking:
    return Speaking(speak_options(given), FakeSynthesiser(), SpeakWriter("r1", "synthesiser"), lambda stages: None)


def spoken(peer: ScriptedPeer) -> str:
    """What the audio says."""
    data = b"".join(message for message in peer.got if isinstance(message, bytes))
    return "".join(chr(int.from_bytes(data[at : at + 2], "little")) for at in range(0, len(data), 2))


def test_text_is_spoken_at_the_flush_which_is_answered_when_all_audio_is_out() -> None:
    peer = ScriptedPeer([say("load "), say("her"), FLUSH, say("to here"), FLUSH, CLOSE])
    assert talk(speaking(), peer) == Ending()
    assert peer.names == ["Metadata", "audio", "Flushed", "audio", "Flushed"]
    assert spoken(peer) == "load herto here"
    assert [m["sequence_id"] for m in peer.of("Flushed")] == [0, 1]


def test_stages_are_the_last_member_of_flushed() -> None:
    peer = ScriptedPeer([say("abc"), FLUSH, CLOSE])
    talk(speaking(), peer)
    (flushed,) = peer.of("Flushed")
    assert (list(flushed)[-1], flushed["server_timing"]) == ("server_timing", "inference;dur=6.000")


def test_close_speaks_what_is_left() -> None:
    peer = ScriptedPeer([say("left over"), CLOSE])
    assert talk(speaking(), peer) == Ending()
    assert (spoken(peer), peer.names[-1]) == ("left over", "Flushed")


def test_a_flush_of_nothing_is_answered() -> None:
    peer = ScriptedPeer([FLUSH, CLOSE])
    talk(speaking(), peer)
    assert peer.names == ["Metadata", "Flushed"]


def test_clear_forgets_text_and_stops_the_voice() -> None:
    script: list[Step] = [say("x" * 500), FLUSH, say("y" * 500), FLUSH]
    peer = ScriptedPeer([])
    started = lambda: any(isinstance(message, bytes) for message in peer.got)  # noqa: E731
    peer.script += [*script, started, say("kept"), CLEAR, say("after"), FLUSH, CLOSE]
    session = speaking()
    assert talk(session, peer) == Ending()
    cleared = next(
        i for i, message in enumerate(peer.got) if not isinstance(message, bytes) and message["type"] == "Cleared"
    )
    before = b"".join(message for message in peer.got[:cleared] if isinstance(message, bytes))
    assert 0 < len(before) < 2 * 500
    after = [message for message in peer.got[cleared + 1 :] if isinstance(message, bytes)]
    assert b"".join(after) == b"".join(bytes((ord(c), 0)) for c in "after")
    assert peer.names[-3:] == ["Cleared", "audio", "Flushed"]
    assert isinstance(session.model, FakeSynthesiser)
    assert session.model.n_open == 0


def test_text_that_cant_be_said_costs_a_warning_and_not_the_session() -> None:
    peer = ScriptedPeer([say("a # b"), FLUSH, say("fine"), FLUSH, CLOSE])
    assert talk(speaking(), peer) == Ending()
    assert peer.names == ["Metadata", "Warning", "Flushed", "audio", "Flushed"]
    assert peer.of("Warning")[0]["code"] == "UNSAYABLE_CHARACTER"


def test_text_that_is_too_long_is_refused_with_a_warning() -> None:
    peer = ScriptedPeer([say("x" * (MAX_CHARACTERS + 1)), *[say("y" * MAX_CHARACTERS)] * 11, CLOSE])
    talk(speaking(), peer)
    assert [m["code"] for m in peer.of("Warning")] == ["TEXT_TOO_LONG", "TOO_MUCH_TEXT"]
    assert spoken(peer) == "y" * MAX_CHARACTERS * 10


def test_a_voice_that_is_busy_ends_the_session() -> None:
    with pytest.raises(RequestError, match="full"):
        talk(speaking(), ScriptedPeer([say("!"), FLUSH, lambda: False]))


def test_a_client_that_closes_stops_the_voice() -> None:
    peer = ScriptedPeer([])
    peer.script += [say("x" * 500), FLUSH, lambda: any(isinstance(message, bytes) for message in peer.got)]
    session = speaking()
    assert talk(session, peer) is None
    assert isinstance(session.model, FakeSynthesiser)
    assert session.model.n_open == 0


def test_a_client_that_says_nothing_is_closed_but_not_while_it_is_spoken_to() -> None:
    peer = ScriptedPeer([])
    peer.script += [say("x" * 50), FLUSH, LATE, LATE, peer.saw("Flushed"), LATE]
    ending = talk(speaking(), peer)
    assert ending is not None
    assert (ending.code, ending.reason[:8]) == (1011, "NET-0001")
    assert spoken(peer) == "x" * 50


@pytest.mark.parametrize("message", ["garbage", b"binary", '{"type": "KeepAlive"}', '{"type": "Speak", "text": 1}'])
def test_what_is_no_command_gets_an_error_and_a_close(message: str | bytes) -> None:
    peer = ScriptedPeer([message])
    ending = talk(speaking(), peer)
    assert ending is not None
    assert (ending.code, peer.got[-1]["code"]) == (1008, "UNPARSABLE_CLIENT_MESSAGE")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"encoding": "mp3"}, "encoding"),
        ({"sample_rate": "7999"}, "sample_rate"),
        ({"container": "wav"}, "container"),
        ({"speed": "fast"}, "speed"),
        ({"speed": "nan"}, "speed"),
        ({"speed": "9"}, "speed"),
        ({"bit_rate": "48000"}, "bit_rate"),
        ({"voice": "x"}, "voice"),
    ],
)
def test_what_cant_be_done_is_refused_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(RequestError, match=f"^{named}: ") as refused:
        speak_options(given)
    assert (refused.value.status, refused.value.param) == (400, named)
