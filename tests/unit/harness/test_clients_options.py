"""Wrong options of every protocol: each mistake is told at once, by its place and with the way out, before any load."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Target

RECOGNIZER = "projects/p/locations/eu/recognizers/_"
BURST = {"audio": {"pace": "burst"}}
ONE_STREAM = "choices that share a stream can't be timed apart"
#: Options of a protocol and what each of its errors says.
WRONG: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("anthropic-messages", {"version": "a\r\nb"}, ("line end",)),
    ("anthropic-messages", {"beta": ["a\nb"]}, ("line end",)),
    ("azure-tts", {"output_format": "audio-16khz-32kbitrate-mono-mp3"}, ("output_format",)),
    ("cartesia-stt", {"encoding": "opus", "finish": []}, ("encoding", "finish")),
    ("cartesia-tts", {"words_per_second": 0.0, "sampl_rate": 1}, ("words_per_second", "sampl_rate")),
    ("deepgram-listen", {"utterance_end_ms": 1000, "interim_results": False}, ("needs interim_results",)),
    ("deepgram-listen", {"endpointing": False}, ("leaves no endpoint",)),
    ("deepgram-listen", {"query": {"language": "en"}}, ("query has language",)),
    ("deepgram-listen", {"encoding": "mp3"}, ("target.options.encoding",)),
    ("deepgram-listen", {"audio": {"frame": "0s"}}, ("target.options.audio.frame",)),
    ("deepgram-listen", {"audio": {"pace": "fast"}}, ("target.options.audio.pace",)),
    ("elevenlabs-scribe", {"commit_strategy": "vad", **BURST}, ("target.options.audio.pace: ",)),
    ("elevenlabs-scribe", {"audio_format": "mp3", "comit": 1}, ("audio_format", "comit")),
    ("elevenlabs-tts", {"output_format": "midi_1"}, ("output_format",)),
    ("google-speech", {"api": "v2"}, ("recognizer: v2 needs it. Write projects/P/locations/L/recognizers/_",)),
    ("google-speech", {"recognizer": RECOGNIZER}, ("recognizer: v1 has none. Set api: v2",)),
    ("google-speech", {"recognizer": "x"}, ("target.options.recognizer",)),
    ("google-speech", {"encoding": "ALAW"}, ("v1 has no ALAW",)),
    ("google-speech", {"voice_activity": False, "speech_end_timeout": 1}, ("it needs voice_activity",)),
    ("google-speech", {"audio": {"frame": "70ms"}, "encoding": "OGG_OPUS"}, ("has no frames of 70 ms",)),
    ("google-tts", {"words_per_second": 0.0}, ("target.options.words_per_second",)),
    ("http", {"body": "{{ x"}, ("target.options.body: line 1",)),
    ("http", {"body": "{% for %}"}, ("target.options.body: line 1",)),
    ("http", {"body": "a", "body_text": "b"}, ("body and body_text are given together",)),
    ("http", {"body_file": "/nowhere/at/all"}, ("there is no file",)),
    ("http", {"text_path": "a..b", "framing": "sse"}, ("can't read",)),
    ("http", {"text_path": "a"}, ("Set framing to sse or ndjson",)),
    ("http", {"done": "x"}, ("Set framing to sse or ndjson",)),
    ("http", {"headers": {"a": "b\r\nc: d"}}, ("line end",)),
    ("http", {"headers": {"host": "h"}}, ("written by the transport",)),
    ("http", {"content_type": "a\nb"}, ("line end",)),
    ("http", {"method": "BREW"}, ("target.options.method",)),
    ("http", {"success_codes": [100]}, ("200 to 599",)),
    ("http", {"framng": "sse"}, ("Did you mean framing",)),
    (
        "http",
        {"nope": 1, "body": "{{", "text_path": "", "method": "x", "success_codes": [1]},
        ("nope", "body", "text_path", "method", "success_codes"),
    ),
    ("kserve-v2", {"versions": 1}, ("Known ones: binary, model_version",)),
    ("llamacpp-completion", {"extra_body": {"n_cmpl": 2}}, (f"extra_body.n_cmpl: 2: {ONE_STREAM}",)),
    ("openai-chat", {"temprature": 1.0}, ("Did you mean temperature",)),
    ("openai-chat", {"stream": "no"}, ("target.options.stream",)),
    ("openai-chat", {"extra_body": {"stream": False}}, ("may not set stream",)),
    ("openai-chat", {"extra_body": {"x": object()}}, ("can't be written as JSON",)),
    ("openai-chat", {"extra_body": {"n": 2}}, (f"extra_body.n: 2: {ONE_STREAM}",)),
    ("openai-chat", {"path": "v1"}, ("target.options.path",)),
    ("openai-chat", {"max_tokens_field": "n"}, ("max_completion_tokens",)),
    ("openai-chat", {"temperature": 3.0}, ("target.options.temperature",)),
    ("openai-chat", {"a": 1, "b": 2, "stream": 3}, ("options.a", "options.b", "options.stream")),
    ("openai-completions", {"extra_body": {"best_of": 2}}, (f"extra_body.best_of: 2: {ONE_STREAM}",)),
    ("openai-realtime", {"turn_detection": "none", "silence_duration_ms": 300}, ("silence_duration_ms",)),
    ("openai-realtime", {"eagerness": "low"}, ("eagerness",)),
    ("openai-realtime", {"dialect": "vllm", "encoding": "pcmu", "voice": "x"}, ("encoding, voice",)),
    ("openai-realtime", {"dialect": "vllm", "mode": "conversation"}, ("conversation",)),
    ("openai-realtime", {"mode": "both"}, ("target.options.mode",)),
    ("openai-realtime", {"audio": {"pace": "0x"}}, ("target.options.audio.pace",)),
    ("openai-realtime", {"session": {"x": {1, 2}}}, ("can't be written as JSON",)),
    ("openai-speech", {"extra_body": {"voice": "x"}}, ("extra_body",)),
    ("openai-transcriptions", {"normaliser": "french"}, ("normaliser",)),
    ("openai-transcriptions", {"format": "au", "fields": {'a"b': "c"}}, ("format", "fields")),
    ("plimsoll-speech", {"audio": {"pace": "fast"}}, ("target.options.audio.pace",)),
    ("plimsoll-speech", {"encoding": "MP3"}, ("target.options.encoding",)),
    ("riva-asr", {"endpointing": {"stop_threshold": 2.0}}, ("target.options.endpointing.stop_threshold",)),
    ("riva-tts", {"voic": "x"}, ("Did you mean voice?",)),
    ("tfserving", {"model_version": 1, "version_label": "stable"}, ("given together",)),
    ("tfserving-grpc", {"model_version": 1, "version_label": "a"}, ("given together. Keep one",)),
    ("tgi-generate", {"parameters": {"best_of": 2}}, (f"parameters.best_of: 2: {ONE_STREAM}",)),
    ("torchserve", {"body": "{{", "body_text": "x"}, ("target.options.body",)),
    ("torchserve", {"body": "a", "body_text": "x"}, ("given together",)),
    ("triton-generate", {"parameters": {"n": 2}}, (f"parameters.n: 2: {ONE_STREAM}",)),
    ("triton-generate", {"extra_body": {"n": 2}}, (f"extra_body.n: 2: {ONE_STREAM}",)),
    ("vosk-grpc", {"sample_rate": 44_100}, ("target.options.sample_rate",)),
    ("websocket", {"final_path": "x"}, ("text_path too",)),
    ("websocket", {"audio_path": "x", "binary": "audio"}, ("Keep one",)),
    ("websocket", {"codec": "gsm"}, ("codec",)),
    (
        "websocket",
        {"text_path": "a..b", "opening": ["{{ x"], "headers": {"a b": "c"}},
        ("text_path", "opening", "headers"),
    ),
    ("whisperlive", BURST, ("target.options.audio.pace: ",)),
]
#: Near to a mistake, and none.
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("azure-tts", {"output_format": "raw-22050hz-16bit-mono-pcm"}),
    ("elevenlabs-scribe", BURST),
    ("elevenlabs-tts", {"output_format": "ulaw_8000"}),
    ("llamacpp-completion", {"extra_body": {"n_cmpl": 1}}),
    ("llamacpp-completion", {"extra_body": {"n_cmpl": 2}, "stream": False}),
    ("openai-chat", {"extra_body": {"n": 1}}),
    ("openai-chat", {"extra_body": {"n": 2}, "stream": False}),
    ("openai-completions", {"extra_body": {"best_of": 1}}),
    ("openai-completions", {"extra_body": {"best_of": 2}, "stream": False}),
    ("tgi-generate", {"parameters": {"best_of": 1}}),
    ("tgi-generate", {"parameters": {"best_of": 2}, "stream": False}),
    ("triton-generate", {"parameters": {"n": 1}, "extra_body": {"n": 1}}),
    ("triton-generate", {"parameters": {"n": 2}, "extra_body": {"n": 2}, "stream": False}),
    ("whisperlive", {"audio": {"pace": "eager"}}),
]


@pytest.mark.parametrize(
    ("protocol", "options", "said"), WRONG, ids=[f"{name} {' '.join(given)}" for name, given, _ in WRONG]
)
def test_every_mistake_is_told_by_its_place_and_makes_no_client(
    protocol: str, options: dict[str, Any], said: tuple[str, ...]
) -> None:
    spec = protocols()[protocol]
    errors = spec.check(options)
    for part in said:
        assert any(part in error for error in errors), errors
    assert all(error.startswith("target.options") for error in errors)
    assert len(errors) == len(said), errors
    if spec.prepare is None and "audio" not in options:  # how audio is sent, a client learns from its payload
        with pytest.raises(HarnessFault):
            spec.build(Target("http://127.0.0.1:1", protocol, "m", (), options), None)


@pytest.mark.parametrize(("protocol", "options"), RIGHT, ids=str)
def test_what_only_looks_like_a_mistake_is_taken(protocol: str, options: dict[str, Any]) -> None:
    assert protocols()[protocol].check(options) == []
