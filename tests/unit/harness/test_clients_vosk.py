"""vosk-server: what it is told, what its replies mean, and how it fails."""

from __future__ import annotations

import json
from typing import Any

from plimsoll.harness.protocols.vosk import VoskDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import ENDPOINT, NOTHING
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, At, hear, settled


def vosk(url: str = "http://127.0.0.1:1", **options: Any) -> VoskDialogue:
    return VoskDialogue(Target(url, "vosk", options=options))


def result(text: str, end: float) -> dict[str, Any]:
    return {"result": [{"word": text, "start": 0.0, "end": end, "conf": 1.0}], "text": text}


def test_config_comes_first_and_the_end_is_the_string_that_the_server_compares() -> None:
    script = vosk(phrase_list=["one two"], max_alternatives=2, config={"extra": 1}).encode(AUDIO)
    assert json.loads(script.opening[0].data) == {
        "config": {"sample_rate": 16000, "words": True, "max_alternatives": 2, "phrase_list": ["one two"], "extra": 1}
    }
    assert (script.closing[0].data, script.closing[0].text) == (b'{"eof" : 1}', True)
    assert b"".join(frame.data for frame in script.frames) == CLIP.pcm.tobytes()
    assert (script.path, vosk("ws://host:2700/base").encode(AUDIO).path) == ("/", "/base")


def test_a_text_before_the_end_is_an_endpoint_and_the_answer_to_eof_is_none() -> None:
    talk = vosk()
    messages: list[At] = [
        (100, {"partial": ""}),
        (400, {"partial": "one"}),
        (500, result("one", 0.4)),
        (950, result("too", 0.85)),
        (1000, {"text": ""}),
        (1010, result("two", 0.9)),
    ]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [NOTHING] * 3 + [ENDPOINT, NOTHING, ENDPOINT]
    exchange = settled(talk, AUDIO, messages)
    stamps = exchange.session
    assert stamps is not None
    assert (stamps.false_endpoints, stamps.endpoint_ns, stamps.final_ns) == (1, 950 * MS, 1010 * MS)
    assert list(stamps.chunk_cursor_ns) == [-1, 400 * MS, 850 * MS, 900 * MS]
    assert (stamps.words, stamps.word_errors, exchange.status) == (2, 1, Status.OK)


def test_the_first_alternative_is_the_text() -> None:
    answer = {"alternatives": [{"confidence": 9.0, "text": "one two"}, {"confidence": 1.0, "text": "wan too"}]}
    stamps = settled(vosk(max_alternatives=2), AUDIO, [(1010, answer)]).session
    assert stamps is not None
    assert stamps.word_errors == 0


def test_a_close_without_the_last_answer_is_a_broken_protocol() -> None:
    for messages in ([], [(400, {"partial": "one"})]):
        exchange = settled(vosk(), AUDIO, messages)
        assert exchange.status == Status.PROTOCOL
        assert "without the answer to" in str(exchange.error)
    assert settled(vosk(), AUDIO, [(400, {"partial": "one"})], Status.TIMEOUT, "late").error == "late"
