"""Redaction: every secret that this process knows, in every spelling, out of every text that leaves it.

``KNOWN`` is the process's own redactor; whatever resolves a secret has it learn it (``harness.client.Target`` does), and whatever
is written, printed or sent passes ``redact`` or ``cut``. It knows nothing of headers or scenarios, and reads and writes nothing.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

MASK = "[redacted]"
#: Shorter values are words ("on", "eu"): they are masked only where they stand alone, and those under ``_LEAST`` not at all.
SHORTEST = 6
_LEAST = 3
#: So much of a secret is masked although the rest of it is missing: anywhere in a text, and at an end that was cut.
_HEAD, _TAIL = 8, 4
_SCHEME = re.compile(r"(?:bearer|basic|token|key)\s+", re.IGNORECASE)
_TELLING = re.compile(r"[0-9A-Z]")
_CLOSING = "'\"`)]}>.,;… "
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")


class _Spelling(NamedTuple):
    """``text`` is a whole secret; ``head`` is as much of it as gives it away, ``tail`` as much at the end of a text. ``blob``: it
    lies inside base64, which is masked as a whole.
    """

    text: str
    head: str
    tail: str
    blob: bool = False

    def span(self, text: str, at: int) -> tuple[int, int]:
        """Where what begins with the head at ``at`` lies in the text."""
        end = at + _alike(text, at, self.text)
        if self.blob:
            while at > 0 and text[at - 1] in _BASE64:
                at -= 1
            while end < len(text) and (text[end] in _BASE64 or text[end] == "="):
                end += 1
        return at, end


class Redactor:
    """Takes secrets out of texts. ``learn`` adds some; there is no way to what it knows, and its ``repr`` shows nothing."""

    __slots__ = ("_alone", "_known", "_spellings")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known: frozenset[str] = frozenset()
        self._spellings: tuple[_Spelling, ...] = ()
        self._alone: re.Pattern[str] | None = None
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Know these too. One or two characters are no secret."""
        known_before, self._known = self._known, self._known.union(text for text in values if len(text) >= _LEAST)
        if self._known == known_before:
            return
        found: dict[str, _Spelling] = {}
        for value in sorted(self._known):
            for one in _spellings(value) if len(value) >= SHORTEST else ():
                known = found.setdefault(one.text, one)
                if len(one.head) < len(known.head):
                    found[one.text] = one
        self._spellings = tuple(sorted(found.values(), key=lambda one: (-len(one.text), one.text)))
        short = [value for value in self._known if len(value) < SHORTEST]
        alone = sorted({word for value in short for word in (value, quote(value, ""))})
        self._alone = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, alone))})(?!\w)") if alone else None

    def redact(self, text: str) -> str:
        """``text`` with a mask in the place of every secret, and of the beginning of one from 8 characters up."""
        hits = [spelling for spelling in self._spellings if spelling.head in text]
        if hits:
            text = _without(text, hits)
        return text if self._alone is None else self._alone.sub(MASK, text)

    def cut(self, text: str, limit: int) -> str:
        """At most ``limit`` characters of ``text``, redacted before they are cut: nor does the beginning of a secret stand at
        the end, whoever cut it there (4 characters of it give it away).
        """
        shown = self._without_tail(self.redact(text[: 8 * limit]))
        return shown if len(shown) <= limit else self._without_tail(shown[:limit])

    def _without_tail(self, text: str) -> str:
        body = text.rstrip(_CLOSING)
        found = len(body)
        for spelling in self._spellings:
            at = body.find(spelling.tail, max(0, len(body) - len(spelling.text))) if spelling.tail else -1
            while 0 <= at < found:
                if spelling.text.startswith(body[at:]):
                    found = at
                at = body.find(spelling.tail, at + 1)
        return text if found == len(body) else body[:found] + MASK + text[len(body) :]

    def masked(self, value: Any) -> Any:
        """A JSON-like value with every text in it redacted; names of members are left."""
        if isinstance(value, dict):
            return {name: self.masked(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.masked(item) for item in value]
        return self.redact(value) if isinstance(value, str) else value


class Guarded:
    """A text stream on which no secret is written; in everything else it is the stream that it guards."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _without(text: str, hits: Sequence[_Spelling]) -> str:
    """``text`` with masks for ``hits``, whose heads are in it: of spellings that begin alike the one that reaches furthest.

    Each head is looked for once from the beginning of the text to its end, however often any of them is there.
    """
    parts, at, begin, end, blob = [], 0, -1, -1, (0, 0)
    ahead = [(text.find(hit.head), hit) for hit in hits]
    while ahead:
        place = min(found for found, _ in ahead)
        if place >= end > 0:  # what began before is over; else another one begins inside it
            parts += [text[at : max(at, begin)], MASK]
            at, begin, end = end, -1, -1
        for hit in [hit for found, hit in ahead if found == place]:
            span = blob if hit.blob and blob[0] <= place < blob[1] else hit.span(text, place)
            blob = span if hit.blob else blob
            begin, end = span[0] if begin < 0 else min(begin, span[0]), max(end, span[1])
        moved = [(text.find(hit.head, place + 1) if found == place else found, hit) for found, hit in ahead]
        ahead = [one for one in moved if one[0] >= 0]
    parts += [text[at : max(at, begin)], MASK]
    return "".join((*parts, text[end:]))


def _alike(text: str, at: int, secret: str) -> int:
    """How many characters of ``secret`` stand at ``at``."""
    if text.startswith(secret, at):
        return len(secret)
    return next(i for i, char in enumerate(secret) if text[at + i : at + i + 1] != char)


def _spellings(value: str) -> Iterator[_Spelling]:
    """Every way in which a text may hold the value. Of one behind a scheme ("Bearer ...") no beginning gives it away."""
    raw = {value, " ".join(value.split())}
    if not value.isascii():  # as bytes of one encoding read as the other
        raw |= {value.encode().decode("latin-1"), value.encode("latin-1", "replace").decode(errors="replace")}
    for text in raw:
        whole = _SCHEME.match(text) is not None
        head = text if whole else text[: _telling(text)]
        for spell in _WAYS:
            one = _Spelling(spell(text), spell(head), "" if whole else spell(text[:_TAIL]))
            yield one
            if "\\" in one.text:  # and quoted once more
                quoted, its_head, its_tail = (part.replace("\\", "\\\\") for part in one[:3])
                yield _Spelling(quoted, its_head, its_tail)
    for data in {value.encode(), value.encode("latin-1", "replace")}:
        for shift in range(3):  # where it begins in a group of three bytes
            code = base64.b64encode(bytes(shift) + data)
            piece = code[(shift * 8 + 5) // 6 : (shift + len(data)) * 8 // 6].decode()
            for text in {piece, piece.translate(str.maketrans("+/", "-_"))}:
                yield _Spelling(text, text[:_HEAD], text[:_TAIL], True)


def _telling(text: str) -> int:
    """How much of a secret's beginning is no ordinary word or scheme, at least 8 characters."""
    found = _TELLING.search(text, 1)
    return max(_HEAD, len(text) if found is None else found.end())


def _each(form: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(map(form, text))


def _lower_hex(text: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), text)


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


#: Ways to spell a text, each character by itself: what begins with another text is spelt with its spelling in front.
_WAYS: tuple[Callable[[str], str], ...] = (
    str,
    str.lower,  # as names of media types and codings are compared
    str.upper,
    lambda text: quote(text, ""),
    lambda text: _lower_hex(quote(text, "")),
    quote,
    lambda text: quote_plus(text, ""),
    lambda text: quote(text, "", "latin-1", "replace"),
    lambda text: quote(quote(text, ""), ""),
    lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    _json,
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: _json(text).replace("/", "\\/"),
    lambda text: _json(_json(text)),
    _each(lambda char: f"\\u{ord(char):04x}"),
    _each(lambda char: f"\\u{ord(char):04X}"),
    html.escape,
    lambda text: html.escape(text).replace("&#x27;", "&#39;"),
    lambda text: html.escape(text, quote=False),
    _each(lambda char: f"&#x{ord(char):x};"),
    _each(lambda char: f"&#x{ord(char):X};"),
    _each(lambda char: f"&#{ord(char)};"),
    lambda text: text.encode("unicode_escape").decode("ascii"),
    lambda text: text.encode("unicode_escape").decode("ascii").replace("'", "\\'"),
    lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    lambda text: "".join(f"\\x{byte:02X}" for byte in text.encode()),
    lambda text: text.encode().hex(),
    lambda text: text.encode().hex().upper(),
    lambda text: "\0".join(text),
    lambda text: "?".join(text),  # the same, once what can't be printed is a question mark
)

#: What this process knows.
KNOWN = Redactor()
learn, redact, cut, masked = KNOWN.learn, KNOWN.redact, KNOWN.cut, KNOWN.masked
