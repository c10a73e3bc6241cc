"""What every protocol client must do, whichever file it came from. A new client is tested here with no edit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Client, ProtocolSpec, Target
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status
from tests.finished import finished

SPECS = list(protocols().values())
SECRET = "sk-do-not-show-me"
TENSOR = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}
CLIP = Clip((9000 * np.sin(np.arange(1600) / 3)).astype(np.int16), 16_000, 0, 80_000_000, "hello")
PAYLOAD = Payload(
    prompt="hello",
    messages=({"role": "user", "content": "hello"},),
    data={"inputs": [TENSOR], "input": "hello", "clip": CLIP},
    n_in=1,
    max_output_tokens=4,
)
each = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


def target(spec: ProtocolSpec, secret: str = SECRET) -> Target:
    headers = (("authorization", f"Bearer {secret}"),)
    return Target("http://127.0.0.1:1", spec.name, "model", headers)


def client(spec: ProtocolSpec) -> Client:
    return spec.build(target(spec), None)


@each
def test_no_options_are_fine_and_an_unknown_one_is_refused_with_the_known_ones(spec: ProtocolSpec) -> None:
    assert spec.check({}) == []
    errors = spec.check({"no_such_option": 1, "nor_this": 2})
    assert len(errors) == 2
    for name, error in zip(("no_such_option", "nor_this"), errors, strict=True):
        assert name in error
        assert "Known ones" in error or "no options" in error


@each
def test_a_protocol_describes_itself_in_one_line(spec: ProtocolSpec) -> None:
    assert spec.summary
    assert "\n" not in spec.summary


@each
def test_the_same_payload_always_gives_the_same_request(spec: ProtocolSpec) -> None:
    one = client(spec)
    assert one.encode(PAYLOAD) == one.encode(PAYLOAD) == client(spec).encode(PAYLOAD)


@each
def test_no_secret_shows_in_any_repr(spec: ProtocolSpec) -> None:
    one = client(spec)
    for thing in (one, one.encode(PAYLOAD), target(spec)):
        assert SECRET not in repr(thing)
        assert SECRET not in str(thing)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.needs_url], ids=lambda spec: spec.name)
def test_a_header_that_would_break_the_request_is_refused(spec: ProtocolSpec) -> None:
    with pytest.raises(Exception, match="line end"):
        spec.build(target(spec, "x\r\ny: z"), None)


# -- responses: any bytes, any status --------------------------------------------------------------------

WORDS = [
    b"data: ", b"event: error\n", b"\n", b"\n\n", b"\r\n", b"[DONE]", b"{", b"}", b"[", b"]", b'"error":', b'"boom"',
    b'{"choices":[{"delta":{"content":"a"}}]}', b'{"choices":[{"delta":{},"finish_reason":"stop"}]}',
    b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}', b'{"outputs":[{"name":1}]}', b"null", b"\xff",
    b'{"error":{"message":"m","code":429}}', b'{"data":[{"embedding":[1]}]}', b'{"t":"x"}\n', b",", b"1", b"<html>",
]  # fmt: skip
bodies = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(b"".join) | st.binary(max_size=8), max_size=8)
codes = st.sampled_from([-1, 100, 200, 200, 200, 200, 204, 302, 404, 429, 500, 503])
types = st.sampled_from([None, "text/event-stream", "application/json", "application/x-ndjson", "TEXT/Event-Stream;a"])
extras = st.lists(
    st.tuples(
        st.sampled_from([b"content-encoding", b"server-timing", b"location", b"inference-header-content-length"]),
        st.sampled_from([b"", b"gzip", b"identity", b"3", b"-1", b"\xff"]),
    ),
    max_size=2,
)
outcomes = st.sampled_from([s for s in Status if s is not Status.UNSENT]) | st.just(Status.OK)
exchanges = st.builds(finished, bodies, codes, types, extras, outcomes)


def check_status(before: int, x: Exchange) -> None:
    """A failure is explained, never undone; a success may turn out to be none, and then says why."""
    status = Status(x.status)
    if before == Status.OK:
        assert status in (Status.OK, Status.HTTP, Status.PROTOCOL, Status.REFUSED)
    elif before == Status.PROTOCOL or (before == Status.CONNECT and x.code >= 0):
        assert status in (Status.HTTP, before, Status.REFUSED)
    else:
        assert status == before
    if before == Status.OK:
        assert bool(x.error) is (status != Status.OK)
    assert x.n_chunks == len(x.chunk_ns)


@each
@settings(max_examples=20)
@given(x=exchanges)
def test_settle_never_raises_and_never_turns_a_failure_into_a_success(spec: ProtocolSpec, x: Exchange) -> None:
    one = client(spec)
    x.request = one.encode(PAYLOAD)
    if hasattr(one, "dialogue"):  # what a live session keeps of its messages
        x.session = SessionStamps()
        x.session.texts = bytearray(b"\1" * len(x.mark_end))
    before = x.status
    one.settle(x)
    check_status(before, x)
    assert x.n_chunks == len(x.chunk_ns)
