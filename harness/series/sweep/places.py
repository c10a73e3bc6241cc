"""Which point of the grid each run is, kept beside the runs as ``grid.json``, and what the runs say: when a series need
not go on, and the document.

The document is made of the folder at any time later; a run that is not there is said not to be. Nothing is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.run import promises
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.interleave import Interleaving, Slot
from plimsoll.harness.series.ledger import Ledger
from plimsoll.harness.series.one_run import judge
from plimsoll.harness.series.sweep.grid import Grid, Settings, Value
from plimsoll.reports.models.sweep_building import About, Course, Figures, Place, Seen, build, figures, standing
from plimsoll.reports.models.sweep_curves import at
from plimsoll.reports.models.sweep_parts import SweepReport
from plimsoll.reports.report import Report
from plimsoll.slo.search.curve import Standing, saturated

SCHEMA = "plimsoll.grid/1"
FILE = "grid.json"
#: Variables of which more is more load.
RISING = ("rate", "concurrency")


@dataclass(frozen=True, slots=True)
class Places:
    """The grid of a sweep. ``levels``, ``arms``: the settings that each label of a run stands for."""

    name: str
    x: str
    variables: Mapping[str, tuple[Value, ...]]
    levels: Mapping[str, Settings]
    arms: Mapping[str, Settings]

    def settings(self, slot: Slot) -> dict[str, Value]:
        """All settings of a run, in the order of the variables."""
        both = {**self.arms[slot.arm], **self.levels[slot.level]}
        return {name: both[name] for name in self.variables}

    def of(self, slot: Slot) -> tuple[Settings, float]:
        """The series of a run, and its x."""
        settings = self.settings(slot)
        x = settings.pop(self.x)
        return settings, float(x)

    def document(self) -> dict[str, Any]:
        """As ``grid.json`` holds it."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "x": self.x,
            "variables": {name: list(values) for name, values in self.variables.items()},
            "levels": dict(self.levels),
            "arms": dict(self.arms),
        }


def places_of(grid: Grid, name: str, levels: list[str], arms: list[str]) -> Places:
    """The grid with the labels that its loads and endpoints go by, each in their order."""
    return Places(
        name=name,
        x=grid.x,
        variables={variable.name: variable.values for variable in grid.variables},
        levels=dict(zip(levels, grid.loads(), strict=True)),
        arms=dict(zip(arms, grid.places(), strict=True)),
    )


def keep(places: Places, out: Path) -> None:
    """Write ``grid.json``. Raises HarnessFault if it can't be written."""
    Ledger(out, FILE).save(places.document())


def kept(out: Path) -> Places:
    """The grid of a sweep's folder. Raises HarnessFault if there is none or it is not whole."""
    path = out / FILE
    if not path.is_file():
        raise HarnessFault(f"{out}: it holds no {FILE}. Give the --out of a sweep that has begun")
    try:
        document = json.loads(files.read_text(path, files.DATA))
        if document["schema"] != SCHEMA:
            raise HarnessFault(f"{path}: schema {document['schema']!r} is not {SCHEMA}. Use the version that wrote it")
        return Places(
            name=str(document["name"]),
            x=str(document["x"]),
            variables={str(name): tuple(values) for name, values in document["variables"].items()},
            levels=document["levels"],
            arms=document["arms"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HarnessFault(f"{path}: it is damaged ({error!r}). Begin in a new folder") from None


@dataclass(frozen=True, slots=True)
class Saturation:
    """Says of each run whether its series is saturated below it, so that more load would only measure how long the run
    was.

    It is where the endpoint did not keep up at two neighbouring loads, or failed most requests. ``read``: the figures
    of a run.
    """

    places: Places
    read: Callable[[Slot], Figures]
    known: dict[int, Figures] = field(default_factory=dict)

    def __call__(self, plan: Interleaving, slot: Slot) -> str | None:
        """Why the run of ``slot`` need not be made; None: it is to be made."""
        if self.places.x not in RISING:
            return None
        series, x = self.places.of(slot)
        here: dict[float, list[Standing]] = {}
        for other in plan.slots:
            if other.state == "done" and self.places.of(other)[0] == series:
                load = self.places.of(other)[1]
                if other.number not in self.known:
                    self.known[other.number] = self.read(other)
                here.setdefault(load, []).append(standing(load, self.known[other.number]))
        # With repeats a load is hopeless only if every run of it is.
        judged = [next((s for s in stood if not s.hopeless), stood[0]) for stood in here.values()]
        limit = saturated(judged)
        if limit is None or x <= limit or x in here:
            return None
        return f"already saturated at {at(self.places.x, limit)}"


def fresh(out: Path, slot: Slot) -> Figures:
    """The figures of a run by the report that was written right after it; judged anew where that can't be read."""
    path = out / slot.folder / "report.json"
    try:
        return figures(Report.model_validate_json(files.read_bytes(path)))
    except (OSError, ValueError):  # pydantic's error is a ValueError
        return judged(out, slot, Asked())


def judged(out: Path, slot: Slot, asked: Asked) -> Figures:
    """The figures of a run, judged from its records: by what the flags name, else as it was made.

    Raises HarnessFault.
    """
    sealed = open_sealed(out / slot.folder)
    promised, errors = promises.again(asked, sealed)
    if errors:
        raise HarnessFault(errors)
    return figures(judge(sealed, promised))


def read(places: Places, out: Path, asked: Asked | None, plan: Interleaving | None = None) -> SweepReport:
    """The document of what ``out`` holds; ``asked``: judge every run anew by it, None: as they were judged.

    ``plan``: what has become of each run, where ``out`` may not say it. Raises HarnessFault.
    """
    plan = plan or interleave.read(out)
    seen: dict[tuple[str, str], list[Seen]] = {}
    for slot in plan.slots:
        found = None
        if slot.state == "done":
            found = fresh(out, slot) if asked is None else judged(out, slot, asked)
        seen.setdefault((slot.arm, slot.level), []).append(Seen(slot.folder, slot.state, found, slot.error))
    where = {(slot.arm, slot.level): slot for slot in plan.slots}
    found_runs = [one for runs in seen.values() for one in runs if one.figures is not None]
    objectives = list(dict.fromkeys(o.objective for one in found_runs if one.figures for o in one.figures.objectives))
    about = About(
        name=places.name,
        variables=places.variables,
        x=places.x,
        promised=bool(objectives),
        objectives=objectives,
        repeats=plan.repeats,
        plimsoll=package_version(),
        command=_command(out, plan),
    )
    return build(about, _courses(places, seen, where))


def _command(out: Path, plan: Interleaving) -> str:
    """What the runs were made by, as a run's manifest holds it: without secrets."""
    made = next((slot for slot in plan.slots if slot.state == "done"), None)
    if made is None:
        return ""
    words = _manifest(out / made.folder).get("command", ())
    return " ".join(str(word) for word in words) if isinstance(words, list) else ""


def _manifest(folder: Path) -> dict[str, object]:
    """The manifest of a run alone; empty where it can't be read, which the run's own reader tells."""
    try:
        found = json.loads(files.read_bytes(folder / "manifest.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _courses(
    places: Places, seen: dict[tuple[str, str], list[Seen]], where: dict[tuple[str, str], Slot]
) -> list[Course]:
    """The points by series, in the order of the variables; along each x ascends."""
    found: dict[tuple[Value, ...], list[Place]] = {}
    fixed: dict[tuple[Value, ...], Settings] = {}
    for key, runs in seen.items():
        settings, x = places.of(where[key])
        name = tuple(settings.values())
        fixed[name] = settings
        found.setdefault(name, []).append(Place(places.settings(where[key]), x, tuple(runs)))
    ranks = [places.variables[name] for name in places.variables if name != places.x]
    order = sorted(found, key=lambda name: [rank.index(value) for rank, value in zip(ranks, name, strict=True)])
    return [Course(fixed[name], tuple(sorted(found[name], key=lambda place: place.x))) for name in order]
