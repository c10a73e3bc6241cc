"""``metricSource.type: plimsoll``: what an OpenSLO indicator means in the records of a run.

    thresholdMetric   spec: {indicator: ttft, unit: ms}            one event a value; objective.value has that unit
    good, raw         spec: {events: ok}                           requests that succeeded
                      spec: {requests: "ttft <= 200ms and ..."}    ... and met every limit (also as a list)
    bad, raw          spec: {events: errors}                       requests that failed
    total             spec: {events: requests}                     every measured request

``total`` can only be every request: of any other set a failed request would fall out of the denominator, and failing
would improve the outcome. Sources of other types are valid OpenSLO, and not ours to evaluate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.objective import UNITS, Objective, ObjectiveError, parse
from plimsoll.slo.objectives.openslo.counting import Requests, Values
from plimsoll.slo.objectives.openslo.objects import OPERATORS, DataSource, Sli, Source, dangling
from plimsoll.slo.objectives.openslo.place import Place, show

TYPE = "plimsoll"
EVENTS = ("requests", "ok", "errors")
_TIMES = tuple(name for name, (_, base) in UNITS.items() if base == "ns")


@dataclass(frozen=True, slots=True)
class Threshold:
    """An indicator whose values an objective holds against ``value`` in ``unit``."""

    indicator: str
    unit: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A metric of another system. ``threshold``: a thresholdMetric, whose objective has op and value."""

    type: str
    threshold: bool


Bound = Threshold | Requests | Foreign


def bind(sli: Sli, sources: Mapping[str, DataSource | None]) -> Bound | None:
    """What an SLI counts; None when it can't be, which is then said."""
    parts: dict[str, Source] = {"thresholdMetric": sli.threshold} if sli.threshold else dict(sli.ratio)
    types = {key: _type(source, sources) for key, source in parts.items()}
    if None in types.values():
        return None
    foreign = [str(kind) for kind in types.values() if kind != TYPE]
    if foreign:
        return Foreign(foreign[0], sli.threshold is not None)
    if sli.threshold:
        return _threshold(sli.threshold.spec)
    ratio = sli.place.at("ratioMetric")
    if ratio.at("counter").value is False:
        ratio.at("counter").warn("is not used: requests of a run are counted one by one")
    if "total" in parts:
        _total(parts["total"].spec)
        key = "good" if "good" in parts else "bad"
        return _events(parts[key].spec, "success" if key == "good" else "failure")
    return _events(parts["raw"].spec, "success" if sli.raw_type == "success" else "failure")


def _type(source: Source, sources: Mapping[str, DataSource | None]) -> str | None:
    kind = source.type
    if source.ref is not None:
        if source.ref not in sources:
            dangling(source.place.at("metricSourceRef"), source.ref, "DataSource", sources)
            return None
        found = sources[source.ref]
        if found is None:
            return None  # its own errors are said already
        if kind is not None and kind != found.type:
            source.place.at("type").error(
                f"is {show(kind)}, but the DataSource {source.ref} is {show(found.type)}. Remove one of them"
            )
            return None
        kind = found.type
    if kind is not None and kind != TYPE and kind.lower() == TYPE:
        source.place.at("type").error(f"is {show(kind)}. Write {TYPE}, in lower case")
        return None
    return kind


def _threshold(spec: Place) -> Threshold | None:
    if not spec.mapping(("indicator", "unit"), ("indicator",)) or not spec.has("indicator"):
        return None
    known = catalogue()
    name = spec.at("indicator").one_of(tuple(known))
    if name is None:
        return None
    base = known[name].unit
    if base == "ns":
        if not spec.has("unit"):
            spec.at("unit").error(
                f"is missing: objective.value is a bare number. Say what it counts: unit: ms or {_others()}"
            )
            return None
        unit = spec.at("unit").one_of(_TIMES)
        return Threshold(name, unit) if unit else None
    right = "/s" if base == "per_s" else ""
    if spec.has("unit") and spec.at("unit").value != right:
        fix = "Write unit: /s" if right else f"{name} has no unit: remove it"
        spec.at("unit").error(f"is {show(spec.at('unit').value)}. {fix}")
        return None
    return Threshold(name, right)


def _others() -> str:
    return ", ".join(unit for unit in _TIMES if unit != "ms")


def _total(spec: Place) -> None:
    found = _event_set(spec)
    if found not in (None, "requests"):
        spec.error(
            "total is every measured request: of any other set failed requests would fall out of the denominator. "
            "Write {events: requests}"
        )


def _events(spec: Place, kind: Literal["success", "failure"]) -> Requests | None:
    """The good requests, from a set of good or of bad ones."""
    found = _event_set(spec)
    if kind == "success" and isinstance(found, tuple):
        return Requests(found)
    right = "ok" if kind == "success" else "errors"
    if found == right:
        return Requests(())
    if found is not None:
        hint = "{events: ok} or {requests: 'ttft <= 200ms'}" if kind == "success" else "{events: errors}"
        why = "" if kind == "success" else "; to count slow requests, state the good ones instead"
        spec.error(f"these can't be the {'good' if kind == 'success' else 'bad'} ones. Write {hint}{why}")
    return None


def _event_set(spec: Place) -> str | tuple[Objective, ...] | None:
    """The word under ``events``, or the limits under ``requests``."""
    if not spec.mapping(("events", "requests")):
        return None
    if spec.has("events") == spec.has("requests"):
        has = "both events and requests" if spec.has("events") else "neither events nor requests"
        spec.error(
            f"has {has}. Write {{events: {' | '.join(EVENTS)}}} or {{requests: 'ttft <= 200ms and tpot <= 50ms'}}"
        )
        return None
    if spec.has("events"):
        return spec.at("events").one_of(EVENTS)
    place = spec.at("requests")
    items = place.items() if isinstance(place.value, list) else (place,)
    limits: list[Objective] = []
    broken = not items
    if items == ():
        place.error("is empty. Write limits on a single request, like 'ttft <= 200ms'")
    for item in items or ():
        text = item.text()
        for one in re.split(r"\s+and\s+", text.strip()) if text else ():
            limit = _limit(item, one)
            limits += [limit] if limit else []
            broken = broken or limit is None
        broken = broken or text is None
    return None if broken else tuple(dict.fromkeys(limits))


def _limit(place: Place, text: str) -> Objective | None:
    try:
        found = parse(text)
    except ObjectiveError as error:
        place.error(error.errors[0])
        return None
    if found.scope == "request":
        return found
    place.error(f"{text!r} is about the run. Write a limit on a single request, like 'ttft <= 200ms'")
    return None


def values(bound: Threshold | Foreign, objective: Place) -> Values | None:
    """The events of a threshold metric under one objective's ``op`` and ``value``; None of another system's."""
    missing = [key for key in ("op", "value") if not objective.has(key)]
    for key in missing:
        objective.at(key).error("is missing: a thresholdMetric needs op and value. Add it, like op: lte and value: 200")
    word = objective.at("op").one_of(tuple(OPERATORS)) if objective.has("op") else None
    number = objective.at("value").number() if objective.has("value") else None
    if word is None or number is None:
        return None
    if isinstance(bound, Foreign):
        return None
    if number < 0:
        objective.at("value").error("is below 0, which no indicator ever is. Give a value from 0 up")
        return None
    value = format(Decimal(repr(objective.at("value").value)), "f")
    try:
        return Values(parse(f"{bound.indicator} {OPERATORS[word]} {value}{bound.unit}"))
    except ObjectiveError as error:
        objective.at("op").error(error.errors[0])
        return None
