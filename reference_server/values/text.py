"""The tokenizer of real weights: a folder's tokenizer.json behind the Tokenizer protocol. The only importer of tokenizers.

Streaming never emits half a character: text is held back while it ends in a replacement character, because the byte pieces of
one character may be several tokens. It refuses to run chat templates of a folder (they are programs): a conversation is framed
as Llama 3 does where the tokenizer knows those headers, and as plain ``role: content`` lines otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from plimsoll.reference_server.values.errors import ConfigError

_HALF = "\N{REPLACEMENT CHARACTER}"
_BEGIN, _HEADER, _HEADER_END, _TURN_END = (
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
_WINDOW = 8
"""Tokens of context that decoding may look back on, and most tokens that one character is made of."""


class FileTokenizer:
    """A folder's tokenizer. Raises ConfigError when there is none, or when it knows more tokens than the model."""

    def __init__(self, folder: Path, *, vocabulary: int, eos: frozenset[int]) -> None:
        """``vocabulary`` and ``eos`` are the model's."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"--weights {folder}: it has no tokenizer.json")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 - the library raises nothing narrower
            raise ConfigError(f"--weights {folder}: tokenizer.json can't be read: {error}") from None
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        if largest >= vocabulary:
            raise ConfigError(
                f"--weights {folder}: tokenizer.json has token {largest}, but the model has ids below {vocabulary} only"
            )
        self._vocabulary = vocabulary
        self._special = frozenset(
            token for token, added in self._tokenizer.get_added_tokens_decoder().items() if added.special
        )
        self._llama3 = all(self._id(name) is not None for name in (_HEADER, _HEADER_END, _TURN_END))
        turn_end = self._id(_TURN_END)
        # A conversation's turn ends with its own token, which base models' configurations don't list.
        self._eos = eos | ({turn_end} if self._llama3 and turn_end is not None else set())
        self._bos = _beginning(self._tokenizer, folder)

    @property
    def vocabulary(self) -> int:
        """Token ids lie below this."""
        return self._vocabulary

    @property
    def eos(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self._eos

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt, with the beginning-of-text token where the model has one. Never empty.

        Special tokens that the prompt spells out are meant: whoever frames a conversation himself needs them.
        """
        return self._with_bos(self._ids(text, plain=False))

    def begin(self, tokens: Sequence[int]) -> list[int]:
        """A prompt of given token ids after the beginning-of-text token, unless it already begins with that."""
        return self._with_bos(list(tokens))

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Token ids of a conversation of (role, content), up to where the assistant speaks.

        Contents are text: special tokens spelled out in them are not taken for the real ones, so that no user can end
        a turn or speak for the system.
        """
        if not self._llama3:
            return self.encode("".join(f"{role}: {content}\n" for role, content in messages) + "assistant: ")
        turn_end = self._id(_TURN_END)
        assert turn_end is not None
        ids: list[int] = []
        for role, content in messages:
            ids += [*self._header(role), *self._plain(content.strip()), turn_end]
        return self._with_bos([*ids, *self._header("assistant")])

    def decoding(self) -> FileDecoding:
        """A decoder for one answer."""
        return FileDecoding(self._tokenizer, self._special)

    def _header(self, role: str) -> list[int]:
        start, end = self._id(_HEADER), self._id(_HEADER_END)
        assert start is not None
        assert end is not None
        return [start, *self._plain(role), end, *self._plain("\n\n")]

    def _plain(self, text: str) -> list[int]:
        """Ids of text in which nothing is special."""
        return self._ids(text, plain=True)

    def _ids(self, text: str, *, plain: bool) -> list[int]:
        self._tokenizer.encode_special_tokens = plain
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _with_bos(self, ids: list[int]) -> list[int]:
        if self._bos is None:
            return ids or [min(self._eos, default=0)]  # nothing to continue: where a text ends another begins
        return ids if ids[:1] == [self._bos] else [self._bos, *ids]

    def _id(self, name: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(name)
        return found


class FileDecoding:
    """One answer's tokens becoming text; special tokens vanish."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, special: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._tokens: list[int] = []
        self._emitted = 0
        """Of the tokens kept, these many from the front have been emitted; they stay as context, since how a piece is spelled
        (a leading space, say) depends on what came before it.
        """

    def feed(self, token: int) -> str:
        """Text that became certain with this token; may be empty."""
        if token in self._special:
            return ""
        self._tokens.append(token)
        text = self._pending()
        if text.endswith(_HALF) and len(self._tokens) - self._emitted < _WINDOW:
            return ""
        self._emitted = len(self._tokens)
        if self._emitted > 2 * _WINDOW:
            del self._tokens[: self._emitted - _WINDOW]
            self._emitted = _WINDOW
        return text

    def flush(self) -> str:
        """What was held back at the end: U+FFFD for an unfinished character, or nothing."""
        text = self._pending()
        self._emitted = len(self._tokens)
        return text

    def _pending(self) -> str:
        if self._emitted == len(self._tokens):
            return ""
        before = self._tokenizer.decode(self._tokens[: self._emitted])
        return str(self._tokenizer.decode(self._tokens))[len(before) :]


def _beginning(tokenizer: tokenizers.Tokenizer, folder: Path) -> int | None:
    """The token that prompts begin with: what the tokenizer itself puts there, else what tokenizer_config.json asks for."""
    framed: list[int] = tokenizer.encode("", add_special_tokens=True).ids
    if framed:
        return framed[0]
    try:
        given: dict[str, Any] = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        given = {}
    named = given.get("bos_token") if isinstance(given, dict) else None
    content = named.get("content") if isinstance(named, dict) else named
    if not isinstance(content, str) or given.get("add_bos_token") is False:
        return None
    found: int | None = tokenizer.token_to_id(content)
    return found
