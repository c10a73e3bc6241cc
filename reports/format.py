"""Format: one way to say a report, a pure function to bytes. Adding one is adding one file to ``reports/formats`` that exports ``FORMAT``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from plimsoll.reports import formats as folder
from plimsoll.reports.report import Report


@dataclass(frozen=True, slots=True)
class Format:
    """``name`` is what ``--format NAME=PATH`` says; ``suffix`` what a file of it ends in; ``summary`` one line."""

    name: str
    suffix: str
    summary: str
    render: Callable[[Report], bytes]


class _Formats(Mapping[str, Format]):
    """By name, sorted. A file is imported when its format is asked for, for a page's templates and charts are much to load."""

    def __init__(self) -> None:
        self._stems = {stem.strip("_").replace("_", "-"): stem for _, stem, _ in pkgutil.iter_modules(folder.__path__)}

    def __getitem__(self, name: str) -> Format:
        module = importlib.import_module(f"{folder.__name__}.{self._stems[name]}")
        found = getattr(module, "FORMAT", None)
        if isinstance(found, Format) and found.name == name:
            return found
        raise TypeError(f"{module.__name__} exports no FORMAT named {name!r}. Export a plimsoll.reports.format.Format.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._stems)

    def __len__(self) -> int:
        return len(self._stems)


def formats() -> Mapping[str, Format]:
    """Every format in the folder by name, sorted: ``csv_.py`` holds csv, ``mlperf_detail.py`` mlperf-detail."""
    return _Formats()
