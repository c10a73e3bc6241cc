"""Text to words to hashed pieces of words, for a model without a vocabulary. Pure: no torch.

A word is a run of letters and digits, in lower case; what is no letter, digit or space is a word of its own. Its pieces are its runs of
three to five characters, with a mark at both ends, and the whole word; each is hashed to a row of an embedding table. Words that look
alike share pieces. It refuses texts that are empty, too long or not UTF-8.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Sequence

from plimsoll.reference_server.values.errors import RequestError

MAX_BYTES = 16_384
MAX_WORDS = 512
_LONGEST = 24
"""Longer words (scripts without spaces, encoded data) are cut into words of this many characters."""
_PIECES = (3, 4, 5)
_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(data: bytes, where: str) -> Sequence[str]:
    """The words of a text. Raises RequestError 400 that begins with ``where``."""
    if len(data) > MAX_BYTES:
        raise _bad(where, f"has {len(data)} bytes, the limit is {MAX_BYTES}. Send it in parts")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(where, f"is not UTF-8 at byte {error.start}. Send UTF-8") from None
    found = _WORD.findall(unicodedata.normalize("NFKC", text).lower())
    words = [word[at : at + _LONGEST] for word in found for at in range(0, len(word), _LONGEST)]
    if not words:
        raise _bad(where, "holds no words. Send some text")
    if len(words) > MAX_WORDS:
        raise _bad(where, f"has {len(words)} words, the limit is {MAX_WORDS}. Send it in parts")
    return words


def pieces_of(word: str, n_rows: int) -> Sequence[int]:
    """The rows, below ``n_rows``, of a word's pieces: the same for the same word, whatever the process."""
    marked = f"<{word}>"
    pieces = [marked, *(marked[i : i + n] for n in _PIECES for i in range(len(marked) - n + 1))]
    return [zlib.crc32(piece.encode()) % n_rows for piece in pieces]


def _bad(where: str, message: str) -> RequestError:
    return RequestError(400, f"{where}: {message}", param=where.partition("[")[0], code="invalid_text")
