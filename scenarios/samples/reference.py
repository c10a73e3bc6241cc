"""What each sample of a source should be answered with: from its own rows, or from a file of references by id.

A file has one JSON object a line: ``{"id": "q17", "expected": "Paris"}``. The id is that of the source's row, or its
place in the source (0, 1, 2 ...) where rows have none. Expected is a text, a label (a whole number) or a list of
numbers. It compares nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plimsoll.scenarios.samples.lines import cap, read_lines
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import missing

Expected = str | int | float | list[Any]


def references(source: PayloadSource, path: str | None) -> list[Expected] | None:
    """What each sample should be answered with, in the order of the source; None: no sample has a reference.

    Raises ``ScenarioError`` with every line and every sample that something is wrong with.
    """
    payloads = map(source.payload, range(len(source)))  # one at a time: they may be larger than memory
    if path is not None:
        found = _read(Path(path))
        names = [str(i) if payload.id is None else payload.id for i, payload in enumerate(payloads)]
        return _complete([found.get(name) for name in names], names, path)
    own = [payload.reference for payload in payloads]
    if all(one is None for one in own):
        return None
    return _complete(own, [*map(str, range(len(own)))], "source")


def _complete(expected: Sequence[Any], names: Sequence[str], where: str) -> list[Expected]:
    lacking = [
        f"{where}: sample {name} has no reference. Add one, or take the sample out"
        for name, one in zip(names, expected, strict=True)
        if one is None
    ]
    if lacking:
        raise ScenarioError(cap(lacking, where))
    return list(expected)


def _read(path: Path) -> dict[str, Expected]:
    problem = missing(path, "reference")
    if problem:
        raise ScenarioError([problem])
    found: dict[str, Expected] = {}

    def add(entry: Any, where: str) -> None:
        name, expected = _entry(entry)
        if name in found:
            raise ValueError(f"id {name} is given twice. Keep one of them.")
        found[name] = expected

    _, errors = read_lines(path, add)
    if errors:
        raise ScenarioError(cap(errors, str(path)))
    return found


def _entry(entry: Any) -> tuple[str, Expected]:
    if not isinstance(entry, dict) or set(entry) != {"id", "expected"}:
        raise ValueError('not {"id": ..., "expected": ...}. Write exactly these two keys.')
    if not isinstance(entry["id"], str | int) or isinstance(entry["id"], bool):
        raise ValueError("id is neither a text nor a whole number. Give the id of the source's row, or its place.")
    return str(entry["id"]), checked(entry["expected"])


def checked(value: Any) -> Expected:
    """A reference as it is. Raises ValueError for what no answer can be compared with."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, list) and value and all(isinstance(x, int | float) and not isinstance(x, bool) for x in value):
        return value
    raise ValueError("the expected answer is no text, number or list of numbers. Give one of these.")
