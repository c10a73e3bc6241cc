"""Byte tokens and their way back to text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.values.tokenizer import BOS, EOS, Bytes, StreamDecoder

encode = Bytes().encode


def decode(tokens: list[int]) -> str:
    """Text of tokens; specials vanish, invalid bytes become U+FFFD."""
    return bytes(token for token in tokens if token < 256).decode("utf-8", errors="replace")


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_encoding_round_trips(text: str) -> None:
    assert decode(encode(text)) == text
    assert encode(text)[0] == BOS


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_a_stream_is_the_text_and_never_holds_half_a_character(text: str) -> None:
    decoder = StreamDecoder()
    parts = [decoder.feed(token) for token in encode(text)]
    assert "".join(parts) + decoder.flush() == text
    assert all("\ufffd" not in part for part in parts) or "\ufffd" in text


@given(st.lists(st.integers(0, EOS)))
def test_any_tokens_stream_to_the_text_they_decode_to(tokens: list[int]) -> None:
    decoder = StreamDecoder()
    assert "".join(map(decoder.feed, tokens)) + decoder.flush() == decode(tokens)


def test_an_unfinished_character_is_held_back() -> None:
    decoder = StreamDecoder()
    assert decoder.feed(0xE2) == decoder.feed(0x82) == ""
    assert decoder.feed(0xAC) == "€"
    decoder.feed(0xE2)
    assert decoder.flush() == "\ufffd"
