"""What a finished gRPC call says about success. A gRPC call as bytes: header block, deadline, metadata, messages. The
options that all gRPC protocols share, beside a protocol's own.
"""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept, problems
from plimsoll.harness.secrecy.redaction import learn
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.outcome import NEVER, keep_retry_after, told_ns
from plimsoll.harness.transport.rpc.call import CODES, GrpcOptions, GrpcRequest, code_name, shared_options
from plimsoll.harness.transport.rpc.rpc_outcome import judge, percent_decoded, put_headers, reset_status
from plimsoll.harness.transport.rpc.rpc_pool import Encoder, timeout_of, timeout_text
from plimsoll.harness.wire.hpack_blocks import BlockDecoder
from plimsoll.scenarios.plan.habits import GRPC
from plimsoll.slo.records.records import Status


def finished(*headers: tuple[bytes, bytes], messages: int = 1, body: bytes = b"m") -> Exchange:
    exchange = Exchange(0, 0, 0, 0, None)
    exchange.status = int(Status.OK)
    exchange.body += body
    exchange.mark_ns.extend([1] * messages)
    exchange.mark_end.extend([len(body)] * messages)
    put_headers(exchange, headers)
    return exchange


@pytest.mark.parametrize("code", range(1, 17))
def test_every_code_is_a_failure_that_keeps_its_name_and_message(code: int) -> None:
    exchange = finished((b"grpc-status", b"%d" % code), (b"grpc-message", b"why"))
    judge(exchange, 200, False)
    expected = {4: Status.TIMEOUT, 8: Status.REFUSED}.get(code, Status.GRPC)
    assert (exchange.status, exchange.code, exchange.error) == (expected, code, f"gRPC {CODES[code]}: why")


@pytest.mark.parametrize(
    ("code", "said", "status"),
    [
        (14, b"[request id: 5] Exceeds maximum queue size", Status.REFUSED),  # Triton
        (13, b'Model "m" has no worker to serve inference request. Please use scale workers API', Status.REFUSED),
        (14, b"upstream connect error or disconnect/reset before headers. reset reason: overflow", Status.REFUSED),
        (14, b"failed to connect to all addresses", Status.GRPC),
        (13, b"CUDA out of memory", Status.GRPC),
        (3, b"the batch exceeds maximum queue size of the model", Status.GRPC),  # the request's own fault
        (4, b"Exceeds maximum queue size", Status.TIMEOUT),
    ],
)
def test_a_server_that_sheds_load_is_known_by_its_words_where_its_code_is_vague(
    code: int, said: bytes, status: Status
) -> None:
    exchange = finished((b"grpc-status", b"%d" % code), (b"grpc-message", said))
    judge(exchange, 200, False)
    assert exchange.status == status


@pytest.mark.parametrize(("said", "code"), [(b"99", 99), (b"x", 2), (b"0, 0", 2), (b"123456", 2), ("²".encode(), 2)])
def test_a_code_that_the_specification_does_not_know_is_a_failure(said: bytes, code: int) -> None:
    exchange = finished((b"grpc-status", said))
    judge(exchange, 200, False)
    assert (exchange.status, exchange.code) == (Status.GRPC, code)
    assert code_name(code) in str(exchange.error)


def test_what_the_transport_decided_stays() -> None:
    exchange = finished((b"grpc-status", b"5"), (b"server-timing", b"x;dur=1"))
    exchange.status, exchange.error = int(Status.TIMEOUT), "too late"
    judge(exchange, 200, False)
    assert (exchange.status, exchange.error, exchange.server_timing) == (Status.TIMEOUT, "too late", "x;dur=1")


def test_a_unary_success_has_exactly_one_message() -> None:
    for count, status in ((0, Status.PROTOCOL), (1, Status.OK), (2, Status.PROTOCOL)):
        exchange = finished((b"grpc-status", b"0"), messages=count)
        judge(exchange, 200, False)
        assert exchange.status == status
    many = finished((b"grpc-status", b"0"), messages=0)
    judge(many, 200, True)
    assert many.status == Status.OK


def test_secrets_are_kept_out_of_messages() -> None:
    exchange = finished((b"grpc-status", b"16"), (b"grpc-message", b"bad key hush-hush"))
    learn(["hush-hush"])
    judge(exchange, 200, False)
    assert exchange.error == "gRPC UNAUTHENTICATED: bad key [redacted]"


@pytest.mark.parametrize(
    ("text", "said"),
    [("a%20b", "a b"), ("%C3%BC", "ü"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("%ff", "�"), ("ü", "�"), ("", "")],
)
def test_a_message_is_decoded_as_far_as_it_is_encoded(text: str, said: str) -> None:
    assert percent_decoded(text) == said


def test_binary_metadata_is_decoded_padded_or_not_and_kept_as_it_is_when_it_is_no_base64() -> None:
    exchange = finished((b":status", b"200"), (b"a-bin", b"AP8"), (b"b-bin", b"AP8="), (b"c-bin", b"*"), (b"d", b"AP8"))
    assert exchange.headers == [(b"a-bin", b"\x00\xff"), (b"b-bin", b"\x00\xff"), (b"c-bin", b"*"), (b"d", b"AP8")]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(0, Status.GRPC, 13), (2, Status.GRPC, 13), (7, Status.REFUSED, 14), (8, Status.GRPC, 1), (11, Status.REFUSED, 8),
     (12, Status.GRPC, 7), (4_000_000_000, Status.GRPC, 13)],
)  # fmt: skip
def test_a_reset_maps_as_grpc_says(error: int, status: Status, code: int) -> None:
    assert reset_status(error)[:2] == (status, code)


def test_a_page_of_the_web_is_an_http_failure_with_its_text() -> None:
    exchange = finished((b"content-type", b"text/html"), messages=0, body=b"<h1>no\nroute</h1>")
    judge(exchange, 404, True)
    assert (exchange.status, exchange.code) == (Status.HTTP, 404)
    assert exchange.error == "HTTP 404, text/html instead of gRPC: <h1>no route</h1>"


# -- encodings ------------------------------------------------------------------------------------------------------

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


# -- options --------------------------------------------------------------------------------------------------------


class Mine(GrpcOptions):
    method: str = Field(min_length=1)


def test_both_kinds_of_options_are_checked_and_every_error_is_said_once() -> None:
    said = problems(Mine, {"method": "", "channels": 0, "max_message": "1", "chanels": 2})
    assert [text.split(":")[0] for text in said] == [
        "target.options.channels",
        "target.options.max_message",
        "target.options.method",
        "target.options.chanels",
    ]
    assert "Did you mean channels?" in said[3]
    assert "method" in said[3].split("Known ones:")[1]


def test_each_gets_its_own_options() -> None:
    options = {"method": "/a.B/C", "channels": 4}
    assert accept(Mine, options).method == "/a.B/C"
    assert shared_options(options).channels == 4
    assert problems(Mine, options) == []
    with pytest.raises(HarnessFault, match="channels"):
        accept(Mine, {"method": "x", "channels": "4"})


def test_own_connections_and_channels_exclude_each_other() -> None:
    (said,) = problems(Mine, {"method": "x", "channels": 2, "own_connection": True})
    assert said == "target.options.channels: own_connection opens one for each call. Give one of the two"
    assert problems(Mine, {"method": "x", "channels": 1, "own_connection": True}) == []


def test_codes_that_a_scenario_may_name_are_those_of_grpc_by_their_numbers() -> None:
    assert ("OK", *GRPC) == CODES
    assert {code for code in GRPC.values() if not 400 <= code <= 504} == set()


@given(st.binary(max_size=80))
def test_no_details_of_a_status_are_too_broken_to_be_read(details: bytes) -> None:
    assert told_ns(finished((b"grpc-status-details-bin", base64.b64encode(details)))) >= -1


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ([], -1),
        ([(b"retry-after", b"2")], 2_000_000_000),
        ([(b"grpc-retry-pushback-ms", b"0"), (b"retry-after", b"2")], 0),
        ([(b"grpc-retry-pushback-ms", b"70")], 70_000_000),
        ([(b"grpc-retry-pushback-ms", b"-1")], NEVER),
        ([(b"grpc-retry-pushback-ms", b"soon")], NEVER),
    ],
)
def test_the_servers_own_word_on_the_wait_comes_before_a_header_of_http(
    headers: list[tuple[bytes, bytes]], told: int
) -> None:
    exchange = finished(*headers)
    assert told_ns(exchange) == told
    keep_retry_after(exchange)
    assert (exchange.labels or {}).get("retry_after") == (-(-told // 10**9) if told >= 0 else None)
