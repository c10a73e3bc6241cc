"""One object of kind SLO, checked key by key: its time window, budgeting method, objectives and alert policies.

What it refers to stays a name with its place; ``plimsoll.slo.objectives.openslo.reading`` follows references and builds the promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from types import MappingProxyType
from typing import cast

from plimsoll.slo.objectives.objective import LEAST_SHARE
from plimsoll.slo.objectives.openslo.counting import Empty, Method
from plimsoll.slo.objectives.openslo.duration import UNITS, Duration, read_duration, read_slice_window
from plimsoll.slo.objectives.openslo.objects import (
    Metadata,
    Policy,
    Sli,
    describe,
    read_alert_policy_item,
    read_metadata,
    read_sli,
)
from plimsoll.slo.objectives.openslo.place import Place, nearest, show

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
    """An SLO object."""
    spec = whole.at("spec")
    keys = (
        "description",
        "service",
        "indicator",
        "indicatorRef",
        "timeWindow",
        "budgetingMethod",
        "objectives",
        "alertPolicies",
    )
    if not spec.mapping(keys, ("service", "budgetingMethod", "objectives")):
        return None
    describe(spec)
    service = spec.at("service").text() if spec.has("service") else None
    method = cast(Method | None, spec.at("budgetingMethod").one_of(METHODS)) if spec.has("budgetingMethod") else None
    window = _read_window(spec)
    objectives = _read_objectives(spec.at("objectives"), method) if spec.has("objectives") else ()
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
        policy = read_alert_policy_item(item)
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
    meta = read_metadata(inner)
    return read_sli(meta, inner.at("spec")) if inner.has("spec") else None


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
    duration = read_duration(item.at("duration")) if item.has("duration") else None
    rolling = item.at("isRolling").boolean() if item.has("isRolling") else None
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
    start = place.at("startTime").text() if place.has("startTime") else None
    if start is not None:
        try:
            datetime.strptime(start, "%Y-%m-%d %H:%M:%S")
        except ValueError:
            place.at("startTime").error(
                f"is {show(start)}. Write date and time, 24 hours, no zone: 2026-01-01 00:00:00"
            )
            start = None
    zone = place.at("timeZone").text() if place.has("timeZone") else None
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
    keys = (
        "displayName",
        "op",
        "value",
        "target",
        "targetPercent",
        "timeSliceTarget",
        "timeSliceWindow",
        "indicator",
        "indicatorRef",
        "compositeWeight",
    )
    if not place.mapping(keys):
        return None
    title = place.at("displayName").text() if place.has("displayName") else None
    slice_target, window = _read_slices(place, method)
    own = [key for key in ("indicator", "indicatorRef") if place.has(key)]
    if len(own) == 2:
        place.error("has both indicator and indicatorRef. Give exactly one")
    weight = Fraction(1)
    if place.has("compositeWeight"):
        found = place.at("compositeWeight").number()
        if found is not None and found <= 0:
            place.at("compositeWeight").error("is not above 0. Give a weight like 0.5; 1 is the default")
        elif found is not None and not 1 / _MOST_WEIGHT <= found <= _MOST_WEIGHT:
            place.at("compositeWeight").error("is not from 1e-6 to 1e6. Give a weight like 0.5; 1 is the default")
        elif found is not None:
            weight = found
        if not own:
            place.at("compositeWeight").error("belongs to a composite. Give this objective an indicator, or remove it")
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
    target: Fraction | None = Fraction(0)
    window = None
    if place.has("timeSliceWindow"):
        window = read_slice_window(place.at("timeSliceWindow"))
    if place.has("timeSliceTarget"):
        target = place.at("timeSliceTarget").number()
        if target is not None and not 0 < target <= 1:
            place.at("timeSliceTarget").error(
                f"is {show(place.at('timeSliceTarget').value)}. Give a share above 0, up to 1"
            )
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
