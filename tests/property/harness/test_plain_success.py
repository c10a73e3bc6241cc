"""What ``HttpDialect.plain`` calls a plain success, ``settle`` leaves as it is: the engine may then skip settling."""

from __future__ import annotations

import string
from typing import Any

import orjson
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols.http import HttpDialect
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.http.dialect import PlainSuccess
from plimsoll.slo.records.records import COLUMNS
from tests.finished import finished

#: Names that an error path may have, short and of few letters so that bodies hit them often.
names = st.sampled_from(["error", "e", "err", "er", "detail", "ä", "a b", "0", "12"])
steps = st.one_of(names.map(lambda name: f'["{name}"]'), st.integers(-2, 2).map(lambda at: f"[{at}]"))
paths = st.lists(steps, min_size=1, max_size=3).map("".join) | st.sampled_from(
    ["error", "error.code", "0.error", "$", "12"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.text(string.ascii_lowercase + 'ä\\"/', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def escaped(text: str) -> bytes:
    """JSON in which every letter of a string may be spelled by its number."""
    return "".join(f"\\u{ord(char):04x}" if char in "er" else char for char in text).encode()


bodies = st.one_of(
    values.map(orjson.dumps),
    values.map(orjson.dumps).map(lambda body: b" \n" + body),
    values.map(lambda value: escaped(orjson.dumps(value).decode())),
    st.tuples(names, values).map(lambda pair: orjson.dumps({pair[0]: pair[1]})),
    st.binary(max_size=12),
    st.just(b"RIFF....WAVE"),
)
codes = st.sampled_from([200, 201, 204, 206, 302, 404, 429, 500])
options = st.fixed_dictionaries(
    {"error_path": paths},
    optional={
        "success_codes": st.lists(st.sampled_from([200, 404, 429]), min_size=1, max_size=2, unique=True),
        "method": st.sampled_from(["GET", "POST", "HEAD"]),
    },
)


def plain(rule: PlainSuccess, exchange: Exchange) -> bool:
    """The engine's rule (harness/generator/engine/pool.c), of a response that came whole and without the two
    headers.
    """
    return exchange.code in rule.success and not any(needle in exchange.body for needle in rule.needles)


def row(exchange: Exchange) -> list[Any]:
    """Everything that a record keeps of an exchange."""
    kept = [name for name in COLUMNS if name not in ("worker", "error", "server_timing")]
    return [
        *(getattr(exchange, name) for name in kept),
        exchange.error,
        exchange.server_timing,
        list(exchange.chunk_ns),
    ]


@settings(max_examples=600)
@given(options, bodies, codes, st.sampled_from([None, "application/json", "text/plain"]))
@example({"error_path": "error"}, b'{"err\\u006fr": 1}', 200, None)
@example({"error_path": "[0].error"}, b'[{"error": 1}]', 200, None)
@example({"error_path": "0.error"}, b'{"0": {"error": 1}}', 200, None)
@example({"error_path": "12"}, b'{"12": 1}', 200, None)
@example({"error_path": "$"}, b'{"a": 1}', 200, None)
def test_what_is_called_plain_is_left_alone(
    given_options: dict[str, Any], body: bytes, code: int, content_type: str | None
) -> None:
    dialect = HttpDialect(Target("http://h:1", "http", "m", options=given_options))
    rule = dialect.plain
    if rule is None:
        return
    assert len(rule.needles) <= 4
    assert all(1 <= len(needle) <= 64 for needle in rule.needles)
    exchange = finished([body] if body else [], code, content_type)
    if not plain(rule, exchange):
        return
    event("plain")
    before = row(exchange)
    dialect.settle(exchange)
    assert row(exchange) == before


def test_the_rule_is_worth_having_and_refuses_what_settle_would_change() -> None:
    """The usual answer is plain; an error, an escape and a failure are not."""
    rule = HttpDialect(Target("http://h:1", "http", "m", options={})).plain
    assert rule is not None
    assert plain(rule, finished([b'{"ok": "yes"}']))
    for body, code in ((b'{"error": "no"}', 200), (b'{"err\\u006fr": 1}', 200), (b"{}", 500)):
        assert not plain(rule, finished([body], code))


def test_a_dialect_that_reads_usage_or_streams_calls_nothing_plain() -> None:
    for given_options in (
        {"output_tokens_path": "usage.n"},
        {"framing": "sse"},
        {"error_path": "$"},
        {"error_path": "x" * 65},
    ):
        assert HttpDialect(Target("http://h:1", "http", "m", options=given_options)).plain is None
