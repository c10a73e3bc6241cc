"""Recorded load: files of when requests came and how long they were, read into arrays.

``scenarios/formats/`` holds one file a format; which one a file has is seen by what only that format has. Requests are
put in order of time, those of one moment in the order of the file. Nothing is thinned out or made up: a line that can't
be read is an error with its number, and a column that nobody would read is one with its name.
"""

import gzip
import pkgutil
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from errno import EDQUOT, EFBIG, ENOSPC, EROFS
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from plimsoll.scenarios.samples.lines import cap
from plimsoll.scenarios.samples.recording import BLOCK_TOKENS, BLOCKS, FILE, RUN, Recording
from plimsoll.scenarios.samples.rows import Columns, Head, Reading, head_of
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import missing
from plimsoll.scenarios.text.problems import unknown

__all__ = ["BLOCK_TOKENS", "Columns", "Format", "FormatName", "Unit", "formats", "read"]

Unit = Literal["s", "ms", "us", "ns"]
UNIT_NS: Mapping[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(frozen=True, slots=True)
class Format:
    """One format of recordings.

    ``unit`` and ``sign`` (what only it has) are for people; ``detect`` says whether a file that begins so is one;
    ``read`` adds its rows. ``takes`` and ``leaves``: its columns or keys, and those that are left out on purpose;
    ``columns`` and ``labels``: what of a recording it may fill beside times and lengths. ``block_tokens``: of the ids
    of its blocks, 0: it has none; ``cumulative``: lengths of a turn contain the turns before it.
    """

    name: str
    summary: str
    unit: str
    sign: str
    detect: Callable[[Head], bool]
    read: Callable[[Reading, Recording], None]
    takes: tuple[str, ...]
    leaves: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    block_tokens: int = 0
    cumulative: bool = False

    def recording(self, names: Columns) -> Recording:
        """An empty one, with room for what the file may have."""
        row = RUN if self.name == "run" else BLOCKS if self.block_tokens else FILE
        labels = (*self.labels, *names.labels)
        made = Recording(row, [name for name in self.columns if _wanted(self, name, names)], labels)
        made.block_tokens = self.block_tokens or BLOCK_TOKENS
        made.cumulative = self.cumulative if names.cumulative is None else names.cumulative
        return made


def _wanted(form: Format, column: str, names: Columns) -> bool:
    given = form.name not in NAMED or getattr(names, column.removesuffix("_ns")) is not None
    return given or (column in ("turn", "think_ns") and names.session is not None)


#: Formats whose columns the user names.
NAMED = ("csv", "jsonl")


@cache
def formats() -> Mapping[str, Format]:
    """Every format by name: one file each in ``scenarios/formats/``."""
    package = "plimsoll.scenarios.formats"
    names = sorted(info.name for info in pkgutil.iter_modules(import_module(package).__path__))
    found = [getattr(import_module(f"{package}.{name}"), "FORMAT", None) for name in names]
    for name, one in zip(names, found, strict=True):
        if not isinstance(one, Format) or one.name.replace("-", "_") != name.rstrip("_"):
            raise TypeError(f"{package}.{name} does not export FORMAT, a Format of its name. Add it.")
    return {one.name: one for one in found if one is not None}


def _known(name: str) -> str:
    if name != "auto" and name not in formats():
        raise ValueError(unknown(name, ["auto", *formats()], "format of recordings"))
    return name


#: A format's name, or auto.
FormatName = Annotated[str, Field(strict=True), AfterValidator(_known), WithJsonSchema({"type": "string"})]


def read(
    path: Path,
    where: str,
    form: str = "auto",
    columns: Columns | None = None,
    unit: Unit = "s",
    part: str | None = None,
) -> Recording:
    """The trace at ``path``; ``where`` is the scenario's key that names it, ``part`` the class of a run.

    Raises ``ScenarioError`` with every problem.
    """
    if path.is_dir() and form in ("auto", "run"):
        file = path / "requests.parquet"
        if not file.is_file():
            told = f"{path} is no run directory (no requests.parquet). Give one, or a trace file."
            if path.parent.name == "classes" and (path.parent.parent / "requests.parquet").is_file():
                told = f"the rows of {path} are the run's. Replay that, and this class of it: --class {path.name}."
            raise ScenarioError([f"{where}: {told}"])
        return _read(file, where, "run", Columns().model_dump_json(), unit, _stamp(file), part)
    if part is not None:
        raise ScenarioError(
            [f"{where}: {path} is a file, and classes are of run directories. Leave part (--class) out."]
        )
    problem = missing(path, where, packed=True)
    if problem:
        raise ScenarioError([problem])
    if form == "run":
        raise ScenarioError(
            [f"{where}: {path} is a file. Give the folder that `plimsoll run` left, or another format."]
        )
    return _read(path, "", form, (columns or Columns()).model_dump_json(), unit, _stamp(path))


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=2)
def _read(
    path: Path, where: str, form: str, columns: str, unit: Unit, stamp: object, part: str | None = None
) -> Recording:
    """The file as it was at ``stamp``: a scenario's times and its prompts are of one reading."""
    reading = Reading(path, where, Columns.model_validate_json(columns), UNIT_NS[unit], part=part)
    try:
        found = [] if form == "run" else _detected(head_of(path))
        chosen = formats()[_chosen(path, found) if form == "auto" else form]
        reading.other = next((name for name in found if name != chosen.name and chosen.name not in found), None)
        made = chosen.recording(reading.names)
        made.form = chosen.name
        chosen.read(reading, made)
        if not len(made) and not reading.errors:
            reading.errors = [f"{path}: no requests in it. Give a trace with at least one."]
        if reading.errors:
            raise ScenarioError(cap(reading.errors, str(path)))
        return made.sealed()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ScenarioError([f"{path}: gzip can't unpack it ({error}). Get it anew."]) from None
    except OSError as error:
        if error.errno not in (ENOSPC, EFBIG, EDQUOT, EROFS):
            raise
        raise ScenarioError(
            [
                f"{path}: {tempfile.gettempdir()} does not take it in order of time ({error.strerror}). Make "
                "room there, or set TMPDIR."
            ]
        ) from None
    except ScenarioError:
        raise
    except ValueError as error:
        raise ScenarioError([*cap(reading.errors, str(path)), f"{path}: {error}"]) from None


def _detected(head: Head) -> list[str]:
    return [name for name, one in formats().items() if name not in NAMED and one.detect(head)]


def _chosen(path: Path, found: list[str]) -> str:
    """By how it begins, which every format does in its own way."""
    if len(found) > 1:
        raise ScenarioError(
            [f"{path} could be {' or '.join(found)}. Say which: format: {found[0]}, or --trace-format {found[0]}."]
        )
    if found:
        return found[0]
    return "jsonl" if head_of(path).first.startswith("{") else "csv"
