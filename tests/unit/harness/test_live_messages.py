"""What the live protocols share: kinds of messages, tolerant reading, handshakes, text that is fed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._clients import models_path
from plimsoll.harness.protocols._speech.hearing import fault_in, kind_of, member, ns_of, text_at
from plimsoll.harness.protocols._speech.sending import feed
from plimsoll.harness.transport.live.handshake import handshake_headers, request_target

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_characters='{}"\\', exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "a", "b"]), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.text(st.characters(min_codepoint=32, exclude_characters='"\\', exclude_categories=["Cs"]), max_size=8),
    st.dictionaries(st.sampled_from("abc"), JSON),
    st.dictionaries(st.sampled_from("def"), JSON),
    st.sampled_from([None, 1]),
)
def test_the_kind_of_an_object_is_its_own_type_wherever_it_stands(
    kind: str, before: dict[str, Any], after: dict[str, Any], indent: int | None
) -> None:
    message = json.dumps({**before, "type": kind, **after}, indent=indent, ensure_ascii=False).encode()
    assert kind_of(message) == kind.encode()


@pytest.mark.parametrize("message", [b"", b"{", b'["type"]', b'{"a":{"type":"x"}}', b'{"type":1}', b"\xff" * 40])
def test_what_has_no_type_of_its_own_has_no_kind(message: bytes) -> None:
    assert kind_of(message) == b""


def test_a_path_that_leads_nowhere_reads_as_nothing() -> None:
    value = {"a": [{"b": "x"}], "c": 3}
    assert member(value, "a", 0, "b") == text_at(value, "a", -1, "b") == "x"
    assert member(value, "a", 5) is member(value, "c", "d") is member(value, 0) is None
    assert text_at(value, "c") == ""


@pytest.mark.parametrize(
    ("value", "ns"),
    [(1.5, 1_500_000_000), (0, 0), (-1, -1), (True, -1), ("1", -1), (None, -1), (1e300, -1), (10**400, -1)],
)
def test_a_position_is_a_number_of_seconds_that_a_recording_may_have(value: Any, ns: int) -> None:
    assert ns_of(value) == ns


@pytest.mark.parametrize(
    ("said", "message", "overloaded"),
    [
        ({"message": "no", "code": 7}, "no (7)", False),
        ({"message": "Rate limit reached"}, "Rate limit reached", True),
        ({"message": "x", "code": "insufficient_quota"}, "x (insufficient_quota)", True),
        ({"message": "x", "code": 429}, "x (429)", True),
        ({"message": "item a4291 is bad"}, "item a4291 is bad", False),
        ({"type": "Error", "n": 1, "deep": [[]]}, "type: Error, n: 1", False),
    ],
)
def test_an_error_is_told_in_the_servers_words(said: dict[str, Any], message: str, overloaded: bool) -> None:
    fault = fault_in(said, ("message",), ("code",))
    assert (fault.message, fault.overloaded) == (message, overloaded)


@pytest.mark.parametrize(
    ("url", "path", "target"),
    [
        ("ws://h", None, "/v1/listen?a=1&b=true&c=x+y&c=z"),
        ("wss://h/base/", None, "/base/v1/listen?a=1&b=true&c=x+y&c=z"),
        ("http://h/v1", None, "/v1/listen?a=1&b=true&c=x+y&c=z"),
        ("https://h/v1/listen?k=1", None, "/v1/listen?k=1&a=1&b=true&c=x+y&c=z"),
        ("h:80", "/other?k=2", "/other?k=2&a=1&b=true&c=x+y&c=z"),
    ],
)
def test_a_handshakes_path_is_below_the_urls_own_and_keeps_its_query(url: str, path: str | None, target: str) -> None:
    query: dict[str, Any] = {"a": 1, "b": True, "c": ["x y", "z"], "none": None}
    assert request_target(url, "/v1/listen", path, query) == target


def test_the_list_of_models_is_beside_a_websocket() -> None:
    assert models_path("wss://h/base/v1/realtime?k=1") == "/base/v1/models?k=1"


def test_a_key_takes_the_form_that_the_vendor_wants() -> None:
    given = (("authorization", "bearer KEY"), ("x-a", "1"))
    assert handshake_headers(given, "token")[0] == ("authorization", "Token KEY")
    assert handshake_headers(given, "bare")[0] == ("authorization", "KEY")
    assert handshake_headers(given, "bearer") == given
    assert handshake_headers((("Authorization", "Token T"),), "bare") == (("Authorization", "Token T"),)
    assert handshake_headers(given, "bare", {"X-A": "2", "X-B": "3"})[1:] == (("x-a", "1"), ("X-B", "3"))


@pytest.mark.parametrize("name", ["Sec-WebSocket-Key", "Host", "Upgrade"])
def test_headers_of_the_transport_are_refused_without_their_values(name: str) -> None:
    with pytest.raises(HarnessFault, match="written by the transport") as refused:
        handshake_headers(((name, "my-secret"),), "bearer")
    assert "my-secret" not in str(refused.value)


@given(st.text(max_size=60).filter(str.strip), st.none() | st.floats(0.1, 100), st.integers(1, 20))
def test_fed_pieces_together_are_the_text_in_order_and_none_is_too_long(
    text: str, words_per_s: float | None, most: int
) -> None:
    fed = feed(text, words_per_s, most)
    assert "".join(piece for _, piece in fed) == text
    assert all(0 < len(piece) <= most for _, piece in fed)
    dues = [due for due, _ in fed]
    assert dues == sorted(dues)
    assert dues[0] == 0
    assert (words_per_s is None) <= (not any(dues))
