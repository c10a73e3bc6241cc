"""sherpa-onnx: what both of its servers are told, what their texts mean, and how they fail."""

from __future__ import annotations

from typing import Any

import numpy as np

from plimsoll.harness.protocols.sherpa import SherpaDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, At, hear, settled


def server(name: str = "cpp", **options: Any) -> SherpaDialogue:
    return SherpaDialogue(Target("http://127.0.0.1:1", "sherpa-onnx", options={"server": name, **options}))


def test_samples_go_out_as_floats_and_done_ends_them() -> None:
    script = server().encode(AUDIO)
    sent = np.concatenate([np.frombuffer(frame.data, "<f4") for frame in script.frames])
    assert np.array_equal(np.rint(sent * 32768), CLIP.pcm)
    assert (script.closing[0].data, script.closing[0].text) == (b"Done", True)
    assert (script.ends_on_close, server("python").encode(AUDIO).ends_on_close) == (False, True)


def test_the_cpp_server_says_what_is_final_and_when_it_is_done() -> None:
    talk = server()
    messages: list[At] = [
        (400, {"text": "on", "segment": 0, "is_final": False, "timestamps": [0.1], "start_time": 0.0}),
        (500, {"text": "one", "segment": 0, "is_final": True, "timestamps": [0.3], "start_time": 0.0}),
        (950, {"text": "two", "segment": 1, "is_final": True, "timestamps": [0.2], "start_time": 0.5}),
        (1000, {"text": "", "segment": 2, "is_final": True, "is_eof": True}),
        (1001, "Done!"),
    ]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [NOTHING, NOTHING, ENDPOINT, ENDPOINT, DONE]
    exchange = settled(talk, AUDIO, messages)
    stamps = exchange.session
    assert stamps is not None
    assert (exchange.status, exchange.error, stamps.word_errors) == (Status.OK, None, 0)
    assert (stamps.first_final_ns, stamps.final_ns, stamps.endpoint_ns) == (500 * MS, 950 * MS, 950 * MS)
    assert (stamps.false_endpoints, list(stamps.chunk_cursor_ns)) == (1, [100 * MS, 300 * MS, 700 * MS])


def test_the_python_servers_text_is_final_when_the_next_segment_begins_or_the_session_ends() -> None:
    messages: list[At] = [
        (400, {"text": "one", "segment": 0}),
        (800, {"text": "tw", "segment": 1}),
        (1010, {"text": "two", "segment": 1}),
    ]
    exchange = settled(server("python"), AUDIO, messages)
    stamps = exchange.session
    assert stamps is not None
    assert (stamps.first_partial_ns, stamps.first_final_ns, stamps.final_ns) == (400 * MS, 800 * MS, 1010 * MS)
    assert stamps.word_errors == 0
    cut = settled(server("python"), AUDIO, messages, Status.TIMEOUT, "late").session
    assert cut is not None
    assert (cut.first_final_ns, cut.final_ns) == (800 * MS, -1)  # "two" was still open


def test_a_text_that_is_not_json_ends_the_reading_and_is_named() -> None:
    exchange = settled(server(), AUDIO, [(400, {"text": "one", "segment": 0}), (500, "Dune!"), (501, "Done!")])
    assert (exchange.status, exchange.error) == (Status.PROTOCOL, "message 2 is not JSON: Dune!")
    assert exchange.n_chunks == 1
