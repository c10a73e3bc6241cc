"""One session of comparing: find or make the runs, compare them, publish the result, choose the exit code.

Exit codes by the outcome: 0 no regression, 1 regression, 3 inconclusive, 4 invalid; 2 for what is wrong with the question, 5
when an arm can't be reached before the first request, 130 when the user stopped it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run.job import find_scenario
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.series.comparison.arms import BUNDLED, Arm, read_arms
from plimsoll.harness.series.comparison.comparison_output import Output, document, formats_of, publish
from plimsoll.harness.series.comparison.judging import Question, ask, false_alarms, keep_baseline
from plimsoll.harness.series.comparison.replications import Side, find, of_interleaving
from plimsoll.harness.series.comparison.rounds import Contest, carry_out_all, public_command
from plimsoll.scenarios.text.durations import parse_duration
from plimsoll.scenarios.text.errors import ScenarioError
from plimsoll.slo.comparison.false_alarm import FalseAlarms

MAX_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """The question, and where the answer goes."""

    question: Question
    formats: tuple[str, ...] = ()
    out: Path | None = None
    save_baseline: Path | None = None
    aa: bool = False
    as_json: bool = False


def of_runs(texts: Sequence[str], wanted: Wanted, errors: Sequence[str] = ()) -> int:
    """Compare runs that are on disk. Returns the exit code; raises HarnessFault with every error."""
    said = [*errors]
    outputs, problems = formats_of(wanted.formats)
    said += problems
    alone = bool(wanted.aa or wanted.save_baseline)
    if not texts:
        said.append("nothing to compare. Give BASE and CANDIDATE, or --interleave SCENARIO and two --arm")
    sides: tuple[Side, ...] = ()
    try:
        sides = find(texts)
    except HarnessFault as fault:
        said += fault.errors
    if len(sides) == 1 and not alone:
        said.append(f"{texts[0]}: one side alone. Add a CANDIDATE, or --save-baseline FILE, or --aa")
    said += _which_to_keep(wanted, [side.name for side in sides])
    if said:
        raise HarnessFault(said)
    return _answer(sides, wanted, outputs, list(map(redact, sys.argv)))


def of_interleaved(
    scenario: str,
    load: Mapping[str, Any],
    asked: Asked,
    arm_texts: Sequence[str],
    repeats: int,
    cooldown: str,
    resume: bool,
    wanted: Wanted,
    errors: Sequence[str] = (),
) -> int:
    """Make the runs, then compare them. Returns the exit code; raises HarnessFault with every error."""
    said = [*errors]
    arms, problems = read_arms(arm_texts)
    said += problems
    outputs, problems = formats_of(wanted.formats)
    said += problems
    if wanted.aa and len(arm_texts) == 1 and arms:
        arms = (arms[0], arms[0].model_copy(update={"name": f"{arms[0].name}-again"}))
    elif wanted.aa and len(arms) > 1 and any(_endpoint(arm) != _endpoint(arms[0]) for arm in arms):
        said.append("--aa: the arms are not the same endpoint. Give one --arm; it runs as both")
    elif len(arm_texts) < 2:
        said.append("--interleave: give two --arm NAME=URL or more (with --aa one will do)")
    said += _which_to_keep(wanted, [arm.name for arm in arms])
    cooldown_ns = 0
    try:
        cooldown_ns = parse_duration(cooldown)
    except ValueError as error:
        said.append(f"--cooldown: {error}")
    if not 1 <= repeats <= MAX_REPEATS:
        said.append(f"--repeats {repeats}: give a number from 1 to {MAX_REPEATS}")
    contest = Contest(scenario, load, asked, arms, repeats, cooldown_ns)
    out = wanted.out or default_out("compare")
    if said:
        said += _of_scenario(scenario, load)
        raise HarnessFault(said)
    ran = carry_out_all(contest, out, resume=resume)
    if ran.interrupted:
        return int(ExitCode.INTERRUPTED)
    if ran.fault is not None:
        raise ran.fault
    return _answer(of_interleaving(out, plan=ran.plan), replace(wanted, out=out), outputs, public_command(arms))


def _which_to_keep(wanted: Wanted, names: Sequence[str]) -> list[str]:
    """Told before hours of runs are made for it."""
    if wanted.save_baseline is None or len(names) <= 2:
        return []
    return [f"--save-baseline: which of {', '.join(names)}? Give that one alone"]


def _of_scenario(scenario: str, load: Mapping[str, Any]) -> list[str]:
    """What is wrong with the scenario, besides: all errors are told at once."""
    try:
        find_scenario(scenario, dict(load))  # type: ignore[arg-type]
    except ScenarioError as error:
        return error.errors
    return []


def _endpoint(arm: Arm) -> Arm:
    return arm.model_copy(update={"name": "", "url": arm.url or BUNDLED})


def default_out(name: str) -> Path:
    """A folder of its own below ``runs``."""
    stamp, safe = datetime.now().strftime("%Y%m%d-%H%M%S"), re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "run"
    path, number = Path("runs") / f"{safe}-{stamp}", 2
    while path.exists():
        path, number = Path("runs") / f"{safe}-{stamp}-{number}", number + 1
    return path


def _answer(sides: Sequence[Side], wanted: Wanted, outputs: Sequence[Output], command: Sequence[str]) -> int:
    code = 0
    if wanted.aa:
        answer, rate = false_alarms(sides, wanted.question)
        result = document(answer, command, rate, title=f"A/A of {sides[0].name}")
        # Surely more false alarms than the design allows: the gate is not to be trusted on this host.
        code = int(ExitCode.FAIL) if rate.interval[0] > rate.expected else _unless_undecided(rate)
        code = publish(result.model_copy(update={"exit_code": code}), outputs, wanted.out, as_json=wanted.as_json)
    elif len(sides) > 1:
        answer = ask(sides, wanted.question)
        code = publish(document(answer, command), outputs, wanted.out, as_json=wanted.as_json)
    if wanted.save_baseline is not None:
        _save(wanted.save_baseline, sides, wanted, code)
    return code


def _unless_undecided(rate: FalseAlarms) -> int:
    return int(ExitCode.INCONCLUSIVE if rate.undecided == rate.splits else ExitCode.PASS)


def _save(path: Path, sides: Sequence[Side], wanted: Wanted, code: int) -> None:
    """The newest side becomes the baseline, unless that would write a regression down as the new normal."""
    if code:
        tell(
            [
                f"{path} is not written, because {sides[-1].name} did not pass; to accept it, give it alone with --save-baseline"
            ]
        )
        return
    tell(keep_baseline(path, sides[-1], wanted.question))
    print(f"baseline of {sides[-1].name}: {path}", file=sys.stderr)


def tell(warnings: Sequence[str]) -> None:
    """Warnings to whoever watches."""
    for text in warnings:
        print(f"warning: {text}", file=sys.stderr)
