"""What a finished gRPC call says about success."""

from __future__ import annotations

import pytest

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.secrecy.redaction import learn
from plimsoll.harness.transport.rpc.call import CODES, code_name
from plimsoll.harness.transport.rpc.rpc_outcome import judge, percent_decoded, put_headers, reset_status
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
