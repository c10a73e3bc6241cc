"""A value of a document together with where it stands, so that every complaint says file, line, object and key.

A check that fails notes an error and gives None, and reading goes on: all errors of a file come at once. Nothing here
knows what the keys mean.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the parser of YAML is loaded for who reads a file
    from plimsoll.documents.text import Path, Written


@dataclass(frozen=True, slots=True)
class Findings:
    """Errors and warnings of one file, each as (object's number, line, text)."""

    file: str
    errors: list[tuple[int, int, str]] = field(default_factory=list)
    warnings: list[tuple[int, int, str]] = field(default_factory=list)

    def texts(self, found: list[tuple[int, int, str]]) -> tuple[str, ...]:
        """In the order of the file, each once."""
        ordered = sorted(enumerate(found), key=lambda item: (item[1][0], item[1][1], item[0]))
        return tuple(dict.fromkeys(text for _, (_, _, text) in ordered))


@dataclass(frozen=True, slots=True)
class Place:
    """``value`` at ``path`` of one object of a file. ``absent``: nothing stands there, so its readers give None and say
    nothing: ``mapping`` of what is around it says which keys must be there.
    """

    value: Any
    path: Path
    written: Written
    findings: Findings
    absent: bool = False

    @property
    def line(self) -> int:
        """The line of the key, or of the nearest one around it."""
        return self.written.line(self.path)

    @property
    def label(self) -> str:
        """The object by kind and name, or by its number: ``SLO chat-ttft``, ``document 2``."""
        whole = self.written.value
        metadata = whole.get("metadata") if isinstance(whole, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        kind = whole.get("kind") if isinstance(whole, dict) else None
        named = all(isinstance(one, str) and one.isprintable() and len(one) <= 80 for one in (name, kind))
        return f"document {self.written.number} ({kind} {name})" if named else f"document {self.written.number}"

    @property
    def key(self) -> str:
        """The path as people write it: ``spec.objectives[0].target``."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).lstrip(".")

    def _say(self, what: str, line: int) -> str:
        where = f"{self.findings.file}:{line}: {self.label}"
        return f"{where}: {self.key}: {what}" if self.path else f"{where}: {what}"

    def error(self, what: str, line: int | None = None) -> None:
        """Note what is wrong here and what to do about it."""
        at = self.line if line is None else line
        self.findings.errors.append((self.written.number, at, self._say(what, at)))

    def warn(self, what: str) -> None:
        """Note what is allowed and probably not meant."""
        self.findings.warnings.append((self.written.number, self.line, self._say(what, self.line)))

    # -- going down ------------------------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Whether this is a mapping with that key."""
        return isinstance(self.value, dict) and key in self.value

    def filled(self, key: str) -> bool:
        """Whether something stands under that key: of an optional list or mapping, an empty value is none at all."""
        return self.has(key) and self.value[key] is not None

    def at(self, key: str) -> Place:
        """What stands under a key; value None where nothing does."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return Place(value, (*self.path, key), self.written, self.findings, not self.has(key))

    def mapping(self, known: Sequence[str], required: Iterable[str] = ()) -> bool:
        """Whether this is a mapping; notes every key that is unknown or missing."""
        if not isinstance(self.value, dict):
            self.error(f"is {show(self.value)}, not a mapping. Write key: value lines below it")
            return False
        for key in self.value:
            if key not in known:
                self.at(key).error(f"unknown key. {nearest(key, known)}Known keys here: {', '.join(known)}")
        for key in required:
            if key not in self.value:
                self.at(key).error("is missing. Add it")
        return True

    def items(self) -> tuple[Place, ...] | None:
        if self.absent:
            return None
        if not isinstance(self.value, list):
            self.error(f"is {show(self.value)}, not a list. Write lines that start with a dash")
            return None
        return tuple(Place(item, (*self.path, i), self.written, self.findings) for i, item in enumerate(self.value))

    # -- plain values ----------------------------------------------------------------------------------------

    def text(self, longest: int | None = None) -> str | None:
        """A text that is not empty."""
        if self.absent:
            return None
        if not isinstance(self.value, str):
            quote = "Give one" if self.value is None else "Put it in quotes"
            self.error(f"is {show(self.value)}, not a text. {quote}")
            return None
        if not self.value.strip():
            self.error("is empty. Give a text, or remove the key")
            return None
        if longest is not None and len(self.value) > longest:
            self.error(f"has {len(self.value)} characters. OpenSLO allows at most {longest}: shorten it")
            return None
        return self.value

    def name(self) -> str | None:
        """A name by RFC 1123: the label of a host."""
        text = self.text()
        if text is None or (len(text) <= 63 and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", text)):
            return text
        self.error(
            f"is {show(text)}. A name has at most 63 lower-case letters, digits and dashes, and begins and ends with a "
            "letter or digit"
        )
        return None

    def boolean(self) -> bool | None:
        if self.absent:
            return None
        if isinstance(self.value, bool):
            return self.value
        self.error(f"is {show(self.value)}, not true or false. Write one of these two words")
        return None

    def number(self) -> Fraction | None:
        """A finite number, exactly as written."""
        if self.absent:
            return None
        if isinstance(self.value, (int, float)) and not isinstance(self.value, bool) and math.isfinite(self.value):
            return Fraction(repr(self.value))
        self.error(f"is {show(self.value)}, not a number. Write one like 0.99, without quotes or a unit")
        return None

    def one_of(self, names: Sequence[str]) -> str | None:
        """One of some words, spelt exactly so."""
        if self.absent:
            return None
        if isinstance(self.value, str) and self.value in names:
            return self.value
        self.error(f"is {show(self.value)}. {nearest(str(self.value), names)}Allowed: {', '.join(names)}")
        return None


def show(value: Any) -> str:
    """A value in a message, short."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "empty"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(name: str, known: Sequence[str]) -> str:
    """``Did you mean x? `` when one of the known names is near."""
    near = difflib.get_close_matches(name[:80], known, 1, 0.6)
    if not near:
        near = [one for one in known if one.lower() == name.lower()]
    return f"Did you mean {near[0]}? " if near else ""


# -- durations: a positive whole number and one letter ----------------------------------------------------------------

# Months, quarters and years have no one length; budgets count them as 30, 90 and 365 days. No seconds, no compound
# forms: the specification has none.

_MINUTE_NS = 60_000_000_000
_DAY_NS = 1440 * _MINUTE_NS
#: letter -> (nanoseconds, singular).
UNITS = MappingProxyType(
    {
        "m": (_MINUTE_NS, "minute"),
        "h": (60 * _MINUTE_NS, "hour"),
        "d": (_DAY_NS, "day"),
        "w": (7 * _DAY_NS, "week"),
        "M": (30 * _DAY_NS, "month"),
        "Q": (90 * _DAY_NS, "quarter"),
        "Y": (365 * _DAY_NS, "year"),
    }
)
#: Longer than any service has a promise for, and well inside int64.
_LONGEST_NS = 50 * 365 * _DAY_NS
_HOW = "Write a whole number and one of m (minutes), h, d, w, M (months), Q, Y, like 5m or 30d"


@dataclass(frozen=True, slots=True)
class Duration:
    """``text`` as written, its length (a month as 30 days), and in words: ``4 weeks``."""

    text: str
    ns: int
    words: str


def read_duration(place: Place, *, zero: bool = False) -> Duration | None:
    """The duration at a place; an error, or a warning for what is probably a minute written as a month."""
    if place.absent:
        return None
    found = re.fullmatch(r"([0-9]{1,9})([A-Za-z])", place.value) if isinstance(place.value, str) else None
    if found is None or found[2] not in UNITS:
        place.error(f"is {show(place.value)}, not a duration. {_HOW}")
        return None
    count, (ns, unit) = int(found[1]), UNITS[found[2]]
    if count == 0 and not zero:
        place.error(f"is {show(place.value)}: no time at all. {_HOW}")
        return None
    if count * ns > _LONGEST_NS:
        place.error(f"is {show(place.value)}: more than 50 years. {_HOW}")
        return None
    if found[2] == "M":
        place.warn(f"is {count} month{'s' * (count != 1)}, not minutes. If minutes are meant, write {count}m")
    return Duration(place.value, count * ns, f"{count} {unit}{'s' * (count != 1)}")


def read_slice_window(place: Place) -> Duration | None:
    """A time slice: a duration, or a bare number of minutes (0.5 is half a minute)."""
    if isinstance(place.value, str):
        return read_duration(place)
    minutes = place.number()
    if minutes is None:
        return None
    ns = minutes * _MINUTE_NS
    if not 1_000_000 <= ns <= _LONGEST_NS:
        place.error(f"is {show(place.value)}. A bare number is minutes: write one above 0, like 1 or 0.5")
        return None
    return Duration(str(place.value), int(ns), span(ns))


def span(ns: Fraction | int) -> str:
    """A length of time for people: ``43.2 min``, ``16 h 48 min``, ``1.5 d``, ``3.024 s``."""
    seconds = Fraction(ns) / 1_000_000_000
    if seconds < 60:
        return f"{float(seconds):.4g} s"
    if seconds < 3600:
        return f"{float(seconds / 60):.4g} min"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{float(seconds / 86400):.4g} d"
