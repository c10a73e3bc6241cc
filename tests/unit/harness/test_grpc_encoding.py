"""A gRPC call as bytes: header block, deadline, metadata, messages."""

from __future__ import annotations

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.rpc.call import GrpcOptions, GrpcRequest
from plimsoll.harness.transport.rpc.rpc_pool import Encoder, timeout_of, timeout_text
from plimsoll.harness.wire.hpack_blocks import BlockDecoder

MS = 1_000_000


def encoder(url: str = "grpc://host:9", **target: object) -> Encoder:
    return Encoder(Target(url, "test", **target), GrpcOptions())  # type: ignore[arg-type]


def headers(request: GrpcRequest, **target: object) -> dict[bytes, bytes]:
    return dict(BlockDecoder().decode(encoder(**target).prepare(request).block))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (1, "1n"),
        (99_999_999, "99999999n"),
        (100_000_000, "100000u"),
        (60_000_000_000, "60000000u"),
        (100_000_000_001, "100001m"),
        (10**14, "100000S"),
        (10**17 + 1, "1666667M"),
        (10**22, "99999999H"),
    ],
)
def test_a_timeout_has_at_most_eight_digits_and_is_never_shorter_than_asked(ns: int, text: str) -> None:
    assert timeout_text(ns) == text


def test_the_headers_of_a_call_are_those_of_the_specification_and_the_targets() -> None:
    request = GrpcRequest("/a.B/C", (b"x",), metadata=(("k-bin", b"\x00\xff"), ("user", "me")))
    assert headers(request, headers=(("Authorization", "Bearer t"), ("User", "other"))) == {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/a.B/C",
        b":authority": b"host:9",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
        b"grpc-accept-encoding": b"identity",
        b"grpc-timeout": b"60000000u",
        b"user-agent": b"plimsoll",
        b"k-bin": b"AP8",
        b"user": b"me",
        b"authorization": b"Bearer t",
    }
    assert headers(request, url="grpcs://h")[b":scheme"] == b"https"


def test_messages_are_prefixed_and_what_has_a_schedule_is_not_written_at_once() -> None:
    whole = encoder().prepare(GrpcRequest("/a.B/C", (b"x",)))
    assert (whole.opening, whole.frames, whole.whole, whole.live) == (b"\0\0\0\0\1x", (), True, False)
    assert whole.call.messages == ()
    many = GrpcRequest("/a.B/C", (b"c", b"f", b"g"), due_ns=(0, 5, 9), opening=1, client_streaming=True)
    live = encoder().prepare(many)
    assert (live.opening, live.frames) == (b"\0\0\0\0\1c", (b"\0\0\0\0\1f", b"\0\0\0\0\1g"))
    assert (live.due_ns, live.whole, live.live) == ((5, 9), False, True)


def test_the_time_that_a_schedule_takes_is_added_to_the_timeout() -> None:
    request = GrpcRequest(
        "/a.B/C", (b"c", b"f"), due_ns=(0, 900 * MS), closing_due_ns=1_000 * MS, client_streaming=True
    )
    assert timeout_of(request, 60_000 * MS) == 61_000 * MS
    assert timeout_of(GrpcRequest("/a.B/C", (b"",), deadline_ns=5 * MS), 60_000 * MS) == 5 * MS


def test_everything_that_cannot_be_sent_is_said_at_once() -> None:
    request = GrpcRequest(
        "a.B/C",
        (b"", b""),
        due_ns=(1,),
        metadata=(("Upper", "x"), ("grpc-x", "y"), ("line", "a\nb"), ("b-bin", "text")),
    )
    with pytest.raises(HarnessFault) as caught:
        encoder(headers=(("te", "x"), ("c-bin", "***"))).prepare(request)
    said = str(caught.value)
    for text in (
        "method 'a.B/C': not a gRPC method",
        "'Upper': not a metadata name",
        "'grpc-x': it is written by the transport",
        "'line': its value holds a character",
        "'b-bin': -bin values are bytes",
        "target.headers: metadata 'te'",
        "target.headers: metadata 'c-bin': its value is not base64",
        "it takes one message, and the payload makes 2",
        "2 messages have 1 due times",
    ):
        assert text in said
    assert "a\nb" not in said


def test_a_prepared_call_shows_no_credentials() -> None:
    request = GrpcRequest("/a.B/C", (b"x",), metadata=(("authorization", "Bearer s3cret"),))
    prepared = encoder(headers=(("x-api-key", "hush-hush"),)).prepare(request)
    assert "s3cret" not in repr(prepared) + repr(request)
    assert "hush" not in repr(prepared)
