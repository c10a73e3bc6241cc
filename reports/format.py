"""Format: one way to say a report, and the scan that finds them all.

A format is a pure function from a report to bytes: no clock, no file, no terminal. Adding one is adding one
file to ``reports/formats`` that exports ``FORMAT`` and is called like it, or an entry point of an outside package in the
group ``plimsoll.formats``; nothing else is edited.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from plimsoll.reports import formats as folder
from plimsoll.reports.document import Document
from plimsoll.reports.report import Report


@dataclass(frozen=True, slots=True)
class Format:
    """``name`` is what ``--format NAME=PATH`` says; ``suffix`` what a file of it ends in; ``summary`` one
    line. ``document`` says anything else than a run: a search, a comparison and so on; None: it can't.
    """

    name: str
    suffix: str
    summary: str
    render: Callable[[Report], bytes]
    document: Callable[[Document], bytes] | None = None


class _Formats(Mapping[str, Format]):
    """By name, sorted. A file is imported when its format is asked for, for a page's templates and charts are much to load."""

    def __init__(self) -> None:
        stems = (entry.name for entry in pkgutil.iter_modules(folder.__path__))
        self._stems = {stem.strip("_").replace("_", "-"): stem for stem in sorted(stems)}
        twice = self._stems.keys() & _outside().keys()
        if twice:
            raise ValueError(f"two formats are named {min(twice)!r}. Rename the one of the outside package.")

    def __getitem__(self, name: str) -> Format:
        if point := _outside().get(name):
            origin, found = f"entry point {point.value}", point.load()
        else:
            origin = f"{folder.__name__}.{self._stems[name]}"
            found = getattr(importlib.import_module(origin), "FORMAT", None)
        if not isinstance(found, Format) or found.name != name:
            raise TypeError(f"{origin} exports no FORMAT named {name!r}. Export a plimsoll.reports.format.Format.")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(sorted([*self._stems, *_outside()]))

    def __len__(self) -> int:
        return len(self._stems) + len(_outside())


@cache
def _outside() -> Mapping[str, EntryPoint]:
    """What outside packages announce, by the name of its format; not imported."""
    return {point.name: point for point in entry_points(group="plimsoll.formats")}


def formats() -> Mapping[str, Format]:
    """Every format by name: ``csv_.py`` holds csv, ``mlperf_detail.py`` mlperf-detail."""
    return _Formats()


Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Renderers(Mapping[str, Callable[[Any], bytes]], Generic[Model]):
    """Every way to say a result that makes a ``document``, by the name that ``--format NAME=PATH`` says; JSON is the result itself.

    ``more``: formats that need what not every document has. ``indent``: of the JSON.
    """

    document: Callable[[Model], Document]
    more: tuple[str, ...] = ()
    indent: int | None = None

    def __getitem__(self, name: str) -> Callable[[Model], bytes]:
        if name == "json":
            return self._json
        known = name in _DOCUMENT_FORMATS or name in self.more or name in _outside()
        render = formats()[name].document if known else None
        if render is None:
            raise KeyError(name)
        return lambda model: render(self.document(model))

    def __iter__(self) -> Iterator[str]:
        others = [name for name in _outside() if formats()[name].document is not None]
        return iter(sorted([*_DOCUMENT_FORMATS, *self.more, "json", *others]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _json(self, model: Model) -> bytes:
        """There is no NaN and no infinity in it."""
        separators = None if self.indent else (",", ":")
        found = model.document()  # type: ignore[attr-defined]
        text = json.dumps(found, ensure_ascii=False, allow_nan=False, indent=self.indent, separators=separators)
        return f"{text}\n".encode()


#: What any document can be said as; a sheet of figures has a CSV file too.
_DOCUMENT_FORMATS = ("annotations", "html", "junit", "markdown", "text")
