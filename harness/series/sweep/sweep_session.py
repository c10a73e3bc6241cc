"""One sweep: check the grid, make the runs of every point in turn, and publish the curves.

Exit codes: 0 some point holds (or nothing was promised and some load was carried), 1 none holds, 3 none passes and some
are undecided, 4 every point is INVALID, 5 the endpoint can't be reached, 130 interrupted: what is made is published all
the same, and ``--resume`` makes the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.outlook.outlook import load_of
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run.job import default_out, find_scenario
from plimsoll.harness.run.promises import Asked, read_promises
from plimsoll.harness.series.comparison.arms import Arm
from plimsoll.harness.series.comparison.rounds import Contest, carry_out_all, check
from plimsoll.harness.series.ledger import Session
from plimsoll.harness.series.publish import Output, duration, publish, say, tell
from plimsoll.harness.series.sweep import places as grid_file
from plimsoll.harness.series.sweep.grid import Grid, arms_of, read_grid
from plimsoll.harness.series.sweep.places import Places, Saturation, fresh, places_of, read
from plimsoll.reports.documents.sweep import FORMATS, render_terminal
from plimsoll.reports.documents.sweep import values as shown
from plimsoll.reports.models.sweep_parts import SweepReport
from plimsoll.reports.wording import units
from plimsoll.scenarios.discovery import kinds
from plimsoll.scenarios.spec import Scenario
from plimsoll.scenarios.text.errors import ScenarioError

_MOST_REPEATS = 1000
#: Starting the senders, sealing and judging a run, about.
_AROUND_NS = 1_500_000_000
#: What an answer of a closed loop is taken to need.
ASSUMED_NS = 1_000_000_000


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
    levels = grid.levels("kind" in flags)
    first = {**flags, **levels[0].flags}
    scenario = _scenario(wanted.scenario, first)
    arms, errors = arms_of(grid, _is_bundled(scenario))
    if errors:
        raise HarnessFault(errors)
    arms = tuple(_with_options(arm, flags.get("options") or {}) for arm in arms)
    contest = Contest(wanted.scenario, first, wanted.asked, arms, repeats, cooldown_ns, levels, whole="sweep")
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


def _scenario(name: str | None, flags: Mapping[str, Any]) -> Scenario:
    try:
        return find_scenario(name, dict(flags))  # type: ignore[arg-type]
    except ScenarioError as error:
        raise HarnessFault(error.errors) from None


def _is_bundled(scenario: Scenario) -> bool:
    known = protocols().get(scenario.target.protocol)
    return scenario.target.url is None and known is not None and known.needs_url


def estimate(contest: Contest) -> Estimate:
    """Add up every run of the contest; in a closed loop a time per answer is assumed.

    Raises ScenarioError for what can't be planned.
    """
    duration, requests, assumed = 0, 0, False
    for level in contest.levels:
        flags: Mapping[str, Any] = {**contest.flags, **level.flags}
        scenario = find_scenario(contest.scenario, dict(flags))  # type: ignore[arg-type]
        closed = not kinds()[scenario.kind].open_loop(scenario.params) and scenario.kind != "offline"
        pace = load_of(scenario).pace(ASSUMED_NS if closed else None)
        duration += pace.duration_ns + scenario.warmup_ns + _AROUND_NS + contest.cooldown_ns
        requests += pace.requests
        assumed |= closed
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
        report = read(grid_file.kept(named), named, wanted.asked)
        return _publish(report, named, outputs, session)
    found = plan(wanted, every_point=False)
    out = named or default_out("sweep")
    tell(f"{found.places.name}: {_size(found)}")
    ran = carry_out_all(
        found.contest,
        out,
        resume=session.resume,
        skip=None if wanted.all_points else Saturation(found.places, lambda slot: fresh(out, slot)),
        begun=lambda: grid_file.keep(found.places, out),
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
    return publish(report, FORMATS, render_terminal, outputs, own, remedy, as_json=session.as_json, fault=fault)
