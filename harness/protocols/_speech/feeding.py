"""Text for a voice, as it is fed: all at once, or word by word as a language model would write it. Pure.

When the first audio comes depends on how text comes, so the two are different measurements and a run says which it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from plimsoll.harness.errors import HarnessFault
from plimsoll.scenarios.samples.payload import Payload

_WORD = re.compile(r"\s*\S+\s*")


def text_of(payload: Payload, protocol: str) -> str:
    """What is to be said. Raises HarnessFault if the payload has no text."""
    if payload.prompt and payload.prompt.strip():
        return payload.prompt
    raise HarnessFault(
        f"{protocol}: the payload has no text to say. Use a source of text, such as jsonl or synthetic_text"
    )


def feed(text: str, words_per_s: float | None, most: int) -> list[tuple[int, str]]:
    """(due ns, piece) whose pieces together are ``text``: one piece at once, or word i at i / ``words_per_s`` seconds.

    No piece is longer than ``most`` characters; a text that is gets cut between words.
    """
    words = list(_pieces(text, most))
    if words_per_s is not None:
        return [(round(i * 1e9 / words_per_s), word) for i, word in enumerate(words)]
    whole: list[str] = []
    for word in words:
        if whole and len(whole[-1]) + len(word) <= most:
            whole[-1] += word
        else:
            whole.append(word)
    return [(0, piece) for piece in whole]


def _pieces(text: str, most: int) -> Iterator[str]:
    for word in _WORD.findall(text):
        for begin in range(0, len(word), most):
            yield word[begin : begin + most]
