"""AssemblyAI: whole frames, turns that only grow, two messages that end one, and the close codes of its police."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols.assemblyai import PROTOCOLS, AssemblyAiDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, At, hear, settled

KEY = (("Authorization", "Bearer aai-secret-key"),)


def assembly(**options: Any) -> AssemblyAiDialogue:
    return AssemblyAiDialogue(Target("wss://127.0.0.1:1", "assemblyai", "", KEY, options))


def turn(text: str, over: bool = False, formatted: bool = False, order: int = 0, end_ms: int = 500) -> dict[str, Any]:
    return {
        "type": "Turn",
        "turn_order": order,
        "turn_is_formatted": formatted,
        "end_of_turn": over,
        "transcript": text,
        "words": [{"text": "w", "start": 0, "end": end_ms, "word_is_final": True}],
    }


BEGIN = {"type": "Begin", "id": "b", "expires_at": 1}


def test_the_key_goes_out_bare_beside_the_version() -> None:
    script = assembly().encode(AUDIO)
    assert script.headers == (("Authorization", "aai-secret-key"), ("AssemblyAI-Version", "2025-05-12"))
    assert assembly(auth="bearer").encode(AUDIO).headers[0] == KEY[0]
    assert script.path == "/v3/ws?sample_rate=16000&encoding=pcm_s16le"
    asked = assembly(format_turns=True, speech_model="u3", query={"keyterms": ["a", "b"]}).encode(AUDIO)
    query = parse_qs(urlsplit(asked.path).query)
    assert (query["format_turns"], query["speech_model"], query["keyterms"]) == (["true"], ["u3"], ["a", "b"])


@pytest.mark.parametrize("finish", ["endpoint", "force", "terminate"])
@pytest.mark.parametrize("frame", ["50ms", "110ms", "1s"])
def test_every_frame_is_a_whole_one_whatever_the_clips_length(finish: str, frame: str) -> None:
    clip = Clip(CLIP.pcm[:14_321], 16_000, 0, 800 * MS, "one two")
    script = assembly(finish=finish, audio={"frame": frame}).encode(Payload(data={"clip": clip}))
    sizes = {len(one.data) for one in script.frames}
    assert len(sizes) == 1
    assert b"".join(one.data for one in script.frames)[: 2 * 14_321] == clip.pcm.tobytes()
    assert script.needed is not None
    assert 0 <= script.needed * len(script.frames[0].data) - 2 * 14_321 < len(script.frames[0].data)
    names = {"endpoint": ["Terminate"], "force": ["ForceEndpoint", "Terminate"], "terminate": ["Terminate"]}[finish]
    assert [one.data.decode() for one in script.closing] == [f'{{"type":"{name}"}}' for name in names]
    assert script.closing_ns == script.due_ns[-1]


@pytest.mark.parametrize(
    ("audio", "said"),
    [({"frame": "20ms"}, "50 ms or more"), ({"frame": "2s"}, "1000 ms at most"), ({"pace": "burst"}, "real time"),
     ({"pace": "2x"}, "real time")],
)  # fmt: skip
def test_frames_and_speeds_that_the_service_hangs_up_on_are_refused_before_the_load(
    audio: dict[str, str], said: str
) -> None:
    (error,) = PROTOCOLS[0].check({"audio": audio})
    assert error.startswith("target.options.audio.")
    assert said in error
    with pytest.raises(HarnessFault, match=said):
        assembly(audio=audio).encode(AUDIO)


def test_a_turn_ends_with_the_first_of_two_messages_and_reads_as_the_second() -> None:
    talk = assembly(format_turns=True)
    messages: list[At] = [
        (5, BEGIN),
        (400, turn("")),
        (500, turn("one", end_ms=400)),
        (950, turn("one two", end_ms=900)),
        (1200, turn("one two", over=True, end_ms=900)),
        (1300, turn("One, two.", over=True, formatted=True, end_ms=900)),
        (1400, {"type": "Termination", "audio_duration_seconds": 2}),
    ]
    _, answers = hear(talk, talk.encode(AUDIO), messages)
    assert answers == [READY, NOTHING, NOTHING, NOTHING, ENDPOINT, ENDPOINT, NOTHING]
    exchange = settled(talk, AUDIO, messages)
    assert exchange.session is not None
    stamps = exchange.session
    assert (stamps.first_partial_ns, stamps.first_final_ns, stamps.final_ns) == (500 * MS, 1200 * MS, 1300 * MS)
    assert (stamps.endpoint_ns, stamps.false_endpoints) == (1200 * MS, 0)
    assert (stamps.n_partials, stamps.n_revised, stamps.word_errors) == (2, 0, 0)
    assert [at // MS for at in stamps.chunk_cursor_ns] == [400, 900, 900, 900]


def test_several_turns_are_one_transcript_and_one_inside_speech_is_a_false_end() -> None:
    messages: list[At] = [
        (400, turn("one", over=True)),
        (1000, turn("two", order=1)),
        (1200, turn("two", True, order=1)),
    ]
    exchange = settled(assembly(), AUDIO, messages)
    assert exchange.session is not None
    assert (exchange.session.word_errors, exchange.session.false_endpoints) == (0, 1)
    assert exchange.session.endpoint_ns == 1200 * MS


@pytest.mark.parametrize(
    ("closed", "status"),
    [
        ("3007 sent faster than real time", Status.HTTP),
        ("3005 server error", Status.HTTP),
        ("3009 too many sessions", Status.REFUSED),
        ("1008 too many concurrent sessions", Status.REFUSED),
        ("4029 too fast", Status.REFUSED),
        ("1006", Status.PROTOCOL),
    ],
)
def test_close_codes_are_the_servers_word(closed: str, status: Status) -> None:
    said = f"the server closed the session before everything was sent: {closed}"
    exchange = settled(assembly(), AUDIO, [(5, BEGIN), (500, turn("one"))], Status.PROTOCOL, said)
    assert (exchange.status, exchange.error, exchange.n_chunks) == (status, said, 1)


def test_an_error_message_ends_the_session_in_its_words() -> None:
    talk = assembly()
    error = {"type": "Error", "error_code": 3007, "error": "Input Duration Violation: 20.0 ms for aai-secret-key"}
    assert hear(talk, talk.encode(AUDIO), [(9, error)])[1] == [DONE]
    exchange = settled(talk, AUDIO, [(9, error)])
    assert (exchange.status, exchange.error) == (Status.HTTP, "Input Duration Violation: 20.0 ms for [redacted] (3007)")
    busy = settled(talk, AUDIO, [(9, {"type": "Error", "error_code": 1008, "error": "Too many concurrent sessions"})])
    assert busy.status == Status.REFUSED
