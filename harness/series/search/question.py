"""The question of a search: the scenario, the loads, how long each probe is, what makes it the same search again, and
what its budget holds.

Everything that can be wrong is found here, all of it at once and before any load. Nothing is sent, and no clock is
read.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.coordinator import Job
from plimsoll.harness.run.job import Prepared, find_scenario, hold, prepare
from plimsoll.harness.run.promises import Asked, Promises
from plimsoll.harness.series.publish import duration
from plimsoll.reports.documents.search import ProbePart
from plimsoll.reports.wording import units
from plimsoll.scenarios.flags import loads_of, split_load, unmoved
from plimsoll.scenarios.spec import Document, Scenario, ScenarioError
from plimsoll.scenarios.text.fields import format_duration, parse_duration
from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.search.probe import FINEST, MOST_LENGTH, Answer, Next, Settings, Variable, seeking
from plimsoll.slo.search.search import below, decide
from plimsoll.slo.statistics.confidence import n_needed

#: By what is searched: the kind of scenario that has it.
KINDS: Mapping[Variable, str] = {"rate": "server", "concurrency": "concurrency"}
#: Fewer requests than this say nothing of an objective, whatever its kind.
_FEWEST = 10
#: A Poisson process brings fewer requests than its rate says in a run of a few hundred about every other time.
_SPARE = 1.25
UNLIMITED = "none"
#: As a scenario takes them.
MOST_LOAD: Mapping[Variable, int] = {"rate": 10_000_000, "concurrency": 100_000}
#: From a probe's preparation to its end beside its own length, where none was made yet: starting workers, sealing,
#: judging.
_AROUND_NS = 4_000_000_000
_SECOND_NS = 1_000_000_000
_MINUTE_NS = 60 * _SECOND_NS


@dataclass(frozen=True, slots=True)
class Texts:
    """The search's own flags as the user wrote them; None: not given."""

    over: str | None = None
    start: float | None = None
    lowest: float | None = None
    highest: float | None = None
    resolution: str = "2%"
    probe: str = "20s"
    longest: str = "8x"
    cooldown: str = "2s"
    budget: str = "30m"
    gpus: int | None = None
    confirm: bool = True
    kind: str | None = None

    @property
    def searched(self) -> str | None:
        """What ``--over`` says, or ``--kind`` in other words; None: as the scenario is."""
        return next((name for name, kind in KINDS.items() if kind == self.kind), self.over)

    def mistakes(self) -> list[str]:
        """What of the two can't be, or doesn't go together."""
        if self.kind is None:
            return []
        if self.kind not in KINDS.values():
            return [f"--kind {self.kind}: a search sends at a rate (server) or with so many in flight (concurrency)"]
        if self.over not in (None, self.searched):
            return [
                f"--kind {self.kind}: that is --over {self.searched}, and --over {self.over} is given. Leave one out"
            ]
        return []


@dataclass(frozen=True, slots=True)
class Question:
    """A search that can be made.

    ``identity``: what must be the same to go on with it; ``budget_ns`` None: no end; ``job``: one of its runs as it was
    checked, for what all of them share (the target, the bundled server, the command without secrets).
    """

    scenario: str | Document | None
    name: str
    flags: Mapping[str, Any]
    asked: Asked
    promises: Promises
    settings: Settings
    probe_ns: int
    cooldown_ns: int
    budget_ns: int | None
    gpus: int | None
    identity: Mapping[str, Any]
    job: Job
    kept: Mapping[str, str]  # the kind of a scenario that has such a load itself
    of_class: str | None = None  # of a mix: whose load is searched, "" for that of all together

    def length_ns(self, length: float) -> int:
        """A length in multiples of the shortest probe's as a duration."""
        return round(self.probe_ns * length)

    def prepared(self, load: float, length: float, seed: int, folder: Path) -> Prepared:
        """One run at a load, checked, its directory made. Raises HarnessFault."""
        loaded = _loaded(self.settings.variable, load, self.length_ns(length), self.of_class)
        loaded |= {"seed": seed, **self.kept}
        return prepare(self.scenario, {**self.flags, **loaded}, self.asked, (), folder)


def read(scenario: str | Document | None, flags: Mapping[str, Any], asked: Asked, texts: Texts) -> Question:
    """Check everything. Raises HarnessFault with every error found."""
    errors = texts.mistakes()
    probe_ns = lasting("--probe", texts.probe, errors) or 20_000_000_000
    cooldown_ns = lasting("--cooldown", texts.cooldown, errors)
    budget_ns = None if texts.budget == UNLIMITED else lasting("--budget", texts.budget, errors)
    longest = _longest(texts.longest, probe_ns, errors)
    resolution = _share(texts.resolution, errors)
    if texts.gpus is not None and texts.gpus < 1:
        errors.append(f"--gpus {texts.gpus}: give how many the endpoint has, 1 or more")
    with suppress(HarnessFault):  # said below, with the rest
        scenario = hold(scenario)
    asked = asked.hold()
    base, variable, of_class = _scenario(scenario, flags, texts.searched, errors)
    sane = _loads(texts, variable or "rate", errors)
    longest_ns = max(round(probe_ns * longest), 1)
    checked = None
    if base is not None and (most := base.stop.max_duration_ns) is not None and most <= longest_ns:
        errors.append(
            f"{base.name}:stop.max_duration: {format_duration(most)} would end the longest probe "
            f"({format_duration(longest_ns)}) early. Raise it, take it out, or lower --longest"
        )
    else:  # at any load: what the loads are is reckoned from the objectives, and those are read with the rest
        loaded = _loaded(variable or "rate", 1.0, longest_ns, of_class) | _kept(base, variable)
        checked = _checked(scenario, flags, asked, loaded, errors)
    promises = checked.promises if checked is not None else Promises()
    settings = None
    if base is not None and variable is not None and checked is not None:
        errors += _judgeable(promises)
        if sane:
            own = _own_load(base, variable, of_class) if scenario is not None else None
            settings = _settings(own, variable, texts, longest, resolution, probe_ns, promises, errors, base)
    if errors or base is None or settings is None or checked is None:
        raise HarnessFault(list(dict.fromkeys(errors)))
    return Question(
        scenario=scenario,
        name=base.name if scenario is not None else checked.job.public["target"]["url"] or "the bundled server",
        flags=flags,
        asked=asked,
        promises=promises,
        settings=settings,
        probe_ns=probe_ns,
        cooldown_ns=cooldown_ns,
        budget_ns=budget_ns,
        gpus=texts.gpus,
        identity=_identity(checked, settings, probe_ns, cooldown_ns, of_class),
        job=checked.job,
        kept=_kept(base, variable),
        of_class=of_class,
    )


def lasting(flag: str, text: str, errors: list[str]) -> int:
    """A flag that is a time, in ns; 0 where it is none."""
    found = duration(flag, text, errors, -1)
    if not found and flag != "--cooldown":
        errors.append(f"{flag} {text}: nothing takes no time. Give for example 20s")
    return max(found, 0)


def _longest(text: str, probe_ns: int, errors: list[str]) -> float:
    """``8x``, or a duration."""
    try:
        times = text.strip().endswith("x")
        found = float(text.strip()[:-1]) if times else parse_duration(text) / probe_ns
    except ValueError:
        errors.append(f"--longest {text}: not a multiple of --probe such as 8x, nor a duration such as 160s")
        return 1.0
    if 1 <= found <= MOST_LENGTH:
        return found
    errors.append(f"--longest {text}: give 1 to {MOST_LENGTH} times --probe ({format_duration(probe_ns)})")
    return 1.0


def _share(text: str, errors: list[str]) -> float:
    try:
        found = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
        if FINEST <= found <= 1:
            return found
    except ValueError:
        found = math.nan
    errors.append(f"--resolution {text}: not a share from {FINEST * 100:g}% to 100%. Write it like 2%")
    return 0.02


def _loads(texts: Texts, variable: Variable, errors: list[str]) -> bool:
    """Whether the loads given can be loads, and ascend; what is wrong with them goes to ``errors``."""
    before = len(errors)
    given = [
        (flag, load)
        for flag, load in (("--lowest", texts.lowest), ("--start", texts.start), ("--highest", texts.highest))
        if load is not None
    ]
    for flag, load in given:
        if not 0 < load <= MOST_LOAD[variable]:
            errors.append(f"{flag} {load:g}: give a {variable} above 0 and at most {MOST_LOAD[variable]:,}")
        elif variable == "concurrency" and load != math.floor(load):
            errors.append(f"{flag} {load:g}: a concurrency is a whole number of requests. Give a whole number")
    for (flag, load), (above, higher) in pairwise(given):
        if load > higher:
            errors.append(f"{flag} {load:g}: lies above {above} {higher:g}. Give --lowest <= --start <= --highest")
    return len(errors) == before


def _own_load(base: Scenario, variable: Variable, of_class: str | None) -> float | None:
    """The load that the scenario has, of what is searched."""
    if of_class is not None:
        return sum(loads_of(base, variable, of_class).values())
    own = getattr(base.params, variable, None)
    of_kind = KINDS[variable] == base.kind or _kept(base, variable)
    return float(own) if isinstance(own, int | float) and of_kind else None


def _of_mix(base: Scenario, over: str | None, variable: Variable | None, name: str, errors: list[str]) -> None:
    """Say what of a mix can't be searched."""
    if over is None:
        errors.append(
            f"{base.name}: it is a mix of {', '.join(base.mix)}. Say what of it is searched: --over rate (of all "
            f"together), or of one class --over 'rate{{class={next(iter(base.mix))}}}'"
        )
    elif variable is not None:
        errors += unmoved(base, f"--over {over}", variable, name)


def _scenario(
    name: str | Document | None, flags: Mapping[str, Any], over: str | None, errors: list[str]
) -> tuple[Scenario | None, Variable | None, str | None]:
    """The scenario as it is, what of it is searched, and of a mix in which class ("": in all)."""
    known: list[Variable] = ["rate", "concurrency"]
    said, of_class = split_load(over or "")
    variable = next((one for one in known if one == said), None)
    if over is not None and variable is None:
        errors.append(f"--over {over}: search over rate or concurrency, or of a mix over rate{{class=NAME}}")
    try:
        base = find_scenario(name, {**flags, "kind": KINDS[variable or "rate"] if name is None else None})
    except ScenarioError as error:
        errors += error.errors
        return None, variable, None
    if base.mix:
        _of_mix(base, over, variable, of_class, errors)
        return base, variable, of_class
    errors += unmoved(base, f"--over {over}", variable or "", of_class)
    own = next((one for one in known if KINDS[one] == base.kind or _kept(base, one)), None)
    if variable is None and over is None and own is None:
        errors.append(
            f"{base.name}: kind {base.kind} has no load that could be searched. Say --over rate (its samples are then "
            "sent at a rate) or --over concurrency"
        )
    if base.mode == "accuracy":
        errors.append(f"{base.name}: mode accuracy sends each sample once, at no chosen load. Take it out")
    return base, variable or (own if over is None else None), None


def _kept(base: Scenario | None, variable: Variable | None) -> dict[str, str]:
    """Sessions have a load of their own, a rate or so many at a time: they stay sessions."""
    if base is None or base.kind != "sessions":
        return {}
    return {"kind": base.kind} if variable == ("rate" if base.open_loop else "concurrency") else {}


def _loaded(variable: Variable, load: float, length_ns: int, of_class: str | None) -> dict[str, Any]:
    """The flags of a run at a load."""
    name = f"{variable}{{class={of_class}}}" if of_class else variable
    loads = {"kind": KINDS[variable], variable: load if variable == "rate" else int(load)}
    return {
        **(loads if of_class is None else {"loads": {name: load}}),
        "duration": format_duration(length_ns),
    }


def _checked(
    scenario: str | Document | None,
    flags: Mapping[str, Any],
    asked: Asked,
    loaded: Mapping[str, Any],
    errors: list[str],
) -> Prepared | None:
    try:
        with tempfile.TemporaryDirectory() as scratch:
            return prepare(scenario, {**flags, **loaded}, asked, (), Path(scratch) / "run")
    except HarnessFault as fault:
        errors += fault.errors
        return None


def _judgeable(promises: Promises) -> list[str]:
    if promises.slos or any(one.scope == "run" for one in promises.objectives):
        return []
    if promises.objectives:
        return [
            f"{', '.join(promises.texts)}: only limits on single requests, which say what good means and not how many "
            "must be. Add for example --slo 'ratio(good) >= 99%'"
        ]
    return [
        "no objective: what is to hold at the load that is searched for? Give one with --slo 'p99(ttft) <= 200ms', "
        "--preset, or in the scenario"
    ]


def enough(promises: Promises) -> int:
    """How many requests, none bad, show the strictest share of the objectives at their confidence; 10 at least."""
    found = [_FEWEST]
    for one in promises.objectives:
        limit = one.allowed if one.scope == "run" else None
        if limit is not None and 0 < limit < 1 and _of_requests(one):
            found.append(n_needed(0, 0, limit, promises.confidence) or _FEWEST)
    return max(found)


def _of_requests(objective: Objective) -> bool:
    """One value a request; of gaps between tokens a single request has many."""
    known = catalogue().get(objective.indicator)
    return known is None or known.scope == "request"


def _settings(
    own: float | None,
    variable: Variable,
    texts: Texts,
    longest: float,
    resolution: float,
    probe_ns: int,
    promises: Promises,
    errors: list[str],
    base: Scenario,
) -> Settings | None:
    needed, before = enough(promises), len(errors)
    least, usual = 1.0, 1.0
    if variable == "rate":
        least = _up(needed / (probe_ns * seeking(longest) / 1e9))
        usual = _up(_SPARE * needed / (probe_ns / 1e9))
    for flag, given in (("--lowest", texts.lowest), ("--start", texts.start), ("--highest", texts.highest)):
        if variable == "rate" and given is not None and given < least * (1 - 1e-9):
            errors.append(
                f"{flag} {given:g}: the longest probe that seeks, "
                f"{format_duration(round(probe_ns * seeking(longest)))}, brings too few requests at that rate to show "
                f"anything: the objectives take {needed}, so {least:g}/s at least. Raise {flag}, --probe or --longest"
            )
    if len(errors) > before:
        return None
    lowest = least if texts.lowest is None else texts.lowest
    top = math.inf if texts.highest is None else texts.highest
    start = texts.start
    if start is None:
        start = usual if own is None else own
        start = min(max(start, lowest), max(top, lowest))
    try:
        return Settings(
            variable=variable,
            start=float(start),
            lowest=float(lowest),
            highest=texts.highest,
            resolution=resolution,
            longest=longest,
            confirm=texts.confirm,
            seed=base.seed,
            confidence=promises.confidence,
        )
    except ValueError as error:
        errors += [f"--{line}" for line in str(error).splitlines()]
        return None


def _up(value: float) -> float:
    """Rounded up to two digits."""
    if value <= 0:
        return 1.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step - 1e-9) * step:.6g}")


def _identity(
    checked: Prepared, settings: Settings, probe_ns: int, cooldown_ns: int, of_class: str | None
) -> dict[str, Any]:
    """Without what a user may change between two attempts: budget, GPUs, workers, retries, what is kept; without what
    every probe sets for itself.
    """
    scenario = deepcopy(dict(checked.job.public))
    scenario["params"] = {key: value for key, value in scenario.get("params", {}).items() if key != settings.variable}
    for part in (scenario, *scenario.get("mix", {}).values()):
        for key in ("workers", "retries", "keep", "stop"):
            part.pop(key, None)
    promises = checked.promises.to_json()
    return {
        "scenario": scenario,
        "promises": {key: promises[key] for key in ("objectives", "openslo", "confidence")},
        "settings": asdict(settings),
        "probe": format_duration(probe_ns),
        "cooldown": format_duration(cooldown_ns),
        **({} if of_class is None else {"of_class": of_class}),
    }


@dataclass(frozen=True, slots=True)
class Short:
    """The first probe that the budget did not hold, and how long the search would have lasted with it and its fresh
    runs.
    """

    wanted: Next
    total_ns: int


def needed_ns(question: Question, probes: Sequence[ProbePart], wanted: Next) -> int:
    """A probe and the fresh runs after it."""
    each = _each_ns(question, probes)
    return sum(question.length_ns(length) + each for length in (wanted.length, *wanted.then))


def _each_ns(question: Question, probes: Sequence[ProbePart]) -> int:
    usual = _AROUND_NS + question.job.scenario.warmup_ns
    around = max((part.took_ns - part.length_ns for part in probes if not part.cut), default=usual)
    return max(around, 0) + question.cooldown_ns


def too_short(question: Question) -> list[str]:
    """What is wrong with a budget in which not even the first probe and its fresh runs end: it could say nothing."""
    first = decide(question.settings, [])
    if question.budget_ns is None or not isinstance(first, Next):
        return []
    least = needed_ns(question, [], first)
    if least <= question.budget_ns:
        return []
    around, wanted = units.seconds(_each_ns(question, [])), _named(question, first)
    confirm = ", or --no-confirm" if first.then else ""
    return [
        f"--budget {format_duration(question.budget_ns)}: too short for any answer, so nothing was sent. "
        f"{wanted[0].upper()}{wanted[1:]} would take {units.seconds(least)}, with about {around} around each. Give "
        f"--budget {_whole(least, _SECOND_NS)} or more, a shorter --probe{confirm}"
    ]


def left_no_room(question: Question, short: Short, probes: Sequence[ProbePart], answer: Answer) -> str:
    """Why the search ended where it did, and what to change."""
    step_ns = _SECOND_NS if short.total_ns < 2 * _MINUTE_NS else _MINUTE_NS
    give = "search into a new folder with" if answer.hurried else "give"
    lowest = min((part.load for part in probes), default=question.settings.start)
    lower, anew = below(question.settings, lowest), ""
    if answer.best is None and any(part.outcome == "FAIL" for part in probes) and lower < lowest:
        anew = f", or search into a new folder with --start {lower:g}"
    return (
        f"the budget of {units.seconds(question.budget_ns or 0)} left no room for {_named(question, short.wanted)}: "
        f"{give} --budget {_whole(short.total_ns, step_ns)} or more{anew}"
    )


def _named(question: Question, wanted: Next) -> str:
    fresh = "fresh run" if wanted.purpose in ("confirm", "ceiling") else "probe"
    at = f"{wanted.load:g}/s" if question.settings.variable == "rate" else f"{wanted.load:g} in flight"
    said = f"a {fresh} of {units.seconds(question.length_ns(wanted.length))} at {at}"
    if not wanted.then:
        return said
    longest = units.seconds(question.length_ns(max(wanted.then)))
    return f"{said} and the fresh runs after it ({len(wanted.then)} of up to {longest})"


def _whole(time_ns: int, step_ns: int) -> str:
    """Rounded up to whole steps: a flag's value."""
    return format_duration(-(-time_ns // step_ns) * step_ns)
