"""Section: one part of a run's report, and the scan that finds them all.

Adding one is adding one file to ``reports/sections`` that exports ``SECTION``, or an entry point of an outside package
in the group ``plimsoll.sections``: the page, Markdown, the terminal and report.json have it then, and nothing else is
edited.
"""

import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from importlib.metadata import EntryPoint
from typing import Any

from pydantic import BaseModel

from plimsoll.reports import sections as folder
from plimsoll.reports.blocks.document import Block
from plimsoll.slo.judge import Judged
from plimsoll.slo.metrics.plugin import PluginError, all_at_once, announced, guarded, loaded, misfit
from plimsoll.slo.records.records import IntArray, Records
from plimsoll.slo.records.trace_ids import TraceIds


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """What the parts of a report are made of. ``manifest`` and ``scenario`` are the documents of the run directory,
    ``originals`` columns of a replay: what its requests were like when they were recorded; ``by``: the labels that it
    is to be split by.
    """

    records: Records
    judged: Judged
    manifest: Mapping[str, Any]
    scenario: Mapping[str, Any]
    originals: Mapping[str, IntArray] | None = None
    by: Sequence[str] = ()

    @property
    def run_id(self) -> str:
        """The run's name in the ids of its requests."""
        return str(self.manifest.get("run_id", ""))

    @property
    def traces(self) -> TraceIds | None:
        """The trace of each request; None: requests carried no trace context."""
        return TraceIds.told(self.manifest)

    @property
    def options(self) -> Mapping[str, Any]:
        """The target's, as far as the scenario gives them."""
        return (self.scenario.get("target") or {}).get("options") or {}


@dataclass(frozen=True, slots=True)
class ReportSection:
    """``part`` makes what report.json holds under the section's name; None: the run has no such thing. ``blocks`` lays
    it out for people; it is given the whole report beside its part.

    ``order`` is its place: objectives have 10, key figures 50, metrics 80, what the generator promised 130. ``model``:
    the part's class; our own may leave it out, because ``Report`` names it.
    """

    name: str
    order: int
    part: Callable[[JudgedRun], Any]
    blocks: Callable[[Any, Any], Sequence[Block]]
    model: type[BaseModel] | None = None


@cache
def sections() -> Mapping[str, ReportSection]:
    """Every section by name. Raises PluginError for an outside package that fails, offers none, or takes a name that
    there is; LookupError where a file of ours does.
    """
    found: dict[str, ReportSection] = {}
    for stem in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        exported = getattr(importlib.import_module(f"{folder.__name__}.{stem}"), "SECTION", None)
        if not isinstance(exported, ReportSection):
            raise LookupError(f"reports/sections/{stem}.py: exports no SECTION; name its ReportSection so")
        found[exported.name] = exported
    all_at_once([partial(_add, point, found) for point in announced("plimsoll.sections")])
    return found


def _add(point: EntryPoint, found: dict[str, ReportSection]) -> None:
    """The section of an outside package to those that were found."""
    exported = loaded(point)
    if not isinstance(exported, ReportSection):
        raise PluginError(point, f"exports {exported!r:.60}, no SECTION; name its ReportSection so")
    if exported.model is None:
        raise PluginError(point, "its SECTION has no model; give it the class of its part")
    if not (isinstance(exported.model, type) and issubclass(exported.model, BaseModel)):
        raise PluginError(point, f"its model is {exported.model!r:.60}; give it a class of pydantic models")
    if wrong := misfit(exported, {"name": str, "order": int, "part": None, "blocks": None}):
        raise PluginError(point, wrong)
    if exported.name in found:
        raise PluginError(point, f"{exported.name} exists already; choose another name")
    found[exported.name] = _foreign(point, exported, exported.model)


def _foreign(point: EntryPoint, one: ReportSection, model: type[BaseModel]) -> ReportSection:
    """A section of an outside package: what its functions raise, or return that no section does, is its own error."""

    def of_part(made: object, _: JudgedRun) -> str | None:
        if made is None or not isinstance(made, model):
            return None if made is None else f"returned no {model.__name__}"
        json.dumps(made.model_dump(), allow_nan=False, default=str)  # what can't be in report.json is its error too
        return None

    def of_blocks(made: Any, *_: object) -> str | None:
        if not isinstance(made, Sequence) or not all(isinstance(block, Block) for block in made):
            return "returned no blocks"
        for block in made:
            for text in (getattr(block, item.name) for item in fields(block) if item.type == "str"):
                if not isinstance(text, str) or text != text.encode(errors="replace").decode():
                    return f"returned {block!r:.80}, in which {text!r:.40} is no text"
        return None

    part = guarded(point, f"part of {one.name}", one.part, of_part)
    return replace(one, part=part, blocks=guarded(point, f"blocks of {one.name}", one.blocks, of_blocks))
