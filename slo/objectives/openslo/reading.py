"""An OpenSLO file -> the promises in it, or everything that is wrong with it at once.

References are followed inside the file only: what a gate promises should stand in one place. An SLO on the metrics of
another system is valid and kept apart (``Loaded.outside``): it can be checked and not judged.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import cast

from plimsoll.documents import files
from plimsoll.slo.objectives.ledger import AlertRule
from plimsoll.slo.objectives.objective import LEAST_SHARE, ObjectiveError, other_than_objectives, read_text
from plimsoll.slo.objectives.openslo import objects
from plimsoll.slo.objectives.openslo.counting import Component, Empty, Method, Requests, Terms, Values
from plimsoll.slo.objectives.openslo.objects import Bound, Condition, Foreign, Metadata, Policy, Sli, Threshold
from plimsoll.slo.objectives.openslo.place import (
    UNITS,
    Duration,
    Findings,
    Place,
    nearest,
    read_duration,
    read_slice_window,
    show,
)
from plimsoll.slo.objectives.openslo.promise import Slo, percent

# -- one object of kind SLO, checked key by key -----------------------------------------------------------------------

_SLO_KEYS = (
    *("description", "service", "indicator", "indicatorRef"),
    *("timeWindow", "budgetingMethod", "objectives", "alertPolicies"),
)
_OBJECTIVE_KEYS = (
    *("displayName", "op", "value", "target", "targetPercent", "timeSliceTarget", "timeSliceWindow"),
    *("indicator", "indicatorRef", "compositeWeight"),
)
METHODS: tuple[Method, ...] = ("Occurrences", "Timeslices", "RatioTimeslices")
EMPTY_SLICES = "plimsoll.io/empty-slices"
PRODUCTION_RATE = "plimsoll.io/production-rate"
_ANNOTATIONS = (EMPTY_SLICES, PRODUCTION_RATE)
_DEFAULT_NS = 30 * UNITS["d"][0]
_MOST_WEIGHT = Fraction(10**6)

#: method -> what it asks of an objective: (needs timeSliceTarget, needs timeSliceWindow).
_SLICE_KEYS = MappingProxyType(
    {"Occurrences": (False, False), "Timeslices": (True, True), "RatioTimeslices": (False, True)}
)


@dataclass(frozen=True, slots=True)
class Window:
    """A budgeting period."""

    words: str
    ns: int


@dataclass(frozen=True, slots=True)
class ObjectiveRead:
    """One objective; ``indicator``: its own in a composite, written here or the place of a name."""

    place: Place
    title: str | None
    target: Fraction | None
    slice_target: Fraction
    window: Duration | None
    weight: Fraction
    indicator: Sli | Place | None
    composite: bool


@dataclass(frozen=True, slots=True)
class SloRead:
    """An SLO as it stands; None where a part is broken, which is said already."""

    meta: Metadata | None
    spec: Place
    service: str | None
    method: Method | None
    window: Window | None
    objectives: tuple[ObjectiveRead, ...]
    indicator: Sli | Place | None
    composite: bool
    policies: tuple[Policy | Place, ...]
    empty: Empty | None
    production_per_s: float | None


def read_slo(meta: Metadata | None, whole: Place) -> SloRead | None:
    spec = whole.at("spec")
    if not spec.mapping(_SLO_KEYS, ("service", "budgetingMethod", "objectives")):
        return None
    objects.describe(spec)
    service = spec.at("service").text()
    method = cast(Method | None, spec.at("budgetingMethod").one_of(METHODS))
    window = _read_window(spec)
    objectives = _read_objectives(spec.at("objectives"), method)
    composite = any(item.composite for item in objectives)
    own = [key for key in ("indicator", "indicatorRef") if spec.has(key)]
    indicator = None
    if composite:
        for key in own:
            spec.at(key).error("stands beside objectives with indicators of their own. Give one here, or one in each")
        for objective in objectives:
            if not objective.composite:
                objective.place.error("has no indicator, but another objective has. In a composite each needs its own")
    elif len(own) != 1:
        has = "both indicator and indicatorRef" if own else "neither indicator nor indicatorRef"
        spec.error(f"has {has}. Give exactly one (or, for a composite, one in each objective)")
    else:
        indicator = _read_indicator(spec, own[0])
    policies = []
    for item in (spec.at("alertPolicies").items() or ()) if spec.filled("alertPolicies") else ():
        policy = objects.read_alert_policy_item(item)
        policies += [policy] if policy is not None else []
    empty, production = _read_annotations(whole, method)
    return SloRead(
        meta, spec, service, method, window, objectives, indicator, composite, tuple(policies), empty, production
    )


def _read_indicator(place: Place, key: str) -> Sli | Place | None:
    inner = place.at(key)
    if key == "indicatorRef":
        return inner if inner.text() else None
    if not inner.mapping(("metadata", "spec"), ("metadata", "spec")):
        return None
    meta = objects.read_metadata(inner)
    return objects.read_sli(meta, inner.at("spec")) if inner.has("spec") else None


# -- the period -----------------------------------------------------------------------------------------------


def _read_window(spec: Place) -> Window | None:
    if not spec.filled("timeWindow"):
        spec.warn("has no timeWindow, so budgets are told for a rolling 30 days. Add timeWindow to say which period")
        return Window("a rolling 30 days", _DEFAULT_NS)
    items = spec.at("timeWindow").items()
    if items is None:
        return None
    if len(items) != 1:
        spec.at("timeWindow").error(f"has {len(items)} items. OpenSLO takes exactly one: an SLO has one period")
        return None
    item = items[0]
    if not item.mapping(("duration", "isRolling", "calendar"), ("duration",)):
        return None
    duration = read_duration(item.at("duration"))
    rolling = item.at("isRolling").boolean()
    calendar = _read_calendar(item.at("calendar")) if item.has("calendar") else None
    if rolling is True and item.has("calendar"):
        item.error("is rolling and has a calendar. Remove calendar, or write isRolling: false")
    elif rolling is False and not item.has("calendar"):
        item.error(
            "is not rolling and has no calendar. Write isRolling: true, or add calendar with startTime and timeZone"
        )
    elif not item.has("isRolling") and not item.has("calendar"):
        item.error("says neither isRolling nor calendar. Write isRolling: true for the last period up to now")
    if duration is None:
        return None
    return Window(f"{calendar}, {duration.words} each" if calendar else f"a rolling {duration.words}", duration.ns)


def _read_calendar(place: Place) -> str | None:
    if not place.mapping(("startTime", "timeZone"), ("startTime", "timeZone")):
        return None
    start = place.at("startTime").text()
    if start is not None:
        try:
            datetime.strptime(start, "%Y-%m-%d %H:%M:%S")
        except ValueError:
            place.at("startTime").error(
                f"is {show(start)}. Write date and time, 24 hours, no zone: 2026-01-01 00:00:00"
            )
            start = None
    zone = place.at("timeZone").text()
    if zone is not None and not _zone_exists(zone, place.at("timeZone")):
        zone = None
    return f"calendar periods from {start} {zone}" if start and zone else None


def _zone_exists(name: str, place: Place) -> bool:
    from zoneinfo import ZoneInfo, available_timezones

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        known = available_timezones()
        if not known:
            place.warn("can't be checked: this machine has no time zone database")
            return True
        place.error(
            f"is {show(name)}. {nearest(name, sorted(known))}Give a name of the IANA database, like Europe/Berlin"
        )
        return False
    return True


# -- objectives -----------------------------------------------------------------------------------------------


def _read_objectives(place: Place, method: Method | None) -> tuple[ObjectiveRead, ...]:
    items = place.items()
    if items == ():
        place.error("is empty. Add one, like - target: 0.99")
    return tuple(found for item in items or () if (found := _read_objective(item, method)) is not None)


def _read_objective(place: Place, method: Method | None) -> ObjectiveRead | None:
    if not place.mapping(_OBJECTIVE_KEYS):
        return None
    title = place.at("displayName").text()
    slice_target, window = _read_slices(place, method)
    own = [key for key in ("indicator", "indicatorRef") if place.has(key)]
    if len(own) == 2:
        place.error("has both indicator and indicatorRef. Give exactly one")
    weight = Fraction(1)
    if place.has("compositeWeight"):
        key = place.at("compositeWeight")
        found = key.number()
        if found is not None and found <= 0:
            key.error("is not above 0. Give a weight like 0.5; 1 is the default")
        elif found is not None and not 1 / _MOST_WEIGHT <= found <= _MOST_WEIGHT:
            key.error("is not from 1e-6 to 1e6. Give a weight like 0.5; 1 is the default")
        weight = found or weight
        if not own:
            key.error("belongs to a composite. Give this objective an indicator, or remove it")
    indicator = _read_indicator(place, own[0]) if len(own) == 1 else None
    return ObjectiveRead(place, title, _read_target(place), slice_target, window, weight, indicator, bool(own))


def _read_target(place: Place) -> Fraction | None:
    given = [key for key in ("target", "targetPercent") if place.has(key)]
    if len(given) != 1:
        has = "both target and targetPercent" if given else "neither target nor targetPercent"
        place.error(f"has {has}. Give exactly one: target: 0.995 or targetPercent: 99.5")
        return None
    key = place.at(given[0])
    top = 1 if given[0] == "target" else 100
    number = key.number()
    if number is None:
        return None
    if LEAST_SHARE <= number / top <= 1 - LEAST_SHARE:
        return number / top
    if number == 0:
        key.error("is 0: that promises nothing. Give a share above 0")
    elif number == top:
        key.error(f"is {top}: no error budget is left, and no run can show it. Give one below, like {0.999 * top:g}")
    elif 0 < number < top:
        key.error(f"is {show(key.value)}: nearer to 0 or {top} than any run can show. Give one like {0.999 * top:g}")
    else:
        other = " If percent is meant, write targetPercent" if top == 1 and 1 < number <= 100 else ""
        key.error(f"is {show(key.value)}. Give a number above 0 and below {top}.{other}".rstrip("."))
    return None


def _read_slices(place: Place, method: Method | None) -> tuple[Fraction, Duration | None]:
    window, share = read_slice_window(place.at("timeSliceWindow")), place.at("timeSliceTarget")
    target = share.number()
    if target is not None and not 0 < target <= 1:
        share.error(f"is {show(share.value)}. Give a share above 0, up to 1")
    if method is not None:
        for key, wanted in zip(("timeSliceTarget", "timeSliceWindow"), _SLICE_KEYS[method], strict=True):
            if wanted and not place.has(key):
                place.at(key).error(f"is missing: budgetingMethod {method} needs it. Add it, like {_EXAMPLE[key]}")
            elif place.has(key) and not wanted:
                place.at(key).error(f"does not go with budgetingMethod {method}. Remove it, or choose Timeslices")
    return target or Fraction(0), window


_EXAMPLE = MappingProxyType({"timeSliceTarget": "timeSliceTarget: 0.95", "timeSliceWindow": "timeSliceWindow: 1m"})


# -- our annotations ------------------------------------------------------------------------------------------


def _read_annotations(whole: Place, method: Method | None) -> tuple[Empty | None, float | None]:
    places = whole.at("metadata").at("annotations")
    given = places.value if isinstance(places.value, dict) else {}
    for key in given:
        if key.startswith("plimsoll.io/") and key not in _ANNOTATIONS:
            places.at(key).error(f"unknown annotation. {nearest(key, _ANNOTATIONS)}Known: {', '.join(_ANNOTATIONS)}")
    empty = places.at(EMPTY_SLICES).one_of(("exclude", "good", "bad")) if EMPTY_SLICES in given else None
    if empty and method == "Occurrences":
        places.at(EMPTY_SLICES).warn("is not used: Occurrences has no slices")
    rate = None
    text = given.get(PRODUCTION_RATE)
    if isinstance(text, str):  # anything else is an error of annotations, said there
        place = places.at(PRODUCTION_RATE)
        try:
            rate = float(text)
        except ValueError:
            rate = 0.0
        if not 1e-9 <= rate <= 1e12:
            place.error(f"is {show(text)}. Give events per second above 0 (1e-9 to 1e12) as a text, like '100'")
            rate = None
        elif method in ("Timeslices", "RatioTimeslices"):
            place.warn(f"is not used: {method} counts slices, which come at the rate of the clock")
            rate = None
    return cast(Empty | None, empty), rate


@dataclass(frozen=True, slots=True)
class Outside:
    """An SLO that Plimsoll can't evaluate: its metrics come from a source of another ``type``."""

    name: str
    type: str

    @property
    def why(self) -> str:
        return (
            f"SLO {self.name}: its metrics come from {self.type}, which a run does not have. Bind it with "
            "metricSource.type: plimsoll, or move it to another file"
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file: its ``text``, promises to judge, those of other systems, warnings, how many objects of each kind."""

    file: str
    text: str
    slos: tuple[Slo, ...]
    outside: tuple[Outside, ...]
    warnings: tuple[str, ...]
    kinds: Mapping[str, int]

    def to_judge(self) -> tuple[Slo, ...]:
        """Every promise of the file.

        Raises ``ObjectiveError`` when one can't be judged, for then no PASS would be true.
        """
        errors = [f"{self.file}: {one.why}" for one in self.outside]
        if not errors and not self.slos:
            errors.append(f"{self.file}: there is no SLO in it, so nothing is promised. Add an object of kind SLO")
        if errors:
            raise ObjectiveError(errors)
        return self.slos


def recognise(path: Path) -> bool:
    """Whether a file is meant as OpenSLO: it has an apiVersion or a kind. False for one that can't be read."""
    try:
        text = files.read_text(path)
    except (OSError, UnicodeDecodeError):
        return False
    return re.search(r"""^(?:- +| +|\{ *)?["']?(?:apiVersion|kind)["']? *:""", text, re.MULTILINE) is not None


def starter() -> str:
    """A commented file to begin with."""
    return (Path(__file__).parent / "starter.yaml").read_text(encoding="utf-8")


def load(path: Path) -> Loaded:
    """The promises of a file. Raises ``ObjectiveError`` with every mistake in it."""
    return parse(read_text(path), str(path))


def parse(text: str, file: str = "openslo") -> Loaded:
    """As ``load``, from text."""
    findings = Findings(file)
    found = _Objects(findings)
    from plimsoll.documents.text import written  # the parser of YAML, for who reads a file

    for one in written(text):
        if other := other_than_objectives(one.value):
            raise ObjectiveError(f"{file}: {other}")
        place = Place(one.value, (), one, findings)
        for mistake in one.errors:
            place.error(mistake.what, mistake.line)
        if one.value is not None:
            found.read(place)
    if not found.seen and not findings.errors:
        findings.errors.append((1, 1, f"{file}: is empty. Write objects of OpenSLO, or begin with plimsoll slo init"))
    slos, outside = found.promises()
    if findings.errors:
        raise ObjectiveError(findings.texts(findings.errors))
    counted = Counter(kind for kind, _ in found.seen)
    return Loaded(file, text, slos, outside, findings.texts(findings.warnings), MappingProxyType(dict(counted)))


@dataclass(slots=True)
class _Objects:
    """The objects of one file by kind and name; a value of None is one whose errors are said already."""

    findings: Findings
    seen: list[tuple[str, str]] = field(default_factory=list)
    first: dict[tuple[str, str], int] = field(default_factory=dict)
    sources: dict[str, str | None] = field(default_factory=dict)
    slis: dict[str, Sli | None] = field(default_factory=dict)
    conditions: dict[str, Condition | None] = field(default_factory=dict)
    policies: dict[str, Policy | None] = field(default_factory=dict)
    targets: dict[str, None] = field(default_factory=dict)
    services: dict[str, None] = field(default_factory=dict)
    slos: list[SloRead] = field(default_factory=list)

    def read(self, whole: Place) -> None:
        head = objects.read_head(whole)
        if head is None:
            return
        kind, meta = head
        name = meta.name if meta else ""
        self.seen.append((kind, name))
        if meta and kind:
            if (kind, name) in self.first:
                line = self.first[kind, name]
                whole.at("metadata").at("name").error(f"{kind} {name} exists already, in line {line}. Rename one")
            self.first.setdefault((kind, name), whole.line)
        if not kind or not (whole.has("spec") or kind == "Service"):
            return
        spec = whole.at("spec")
        if kind == "SLO":
            slo = read_slo(meta, whole)
            self.slos += [slo] if slo else []
        elif kind == "SLI":
            self.slis.setdefault(name, objects.read_sli(meta, spec))
        elif kind == "DataSource":
            self.sources.setdefault(name, objects.read_data_source(meta, spec))
        elif kind == "AlertPolicy":
            self.policies.setdefault(name, objects.read_policy(meta, spec))
        elif kind == "AlertCondition":
            self.conditions.setdefault(name, objects.read_condition(meta, spec))
        elif kind == "AlertNotificationTarget":
            objects.read_notification_target(spec)
            self.targets.setdefault(name)
        else:
            objects.read_service(spec)
            self.services.setdefault(name)

    def promises(self) -> tuple[tuple[Slo, ...], tuple[Outside, ...]]:
        """Follow every reference and build every promise that can be."""
        bound = {name: objects.bind(sli, self.sources) if sli else None for name, sli in self.slis.items()}
        for policy in self.policies.values():
            if policy is not None:
                self._rule(policy)
        slos: list[Slo] = []
        outside: list[Outside] = []
        for slo in self.slos:
            built = self._build(slo, bound)
            slos += [one for one in built if isinstance(one, Slo)]
            outside += [one for one in built if isinstance(one, Outside)]
        return tuple(slos), tuple(dict.fromkeys(outside))

    # -- alerts ----------------------------------------------------------------------------------------------

    def _rule(self, policy: Policy) -> AlertRule | None:
        for place in policy.target_refs:
            if isinstance(place.value, str) and place.value not in self.targets:
                objects.dangling(place, place.value, "AlertNotificationTarget", self.targets)
        condition = policy.condition
        if policy.condition_ref is not None and isinstance(policy.condition_ref.value, str):
            name = policy.condition_ref.value
            if name not in self.conditions:
                objects.dangling(policy.condition_ref, name, "AlertCondition", self.conditions)
            condition = self.conditions.get(name)
        if condition is None or not policy.breaching:
            return None
        look, after = condition.lookback.ns, condition.after.ns
        return AlertRule(policy.name, condition.severity, look, look, condition.threshold, condition.operator, after)

    def _rules(self, slo: SloRead) -> tuple[AlertRule, ...]:
        found = []
        for item in slo.policies:
            policy: Policy | None
            if isinstance(item, Place):
                if not isinstance(item.value, str):
                    continue
                if item.value not in self.policies:
                    objects.dangling(item, item.value, "AlertPolicy", self.policies)
                policy = self.policies.get(item.value)
            else:
                policy = item
            rule = self._rule(policy) if policy else None
            found += [rule] if rule else []
        return tuple(dict.fromkeys(found))

    # -- indicators ------------------------------------------------------------------------------------------

    def _bound(self, indicator: Sli | Place | None, bound: Mapping[str, Bound | None]) -> Bound | None:
        if isinstance(indicator, Place):
            if indicator.value not in bound:
                objects.dangling(indicator, indicator.value, "SLI", bound)
            return bound.get(indicator.value)
        return objects.bind(indicator, self.sources) if indicator else None

    def _build(self, slo: SloRead, bound: Mapping[str, Bound | None]) -> list[Slo | Outside]:
        rules = self._rules(slo)
        if slo.service and self.services and slo.service not in self.services:
            near = nearest(slo.service, tuple(self.services))
            slo.spec.at("service").warn(f"there is no Service named {show(slo.service)} in this file. {near}".rstrip())
        whole = None if slo.composite else self._bound(slo.indicator, bound)
        each = [self._bound(item.indicator, bound) if slo.composite else whole for item in slo.objectives]
        if _is_threshold(whole) and len(slo.objectives) > 1:
            slo.spec.at("objectives").error(
                f"has {len(slo.objectives)} objectives on one thresholdMetric. OpenSLO allows one: write an SLO for "
                "each, or give each objective its own indicator (a composite)"
            )
        foreign = [one for one in each if isinstance(one, Foreign)]
        parts = [_component(slo, i, one) for i, one in enumerate(each)]
        if foreign:
            return [Outside(slo.meta.name if slo.meta else "", foreign[0].type)]
        if slo.meta is None or slo.method is None or slo.window is None or not parts or None in parts:
            return []
        known = [part for part in parts if part is not None]
        if slo.composite:
            _alike(slo)
            return [_promise(slo, slo.objectives, tuple(known), rules, "")]
        several = len(known) > 1
        return [
            _promise(slo, (slo.objectives[i],), (part,), rules, f"[{i}]" if several else "")
            for i, part in enumerate(known)
        ]


def _is_threshold(found: Bound | None) -> bool:
    return isinstance(found, Threshold) or (isinstance(found, Foreign) and found.threshold)


def _component(slo: SloRead, number: int, found: Bound | None) -> Component | None:
    """What one objective promises of what it counts; None when a part is broken, or belongs to another system."""
    item = slo.objectives[number]
    if slo.window and item.window and item.window.ns > slo.window.ns:
        item.place.at("timeSliceWindow").error(f"is longer than the SLO's period, {slo.window.words}. Shorten it")
    events: Values | Requests | None
    if found is None:
        return None
    if not isinstance(found, Requests) and _is_threshold(found):
        events = objects.values(found, item.place)
    else:
        if item.place.has("value"):
            item.place.at("value").error("goes with a thresholdMetric only, and this is a ratioMetric. Remove it")
        if item.place.has("op"):
            item.place.at("op").warn("is ignored: it goes with a thresholdMetric, and this is a ratioMetric. Remove it")
        events = found if isinstance(found, Requests) else None
    if events is None or item.target is None:
        return None
    title = item.title or (item.indicator.name if isinstance(item.indicator, Sli) else "")
    if not title and isinstance(item.indicator, Place):
        title = str(item.indicator.value)
    return Component(title or f"objective {number}", events, item.target, item.weight, item.slice_target)


def _alike(slo: SloRead) -> None:
    """The slices of a composite are slices of one clock, and its share of slices has one target."""
    if slo.method == "Occurrences":
        return
    first = slo.objectives[0]
    for item in slo.objectives[1:]:
        if item.window and first.window and item.window.ns != first.window.ns:
            item.place.at("timeSliceWindow").error(
                "differs from the first objective's. A composite has one slice window"
            )
        if item.target and first.target and item.target != first.target:
            item.place.error(
                f"promises {percent(item.target)}, the first objective {percent(first.target)}. With {slo.method} a "
                "composite has one target: make them equal, or use Occurrences"
            )


def _promise(
    slo: SloRead,
    items: tuple[ObjectiveRead, ...],
    parts: tuple[Component, ...],
    rules: tuple[AlertRule, ...],
    suffix: str,
) -> Slo:
    assert slo.meta is not None
    assert slo.method is not None
    assert slo.window is not None
    window = items[0].window
    terms = Terms(slo.method, parts, window.ns if window else 0, slo.empty or "exclude")
    described = slo.spec.at("description").value
    return Slo(
        name=slo.meta.name + suffix,
        title=f"{slo.meta.title}: {items[0].title or suffix}" if suffix else slo.meta.title,
        service=slo.service or "",
        source=f"{slo.spec.findings.file}: {slo.spec.label}",
        terms=terms,
        period=slo.window.words,
        period_ns=slo.window.ns,
        rules=rules,
        production_per_s=slo.production_per_s,
        description=described if isinstance(described, str) else "",
    )
