"""Bytes are tokens: ids 0..255 are the byte values, a few specials follow. No vocabulary file, no merges.

Decoding a stream never emits half a UTF-8 character: an incomplete sequence is held back until it is whole.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

BOS = 256
EOS = 257
VOCABULARY = 320
"""Ids the model has rows for: 256 bytes, the specials, and room up to a multiple of 64."""


class Decoding(Protocol):
    """One answer's tokens becoming text."""

    def feed(self, token: int) -> str:
        """Text that became certain with this token; may be empty."""

    def flush(self) -> str:
        """What was held back at the end."""


class Tokenizer(Protocol):
    """Text to a model's tokens and back."""

    @property
    def vocabulary(self) -> int:
        """Token ids lie below this."""

    @property
    def eos(self) -> frozenset[int]:
        """Tokens that end an answer."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt, with whatever the model wants before it."""

    def begin(self, tokens: Sequence[int]) -> list[int]:
        """A prompt of given token ids, with whatever the model wants before it."""

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Token ids of a conversation of (role, content), up to where the assistant speaks."""

    def decoding(self) -> Decoding:
        """A decoder for one answer."""


class Bytes:
    """The tokenizer of this file."""

    vocabulary = VOCABULARY
    eos = frozenset({EOS})

    def encode(self, text: str) -> list[int]:
        return [BOS, *text.encode("utf-8", errors="replace")]

    def begin(self, tokens: Sequence[int]) -> list[int]:
        return [BOS, *tokens]

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        return self.encode("".join(f"{role}: {content}\n" for role, content in messages) + "assistant: ")

    def decoding(self) -> StreamDecoder:
        return StreamDecoder()


class StreamDecoder:
    """Turns one token at a time into text, holding back bytes that don't yet make a whole character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """Text that became certain with this token; may be empty, may hold several characters."""
        return self._decoder.decode(bytes((token,))) if token < 256 else ""

    def flush(self) -> str:
        """What was held back at the end of the stream: U+FFFD for an unfinished character, or nothing."""
        return self._decoder.decode(b"", final=True)
