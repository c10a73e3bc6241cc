"""Format: one way to say a report, and the scan that finds them all.

A format is a pure function from a report to bytes: no clock, no file, no terminal. Adding one is adding one
file to ``reports/formats`` that exports ``FORMAT``; nothing else is edited.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from plimsoll.reports import formats as folder
from plimsoll.reports.report import Report


@dataclass(frozen=True, slots=True)
class Format:
    """``name`` is what ``--format NAME=PATH`` says; ``suffix`` what a file of it ends in; ``summary`` one
    line.
    """

    name: str
    suffix: str
    summary: str
    render: Callable[[Report], bytes]


def formats() -> Mapping[str, Format]:
    """Every format in the folder by name, sorted.

    Raises ``TypeError`` for a file that exports no ``FORMAT`` and ``ValueError`` for a name used twice.
    """
    found: dict[str, Format] = {}
    for entry in sorted(pkgutil.iter_modules(folder.__path__), key=lambda item: item.name):
        module = importlib.import_module(f"{folder.__name__}.{entry.name}")
        candidate = getattr(module, "FORMAT", None)
        if not isinstance(candidate, Format):
            raise TypeError(
                f"{module.__name__} exports no FORMAT. Export a plimsoll.reports.format.Format of that name."
            )
        if candidate.name in found:
            raise ValueError(f"two formats are named {candidate.name!r}. Rename the one in {module.__name__}.")
        found[candidate.name] = candidate
    return MappingProxyType(dict(sorted(found.items())))
