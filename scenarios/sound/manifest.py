"""A manifest of recordings: JSON Lines of ``file`` and what is known about it. Every bad line is reported; none is skipped.

``{"file": "a.wav", "text": "turn left", "start": 0.31, "end": 1.2, "words": [{"text": "turn", "start": 0.31, "end": 0.6}, ...], "slice": "street",
"id": "a"}``: only ``file`` is required. Times are seconds from the first sample; ``start`` and ``end`` are where speech begins and ends. It opens no
recording.
"""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.documents import files
from plimsoll.scenarios.samples.clip import NS, Word

_KEYS = ("file", "text", "start", "end", "words", "slice", "id")


@dataclass(frozen=True, slots=True)
class Entry:
    """One recording and its labels; times in ns, -1 unknown. ``where`` names its line in messages, ``id`` is the file's name where none was given."""

    path: Path
    where: str
    text: str | None = None
    start_ns: int = -1
    end_ns: int = -1
    words: tuple[Word, ...] = ()
    slice: str = ""
    id: str = ""


def read_manifest(path: Path, most: int | None) -> tuple[list[Entry], list[str]]:
    """The first ``most`` entries and every problem, each ``FILE:LINE: what. next step.``; file names start at the manifest's folder."""
    entries: list[Entry] = []
    errors: list[str] = []
    with files.opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if most is not None and len(entries) >= most:
                break
            if line.strip():
                try:
                    entries.append(_entry(line, path.parent, f"{path}:{number}"))
                except ValueError as error:
                    errors.append(f"{path}:{number}: {error}")
    if not entries and not errors:
        errors = [f'{path}: no recordings in it. Write one {{"file": ...}} a line.']
    return entries, errors


def _entry(line: bytes, folder: Path, where: str) -> Entry:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}). Write one complete object a line.") from None
    if not isinstance(given, dict):
        raise ValueError('not an object. Write for example {"file": "a.wav", "text": "..."}.')
    for key in given:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, 1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown key {key!r}. {hint}Known keys: {', '.join(_KEYS)}.")
    for key in ("file", "text", "slice"):
        if given.get(key) is not None and (not isinstance(given[key], str) or (key != "text" and not given[key])):
            raise ValueError(f"{key} is {str(given[key])[:60]!r}. Give a text.")
    if given.get("file") is None:
        raise ValueError("has no file. Name the recording.")
    words = _words(given.get("words"))
    start, end = _ends(given, words)
    name = given.get("id")
    return Entry(
        folder / Path(given["file"]).expanduser(),
        where,
        given.get("text") if given.get("text") is not None else " ".join(word.text for word in words) or None,
        start,
        end,
        words,
        given.get("slice") or "",
        Path(given["file"]).name if name is None else str(name),
    )


def _ends(given: dict[str, Any], words: tuple[Word, ...]) -> tuple[int, int]:
    """Where speech begins and ends: as labelled, else from the words, else unknown."""
    if (given.get("start") is None) != (given.get("end") is None):
        raise ValueError("has only one of start and end. Give both, or neither.")
    if given.get("start") is None:
        return (words[0].start_ns, words[-1].end_ns) if words else (-1, -1)
    start, end = _ns("start", given["start"]), _ns("end", given["end"])
    if end <= start:
        raise ValueError(f"end {given['end']} is not after start {given['start']}. Give seconds from the first sample.")
    if words and (words[0].start_ns < start or words[-1].end_ns > end):
        raise ValueError("words lie outside start and end. Correct one of them.")
    return start, end


def _words(given: Any) -> tuple[Word, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ValueError('words is not a list of {"text", "start", "end"}. Give a list.')
    words: list[Word] = []
    for i, word in enumerate(given):
        text = word.get("text") if isinstance(word, dict) else None
        if not isinstance(text, str) or not text or "start" not in word or "end" not in word:
            raise ValueError(f"words[{i}] is not an object with text, start and end. Add what is missing.")
        made = Word(text, _ns(f"words[{i}].start", word["start"]), _ns(f"words[{i}].end", word["end"]))
        if made.end_ns < made.start_ns or (words and made.start_ns < words[-1].start_ns):
            raise ValueError(f"words[{i}] ends before it begins, or begins before the word before it. Sort them.")
        words.append(made)
    return tuple(words)


def _ns(key: str, value: Any) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 <= value < 1e6
    ):
        raise ValueError(f"{key} is {str(value)[:60]!r}. Give seconds from the first sample, 0 or more.")
    return round(value * NS)
