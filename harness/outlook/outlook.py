"""What a scenario can prove before it is run: requests and time for each objective. Sends nothing and judges nothing.

``plimsoll.slo.statistics.confidence`` has the arithmetic of one promise. The load comes from the scenario's schedule
or, in a closed loop, from an assumed latency. An objective of the short grammar counts requests (or their gaps), an
OpenSLO document requests or slices of time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.host_check import output_tokens
from plimsoll.harness.run.job import check_promised, errors_beyond, find_scenario
from plimsoll.harness.run.promises import Asked, Promises, read_promises
from plimsoll.scenarios.plan.arrival import profile
from plimsoll.scenarios.plan.plan import Stop
from plimsoll.scenarios.plugins import kinds
from plimsoll.scenarios.scenario import Scenario, StopSection
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import parse_duration
from plimsoll.slo.metrics.indicator import ENTRIES, catalogue
from plimsoll.slo.objectives.budget import WHOLE
from plimsoll.slo.objectives.ledger import policy
from plimsoll.slo.objectives.objective import BESIDE, Objective
from plimsoll.slo.objectives.openslo import Slo
from plimsoll.slo.objectives.selector import Condition
from plimsoll.slo.statistics.confidence import Sample, chance_to_pass, sample, without_bad

_S_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """The scenario as written. ``latency_ns`` is assumed, None where the schedule decides."""

    latency_ns: int | None
    requests: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a scenario would send. Made by ``load_of``.

    ``planned`` requests until ``planned_ns`` in an open loop; ``per_query`` requests in a query of a closed one, of
    which ``slots`` are in flight at a time. ``tokens``: asked for on average, None where the scenario does not say.
    ``endless``: it sends more only where others go on for longer.
    """

    one_query: bool
    params: Any  # of any kind; what is asked of it below, its kind has
    stop: Stop
    planned: int
    planned_ns: int
    per_query: float
    slots: int
    tokens: float | None
    endless: bool = False

    def pace(self, latency_ns: int | None) -> Pace:
        """The scenario as written, at this latency or by its schedule."""
        if latency_ns is not None:
            return self._closed(latency_ns)
        duration = self.duration_ns(self.planned, None) if self.one_query else self.planned_ns
        return Pace(None, self.planned, duration)

    def _closed(self, latency_ns: int) -> Pace:
        stop = self.stop
        queries = max(stop.min_queries, math.ceil(self.slots * stop.min_duration_ns / latency_ns))
        if stop.max_duration_ns is not None:
            queries = min(queries, math.ceil(self.slots * stop.max_duration_ns / latency_ns))
        if stop.max_queries is not None:
            queries = min(queries, stop.max_queries)
        n = round(queries * self.per_query)
        return Pace(latency_ns, n, self.duration_ns(n, latency_ns))

    def queries(self, n: int) -> int:
        """Queries that carry n requests."""
        return math.ceil(n / self.per_query)

    def duration_ns(self, n: int, latency_ns: int | None) -> int:
        """How long n requests take from the first to the last, about: by the schedule or at this latency."""
        if latency_ns is not None:
            return math.ceil(self.queries(n) / self.slots) * latency_ns
        if self.one_query:
            return math.ceil(n / float(self.params.expected_rate) * _S_NS)
        if not hasattr(self.params, "rate"):  # frames and recordings: as they are spaced on average
            return math.ceil(self.planned_ns * (self.queries(n) - 1) / max(self.queries(self.planned) - 1, 1))
        rate = profile(self.params.rate)
        low, high = 0, _S_NS
        while rate.expected(high) < n - 1:  # query 0 is at t = 0
            low, high = high, 2 * high
        while high - low > 1000:
            middle = (low + high) // 2
            low, high = (low, middle) if rate.expected(middle) >= n - 1 else (middle, high)
        return high


@dataclass(frozen=True, slots=True)
class Together:
    """What all classes of a mix send: each load, and whether it is an open loop."""

    loads: tuple[tuple[Load, bool], ...]
    stop: Stop = field(default_factory=Stop)
    per_query: float = 1.0
    tokens: float | None = None
    endless: bool = True

    def pace(self, latency_ns: int | None) -> Pace:
        """All classes as written; the longest says how long."""
        paces = [load.pace(None if is_open else latency_ns) for load, is_open in self.loads]
        return Pace(latency_ns, sum(one.requests for one in paces), max(one.duration_ns for one in paces))

    def queries(self, n: int) -> int:
        """Requests are counted, whatever queries they come in."""
        return n

    def duration_ns(self, n: int, latency_ns: int | None) -> int:
        """As long as so many take on average."""
        pace = self.pace(latency_ns)
        return math.ceil(pace.duration_ns * n / max(pace.requests, 1))


AnyLoad = Load | Together


def load_of(scenario: Scenario) -> Load:
    """The load of a scenario. Raises ScenarioError for one whose plan can't be built."""
    stop, kind = scenario.stop.stop(), kinds()[scenario.kind]
    most_ns = 1 << 62 if stop.max_duration_ns is None else stop.max_duration_ns
    queries = samples = planned = planned_ns = 0
    for piece in scenario.blocks(1):  # due times and counts depend on no payload
        within = int(np.searchsorted(piece.due_ns, most_ns, side="right"))
        planned_ns = int(piece.due_ns[within - 1]) if within else planned_ns
        planned += int(piece.offsets[within])
        queries, samples = queries + piece.n_queries, samples + piece.n_samples
    return Load(
        one_query=kind.one_query,
        params=scenario.params,
        stop=stop,
        planned=planned,
        planned_ns=planned_ns,
        per_query=1.0 if kind.one_query else samples / max(queries, 1),
        slots=kind.slots(scenario.params) or 1,
        tokens=output_tokens(scenario),
    )


SCHEMA: Final = "plimsoll.plan/1"
#: Latencies that a closed loop is worked out for when none is given.
LATENCIES_NS = (100_000_000, 1_000_000_000, 10_000_000_000)
_SECOND_NS = 1_000_000_000
#: The period of an objective that names none, as in a report's budgets.
_PERIOD_NS = 30 * 86_400 * _SECOND_NS

Entry = Literal["request", "gap", "query", "slice"]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the outlook assumes (``slo.statistics.planning.sample``). ``bad_share`` None: half of each limit."""

    power: str = "0.9"
    bad_share: str | None = None
    design_effect: float = 1.0
    latencies_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """One promise. For a fact only ``objective`` and ``note`` say anything.

    ``sample`` counts entries: requests, ``per_request`` gaps each, or slices of ``slice_ns``. ``requests`` and
    ``requests_with_bad``: the same in requests, None for slices and where no number would do. By pace:
    ``durations_ns``, ``durations_with_bad_ns`` (how long those take), ``reached`` (the scenario as written has as
    many), ``chance`` (of a PASS, if the assumed share is the true one).
    """

    objective: str
    judged: Literal["with bounds", "as observed"]
    entry: Entry = "request"
    sample: Sample | None = None
    per_request: float = 1.0
    slice_ns: int = 0
    requests: int | None = None
    requests_with_bad: int | None = None
    durations_ns: tuple[int | None, ...] = ()
    durations_with_bad_ns: tuple[int | None, ...] = ()
    reached: tuple[bool, ...] = ()
    chance: tuple[float | None, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The whole. ``windows_ns``: of burn-rate alerts, those that the scenario as written shows whole, and those that no
    pace of it does. ``advice``: what to change, in the words of the command line; empty when everything is reached.
    """

    name: str
    kind: str
    open_loop: bool
    confidence: str
    assumptions: Assumptions
    paces: tuple[Pace, ...]
    needs: tuple[Need, ...]
    windows_ns: tuple[tuple[int, ...], tuple[int, ...]]
    advice: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As JSON takes it: fractions as numbers, times in integer nanoseconds."""
        return {"schema": SCHEMA, **_plain(asdict(self))}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, Fraction) else value


def outlook(scenario: Scenario, promises: Promises, given: Assumptions, load: AnyLoad | None = None) -> Outlook:
    """The outlook of a scenario on these promises; ``load``: what it sends, where that is known. Raises ScenarioError
    for a plan that can't be built.
    """
    load = load_of(scenario) if load is None else load
    latencies: Sequence[int | None] = [None] if scenario.open_loop else given.latencies_ns or LATENCIES_NS
    paces = tuple(load.pace(latency) for latency in latencies)
    needs = [_of_objective(one, load, promises.confidence, given) for one in promises.objectives if one.scope == "run"]
    needs += [_of_slo(one, load, promises.confidence, given) for one in promises.slos]
    timed = tuple(_timed(need, load, paces, promises.confidence, given) for need in needs)
    advice = tuple(_advice(load, paces, timed))
    return Outlook(
        name=scenario.name,
        kind=scenario.kind,
        open_loop=scenario.open_loop,
        confidence=promises.confidence,
        assumptions=given,
        paces=paces,
        needs=timed,
        windows_ns=_windows(promises, paces),
        advice=advice,
    )


def outlooks(asked: Question) -> dict[str, Outlook]:
    """That of the scenario, ""; of a mix that of each class on what it promises, and of all together on the rest.

    A class that goes on until the others have ended lasts as long as they do at least. Raises ScenarioError.
    """
    scenario, promises, given = asked.scenario, asked.promises, asked.assumptions
    if not scenario.mix:
        return {"": outlook(scenario, promises, given)}
    classes, latencies = dict(scenario.mix), given.latencies_ns or LATENCIES_NS
    loads = {name: load_of(one) for name, one in classes.items() if not one.endless}
    paces = [[load.pace(None if classes[name].open_loop else ns) for ns in latencies] for name, load in loads.items()]
    least_ns = max((min(pace.duration_ns for pace in some) for some in paces), default=0)
    for name, one in classes.items():
        if one.endless:
            finite = load_of(one.model_copy(update={"stop": StopSection()}))
            loads[name] = replace(finite, stop=Stop(1, least_ns), endless=True)
    found: dict[str, Outlook] = {}
    for name, one in classes.items():
        mine = tuple(part for whole in promises.objectives if (part := _of_class(whole, name)) is not None)
        if any(part.scope == "run" for part in mine):
            told = one.model_copy(update={"name": f"{scenario.name}, class {name}"})
            found[name] = outlook(told, replace(promises, objectives=mine, slos=()), given, loads[name])
    rest = tuple(one for one in promises.objectives if all(_of_class(one, name) is None for name in classes))
    if promises.slos or any(one.scope == "run" for one in rest):
        together = Together(tuple((loads[name], one.open_loop) for name, one in classes.items()))
        found[""] = outlook(scenario, replace(promises, objectives=rest), given, together)
    return found


def _of_class(objective: Objective, name: str) -> Objective | None:
    """The same promise as the class has it alone; None: it is about others too."""
    mine = Condition("class", "=", (name,))
    if objective.each is not None and objective.each[1] == "class":
        return objective.narrowed(()) if objective.each[0] == "each" else None
    if mine not in objective.where:
        return None
    return replace(objective, where=tuple(part for part in objective.where if part != mine))


def _windows(promises: Promises, paces: Sequence[Pace]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lengths of alert windows up to the longest pace, and beyond it: a report says of the latter "not observable"."""
    rules = [rule for slo in promises.slos for rule in slo.rules or policy("sre-workbook", slo.period_ns)]
    if not rules and any(one.allowed is not None for one in promises.objectives):
        rules = list(policy("sre-workbook", _PERIOD_NS))
    lengths = sorted({length for rule in rules for length in (rule.short_ns, rule.long_ns)})
    most = max(pace.duration_ns for pace in paces)
    seen = tuple(length for length in lengths if most >= WHOLE * length)
    return seen, tuple(lengths[len(seen) :])


# -- what each promise counts ---------------------------------------------------------------------------------


def _of_objective(objective: Objective, load: AnyLoad, confidence: str, given: Assumptions) -> Need:
    limit = objective.allowed
    if limit is None:
        note = "judged as observed: any number of requests decides, and says nothing about the endpoint beyond this run"
        if objective.of is not None:
            note = "judged by stretches of requests: the more there are a second, the finer (docs/guide/events.md)"
        if objective.statistic in BESIDE:
            note = "with bounds: the more requests in each part, the narrower (docs/guide/overload.md)"
        return Need(str(objective), "as observed", note=note)
    found = sample(limit, confidence, given.bad_share, given.power, given.design_effect)
    indicator = catalogue().get(objective.indicator)
    scope = (
        indicator.scope
        if indicator is not None and (objective.statistic != "ratio" or indicator.scope == "query")
        else "request"
    )
    if scope == "query":
        return Need(str(objective), "with bounds", "query", found, 1 / load.per_query)
    per, note = _gaps_per_request(load) if scope == "gap" else (1.0, "")
    if objective.where:
        note = "; ".join(filter(None, (note, f"requests that are {objective.about}: it takes as many of those")))
    if objective.each:
        note = "; ".join(filter(None, (note, f"for every {objective.each[1]}: it takes as many of each")))
    if scope in ("word", "frame", "interim"):
        note = f"one {ENTRIES[scope]} a request is counted, because the scenario does not say how many there will be"
    return Need(str(objective), "with bounds", "gap" if scope == "gap" else "request", found, per, note=note)


def _of_slo(slo: Slo, load: AnyLoad, confidence: str, given: Assumptions) -> Need:
    terms, text = slo.terms, str(slo.promise)
    found = sample(terms.allowed, confidence, given.bad_share, given.power, given.design_effect)
    if terms.method == "Timeslices":
        return Need(text, "with bounds", "slice", found, slice_ns=terms.slice_ns)
    notes = []
    if terms.method == "RatioTimeslices":
        notes.append("a mean over slices, in which requests of a thin slice count for more: a floor")
    if len(terms.components) > 1:
        loads = [part.weight / part.allowed for part in terms.components]
        least = without_bad(loads, confidence, given.design_effect)
        found = replace(found, least=least, with_bad=None)
        notes.append("a composite: worked out for no bad request at all, and for nothing else")
    gaps = terms.method == "Occurrences" and any(part.events.entry == "gap" for part in terms.components)
    per, note = _gaps_per_request(load) if gaps else (1.0, "")
    notes += [note] if note else []
    return Need(text, "with bounds", "gap" if gaps else "request", found, per, note="; ".join(notes))


def _gaps_per_request(load: AnyLoad) -> tuple[float, str]:
    """One fewer than output tokens, where the scenario says how many it asks for."""
    if load.tokens is None or load.tokens <= 2:
        return 1.0, "one gap a request is counted, because the scenario does not say how many tokens are asked for"
    gaps = load.tokens - 1
    return gaps, (
        f"counted as {gaps:.4g} gaps a request. Gaps of one request depend on each other: it is a floor, and if all of "
        "them were alike, that many times the requests would be needed"
    )


# -- what that takes ------------------------------------------------------------------------------------------


def _timed(need: Need, load: AnyLoad, paces: Sequence[Pace], confidence: str, given: Assumptions) -> Need:
    found = need.sample
    if found is None:
        return need
    least, enough = (None if n is None else math.ceil(n / need.per_request) for n in (found.least, found.with_bad))
    assert least is not None
    entries = [_entries(need, pace) for pace in paces]
    note = need.note
    if found.with_bad is None and found.assumed >= found.limit:
        none = "the assumed bad share is not below the limit, so no number of requests is likely to pass"
        note = f"{none}; {note}" if note else none
    return replace(
        need,
        requests=None if need.entry == "slice" else least,
        requests_with_bad=None if need.entry == "slice" else enough,
        durations_ns=tuple(_duration(need, load, pace, least) for pace in paces),
        durations_with_bad_ns=tuple(None if enough is None else _duration(need, load, pace, enough) for pace in paces),
        reached=tuple(n >= found.least for n in entries),
        chance=tuple(
            None
            if found.with_bad is None and found.assumed < found.limit
            else chance_to_pass(n, found.limit, found.assumed, confidence, given.design_effect)
            for n in entries
        ),
        note=note,
    )


def _entries(need: Need, pace: Pace) -> int:
    """What the scenario as written gives. Half a slice at the end counts as one, as it does in a verdict."""
    if need.entry == "slice":
        return (2 * pace.duration_ns + need.slice_ns) // (2 * need.slice_ns)
    return int(pace.requests * need.per_request + 1e-9)


def _duration(need: Need, load: AnyLoad, pace: Pace, n: int) -> int:
    return n * need.slice_ns if need.entry == "slice" else load.duration_ns(n, pace.latency_ns)


def _advice(load: AnyLoad, paces: Sequence[Pace], needs: Sequence[Need]) -> list[str]:
    """The longest need that the scenario as written misses, as flags: first to pass at all, then by the power."""
    sent, lasts = min(pace.requests for pace in paces), min(pace.duration_ns for pace in paces)
    lines = []
    words = ("to be able to pass at all", "to pass as likely as asked for if the assumed share is bad")
    before = (0, 0)
    for text, counts, times in (
        (words[0], [need.requests for need in needs], [need.durations_ns for need in needs]),
        (words[1], [need.requests_with_bad for need in needs], [need.durations_with_bad_ns for need in needs]),
    ):
        n = max((count for count in counts if count is not None), default=0)
        sliced = [t[0] for t, need in zip(times, needs, strict=True) if need.entry == "slice" and t[0] is not None]
        time = max(sliced, default=0)
        flags = [f"--duration {-(-time // _SECOND_NS)}s"] if time > max(lasts, before[1]) else []
        covered = bool(flags) and all(load.duration_ns(n, pace.latency_ns) <= time for pace in paces)
        if n > max(sent, before[0]) and not covered:
            longest = max(load.duration_ns(n, pace.latency_ns) for pace in paces)
            asked = f"--queries {load.queries(n)} (about {_about(load, paces, n)})"
            flags = [f"--duration {-(-longest // _SECOND_NS)}s"] if load.endless else [*flags, asked]
        before = max(n, before[0]), max(time, before[1])
        if flags:
            later = "" if load.stop.max_duration_ns is None else ", and no max_duration before that"
            lines.append(f"{text}: {' '.join(flags)}{later}")
    return lines


def _about(load: AnyLoad, paces: Sequence[Pace], n: int) -> str:
    times = [load.duration_ns(n, pace.latency_ns) for pace in paces]
    least, most = clock(min(times)), clock(max(times))
    return least if least == most else f"{least} to {most}"


def clock(time_ns: int) -> str:
    """To what a person would wait for: 15 s, 2 min, 2 min 30 s, 13 min, 2 h 5 min; off by a twentieth at most."""
    seconds = -(-time_ns // _SECOND_NS)
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 595:
        minutes, rest = divmod(round(seconds, -1), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


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


def read(name: str | None, flags: Mapping[str, Any], asked: Asked, guesses: Guesses) -> Question:
    """Check everything. Raises HarnessFault with every error found."""
    errors: list[str] = []
    assumptions = _assumptions(guesses, errors)
    promises, problems = read_promises(asked)
    errors += problems
    scenario = None
    try:
        scenario = find_scenario(name, flags)
    except ScenarioError as error:
        errors += error.errors + ([] if name is None else errors_beyond(name, asked.any_objective))
    if scenario is not None:
        promises, problems = check_promised(scenario, name, flags, asked, promises)
        errors += problems
    if not errors and not promises.slos and not any(one.scope == "run" for one in promises.objectives):
        errors.append("nothing is promised, so there is nothing to judge. Add --slo 'p99(ttft) <= 200ms'")
    if errors or scenario is None:
        raise HarnessFault(list(dict.fromkeys(errors)))
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
    """``0.5%`` or ``0.005`` as the exact text ``0.005``. ``or_none`` allows 0; ``like`` is an error's proposal."""
    number, percent, rest = text.strip().partition("%")
    try:
        value = Fraction(number.strip()) / (100 if percent else 1)
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if rest or not (0 < value < 1 or (or_none and value == 0)):
        errors.append(f"{flag}: {text!r} is not a share below 1. Write it like {like}")
        return "0.5"
    return str(float(value))
