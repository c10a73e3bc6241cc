"""The official ``openai`` client against the server, every route that it knows and the server has, and the bytes where
the client hides them: events in order, gapless numbers, the anatomy in the last message.
"""

from __future__ import annotations

import http.client
import io
import json
import time
import wave
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.test_reference_server import CHAT, Server, anatomy, events, running

openai = pytest.importorskip("openai", reason="the official client is a development dependency")
pytest.importorskip("torch", reason="speech and embeddings need torch")
pytestmark = pytest.mark.e2e

MODELS = ("scripted", "embedder", "recogniser", "synthesiser")
SAID = "her line is painted"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    flags = [flag for name in MODELS for flag in ("--model", name)]
    with running(*flags, "--ttft", "20ms", "--itl", "2ms", "--device", "cpu", "--threads", "1") as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.ready['url']}/v1", api_key="none", max_retries=0, timeout=20) as made:
        yield made


@pytest.fixture(scope="module")
def speech(client: Any) -> bytes:
    """A WAV file with SAID."""
    return bytes(client.audio.speech.create(model="synthesiser", voice="one", input=SAID, response_format="wav").read())


def typed(raw: bytes) -> list[dict[str, Any]]:
    """The events of a stream whose names must be the types in their data."""
    found = []
    for block in raw.split(b"\n\n")[:-1]:
        name, data = block.split(b"\n")
        value = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + value["type"].encode()
        found.append(value)
    return found


ASK = {"model": "scripted", "input": "hi", "max_output_tokens": 3}


def test_a_whole_response_has_text_and_usage(client: Any) -> None:
    done = client.responses.create(**ASK, instructions="be brief")
    assert done.output_text == " the line is"
    assert (done.status, done.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (done.usage.output_tokens, done.usage.total_tokens) == (3, done.usage.input_tokens + 3)
    assert done.instructions == "be brief"
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    again = client.responses.create(**{**ASK, "input": parts})
    assert again.usage.input_tokens == done.usage.input_tokens - len("system: be brief\n")


def test_a_streamed_response_has_its_events_in_order_with_gapless_numbers(client: Any) -> None:
    seen = list(client.responses.create(**ASK, stream=True))
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert [event.type for event in seen] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert "".join(event.delta for event in seen if event.type.endswith(".delta")) == " the line is"
    assert seen[-1].response.output_text == " the line is"
    assert seen[-1].response.usage.output_tokens == 3


def test_the_last_event_of_a_response_has_the_anatomy(server: Server) -> None:
    response, raw = server.call("/v1/responses", {**ASK, "stream": True})
    seen = typed(raw)
    assert list(anatomy(response.headers["server-timing"])) == ["preprocess", "queue", "prefill"]
    assert list(anatomy(seen[-1]["server_timing"])) == ["preprocess", "queue", "prefill", "decode", "postprocess"]
    assert not [event for event in seen[:-1] if "server_timing" in event]


def test_a_response_that_is_stopped_is_completed_and_one_that_fails_says_so(client: Any) -> None:
    seen = list(client.responses.create(**ASK, stream=True, extra_body={"stop": [" line"]}))
    assert (seen[-1].type, seen[-1].response.output_text) == ("response.completed", " the")
    seen = list(client.responses.create(**ASK, stream=True, extra_body={"plimsoll": {"error_at": 1}}))
    assert seen[-1].type == "response.failed"
    assert "the script fails" in seen[-1].response.error.message
    assert [event.sequence_number for event in seen] == list(range(len(seen)))


def test_stop_strings_end_an_answer_before_them(client: Any) -> None:
    ask: dict[str, Any] = {"model": "scripted", "messages": CHAT["messages"], "max_tokens": 8}
    whole = client.chat.completions.create(**ask, stop=["ne is", "never"])
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (" the li", "stop")
    chunks = list(client.chat.completions.create(**ask, stop=[" is pa"], stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == " the line"
    assert chunks[-1].choices[0].finish_reason == "stop"
    unmet = client.completions.create(model="scripted", prompt="a", max_tokens=2, stop=[" line and more"], stream=True)
    assert "".join(chunk.choices[0].text for chunk in unmet) == " the line"


def test_usage_comes_with_every_frame_when_asked_for(client: Any) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    ask = {"model": "scripted", "messages": CHAT["messages"], "max_tokens": 3, "stream": True}
    chunks = list(client.chat.completions.create(**ask, stream_options=options))
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert counts == [1, 2, 3]


def test_embeddings_of_a_batched_model(client: Any) -> None:
    answer = client.embeddings.create(model="embedder", input=["a line", "a hull", "a line"])
    line, hull, again = (row.embedding for row in answer.data)
    assert line == again != hull
    assert sum(x * x for x in line) == pytest.approx(1.0, abs=1e-3)
    assert answer.usage.prompt_tokens > 0
    with pytest.raises(openai.BadRequestError, match=r"input\[0\]: must be a string"):
        client.embeddings.create(model="embedder", input=[[1, 2], [3]])


def test_what_is_spoken_is_heard(client: Any, speech: bytes) -> None:
    heard = client.audio.transcriptions.create(model="recogniser", file=("a.wav", speech))
    assert heard.text.lower().split() == SAID.split()
    marked = client.audio.transcriptions.create(
        model="recogniser",
        file=("a.wav", speech),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert [word.word.lower() for word in marked.words] == SAID.split()
    times = [at for word in marked.words for at in (word.start, word.end)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= marked.duration
    assert " ".join(segment.text for segment in marked.segments) == marked.text
    text = client.audio.transcriptions.create(model="recogniser", file=("a.wav", speech), response_format="text")
    assert text.strip() == heard.text
    srt = client.audio.transcriptions.create(model="recogniser", file=("a.wav", speech), response_format="srt")
    assert srt.startswith("1\n00:00:0")
    vtt = client.audio.transcriptions.create(model="recogniser", file=("a.wav", speech), response_format="vtt")
    assert vtt.startswith("WEBVTT\n\n00:00:0")


def test_a_transcription_streams_its_words_and_ends_with_the_whole(client: Any, speech: bytes) -> None:
    seen = list(client.audio.transcriptions.create(model="recogniser", file=("a.wav", speech), stream=True))
    *deltas, done = seen
    assert done.type == "transcript.text.done"
    assert "".join(event.delta for event in deltas) == done.text
    assert len(deltas) > 1
    assert anatomy(done.server_timing).get("inference", 0) > 0


def test_speech_is_sent_as_it_is_made(client: Any, server: Server, speech: bytes) -> None:
    with wave.open(io.BytesIO(speech)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
    with client.audio.speech.with_streaming_response.create(
        model="synthesiser", voice="one", input=SAID, response_format="pcm", extra_headers={"x-request-id": "spoken"}
    ) as response:
        samples = b"".join(response.iter_bytes())
    assert samples == speech[44:]
    row = server.truth("spoken")
    assert len(row["tokens"]) > 1
    assert row["outcome"] == "ok"
    body = {"model": "synthesiser", "input": SAID, "response_format": "pcm", "stream_format": "sse"}
    *deltas, done = events(server.call("/v1/audio/speech", body)[1])
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert (done["type"], done["usage"]["input_tokens"]) == ("speech.audio.done", len(SAID))
    assert anatomy(done["server_timing"])


def test_errors_become_the_clients_exceptions(client: Any, speech: bytes) -> None:
    ask: dict[str, Any] = {"model": "scripted", "messages": CHAT["messages"]}
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.responses.create(model="gpt", input="a")
    with pytest.raises(openai.BadRequestError, match="tools: is not supported"):
        client.responses.create(model="scripted", input="a", tools=[{"type": "web_search"}])
    with pytest.raises(openai.BadRequestError, match="no model that listens"):
        client.audio.transcriptions.create(model="scripted", file=("a.wav", speech))
    with pytest.raises(openai.BadRequestError, match="file: "):
        client.audio.transcriptions.create(model="recogniser", file=("a.mp3", b"ID3"))
    with pytest.raises(openai.BadRequestError, match="mp3 is not written here"):
        client.audio.speech.create(model="synthesiser", voice="one", input="a", response_format="mp3")
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(**ask, extra_body={"plimsoll": {"status": 429}})
    with pytest.raises(openai.InternalServerError) as overloaded:
        client.chat.completions.create(**ask, extra_body={"plimsoll": {"status": 503}})
    assert overloaded.value.response.headers["retry-after"] == "1"


def test_a_deadline_ends_what_nobody_waits_for(client: Any, server: Server) -> None:
    soon = {"x-request-timeout-ms": "60", "x-request-id": "late"}
    ask: dict[str, Any] = {"model": "scripted", "messages": CHAT["messages"], "max_tokens": 500}
    begun = time.monotonic()
    with pytest.raises(openai.InternalServerError, match="x-request-timeout-ms") as late:
        client.chat.completions.create(**ask, extra_headers=soon)
    assert late.value.status_code == 504
    assert time.monotonic() - begun < 1
    with pytest.raises(openai.APIError, match="x-request-timeout-ms"):
        list(client.chat.completions.create(**ask, stream=True, extra_headers=soon))
    row = server.truth("late")
    assert (row["status"], row["outcome"]) == (200, "error")
    assert 0 < len(row["tokens"]) < 200
    assert client.chat.completions.create(**{**ask, "max_tokens": 2}, extra_headers={"x-request-timeout-ms": "5000"})


def lines(raw: bytes) -> list[dict[str, Any]]:
    assert raw.endswith(b"\n")
    return [json.loads(line) for line in raw.splitlines()]


def test_ollamas_routes_read_what_curl_sends(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    body = json.dumps({"model": "scripted", "prompt": "hi", "options": {"num_predict": 2}})
    connection.request("POST", "/api/generate", body, {"content-type": "application/x-www-form-urlencoded"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert json.loads(answer.read().splitlines()[-1])["done"] is True
    connection.close()


def test_ndjson_streams_one_object_a_line(server: Server) -> None:
    ask = {"model": "scripted", "prompt": "hi", "options": {"num_predict": 3}}
    response, raw = server.call("/api/generate", ask)
    assert response.headers["content-type"] == "application/x-ndjson"
    *said, last = lines(raw)
    assert [line["response"] for line in said] == [" the", " line", " is"]
    assert (last["done"], last["done_reason"], last["eval_count"], last["prompt_eval_count"]) == (True, "length", 3, 3)
    assert last["eval_duration"] == 4_000_000
    assert last["total_duration"] >= 24_000_000
    assert list(anatomy(last["server_timing"])) == ["preprocess", "queue", "prefill", "decode", "postprocess"]
    chat = {"model": "scripted", "messages": CHAT["messages"], "stream": False, "options": {"num_predict": 2}}
    whole = json.loads(server.call("/api/chat", chat)[1])
    assert (whole["message"]["content"], whole["done"], whole["eval_count"]) == (" the line", True, 2)
    *_, failed = lines(server.call("/api/generate", {**ask, "plimsoll": {"error_at": 1}})[1])
    assert "the script fails" in failed["error"]
    response, raw = server.call("/api/generate", {**ask, "images": ["x"]})
    assert (response.status, json.loads(raw)["error"][:7]) == (400, "images:")
