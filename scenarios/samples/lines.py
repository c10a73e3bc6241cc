"""JSON Lines files that a scenario names. Every bad line is reported, up to a number of them; none is skipped."""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, AnyStr, BinaryIO, TypeVar

from plimsoll.documents import files
from plimsoll.scenarios.text.document import ScenarioError

T = TypeVar("T")

#: Bytes of the longest line that is read: what has no line feeds is no list, nor what gzip blew up.
LONGEST = 1 << 28
#: After this many, further problems of one file are only counted.
SHOWN = 20


def read_lines(path: Path, make: Callable[[Any, str], T], most: int | None = None) -> tuple[list[T], list[str]]:
    """The first ``most`` things that ``make`` makes of a line's value and its ``FILE:LINE``, and every problem.

    A problem is ``FILE:LINE: `` and the text of the ValueError that ``make`` raises. Raises OSError.
    """
    errors: list[str] = []
    return [*islice(each_line(path, make, errors), most)], errors


def each_line(
    path: Path, make: Callable[[Any, str], T], errors: list[str], opened: Callable[[Path], BinaryIO] = files.opened
) -> Iterator[T]:
    """The same one by one; problems are ``told``."""
    with opened(path) as lines:
        for _, _, made in each_place(lines, path, make, errors):
            yield made


def each_place(
    lines: BinaryIO, path: Path, make: Callable[[Any, str], T], errors: list[str]
) -> Iterator[tuple[int, int, T]]:
    """The same of the file that is open at ``path``: where a line begins, its length in bytes, and what was made."""
    end = 0
    for number, line in enumerate(bounded(lines, path), 1):
        begin, end = end, end + len(line)
        if line.strip():
            where = f"{path}:{number}"
            try:
                made = make(_parsed(line), where)
            except ValueError as error:
                told(errors, f"{where}: {error}")
            else:
                yield begin, len(line), made


def bounded(lines: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    """The lines of the file that is open at ``path``. Raises ScenarioError for one longer than ``LONGEST``."""
    number = 0
    while line := lines.readline(LONGEST):
        number += 1
        if len(line) >= LONGEST:
            raise ScenarioError(
                [f"{path}:{number}: a line of more than {LONGEST >> 20} MiB. Write one request a line."]
            )
        yield line


def told(errors: list[str], problem: str) -> None:
    """One problem more: of one that is only counted the text is not kept."""
    errors.append(problem if len(errors) < SHOWN else "")


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}). Write one complete object a line.") from None


def require_object(entry: Any, keys: Sequence[str], example: str) -> dict[str, Any]:
    """``entry``, an object of these keys only. Raises ValueError."""
    if not isinstance(entry, dict):
        raise ValueError(f"not an object. Write for example {example}.")
    for key in entry:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, 1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown key {key!r}. {hint}Known keys: {', '.join(keys)}.")
    return entry


def scalar(entry: Mapping[str, Any], key: str) -> str | float | None:
    """What an object says under the key of a label: a text, a number or nothing. Raises ValueError."""
    value = entry.get(key)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"{key} is a {type(value).__name__}, and a label's value is a text or a number. Give one.")


def without_values(path: Path, said: Mapping[str, Sequence[object]]) -> list[str]:
    """An error for each key of a label that no line has."""
    return [
        f"{path}: no line has the key {key!r}, which labels takes from the source. Correct its name."
        for key, values in said.items()
        if all(value is None for value in values)
    ]


def cap(errors: Sequence[str], where: str) -> list[str]:
    """The first ``SHOWN`` errors and how many more there are."""
    if len(errors) <= SHOWN:
        return list(errors)
    return [*errors[:SHOWN], f"{where}: and {len(errors) - SHOWN:,} more. Mend these first; the rest are often alike."]
