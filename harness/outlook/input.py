"""From the flags of ``plimsoll plan`` to a scenario, its promises and the assumptions: every error at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.outlook.outlook import Assumptions
from plimsoll.harness.run.job import find_scenario
from plimsoll.harness.run.promises import Asked, Promises, read_promises
from plimsoll.scenarios.flags import Flags
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.text.durations import parse_duration
from plimsoll.scenarios.text.errors import ScenarioError

#: More requests than that never share one fate.
_MOST_DEPENDENT = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Question:
    """What ``plimsoll plan`` is asked."""

    scenario: Scenario
    promises: Promises
    assumptions: Assumptions


@dataclass(frozen=True, slots=True)
class Guesses:
    """The flags about what nobody knows before the run, as given."""

    bad_share: str | None = None
    power: str = "90%"
    design_effect: float = 1.0
    latencies: Sequence[str] = ()


def read(name: str | None, flags: Flags, asked: Asked, guesses: Guesses) -> Question:
    """Check everything. Raises HarnessFault with every error found."""
    errors: list[str] = []
    assumptions = _assumptions(guesses, errors)
    promises, problems = read_promises(asked)
    errors += problems
    scenario = None
    try:
        scenario = find_scenario(name, flags)
    except ScenarioError as error:
        errors += error.errors
    if scenario is not None and not asked.any_objective:
        promises, problems = read_promises(replace(asked, slo=scenario.objectives))
        errors += [text.replace("--slo", f"{scenario.name}:objectives:", 1) for text in problems]
    if not errors and not promises.slos and not any(one.scope == "run" for one in promises.objectives):
        errors.append("nothing is promised, so there is nothing to plan for. Add --slo 'p99(ttft) <= 200ms'")
    if errors or scenario is None:
        raise HarnessFault(errors)
    return Question(scenario, promises, assumptions)


def _assumptions(guesses: Guesses, errors: list[str]) -> Assumptions:
    share = None if guesses.bad_share is None else _share("--bad-share", guesses.bad_share, errors, or_none=True)
    power = _share("--power", guesses.power, errors, like="90% or 0.9")
    effect = guesses.design_effect
    if not 1 <= effect <= _MOST_DEPENDENT:
        errors.append(f"--design-effect: {effect:g} is not a number from 1 (independent requests) up. Give 1 or more")
        effect = 1.0
    times = []
    for text in guesses.latencies:
        try:
            times.append(parse_duration(text))
        except ValueError as error:
            errors.append(f"--latency: {error}")
            continue
        if times[-1] == 0:
            errors.append("--latency: an answer takes some time. Give a duration above 0")
    return Assumptions(power, share, effect, tuple(times))


def _share(flag: str, text: str, errors: list[str], *, or_none: bool = False, like: str = "0.5% or 0.005") -> str:
    """``0.5%`` or ``0.005`` as the decimal text ``0.005``, exactly. ``or_none``: 0 is one too; ``like``: what an error proposes."""
    number, percent, rest = text.strip().partition("%")
    try:
        value = Fraction(number.strip()) / (100 if percent else 1)
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if rest or not (0 < value < 1 or (or_none and value == 0)):
        errors.append(f"{flag}: {text!r} is not a share below 1. Write it like {like}")
        return "0.5"
    return str(float(value))
