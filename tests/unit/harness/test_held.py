"""What a worker may hold of what servers say: what taking an answer apart costs is never more than what it was said to
cost.
"""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols._speech import hearing as messages
from plimsoll.harness.transport import held
from plimsoll.harness.wire import framing
from plimsoll.slo.records.records import Status

KIB = 1 << 10


def answered(body: bytes, reads: int = 1) -> Exchange:
    exchange = Exchange(0, 0, 0, 0, None)
    exchange.status = int(Status.OK)
    exchange.body += body
    exchange.mark_end = array("q", [len(body) * (i + 1) // reads for i in range(reads)])
    exchange.mark_ns = array("q", range(reads))
    return exchange


def cost(take: Callable[[], Any]) -> int:
    """Bytes held at most while ``take`` runs, with what it gives."""
    tracemalloc.start()
    try:
        kept = take()
        peak = tracemalloc.get_traced_memory()[1]
        del kept
    finally:
        tracemalloc.stop()
    return peak


def taken(exchange: Exchange, framed: str) -> Any:
    stream = framing.take_apart(exchange.body, exchange.mark_ns, exchange.mark_end, framed)
    return stream, [orjson.loads(payload) for payload in stream.payloads if payload[:1] == b"{"]


@pytest.mark.parametrize(
    ("body", "framed"),
    [
        (b"[" + b"{}," * 60_000 + b"{}]", ""),
        (b"[" + b"[]," * 60_000 + b"[]]", ""),
        (b"[" + b'{"":0},' * 30_000 + b"0]", ""),
        (b"[" + b'{"a":[{"b":{}}]},' * 10_000 + b"0]", ""),
        (b"[" + b"1.5," * 60_000 + b"0]", ""),
        (b'["' + b"a" * 200_000 + "😀".encode() + b'"]', ""),
        (b"{" + b",".join(b'"%d":1' % i for i in range(40_000)) + b"}", ""),
        (b"{}\n" * 60_000, "ndjson"),
        (b'{"":0}\n' * 30_000, "ndjson"),
        (b"x\n" * 90_000, "lines"),
        (b"data:\n\n" * 30_000, "sse"),
        (b"data:\r\r" * 30_000, "sse"),
        (b"data: {}\n\n" * 20_000, "sse"),
        (b"event: a\ndata: {}\n\n" * 12_000, "sse"),
        (b":\n" * 90_000 + b"data: {}\n\n", "sse"),
    ],
)
def test_taking_text_apart_costs_no_more_than_was_said(body: bytes, framed: str) -> None:
    exchange = answered(body, 40)
    real = cost(lambda: taken(exchange, framed) if framed else orjson.loads(exchange.body))
    assert real < held.text_cost(exchange) <= held.WORST * len(body) + 150 * 40


def test_messages_of_a_session_cost_no_more_than_was_said() -> None:
    exchange = answered(b"{}" * 20_000, 20_000)
    exchange.session = SessionStamps()
    exchange.session.texts = bytearray(b"\1" * 20_000)
    assert cost(lambda: messages.read(exchange)) < held.text_cost(exchange)


def test_an_answer_that_would_cost_too_much_fails_and_keeps_its_beginning_with_the_marks_of_it() -> None:
    exchange = answered(b"{}," * 100_000, 300)
    exchange.session = SessionStamps()
    exchange.session.texts = bytearray(b"\1" * 300)
    assert not held.oversized(exchange, held.text_cost(exchange))
    assert held.oversized(exchange, held.text_cost(exchange) - 1)
    assert (exchange.status, len(exchange.body)) == (Status.PROTOCOL, 4000)
    assert exchange.mark_end[-1] == 4000
    assert len(exchange.mark_ns) == len(exchange.session.texts) == 4
    assert str(exchange.error).startswith("the answer has 300,000 bytes, and to take it apart could need more than ")
    failed = answered(b"{}," * 100_000)
    failed.status, failed.error = int(Status.TIMEOUT), "late"
    assert held.oversized(failed, 1000)
    assert (failed.status, failed.error, bytes(failed.body)) == (Status.TIMEOUT, "late", b"")


def test_sound_and_numbers_may_be_larger_than_little_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "memory", lambda: 512 << 20)
    limit = held.reading()
    assert limit == 64 << 20
    assert not held.oversized(answered(bytes(3 << 20)), limit)
    assert not held.oversized(answered(b"[" + b"0.123456789," * (160 * KIB) + b"0]"), limit)
    assert held.oversized(answered(b"{}," * (320 * KIB)), limit)


def test_what_is_held_together_fits_into_the_memory_whatever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for mib in (64, 512, 4096, 1 << 20):
        monkeypatch.setattr(held, "memory", lambda mib=mib: mib << 20)
        assert held.budget() + held.waiting() + held.reading() <= (mib << 20) * 5 // 8
