"""Folding a stream gives exactly what decoding every event gives, or refuses."""

from __future__ import annotations

import dataclasses
import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.wire import fold, sse, tokens

FOLD = fold.load_fold()
pytestmark = pytest.mark.skipif(FOLD is None, reason="the extension is not compiled here")

texts = st.text(max_size=6) | st.sampled_from(["", "a", '"', "\\", "é", "plimsoll", "content", "\n", "data: x"])


def chunk(delta: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": more.pop("finish", None)}
    if delta is None:
        choice["text"] = more.pop("text")
    else:
        choice["delta"] = delta
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more}


events = st.one_of(
    texts.map(lambda t: chunk({"content": t})),
    texts.map(lambda t: chunk({"content": t})),
    texts.map(lambda t: chunk({"role": "assistant", "content": t})),
    texts.map(lambda t: chunk({"reasoning_content": t})),
    texts.map(lambda t: chunk({"content": t, "reasoning": t})),
    texts.map(lambda t: chunk(None, text=t)),
    texts.map(lambda t: chunk({"content": t}, finish="stop")),
    texts.map(lambda t: chunk({"content": t}, usage={"prompt_tokens": 3, "completion_tokens": 4})),
    texts.map(lambda t: chunk({"content": t}, usage=None)),
    texts.map(lambda t: chunk({"tool_calls": [{"function": {"arguments": t}}]})),
    st.just({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}}),
    texts.map(lambda t: chunk({"content": t}, server_timing="queue;dur=1")),
    st.sampled_from(["decode;dur=2", 7, None]).map(lambda t: {"choices": [], "server_timing": t}),
    st.just({"error": {"message": "no", "code": 503}}),
    st.just({"object": "error", "message": "no"}),
    st.just([1]),
)
encoders = st.sampled_from(
    [
        lambda e: json.dumps(e).encode(),
        lambda e: json.dumps(e, ensure_ascii=False).encode("utf-8", "replace"),
        lambda e: json.dumps(e, separators=(",", ":")).encode(),
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[int], list[int]]:
    """A body and its marks: mostly a run of like events, as servers send them."""
    encode = draw(encoders)
    payloads = [encode(event) for event in draw(st.lists(events, max_size=2))]
    for _ in range(draw(st.integers(1, 2))):
        delta = draw(st.sampled_from(["content", "reasoning_content"]))
        words = st.sampled_from(["word", " the", "é", "plimsoll"]) | texts
        payloads += [encode(chunk({delta: t})) for t in draw(st.lists(words, min_size=2, max_size=9))]
    payloads += [encode(event) for event in draw(st.lists(events, max_size=2))]
    payloads += draw(st.sampled_from([[], [b"[DONE]"], [b"[DONE]"], [b"[DONE]", b"{}"], [b"{"], [b"\xff"], [b""]]))
    end = draw(st.sampled_from([b"\n\n"] * 9 + [b"\r\n\r\n", b"\n", b"\n\n: ping\n\n"]))
    body = b"".join(b"data: " + payload + end for payload in payloads)
    body = body[: len(body) - draw(st.sampled_from([0] * 8 + [1, 3]))]
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=6)))
    ends = [cut for cut in dict.fromkeys([*cuts, len(body)]) if cut]
    return body, [10 * i for i in range(len(ends))], ends


@given(streams())
def test_a_folded_stream_says_what_the_reference_says(stream: tuple[bytes, list[int], list[int]]) -> None:
    body, mark_ns, mark_end = stream
    assert FOLD is not None
    folded = fold.read(body, array("q", mark_ns), array("q", mark_end), FOLD)
    if folded is None:
        return
    decoded = sse.decode(body, mark_ns, mark_end)
    scan = tokens.scan(decoded.payloads, decoded.names)
    assert dataclasses.replace(folded.scan, output=scan.output, first_answer=scan.first_answer) == scan
    assert folded.chunk_ns.tolist() == decoded.times[scan.output].tolist()
    assert folded.first_answer_ns == (decoded.times[scan.first_answer] if scan.first_answer >= 0 else -1)
    assert len(folded.scan.output) == len(scan.output)
    assert (decoded.names, decoded.truncated, decoded.error, decoded.tail) == (None, False, None, b"")


@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("key", ["content", "reasoning_content", "reasoning"])
def test_an_ordinary_stream_is_folded(spaced: bool, key: str) -> None:
    separators = (", ", ": ") if spaced else (",", ":")
    parts = [chunk({"role": "assistant", "content": ""}), *(chunk({key: f" w{i}"}) for i in range(50))]
    parts += [chunk({"content": "x"}), chunk({}, finish="stop"), {"choices": [], "usage": {"completion_tokens": 51}}]
    body = b"".join(b"data: %b\n\n" % json.dumps(part, separators=separators).encode() for part in parts)
    body += b"data: [DONE]\n\n"
    assert FOLD is not None
    folded = fold.read(body, array("q", [7]), array("q", [len(body)]), FOLD)
    assert folded is not None
    assert folded.chunk_ns.tolist() == [7] * 51
    assert folded.scan.n_out == 51
    assert folded.scan.done


def test_a_string_that_stands_elsewhere_too_is_told_apart() -> None:
    payload = b'{"id":"a","choices":[{"delta":{"note":"a","content":"a"}}]}'
    template = fold.find_template(payload)
    assert template is not None
    assert template.before.endswith(b'"content":')
