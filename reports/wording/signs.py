"""Signs: the one table of what stands beside each outcome, so that colour never carries the meaning alone."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Tone = Literal["pass", "fail", "inconclusive", "invalid", "measured", "none"]
Result = Literal["ok", "failure", "error", "skipped"]


class Sign(NamedTuple):
    """``mark``: in a terminal and on a page; ``tone``: the class of the page's style sheet."""

    mark: str
    tone: Tone


class Level(NamedTuple):
    """How loud an outcome is: the level of an annotation in a CI log, and the result of a test case in JUnit."""

    annotation: Literal["notice", "warning", "error"]
    result: Result


SIGNS: Mapping[str, Sign] = MappingProxyType(
    {
        "PASS": Sign("✓", "pass"),
        "VALID": Sign("✓", "pass"),
        "FOUND": Sign("✓", "pass"),
        "HOLDS": Sign("✓", "pass"),
        "IMPROVEMENT": Sign("▲", "pass"),
        "FAIL": Sign("✕", "fail"),
        "NONE": Sign("✕", "fail"),
        "UNSTABLE": Sign("✕", "fail"),
        "REGRESSION": Sign("▼", "fail"),
        "INCONCLUSIVE": Sign("?", "inconclusive"),
        "INTERRUPTED": Sign("‖", "inconclusive"),
        "STOPPED": Sign("‖", "inconclusive"),
        "INVALID": Sign("!", "invalid"),
        "UNREACHABLE": Sign("⌀", "invalid"),
        "MEASURED": Sign("•", "measured"),
        "SIZED": Sign("•", "measured"),
        "OPEN": Sign("↑", "inconclusive"),
        "RANKED": Sign("≡", "measured"),
        "INDISTINGUISHABLE": Sign("≈", "measured"),
        "SKIPPED": Sign("·", "none"),
        "PENDING": Sign("·", "none"),
    }
)
_OTHER = Sign("•", "none")
_ICONS = MappingProxyType(
    {"pass": "✅", "fail": "❌", "inconclusive": "❔", "invalid": "⛔", "measured": "ℹ️", "none": "▫️"}
)
_LEVELS: Mapping[Tone, Level] = MappingProxyType(
    {
        "pass": Level("notice", "ok"),
        "measured": Level("notice", "ok"),
        "none": Level("notice", "skipped"),
        "inconclusive": Level("warning", "failure"),
        "fail": Level("error", "failure"),
        "invalid": Level("error", "error"),
    }
)
_COLOURS = MappingProxyType(
    {"pass": "green", "fail": "red", "inconclusive": "yellow", "invalid": "magenta", "measured": "blue", "none": "dim"}
)


def mark(word: str) -> str:
    """The sign of an outcome."""
    return SIGNS.get(word, _OTHER).mark


def tone(word: str) -> Tone:
    """Its class on a page."""
    return SIGNS.get(word, _OTHER).tone


def level(word: str) -> Level:
    """How loud it is, the same in every document."""
    return _LEVELS[tone(word)]


def colour(word: str) -> str:
    """Its colour in a terminal."""
    return _COLOURS[tone(word)]


def icon(word: str) -> str:
    """Its sign in Markdown, where there is no colour. To be no worse is what a gate asks: that has the sign of a
    success.
    """
    return "✅" if word == "INDISTINGUISHABLE" else _ICONS[tone(word)]
