"""What objectives ask of a run that its scenario can't give, and what one part of it makes another impossible: every
error, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run import happenings
from plimsoll.scenarios.samples.reference import references
from plimsoll.scenarios.spec import Scenario, ScenarioError
from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.objective import Objective, ObjectiveError
from plimsoll.slo.records.labels import AGENT, REGION
from plimsoll.slo.validity import mixed
from plimsoll.slo.verdict.hops import parse_hops

#: Metrics of what a scenario has to ask for: the label that says it, and the key.
_SAID_BY = {
    "retried": ("tries", "client: {retry: ...}"),
    "degraded": ("degraded", "degraded: header NAME"),
    "barge_in_stop": ("barge_in", "params.barge_in: {share: 30%, after: 400ms}, of kind sessions, or --sessions turns"),
}


def contradictions(scenario: Scenario, objectives: Sequence[Objective]) -> list[str]:
    """What one part of a scenario says and another makes impossible."""
    return [*check_labels(scenario, objectives), *_of_budget(scenario)]


def _of_budget(scenario: Scenario) -> list[str]:
    """What is wrong with the latency budget."""
    try:
        parse_hops(scenario.budget)
    except ObjectiveError as error:
        return [f"{scenario.name}:{text}" for text in error.errors]
    return []


def unasked(scenario: Scenario, objectives: Sequence[Objective]) -> list[str]:
    """The objectives that nobody could judge. The process of a server that we start is watched anyhow."""
    said = "nobody asks the server. Add --server-metrics auto, or drop the objective"
    known = ("host.", "gpu.") if any(one.target.url is None for one in scenario.classes.values()) else ()
    return [f"{one}: {said}" for one in objectives if one.of_server and not one.indicator.startswith(known or "\0")]


def check_labels(scenario: Scenario, objectives: Sequence[Objective]) -> list[str]:
    """What objectives tell rows apart by and no row will have."""
    there, errors = scenario.told_apart_by(), []
    known = [*there, *selector.OF_ROWS]
    moments, clear = happenings.moments_of(scenario)
    for one in objectives:
        if one.statistic == "recovered" and (one.after not in moments if one.after else not clear):
            what = f"nothing is called {one.after}" if one.after else "the scenario has not one event"
            hint = f"write after, and one of {', '.join(moments)}" if moments else "give the scenario events or phases"
            errors.append(f"{one}: {what}; {hint}")
        told, key = _SAID_BY.get(one.indicator, ("", ""))
        if told and told not in there and (one.statistic == "ratio" or told == "barge_in"):
            errors.append(f"{one}: no row of this run says so. Give the scenario {key}")
        for label in one.labels:
            if label not in (*known, AGENT, REGION):  # where one host sends, harness/series/one_run.py says so
                hint = f"There are {', '.join(sorted(known))}"
                errors.append(f"{one}: no row of this run has the label {label}. {hint}, or what labels names")
        for part in (one.of or one).where:
            wrong = [value for value in part.values if value not in there.get(part.label, (value,)) and value]
            if wrong and there.get(part.label) and part.operator in ("=", "!="):
                errors.append(f"{one}: {part.label} is {', '.join(there[part.label])}, and never {', '.join(wrong)}")
    return errors


def check_accuracy(scenario: Scenario, objectives: Sequence[Objective]) -> list[str]:
    """Every error of the mode, its references and the objectives on them, before anything is sent."""
    about = {name: [one for one in mixed.about(name, objectives) if one.statistic == "accuracy"]
             for name in scenario.classes}  # fmt: skip
    answered = dict.fromkeys(
        one for name, asked in about.items() for one in asked if _told(scenario.classes[name], one)
    )
    errors = [
        f"{one}: the run keeps no answers. Add --mode accuracy, or drop the objective"
        for one in objectives
        if one.statistic == "accuracy" and one not in answered
    ]
    errors += [
        f"{one}: class {name} keeps no answers. Give it mode: accuracy, or name the others in {{class=...}}"
        for one in answered
        if one.each is not None and one.each[1] == "class"
        for name, asked in about.items()
        if one in asked and not _told(scenario.classes[name], one)
    ]
    for name, one in scenario.classes.items():
        whose = f"class {name}: " if name else ""
        errors += [whose + text for text in _uncompared(one, about[name])]
    return errors


def _told(scenario: Scenario, objective: Objective) -> bool:
    """Whether its answers are looked at."""
    return scenario.mode == "accuracy" or (objective.indicator == "wer" and _speaks(scenario))


def _uncompared(scenario: Scenario, asked: Sequence[Objective]) -> list[str]:
    """Why answers of this load can't be held against references."""
    if scenario.mode != "accuracy" and scenario.reference is not None:
        return ["reference: only an accuracy run compares answers. Add --mode accuracy, or leave it out"]
    if scenario.mode != "accuracy" and not scenario.answers:
        return []
    spec = protocols().get(scenario.target.protocol)
    if spec is not None and not spec.needs_url:
        what = "answers" if scenario.mode != "accuracy" else "mode"
        return [f"{what}: the null protocol answers nothing. Use another protocol, or leave {what} out"]
    if scenario.mode != "accuracy":
        return []
    try:
        expected = references(scenario.source_object(), scenario.reference)
    except ScenarioError as error:
        return error.errors
    if expected is None:
        return [
            f"{one}: there is nothing to compare with. Give --reference FILE, or reference in each row of the source"
            for one in asked
        ]
    return []


def _speaks(scenario: Scenario) -> bool:
    """Whether the source has audio with a transcript: then every session counts its word errors, in any mode."""
    try:
        source = scenario.source_object()
        first = source.payload(0) if len(source) else None
    except ScenarioError:
        return False  # said by whoever opens the source for the run
    return first is not None and first.media_ns >= 0 and isinstance(first.reference, str)
