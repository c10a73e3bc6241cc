"""TGI, Triton's generate routes, llama.cpp and Ollama: what is sent, and what their streams say.

No vendor's wire is another's.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._http.json_stream import JsonDialect
from plimsoll.harness.protocols.llamacpp import llamacpp_dialect
from plimsoll.harness.protocols.ollama import ollama_dialect
from plimsoll.harness.protocols.tgi import tgi_dialect
from plimsoll.harness.protocols.triton_generate import triton_dialect
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.metrics.stages import parse
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import MS, finished

PROMPT = Payload(prompt="hi", max_output_tokens=5)


def target(url: str = "http://h:1", model: str = "m", **options: Any) -> Target:
    return Target(url, "x", model, (("authorization", "Bearer sekret-value"),), options)


def sent(dialect: JsonDialect, payload: Payload = PROMPT) -> tuple[str, dict[str, Any]]:
    """(path, body)."""
    request = dialect.encode(payload)
    return request.head.split(b" ")[1].decode(), dict(orjson.loads(request.body))


def sse(*objects: Any) -> list[bytes]:
    return [b"data:" + orjson.dumps(value) + b"\n\n" for value in objects]


def lines(*objects: Any) -> list[bytes]:
    return [orjson.dumps(value) + b"\n" for value in objects]


def settled(
    dialect: JsonDialect, reads: list[bytes], media: str, *headers: tuple[bytes, bytes], code: int = 200
) -> Exchange:
    exchange = finished(reads, code, media, headers)
    dialect.settle(exchange)
    return exchange


EVENTS = "text/event-stream"
JSON = "application/json"

# -- TGI -------------------------------------------------------------------------------------------------------


def token(text: str, special: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "index": 1,
        "token": {"id": 1, "text": text, "special": special},
        "generated_text": None,
        "details": None,
        **more,
    }


TGI_LAST = token(
    "</s>", True, generated_text="ab", details={"finish_reason": "eos_token", "generated_tokens": 3, "input_length": 6}
)


def test_tgi_has_a_route_for_each_manner_of_answering() -> None:
    path, body = sent(tgi_dialect(target(parameters={"do_sample": True, "seed": 1})))
    assert path == "/generate_stream"
    assert body == {"inputs": "hi", "parameters": {"do_sample": True, "details": True, "max_new_tokens": 5, "seed": 1}}
    assert sent(tgi_dialect(target(stream=False)))[0] == "/generate"
    assert sent(tgi_dialect(target("http://h:1/base?a=1")))[0] == "/base/generate_stream?a=1"
    assert sent(tgi_dialect(target("http://h:1/base/generate_stream")))[0] == "/base/generate_stream"


def test_tgi_special_tokens_are_counted_by_the_server_and_are_no_text() -> None:
    x = settled(tgi_dialect(target()), sse(token("a"), token(""), token("b"), TGI_LAST), EVENTS)
    assert (x.status, x.error, list(x.chunk_ns)) == (Status.OK, None, [MS, 3 * MS])
    assert (x.n_in, x.n_out, x.tokens_from) == (6, 3, TokensFrom.USAGE)


def test_tgi_a_stream_without_the_whole_text_was_cut_and_an_overload_is_a_refusal() -> None:
    cut = settled(tgi_dialect(target()), sse(token("a")), EVENTS)
    assert (cut.status, cut.n_chunks, cut.tokens_from) == (Status.PROTOCOL, 1, TokensFrom.CHUNKS)
    shed = settled(tgi_dialect(target()), sse({"error": "full", "error_type": "overloaded"}), EVENTS)
    assert shed.status == Status.REFUSED
    broke = settled(tgi_dialect(target()), sse(token("a"), {"error": "it broke", "error_type": "generation"}), EVENTS)
    assert (broke.status, broke.error, broke.n_chunks) == (Status.HTTP, "it broke (generation)", 1)


def test_tgi_headers_of_a_whole_answer_say_its_stages_and_counts() -> None:
    headers = ((b"x-queue-time", b"12"), (b"x-inference-time", b"30"), (b"x-validation-time", b"x"),
               (b"x-prompt-tokens", b"6"), (b"x-generated-tokens", b"4"))  # fmt: skip
    body = b'{"generated_text":"ab","details":{"finish_reason":"length"}}'
    x = settled(tgi_dialect(target(stream=False)), [body], JSON, *headers)
    assert (x.status, x.n_in, x.n_out, x.tokens_from) == (Status.OK, 6, 4, TokensFrom.USAGE)
    assert parse(x.server_timing or "") == {"queue": 12 * MS, "inference": 30 * MS}
    assert settled(tgi_dialect(target(stream=False)), [b'{"text":"ab"}'], JSON).status == Status.PROTOCOL
    unasked = tgi_dialect(target(stream=False, parameters={"details": False}))  # then no reason is sent
    assert settled(unasked, [b'{"generated_text":"ab"}'], JSON).status == Status.OK


# -- Triton ----------------------------------------------------------------------------------------------------


def test_triton_puts_the_length_where_the_backend_looks_for_it() -> None:
    path, body = sent(triton_dialect(target(model="a/b", model_version="2")))
    assert path == "/v2/models/a%2Fb/versions/2/generate_stream"
    assert body == {"text_input": "hi", "parameters": {"stream": True, "max_tokens": 5}}
    path, body = sent(triton_dialect(target(stream=False, max_tokens_in="body", input="q", extra_body={"end_id": 2})))
    assert path == "/v2/models/m/generate"
    assert body == {"q": "hi", "max_tokens": 5, "end_id": 2}
    with pytest.raises(HarnessFault, match=r"target\.model"):
        triton_dialect(target(model=""))


def test_triton_streams_end_without_a_mark_and_errors_come_under_200() -> None:
    good = settled(
        triton_dialect(target()), sse({"text_output": "a"}, {"text_output": ""}, {"text_output": "b"}), EVENTS
    )
    assert (good.status, list(good.chunk_ns), good.tokens_from) == (Status.OK, [MS, 3 * MS], TokensFrom.CHUNKS)
    bad = settled(triton_dialect(target()), sse({"text_output": "a"}, {"error": "it broke"}), EVENTS)
    assert (bad.status, bad.error, bad.n_chunks) == (Status.HTTP, "it broke", 1)
    assert settled(triton_dialect(target()), [b'data: {"text'], EVENTS).status == Status.PROTOCOL
    assert settled(triton_dialect(target()), [], EVENTS).status == Status.PROTOCOL


def test_triton_an_error_under_200_in_one_piece_is_a_failure() -> None:
    whole = triton_dialect(target(stream=False))
    assert settled(whole, [b'{"error": "it broke"}'], JSON).status == Status.HTTP
    assert settled(whole, [b'{"model_name": "m"}'], JSON).status == Status.PROTOCOL
    x = settled(whole, [b'{"text_output": ""}'], JSON)
    assert (x.status, x.n_out, x.tokens_from) == (Status.OK, -1, TokensFrom.NONE)


# -- llama.cpp -------------------------------------------------------------------------------------------------

LLAMA_LAST = {
    "content": "", "stop": True, "stop_type": "limit", "tokens_predicted": 3, "tokens_evaluated": 8,
    "timings": {"prompt_ms": 20.5, "predicted_ms": 12.0, "predicted_n": 3},
}  # fmt: skip


def test_llamacpp_sends_the_cache_wish_only_when_given() -> None:
    path, body = sent(llamacpp_dialect(target()))
    assert (path, body) == ("/completion", {"prompt": "hi", "stream": True, "n_predict": 5, "temperature": 0.0})
    wanted = sent(llamacpp_dialect(target(cache_prompt=False, exact_output=True, extra_body={"id_slot": 1})))[1]
    assert (wanted["cache_prompt"], wanted["ignore_eos"], wanted["id_slot"]) == (False, True, 1)


def test_llamacpp_prompt_progress_is_no_token_and_timings_become_stages() -> None:
    progress = {"content": "", "stop": False, "prompt_progress": {"total": 8, "processed": 4}}
    x = settled(llamacpp_dialect(target()), sse(progress, {"content": "a", "stop": False}, LLAMA_LAST), EVENTS)
    assert (x.status, x.error, list(x.chunk_ns)) == (Status.OK, None, [2 * MS])
    assert (x.n_in, x.n_out, x.tokens_from) == (8, 3, TokensFrom.USAGE)
    assert parse(x.server_timing or "") == {"prefill": 20_500_000, "decode": 12 * MS}


def test_llamacpp_errors_are_told_in_all_their_forms() -> None:
    error = {"error": {"code": 500, "message": "it broke", "type": "server_error"}}
    x = settled(llamacpp_dialect(target()), sse({"content": "a", "stop": False}, error), EVENTS)
    assert (x.status, x.error, x.n_chunks) == (Status.HTTP, "it broke (server_error, 500)", 1)
    old = settled(llamacpp_dialect(target()), [*sse({"content": "a", "stop": False}), b"error: it broke\n\n"], EVENTS)
    assert (old.status, old.error) == (Status.HTTP, "it broke")
    cut = settled(llamacpp_dialect(target()), sse({"content": "a", "stop": False}), EVENTS)
    assert cut.status == Status.PROTOCOL


def test_llamacpp_a_whole_answer_is_its_last_event() -> None:
    x = settled(llamacpp_dialect(target(stream=False)), [orjson.dumps({**LLAMA_LAST, "content": "ab"})], JSON)
    assert (x.status, x.n_in, x.n_out, x.n_chunks) == (Status.OK, 8, 3, 0)
    assert parse(x.server_timing or "") == {"prefill": 20_500_000, "decode": 12 * MS}


# -- Ollama ----------------------------------------------------------------------------------------------------


def ollama_last(load_ns: int) -> dict[str, Any]:
    return {
        "response": "", "done": True, "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 3,
        "load_duration": load_ns,
        "prompt_eval_duration": 5 * MS, "eval_duration": 9 * MS,
    }  # fmt: skip


def test_ollama_puts_the_length_among_its_options() -> None:
    path, body = sent(ollama_dialect(target(think="low", keep_alive="5m", options={"num_ctx": 64}), chat=False))
    assert path == "/api/generate"
    assert body == {
        "model": "m", "prompt": "hi", "stream": True, "think": "low", "keep_alive": "5m",
        "options": {"temperature": 0.0, "num_predict": 5, "num_ctx": 64},
    }  # fmt: skip
    path, body = sent(ollama_dialect(target(stream=False), chat=True))
    assert (path, body["stream"], body["messages"]) == ("/api/chat", False, [{"role": "user", "content": "hi"}])
    with pytest.raises(HarnessFault, match="ollama list"):
        ollama_dialect(target(model=""), chat=True)


def test_ollama_thinking_is_output_and_its_durations_become_stages() -> None:
    said = lines(
        {"response": "", "thinking": "h", "done": False}, {"response": "a", "done": False}, ollama_last(20 * MS)
    )
    x = settled(ollama_dialect(target(), chat=False), said, "application/x-ndjson")
    assert (x.status, x.error, x.first_token_ns, x.first_answer_ns) == (Status.OK, None, MS, 2 * MS)
    assert (x.n_in, x.n_out, x.tokens_from) == (11, 3, TokensFrom.USAGE)
    assert parse(x.server_timing or "") == {"load": 20 * MS, "prefill": 5 * MS, "decode": 9 * MS}
    assert "cold" not in (x.server_timing or "")


def test_ollama_a_model_that_had_to_be_loaded_is_called_cold() -> None:
    said = lines({"message": {"content": "a"}, "done": False}, ollama_last(3_000 * MS))
    x = settled(ollama_dialect(target(), chat=True), said, "application/x-ndjson")
    assert 'load;dur=3000.000;desc="cold model"' in (x.server_timing or "")
    assert parse(x.server_timing or "")["load"] == 3_000 * MS


def test_ollama_an_error_line_is_a_failure_and_a_missing_end_a_cut() -> None:
    chat = ollama_dialect(target(), chat=True)
    said = lines({"message": {"content": "a"}, "done": False}, {"error": "it broke"})
    assert (settled(chat, said, "application/x-ndjson").status, settled(chat, said, "").error) == (
        Status.HTTP,
        "it broke",
    )
    cut = settled(chat, said[:1], "application/x-ndjson")
    assert (cut.status, cut.n_chunks) == (Status.PROTOCOL, 1)
    torn = settled(chat, [*said[:1], b'{"message": {"con'], "application/x-ndjson")
    assert (torn.status, torn.n_chunks) == (Status.PROTOCOL, 1)


def test_ollama_a_whole_answer_is_counted_and_has_no_chunks() -> None:
    answer = {**ollama_last(0), "response": "ab"}
    x = settled(ollama_dialect(target(stream=False), chat=False), [orjson.dumps(answer)], JSON)
    assert (x.status, x.n_in, x.n_out, x.n_chunks) == (Status.OK, 11, 3, 0)


def test_the_bundled_servers_own_timing_is_preferred() -> None:
    said = lines({"response": "a", "done": False}, {**ollama_last(0), "server_timing": "queue;dur=1.000"})
    x = settled(ollama_dialect(target(), chat=False), said, "application/x-ndjson")
    assert x.server_timing == "queue;dur=1.000"


@pytest.mark.parametrize(
    "make", [tgi_dialect, triton_dialect, llamacpp_dialect, lambda t: ollama_dialect(t, chat=False)]
)
def test_a_payload_without_a_prompt_is_refused_and_one_message_will_do(make: Any) -> None:
    with pytest.raises(HarnessFault, match=r"no prompt but data \(a\)\. Use a text source") as refused:
        make(target()).encode(Payload(data={"a": 1}))
    assert ("kserve-v2 or triton-stream for tensors" in str(refused.value)) is (make is triton_dialect)
    assert b"hello" in make(target()).encode(Payload(messages=({"role": "user", "content": "hello"},))).body


@pytest.mark.parametrize(
    "make", [tgi_dialect, triton_dialect, llamacpp_dialect, lambda t: ollama_dialect(t, chat=False)]
)
def test_any_json_that_is_no_object_is_a_broken_protocol(make: Any) -> None:
    for media in (EVENTS, "application/x-ndjson"):
        for value in (b"[1]", b"null", b'"x"'):
            x = settled(make(target()), [b"data: " + value + b"\n\n" if media == EVENTS else value + b"\n"], media)
            assert x.status == Status.PROTOCOL
            assert x.error
