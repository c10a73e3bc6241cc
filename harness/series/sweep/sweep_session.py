"""One sweep: check the grid, make the runs of every point in turn, and publish the curves.

Which point each run is lies beside the runs in ``grid.json``, so that the document can be made of the folder at any
time later; a run that is not there is said not to be. Exit codes: 0 some point holds (or nothing was promised and some
load was carried), 1 none holds, 3 none passes and some are undecided, 4 every point is INVALID, 5 the endpoint can't be
reached, 130 interrupted: what is made is published all the same, and ``--resume`` makes the rest.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.outlook.outlook import load_of
from plimsoll.harness.process.outlet import say
from plimsoll.harness.process.writing import Output
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run import promises
from plimsoll.harness.run.job import default_out, find_scenario, hold
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Asked, read_promises
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.arms import Arm
from plimsoll.harness.series.comparison.interleave import Interleaving, Slot
from plimsoll.harness.series.comparison.rounds import Contest, carry_out_all, check
from plimsoll.harness.series.ledger import Ledger, Session
from plimsoll.harness.series.publish import duration, publish, tell
from plimsoll.harness.series.sweep.grid import Grid, Settings, Value, arms_of, read_grid
from plimsoll.reports.documents.sweep import FORMATS
from plimsoll.reports.documents.sweep import values as shown
from plimsoll.reports.models.sweep_building import About, Course, Figures, Place, Seen, build, figures, standing
from plimsoll.reports.models.sweep_parts import SweepReport, at, kind_of
from plimsoll.reports.report import Report
from plimsoll.reports.wording import units
from plimsoll.scenarios.plugins import kinds
from plimsoll.scenarios.spec import Document, Scenario
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.slo.search.curve import Standing, saturated

SCHEMA = "plimsoll.grid/1"
FILE = "grid.json"
#: Variables of which more is more load.
RISING = ("rate", "concurrency")
_MOST_REPEATS = 1000
#: Starting the senders, sealing and judging a run, about.
_AROUND_NS = 1_500_000_000
#: What an answer of a closed loop is taken to need.
ASSUMED_NS = 1_000_000_000


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
        if kind_of(self.places.x) not in RISING:
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
    return shlex.join(str(word) for word in words) if isinstance(words, list) else ""


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


@dataclass(frozen=True, slots=True)
class Wanted:
    """The flags of ``plimsoll sweep``, as given. ``load``: those of ``plimsoll run`` that hold for every point."""

    scenario: str | None
    vary: Sequence[str]
    load: Mapping[str, Any]
    asked: Asked
    repeats: int | None = None
    cooldown: str | None = None
    again: bool = False
    all_points: bool = False
    session: Session = field(default_factory=Session)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of the whole sweep. ``requests``: by the schedules; ``assumed``: a latency was, for some loops are closed."""

    duration_ns: int
    requests: int
    assumed: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """A sweep that may begin."""

    contest: Contest
    places: Places
    estimate: Estimate


def plan(wanted: Wanted, *, every_point: bool) -> Checked:
    """Check the flags, and with ``every_point`` each run as it would be made (which ``carry_out_all`` does too).

    Raises HarnessFault with every error found.
    """
    grid, errors = read_grid(wanted.vary)
    repeats = 1 if wanted.repeats is None else wanted.repeats
    if not 1 <= repeats <= _MOST_REPEATS:
        errors.append(f"--repeats: {repeats} is not from 1 to {_MOST_REPEATS}. Give how often each point is run")
    cooldown_ns = duration("--cooldown", wanted.cooldown or "2s", errors)
    errors += read_promises(wanted.asked)[1]
    errors += _both_ways(wanted, grid)
    if grid is None or errors:
        raise HarnessFault(errors)
    flags = {key: value for key, value in wanted.load.items() if value is not None}
    held = hold(wanted.scenario)
    base = _scenario(held, {})
    if errors := grid.misplaced(base):
        raise HarnessFault(errors)
    levels = grid.levels("kind" in flags, bool(base.mix))
    first = {**flags, **levels[0].flags}
    scenario = _scenario(held, first)
    arms, errors = arms_of(grid, _is_bundled(scenario))
    if errors:
        raise HarnessFault(errors)
    arms = tuple(_with_options(arm, flags.get("options") or {}) for arm in arms)
    contest = Contest(held, first, wanted.asked, arms, repeats, cooldown_ns, levels, whole="sweep")
    if every_point:
        check(contest)
    places = places_of(
        grid,
        scenario.name if wanted.scenario else scenario.target.protocol,
        [level.label for level in levels],
        [arm.name for arm in arms],
    )
    try:
        return Checked(contest, places, estimate(contest))
    except ScenarioError as error:
        check(contest)  # tells what is wrong with every load, not only with the first
        raise HarnessFault(error.errors) from None


def _with_options(arm: Arm, options: Mapping[str, Any]) -> Arm:
    """Options that vary are set over those that hold for every point, not instead of them."""
    return arm.model_copy(update={"options": _over(options, arm.options)}) if arm.options and options else arm


def _over(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    inner = {
        key: _over(base[key], value)
        for key, value in given.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return {**base, **given, **inner}


def _both_ways(wanted: Wanted, grid: Grid | None) -> list[str]:
    """Flags that are varied too: which of the two is meant?"""
    varied = [] if grid is None else [variable.name for variable in grid.variables]
    return [
        f"--{name.replace('_', '-')}: it is varied too. Leave it out, or take it out of --vary"
        for name in varied
        if wanted.load.get(name) is not None
    ]


def _scenario(name: str | Document | None, flags: Mapping[str, Any]) -> Scenario:
    try:
        return find_scenario(name, flags)
    except ScenarioError as error:
        raise HarnessFault(error.errors) from None


def _is_bundled(scenario: Scenario) -> bool:
    return any(map(_lacks_url, scenario.classes.values()))


def _lacks_url(scenario: Scenario) -> bool:
    known = protocols().get(scenario.target.protocol)
    return scenario.target.url is None and known is not None and known.needs_url


def estimate(contest: Contest) -> Estimate:
    """Add up every run of the contest; in a closed loop a time per answer is assumed.

    Raises ScenarioError for what can't be planned.
    """
    duration, requests, assumed = 0, 0, False
    for level in contest.levels:
        flags: Mapping[str, Any] = {**contest.flags, **level.flags}
        scenario = find_scenario(contest.scenario, flags)
        longest = 0
        for one in scenario.classes.values():
            closed = not kinds()[one.kind].open_loop(one.params)
            assumed |= closed
            if not one.endless:  # how much such a class sends, the others decide
                pace = load_of(one).pace(ASSUMED_NS if closed else None)
                longest, requests = max(longest, pace.duration_ns), requests + pace.requests
        duration += longest + scenario.warmup_ns + _AROUND_NS + contest.cooldown_ns
    times = len(contest.arms) * contest.repeats
    return Estimate(max(duration * times - contest.cooldown_ns, 0), requests * times, assumed)


def say_grid(wanted: Wanted) -> None:
    """``--check``: the points, the series and the time they take, about. Sends nothing. Raises HarnessFault."""
    if wanted.session.errors:
        raise HarnessFault(list(wanted.session.errors))
    found = plan(wanted, every_point=True)
    places, contest = found.places, found.contest
    points = len(contest.levels) * len(contest.arms)
    if wanted.session.as_json:
        document = {
            "schema": "plimsoll.sweep-plan/1",
            **{key: value for key, value in places.document().items() if key in ("name", "x", "variables")},
            "points": points,
            "repeats": contest.repeats,
            "runs": points * contest.repeats,
            "requests": found.estimate.requests,
            "duration_ns": found.estimate.duration_ns,
            "assumed_latency_ns": ASSUMED_NS if found.estimate.assumed else None,
        }
        say(json.dumps(document, indent=1) + "\n")
        return
    say(f"{places.name}: curves over {places.x}\n")
    for name, values in places.variables.items():
        say(f"  {name}: {shown(values)}\n")
    say(f"{_size(found)}. Fine\n")


def _size(found: Checked) -> str:
    contest, seen = found.contest, found.estimate
    points = len(contest.levels) * len(contest.arms)
    times = f", {contest.repeats} times" if contest.repeats > 1 else ""
    guess = f" if an answer takes {units.duration(ASSUMED_NS)}" if seen.assumed else ""
    return (
        f"{units.many(points, 'point')}{times}: {units.many(points * contest.repeats, 'run')}, about "
        f"{units.many(seen.requests, 'request')} in {units.duration(seen.duration_ns)}{guess}"
    )


def sweep(wanted: Wanted) -> int:
    """Make the runs (not ``again``), publish. Returns the exit code; raises HarnessFault."""
    session, named = wanted.session, wanted.session.out
    outputs, errors = session.outputs(FORMATS, "a sweep")
    if named is None and (session.resume or wanted.again):
        errors.append(f"{'--resume' if session.resume else '--again'}: of which sweep? Give its --out")
    if session.resume and wanted.again:
        errors.append("--again reads runs that are made, --resume makes the rest. Give one of them")
    if wanted.again and wanted.vary:
        errors.append("--vary: --again takes the grid that --out holds. Leave one of them out")
    if wanted.again:
        errors += read_promises(wanted.asked)[1]
    if errors:
        raise HarnessFault(errors)
    if wanted.again and named is not None:
        report = read(kept(named), named, wanted.asked)
        return _publish(report, named, outputs, session)
    found = plan(wanted, every_point=False)
    out = named or default_out("sweep")
    tell(f"{found.places.name}: {_size(found)}")
    ran = carry_out_all(
        found.contest,
        out,
        resume=session.resume,
        skip=None if wanted.all_points else Saturation(found.places, lambda slot: fresh(out, slot)),
        begun=lambda: keep(found.places, out),
        staff=session.staff,
    )
    # Runs of an earlier attempt may have been judged by other objectives: one document, one set of them.
    report = read(found.places, out, wanted.asked if session.resume else None, ran.plan)
    if ran.interrupted or ran.fault is not None:
        stopped = ExitCode.INTERRUPTED if ran.fault is None else ran.fault.code
        report = report.model_copy(update={"exit_code": int(stopped)})
    return _publish(report, out, outputs, session, ran.fault)


def _publish(
    report: SweepReport, out: Path, outputs: Sequence[Output], session: Session, fault: HarnessFault | None = None
) -> int:
    """Write every file, print the result. ``fault``: what ended it early, or kept a file from being written."""
    remedy = f"make room; `plimsoll sweep --again --out {out}` writes it"
    own = {out / f"sweep.{name}": name for name in ("json", "html")}
    return publish(report, FORMATS, FORMATS.terminal, outputs, own, remedy, as_json=session.as_json, fault=fault)
