"""Field types of a scenario file's models: strict models, durations and file names.

A duration is ``500us``, ``200ms``, ``30s``, ``2m``, ``1h`` or a bare number of seconds, kept as whole nanoseconds; no
compound forms (``1h30m``), no months, nothing negative. A relative file name starts at the scenario file's own folder;
nothing is read here, and ``missing`` reports a file when it is needed.
"""

import glob
import math
import os
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationInfo, WithJsonSchema

from plimsoll.documents import files

#: What every model of a scenario file has in common: exact types, no unknown keys, frozen.
STRICT = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000, "h": 3_600_000_000_000}
MAX_NS = 366 * 24 * UNITS["h"]

_SHAPE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ns|us|µs|ms|s|m|h)?")


def parse_duration(value: Any) -> int:
    """``value`` in nanoseconds, rounded to the nearest. Raises ``ValueError`` with what is allowed."""
    if isinstance(value, str):
        match = _SHAPE.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is not a duration. Write a number and a unit: 500us, 200ms, 30s, 2m or 1h")
        exact = Fraction(match[1]) * UNITS[(match[2] or "s").replace("µ", "u")]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{value} is not a duration. Write a number of seconds from 0 up, or for example 30s")
        exact = Fraction(repr(value)) * UNITS["s"]
    else:
        raise ValueError(f"{value!r} is not a duration. Write for example 30s, 200ms or a number of seconds")
    if exact > MAX_NS:
        raise ValueError(f"{value} is more than a year. Write a shorter duration")
    return round(exact)


def format_duration(ns: int) -> str:
    """The shortest exact spelling: 90000000000 is ``90s``, 60000000000 ``1m``. ``parse_duration`` undoes."""
    if ns == 0:
        return "0s"
    unit = max((size, name) for name, size in UNITS.items() if ns % size == 0)[1]
    return f"{ns // UNITS[unit]}{unit}"


#: A pydantic field that reads a duration and holds nanoseconds.
Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?|\.\d+)\s*(ns|us|µs|ms|s|m|h)?\s*$"},
                {"type": "number", "minimum": 0},
            ],
            "description": "A duration: 500us, 200ms, 30s, 2m, 1h, or a bare number of seconds.",
        }
    ),
]


def _resolve(value: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    path = Path(value).expanduser()
    return str(path if folder is None or path.is_absolute() else Path(folder) / path)


#: A pydantic field that reads a file name and holds it resolved against the validation context's ``folder``.
FileName = Annotated[str, Field(min_length=1), AfterValidator(_resolve)]


_SAMPLE = re.compile(r"sample:([0-9]{1,6}(?:\.[0-9]{1,12})?)%")


def sampled(keep: str) -> Fraction | None:
    """The share of a ``keep`` that is a sample, exactly; None for the words. Raises ``ValueError``."""
    match = _SAMPLE.fullmatch(keep)
    share = Fraction(match[1]) / 100 if match else Fraction(-1)
    if keep not in ("all", "tail", "none") and not 0 < share < 1:
        raise ValueError(f"{keep!r:.60} is none of all, tail, none and sample:P% (above 0, below 100). Write sample:1%")
    return share if match else None


def refused_by(check: Callable[[str], object]) -> AfterValidator:
    """Keeps a text as it is written, unless ``check`` raises ValueError for it."""

    def kept(text: str) -> str:
        check(text)
        return text

    return AfterValidator(kept)


#: A pydantic field that says of which requests chunk times and answers stay.
Keep = Annotated[str, refused_by(sampled)]


#: How compressed files begin; no text does.
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd", b"\xfd7": "xz"}


def missing(path: Path, where: str, packed: bool = False) -> str | None:
    """The error text when ``path`` is not a readable file, else None; ``packed``: it may be compressed."""
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists raises for a name that is too long
        there = os.path.isdir(path.parent)  # noqa: PTH112
        near = sorted(p.name for p in path.parent.iterdir() if p.suffix == path.suffix) if there else []
        hint = f" That folder has: {', '.join(near[:5])}." if near else f" Is {path.parent} the right folder?"
        return f"{where}: {path} does not exist.{hint} Relative paths start at the scenario file's folder."
    try:
        with files.opened(path) as file:
            how = None if packed else _PACKED.get(file.read(2))
    except OSError as error:
        return f"{where}: {path} can't be read ({files.why(error)}). Give a file."
    return how and f"{where}: {path} is compressed ({how}), and none is read. Unpack it, and give what comes out."


def expanded(names: Iterable[str], where: str) -> tuple[list[Path], list[str]]:
    """(files, errors): every name, or what matches it in order where it has ``*`` or ``?`` and is no file itself.

    Nothing is opened.
    """
    paths: list[Path] = []
    errors: list[str] = []
    for i, name in enumerate(names):
        if not glob.has_magic(name) or os.path.exists(name):  # noqa: PTH110 - nor does this raise
            paths.append(Path(name))
            continue
        found = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - an absolute pattern, which Path.glob refuses
        if not found:
            errors.append(
                f"{where}[{i}]: nothing is called {name}. Relative paths start at the scenario file's folder."
            )
        paths += [Path(each) for each in found]
    return paths, errors
