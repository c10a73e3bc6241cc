"""Redaction takes every secret that this process knows, in every spelling, out of every text that leaves it.

``KNOWN`` is the process's own redactor: whoever resolves a secret has it learn it, and whatever is written, printed or
sent passes ``redact`` or ``cut``. Spellings are not listed: a text is read as it stands and with its escapes undone
(URLs, JSON, HTML, Python, quoted-printable, in several layers), in lower case, and the secrets are looked for in both,
in hexadecimal and in base64 too. It knows nothing of headers or scenarios, and reads and writes nothing.
"""

from __future__ import annotations

import base64
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from html.entities import html5
from typing import Any, NamedTuple
from urllib.parse import quote

MASK = "[redacted]"
#: Shorter values are words ("on", "eu"): they are masked only where they stand alone, and those under ``_LEAST`` not at
#: all.
SHORTEST = 6
_LEAST = 3
#: So much of a secret is masked although the rest of it is missing: anywhere in a text, and at an end that was cut. One
#: that begins like ordinary words gives itself away with ``_WORDS`` characters; one that long is found across white
#: space, too.
_HEAD, _TAIL, _WORDS = 8, 4, 16
#: Up to so many needles each is looked for; of more, those that share ``SHORTEST`` characters with the text.
_FEW = 100
#: Characters that are read at once, and that one of a secret has when it is escaped.
_PIECE, _WIDEST = 65_536, 12
#: Layers of escapes that are undone.
_LAYERS = 6
_SCHEME = re.compile(r"(?:bearer|basic|token|key)\s+", re.IGNORECASE)
_TELLING = re.compile(r"[0-9A-Z]")
_CLOSING = "'\"`)]}>.,;… "
_BASE64 = frozenset("abcdefghijklmnopqrstuvwxyz0123456789+/-_")
#: Characters that HTML has names for, by them, in lower case.
_NAMES = {
    name[:-1].lower(): char for name, char in html5.items() if name[-1] == ";" and char.isascii() and len(char) == 1
}
#: One character in an escaped form, in lower case. Nobody sees the characters of the last line: they belong to the one
#: before.
_ESCAPE = re.compile(
    r"%(?:25)*(?P<percent>[0-9a-f]{2})|=(?P<quoted>3d)"
    r"|\\+(?:u(?:0000)?(?P<u>[0-9a-f]{4})|u\{(?P<braced>[0-9a-f]{1,6})\}|x(?P<x>[0-9a-f]{2})|(?P<octal>[0-3][0-7]{2})|(?P<any>.))"
    rf"|&(?:\#x0*(?P<hex>[0-9a-f]{{1,6}});?|\#0*(?P<decimal>[0-9]{{1,7}});?|(?P<name>{'|'.join(_NAMES)});)"
    r"|(?P<unseen>[\0\u00ad\u200b-\u200f\u2060\ufeff]+)",
    re.DOTALL,
)
#: An escaped form that a cut went through.
_TORN = re.compile(r"(?:%(?:25)*[0-9a-f]?|=3?|\\+(?:u\{?[0-9a-f]{0,7}|x[0-9a-f]?|[0-3][0-7]?)?|&\#?[0-9a-z]{0,8})$")


class _Needle(NamedTuple):
    """``text`` is a whole secret; ``head`` is as much of it as gives it away, ``tail`` as much at the end of a text.
    ``blob``: it lies inside base64, which is masked as a whole.
    """

    text: str
    head: str
    tail: str
    blob: bool = False


class Redactor:
    """Takes secrets out of texts.

    ``learn`` adds some; there is no way to what it knows, and its ``repr`` shows nothing.
    """

    __slots__ = ("_alone", "_by_start", "_known", "_longest", "_needles")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._needles: dict[str, _Needle] = {}
        self._by_start: dict[str, list[str]] = {}
        self._longest = 0
        self._alone: re.Pattern[str] | None = None
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Know these too. One or two characters are no secret."""
        new = {text for text in values if len(text) >= _LEAST} - self._known
        self._known |= new
        for value in new:
            for one in _needles(value) if len(value) >= SHORTEST else ():
                known = self._needles.get(one.text)
                if known is None:
                    self._by_start.setdefault(one.text[:SHORTEST], []).append(one.text)
                self._longest = max(self._longest, len(one.text))
                if known is None or len(one.head) < len(known.head):
                    self._needles[one.text] = one
        if any(len(value) < SHORTEST for value in new):
            short = [value for value in self._known if len(value) < SHORTEST]
            alone = sorted({word for value in short for word in (value, quote(value, ""), quote(value, "").lower())})
            self._alone = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, alone))})(?!\w)")

    def redact(self, text: str) -> str:
        """``text`` with a mask in the place of every secret, and of the beginning of one from 8 characters up."""
        if self._needles and (spans := self._spans(text)):
            text = _without(text, spans)
        return text if self._alone is None else self._alone.sub(MASK, text)

    def cut(self, text: str, limit: int) -> str:
        """At most ``limit`` characters of ``text``, redacted before they are cut: nor does the beginning of a secret
        stand at the end, whoever cut it there (4 characters of it give it away).
        """
        shown = self._without_tail(self.redact(text[: 8 * limit]))
        return shown if len(shown) <= limit else self._without_tail(shown[:limit])

    def _present(self, text: str) -> list[_Needle]:
        """What begins somewhere in a text."""
        if len(self._needles) <= _FEW:
            return [one for one in self._needles.values() if one.head in text]
        starts = {start for at in range(len(text)) if (start := text[at : at + SHORTEST]) in self._by_start}
        return [one for start in starts for name in self._by_start[start] if (one := self._needles[name]).head in text]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where secrets lie in a text; a long one is read in pieces, for what this takes is many times a text."""
        beyond = _WIDEST * self._longest
        return [
            (at + begin, at + end)
            for at in range(0, len(text), _PIECE)
            for begin, end in self._spans_of(text[at : at + _PIECE + beyond])
        ]

    def _spans_of(self, text: str) -> list[tuple[int, int]]:
        low = _lower(text)
        spans = list(_found(low, self._present(low)))
        plain = _plain(low)
        places: Sequence[int] = range(len(low) + 1)
        if len(plain) != len(low):
            hits = self._present(plain)
            if hits:
                places = _places(low)
                spans += [(places[begin], places[end]) for begin, end in _found(plain, hits)]
        joined = "".join(plain.split())
        if len(joined) != len(plain):
            hits = [one for one in self._present(joined) if len(one.text) >= _WORDS and one.text in joined]
            if hits:
                places = places if len(places) == len(plain) + 1 else _places(low)
                dark = array("q", (at for at, char in enumerate(plain) if not char.isspace()))
                found = _found(joined, [one._replace(head=one.text, blob=False) for one in hits])
                spans += [(places[dark[begin]], places[dark[end - 1] + 1]) for begin, end in found]
        return spans

    def _without_tail(self, text: str) -> str:
        body = text.rstrip(_CLOSING)
        low = _lower(body)
        found = len(body)
        for end in {low, _TORN.sub("", low)}:
            at = self._tail(end)
            found = min(found, at if at < len(end) else found)
        return text if found == len(body) else body[:found] + MASK + text[len(body) :]

    def _tail(self, low: str) -> int:
        """Where the beginning of a secret lies that a text ends with: its length if there is none."""
        plain = _plain(low)
        found = self._tail_of(low)
        there = self._tail_of(plain) if len(plain) != len(low) else len(plain)
        return min(found, _places(low)[there]) if there < len(plain) else found

    def _tail_of(self, text: str) -> int:
        found = len(text)
        for one in self._needles.values():
            at = text.find(one.tail, max(0, len(text) - len(one.text))) if one.tail else -1
            while 0 <= at < found:
                if one.text.startswith(text[at:]):
                    found = at
                at = text.find(one.tail, at + 1)
        return found

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


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """``text`` with one mask in the place of all spans that meet."""
    parts, at, reach = [], 0, -1
    for begin, end in sorted(spans):
        if begin > reach:
            parts += [text[at:begin], MASK]
        at = reach = max(reach, end)
    return "".join((*parts, text[at:]))


def _found(text: str, hits: Iterable[_Needle]) -> Iterator[tuple[int, int]]:
    """(begin, end) of every needle, as far as it goes."""
    for one in hits:
        at, floor = text.find(one.head), 0
        while at >= 0:
            begin, end = at, at + _alike(text, at, one.text)
            whole = end - begin == len(one.text)
            if one.blob:
                while begin > floor and text[begin - 1] in _BASE64:
                    begin -= 1
                while end < len(text) and (text[end] in _BASE64 or text[end] == "="):
                    end += 1
            yield begin, end
            floor = end
            at = text.find(one.head, end if whole or one.blob else at + 1)


def _alike(text: str, at: int, secret: str) -> int:
    """How many characters of ``secret`` stand at ``at``."""
    there = text[at : at + len(secret)]
    if there == secret:
        return len(secret)
    sure, most = 0, len(there)
    while sure < most:
        middle = (sure + most + 1) // 2
        sure, most = (middle, most) if secret.startswith(there[:middle]) else (sure, middle - 1)
    return sure


def _lower(text: str) -> str:
    """In lower case, and as long as before."""
    return text.lower() if text.isascii() else text.replace("İ", "i").replace("Σ", "σ").lower()


def _char(found: re.Match[str]) -> str:
    """What an escaped form stands for, in lower case."""
    kind, text = str(found.lastgroup), found[str(found.lastgroup)]
    if kind == "any":
        return " " if text in "nrt" else text
    if kind in ("name", "unseen"):
        return _NAMES.get(text, text) if kind == "name" else ""
    number = int(text, {"octal": 8, "decimal": 10}.get(kind, 16))
    return _lower(chr(number)) if number < 0x110000 else "?"


def _plain(low: str) -> str:
    """A text in lower case with its escapes undone."""
    for _ in range(_LAYERS):
        before, low = low, _ESCAPE.sub(_char, low)
        if len(low) == len(before):
            break
    return low


def _places(low: str) -> array[int]:
    """Where in ``low`` each character of ``_plain(low)`` begins; its length is the last."""
    places = array("q", range(len(low) + 1))
    for _ in range(_LAYERS):
        parts, kept, at = [], array("q"), 0
        for found in _ESCAPE.finditer(low):
            parts += [low[at : found.start()], char := _char(found)]
            kept += places[at : found.start() + len(char)]
            at = found.end()
        if not parts:
            break
        low, places = "".join((*parts, low[at:])), kept + places[at:]
    return places


def _needles(value: str) -> Iterator[_Needle]:
    """What a text may hold of the value once its escapes are undone.

    Of one behind a scheme ("Bearer ...") no beginning gives it away.
    """
    raw = {value, " ".join(value.split()), value.replace(" ", "+")}
    data = {value.encode(), value.encode("latin-1", "replace")}
    if not value.isascii():  # as bytes of one encoding read as the other
        raw |= {
            value.upper(),
            value.encode().decode("latin-1"),
            value.encode("latin-1", "replace").decode(errors="replace"),
        }
    whole = _SCHEME.match(value) is not None
    for text in raw:
        give = min(_telling(text), len(text))
        # What follows a text is not its own: a backslash at its end escapes that.
        for form in {_lower(text), _plain(_lower(text) + "\1")[:-1]}:
            if len(form) < (SHORTEST if len(text) < SHORTEST else _LEAST):
                continue
            head, tail = form if whole else form[:give], "" if whole else form[:_TAIL]
            yield _Needle(form, head, tail)
            yield _Needle(
                "?".join(form), "?".join(head), "?".join(tail)
            )  # UTF-16, once what can't be printed is a question mark
        yield _Needle(
            text.encode().hex(),
            (text if whole else text[:give]).encode().hex(),
            "" if whole else text[:_TAIL].encode().hex(),
        )
    for code in data:
        for shift in range(3):  # where it begins in a group of three bytes
            line = base64.b64encode(bytes(shift) + code)
            piece = line[(shift * 8 + 5) // 6 : (shift + len(code)) * 8 // 6].decode().lower()
            for text in {piece, piece.translate(str.maketrans("+/", "-_"))}:
                yield _Needle(text, text[:_HEAD], text[:_TAIL], True)


def _telling(text: str) -> int:
    """How much of a secret's beginning is no ordinary word or scheme: 8 to 16 characters."""
    found = _TELLING.search(text, 1)
    return min(_WORDS, max(_HEAD, len(text) if found is None else found.end()))


#: What this process knows.
KNOWN = Redactor()
learn, redact, cut, masked = KNOWN.learn, KNOWN.redact, KNOWN.cut, KNOWN.masked
