"""Carry an interleaving out: every run in its own sealed run directory, one after the other. Nothing is compared here.

Everything is checked, and every arm is reached once, before the first request; an arm that can't be reached later is a
result, not a reason to stop. Ctrl-C keeps what is finished; ``--resume`` makes the rest.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process.writing import no_room
from plimsoll.harness.run.job import Prepared, find_scenario, hold, prepare
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.secrecy import secrets
from plimsoll.harness.secrecy.secrets import IMPLICIT_KEY, option_headers
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.arms import BUNDLED, Arm, public
from plimsoll.harness.series.comparison.interleave import Interleaving, Slot
from plimsoll.harness.series.one_run import ALONE, Made, Staff, make, reach
from plimsoll.harness.series.publish import tell
from plimsoll.scenarios.spec import Document, ScenarioError, TargetSection
from plimsoll.scenarios.text.fields import format_duration


@dataclass(frozen=True, slots=True)
class Level:
    """One load out of several: its label in file names, and the flags that make it."""

    label: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contest:
    """What is to be run: one scenario against several arms, at one or more loads, several times.

    ``whole``: what messages call it. Who did not speak of arms (a sweep) is not told of them.
    """

    scenario: str | Document | None
    flags: Mapping[str, Any]
    asked: Asked
    arms: tuple[Arm, ...]
    repeats: int
    cooldown_ns: int
    levels: tuple[Level, ...] = (Level(),)
    whole: str = "comparison"

    def held(self) -> Contest:
        """With the files of the scenario and of the objectives as they are now. Raises HarnessFault."""
        return replace(self, scenario=hold(self.scenario), asked=self.asked.hold())

    def about(self, arm: Arm, text: str) -> str:
        """What is wrong with an arm, with its name where that helps."""
        if self.whole == "comparison":
            return f"arm {arm.name}: {text}"
        return text if len(self.arms) == 1 else f"{arm.name}: {text}"


@dataclass(frozen=True, slots=True)
class Ran:
    """What was made of it, on disk in ``out``; ``fault``: what ended it early, once something was made."""

    out: Path
    plan: Interleaving
    interrupted: bool
    fault: HarnessFault | None = None


#: Why a run need not be made, by what was made before it; None: it is to be made.
Skip = Callable[[Interleaving, Slot], str | None]


def carry_out_all(
    contest: Contest,
    out: Path,
    *,
    resume: bool,
    skip: Skip | None = None,
    begun: Callable[[], None] = lambda: None,
    staff: Staff = ALONE,
) -> Ran:
    """Make every run that ``out`` does not hold yet and that ``skip`` has nothing against. ``begun``: called before the
    first.

    Raises HarnessFault with every error found before anything is sent; with exit 5 where an arm can't be reached then.
    """
    contest = contest.held()
    checked = check(contest)
    plan = interleave.go_on(out, checked, resume, contest.whole)
    # What was skipped is asked for again: the reason may be gone, or nobody wants it to count any more.
    plan = replace(
        plan, slots=tuple(replace(s, state="pending", error="") if s.state == "skipped" else s for s in plan.slots)
    )
    _reach(contest, {slot.arm for slot in plan.pending()})
    interleave.save(out, plan)
    begun()
    interrupted, sent, fault = False, False, None
    try:
        for slot in plan.pending():
            if skip is not None and (reason := skip(plan, slot)) is not None:
                tell(f"[{slot.number}/{len(plan.slots)}] {slot.arm} {slot.level}: not run, {reason}")
                plan = plan.marked(replace(slot, state="skipped", error=reason))
                interleave.save(out, plan)
                continue
            if sent and contest.cooldown_ns:
                time.sleep(contest.cooldown_ns / 1e9)
            sent = True
            marked = _one(contest, slot, out, len(plan.slots), staff)
            if marked is None:
                interrupted = True
                break
            plan = plan.marked(marked)
            interleave.save(out, plan)
    except KeyboardInterrupt:  # between two runs; in a run the coordinator takes it
        interrupted = True
    except (HarnessFault, OSError) as error:
        fault = no_room(error, out, "Make room there") if isinstance(error, OSError) else error
        if not any(slot.state == "done" for slot in plan.slots):
            raise fault from None
    left = len(plan.pending())
    if fault is not None and not left:  # nothing is missing but the note of it
        tell("\n".join(f"warning: {text}" for text in fault.errors))
        fault = None
    if interrupted or fault is not None:
        made = f"{len(plan.slots) - left} of {len(plan.slots)} runs are in {out}"
        tell(f"{'interrupted' if interrupted else 'stopped'}: {made}; the same command with --resume makes the rest")
    return Ran(out, plan, interrupted, fault)


def check(contest: Contest) -> Interleaving:
    """The whole order, nothing made yet. Raises HarnessFault with every error of every arm and load."""
    try:
        base = find_scenario(contest.scenario, contest.flags)
    except ScenarioError as error:
        raise HarnessFault(error.errors) from None
    errors: list[str] = []
    arms: list[dict[str, Any]] = []
    for arm in contest.arms:
        for level in contest.levels if arm is contest.arms[0] else contest.levels[:1]:
            try:
                with tempfile.TemporaryDirectory() as scratch:
                    job = _prepare(contest, arm, level, base.seed, Path(scratch) / "run").job
            except HarnessFault as fault:
                errors += [text if text in errors else contest.about(arm, text) for text in fault.errors]
                continue
            if level is contest.levels[0]:
                arms.append(public(arm, job.public["target"]))
    errors += _keys_to_strangers(contest.arms, base.target)
    if errors:
        raise HarnessFault(list(dict.fromkeys(errors)))
    scenario = {key: value for key, value in base.to_mapping().items() if key not in ("target", "retries", "keep")}
    labels = [level.label for level in contest.levels]
    return Interleaving(
        scenario=scenario,
        arms=tuple(arms),
        levels=tuple({"label": level.label, **dict(level.flags)} for level in contest.levels),
        repeats=contest.repeats,
        cooldown=format_duration(contest.cooldown_ns),
        slots=interleave.slots([arm.name for arm in contest.arms], labels, contest.repeats, base.seed),
    )


def _prepare(contest: Contest, arm: Arm, level: Level, seed: int, folder: Path) -> Prepared:
    """One run, checked. Raises HarnessFault."""
    flags = {**contest.flags, **{key: value for key, value in arm.flags().items() if value is not None}}
    flags = {**flags, **dict(level.flags), "seed": seed}
    prepared = prepare(contest.scenario, flags, contest.asked, (), folder, command=public_command(contest.arms))
    if arm.url is None and prepared.job.bundled is not None:
        raise HarnessFault(f"it has no url, and the scenario names none. Give one, or {BUNDLED} for the bundled server")
    if arm.url != BUNDLED:
        return prepared
    if prepared.job.bundled is None:
        raise HarnessFault(
            f"the scenario names its own target.url. Take it out, or give the arm another url than {BUNDLED}"
        )
    bundled = (*prepared.job.bundled, *arm.server.arguments())
    return replace(prepared, job=replace(prepared.job, bundled=bundled))


def _keys_to_strangers(arms: Sequence[Arm], target: TargetSection) -> list[str]:
    """A key that no arm names would go to every endpoint, whoever runs it: each must be meant to get it."""
    origins = {urlsplit(arm.url or target.url or "").netloc for arm in arms if arm.url != BUNDLED}
    shared = [name for name in ("api_key_env", "api_key_file", "headers_file") if getattr(target, name)]
    key = f"the scenario's target.{shared[0]}" if shared else IMPLICIT_KEY if os.environ.get(IMPLICIT_KEY) else ""
    if len(origins) < 2 or not key:
        return []
    return [
        f"arm {arm.name}: it names no key, so it would get that of {key}, which other endpoints get too. Give it "
        "api_key_env or api_key_file (the same, if that is meant), or take the shared one away"
        for arm in arms
        if arm.url not in (None, BUNDLED)
        and not (arm.api_key_env or arm.api_key_file or arm.headers_file)
        and not any(name.lower() == "authorization" for name in arm.headers)
    ]


def public_command(arms: Sequence[Arm]) -> list[str]:
    """Our command line as each run's manifest may hold it: a credential of one arm is one in the runs of all."""
    literal = [pair for arm in arms for pair in (*arm.headers.items(), *option_headers(arm.options))]
    models = [arm.model or "" for arm in arms]
    return secrets.public_command(sys.argv, literal, [arm.url or "" for arm in arms], models)


def _reach(contest: Contest, names: set[str]) -> None:
    """One connection to each arm that has something to do. Raises HarnessFault (exit 5) naming all that fail."""
    errors: list[str] = []
    for arm in contest.arms:
        if arm.name not in names:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            job = _prepare(contest, arm, contest.levels[0], 0, Path(scratch) / "run").job
        try:
            reach(job)
        except HarnessFault as fault:
            errors += [contest.about(arm, text) for text in fault.errors]
    if errors:
        raise HarnessFault(errors, ExitCode.UNREACHABLE)


def _one(contest: Contest, slot: Slot, out: Path, total: int, staff: Staff) -> Slot | None:
    """One run: what has become of it, or None if the user stopped it. Raises HarnessFault for what is our side's."""
    arm = next(arm for arm in contest.arms if arm.name == slot.arm)
    level = next(level for level in contest.levels if level.label == slot.level)
    label = f"[{slot.number}/{total}] {slot.arm}{' ' + slot.level if slot.level else ''}"
    try:
        made = make(out, slot.folder, lambda: _prepare(contest, arm, level, slot.seed, out / slot.folder), label, staff)
    except HarnessFault as fault:
        if fault.code != ExitCode.UNREACHABLE:
            raise
        tell(f"{label}: {fault}")
        return replace(slot, state="unreachable", error=str(fault))
    return None if made is None else _done(slot, made, label)


def _done(slot: Slot, made: Made, label: str) -> Slot:
    """Say in a line how a run went, and note its outcome."""
    counts, outcome = made.report.counts, str(made.report.verdict.outcome)
    reasons = f" ({'; '.join(made.report.validity.reasons)})" if made.report.validity.reasons else ""
    tell(f"{label}: {outcome}{reasons}, {counts.ok:,} answered, {counts.failed:,} failed")
    return replace(slot, state="done", outcome=outcome, started_at=str(made.sealed.manifest.get("started_at", "")))
