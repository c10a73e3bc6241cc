"""Format: one way to say a report, and the scan that finds them all.

A format is a pure function from a report to bytes: no clock, no file, no terminal. Adding one is adding one file to
``reports/formats`` that exports ``FORMAT`` and is called like it, or an entry point of an outside package in the group
``plimsoll.formats``; nothing else is edited.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from plimsoll.reports import formats as folder
from plimsoll.reports.blocks.document import Document, harmless
from plimsoll.reports.parts.parts import Result
from plimsoll.reports.report import Report
from plimsoll.slo.metrics.plugin import PluginError, announced, guarded, loaded, misfit
from plimsoll.slo.records.records import Records

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Format:
    """``name`` is what ``--format NAME=PATH`` says; ``suffix`` what a file of it ends in; ``summary`` one line.
    ``document`` says anything else than a run: a search, a comparison and so on; None: it can't. ``rows`` renders a run
    from its rows and its manifest.json too, where they are at hand; None: the report holds all that it shows.
    """

    name: str
    suffix: str
    summary: str
    render: Callable[[Report], bytes]
    document: Callable[[Document], bytes] | None = None
    rows: Callable[[Report, Records, Mapping[str, Any]], bytes] | None = None


class _Formats(Mapping[str, Format]):
    """By name, sorted. A file is imported when its format is asked for, for a page's templates and charts are much to
    load. Of a name that an outside package has too this is ours; ``unusable`` refuses to be asked for it.
    """

    def __init__(self) -> None:
        stems = (entry.name for entry in pkgutil.iter_modules(folder.__path__))
        self._stems = {stem.strip("_").replace("_", "-"): stem for stem in sorted(stems)}

    def __getitem__(self, name: str) -> Format:
        point = _outside().get(name)
        if point is not None and name not in self._stems:
            return _foreign(point)
        origin = f"{folder.__name__}.{self._stems[name]}"
        found = getattr(importlib.import_module(origin), "FORMAT", None)
        if not isinstance(found, Format) or found.name != name:
            raise TypeError(f"{origin} exports no FORMAT named {name!r}. Export a plimsoll.reports.format.Format.")
        return found

    def ours(self, name: str) -> bool:
        """Whether a file of ours holds it."""
        return name in self._stems

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._stems, *_outside()}))

    def __len__(self) -> int:
        return len({*self._stems, *_outside()})


@cache
def _outside() -> Mapping[str, EntryPoint]:
    """What outside packages announce, by the name of its format; not imported."""
    return {point.name: point for point in announced("plimsoll.formats")}


def _foreign(point: EntryPoint) -> Format:
    """The format of an outside package. Raises PluginError, and so do its functions."""
    found = loaded(point)
    if not isinstance(found, Format) or found.name != point.name:
        raise PluginError(point, f"exports no FORMAT named {point.name!r}, but {found!r:.60}")
    if wrong := misfit(found, {"suffix": str, "summary": str, "render": None}):
        raise PluginError(point, wrong)
    for name, given in (("document", found.document), ("rows", found.rows)):
        if given is not None and not callable(given):
            raise PluginError(point, f"its {name} is {given!r:.60}; give it a function, or None")

    def of_bytes(made: object, *_: object) -> str | None:
        return None if isinstance(made, bytes) else f"returned {type(made).__name__}, not bytes"

    document = found.document and guarded(point, "its document", found.document, of_bytes)
    rows = found.rows and guarded(point, "its rows", found.rows, of_bytes)
    return replace(found, render=guarded(point, "its render", found.render, of_bytes), document=document, rows=rows)


def unusable(texts: Iterable[str]) -> dict[str, str]:
    """Which formats of ``F=PATH`` texts can't be used because an outside package is broken, and why."""
    ours, found = formats(), {}
    for name in {text.partition("=")[0] for text in texts} & _outside().keys():
        try:
            _foreign(_outside()[name])
            if ours.ours(name):
                raise PluginError(_outside()[name], f"Plimsoll has a format {name!r} itself")
        except PluginError as error:
            found[name] = str(error)
    return found


def formats() -> _Formats:
    """Every format by name: ``csv_.py`` holds csv, ``mlperf_detail.py`` mlperf-detail."""
    return _Formats()


Model = TypeVar("Model", bound=Result)


@dataclass(frozen=True)
class Renderers(Mapping[str, Callable[[Any], bytes]], Generic[Model]):
    """Every way to say a result that makes a ``document``, by the name that ``--format NAME=PATH`` says; JSON is the
    result itself.

    ``indent``: of the JSON. Here, and nowhere else, what a document says is made fit to be shown.
    """

    document: Callable[[Model], Document]
    indent: int | None = None

    def __getitem__(self, name: str) -> Callable[[Model], bytes]:
        if name == "json":
            return self._json
        known = name in _DOCUMENT_FORMATS or name in _outside()
        render = formats()[name].document if known else None
        if render is None:
            raise KeyError(name)
        return lambda model: render(harmless(self.document(model)))

    def __iter__(self) -> Iterator[str]:
        broken = unusable(_outside())  # unusable ones are told of where one is asked for
        others = [name for name in _outside() if name not in broken and formats()[name].document is not None]
        return iter(sorted([*_DOCUMENT_FORMATS, "json", *others]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def terminal(self, model: Model, width: int = 100) -> RenderableType:
        """The result for ``rich``, which is loaded with it."""
        from plimsoll.reports.blocks.terminal import draw

        return draw(harmless(self.document(model)), width)

    def _json(self, model: Model) -> bytes:
        """There is no NaN and no infinity in it."""
        separators = None if self.indent else (",", ":")
        found = model.document()
        text = json.dumps(found, ensure_ascii=False, allow_nan=False, indent=self.indent, separators=separators)
        return f"{text}\n".encode()


#: What any document can be said as.
_DOCUMENT_FORMATS = ("annotations", "csv", "html", "junit", "markdown", "text")
