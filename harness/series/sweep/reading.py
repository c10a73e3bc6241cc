"""From the runs of a sweep's folder to its document. Sends nothing; a run that is not there is said not to be."""

from __future__ import annotations

import json
from pathlib import Path

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.run import promises
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.interleave import Interleaving, Slot
from plimsoll.harness.series.one_run import judge
from plimsoll.harness.series.sweep.grid import Settings, Value
from plimsoll.harness.series.sweep.places import Places
from plimsoll.reports.report import Report
from plimsoll.reports.sweep.figures import Figures, Seen, figures
from plimsoll.reports.sweep.sweep_document import About, Course, Place, build
from plimsoll.reports.sweep.sweep_parts import SweepReport


def fresh(out: Path, slot: Slot) -> Figures:
    """The figures of a run by the report that was written right after it; judged anew where that can't be read."""
    path = out / slot.folder / "report.json"
    try:
        return figures(Report.model_validate_json(files.read_bytes(path)))
    except (OSError, ValueError):  # pydantic's error is a ValueError
        return judged(out, slot, Asked())


def judged(out: Path, slot: Slot, asked: Asked) -> Figures:
    """The figures of a run, judged from its records: by what the flags name, else as it was made. Raises HarnessFault."""
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
    """The manifest of a run alone, without its records; empty where it can't be read, which the run's own reader tells."""
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
