"""The kinds of OpenSLO v1 other than the SLO itself: what one object may hold, checked key by key.

Reading one object never looks at another: references stay names with their places, for
``plimsoll.slo.objectives.openslo.reading`` to follow.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal, cast

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.objective import UNITS, Objective, ObjectiveError, parse
from plimsoll.slo.objectives.openslo.counting import Requests, Values
from plimsoll.slo.objectives.openslo.place import Duration, Place, nearest, read_duration, show
from plimsoll.slo.objectives.selector import Selector, SelectorError

VERSION = "openslo/v1"
LONGEST_DESCRIPTION = 1050
KINDS = ("SLO", "SLI", "DataSource", "AlertPolicy", "AlertCondition", "AlertNotificationTarget", "Service")
OPERATORS = MappingProxyType({"lte": "<=", "gte": ">=", "lt": "<", "gt": ">"})

_KEY = re.compile(r"[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Metadata:
    """An object's name, and its display name (else the name)."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Source:
    """A metricSource: the name of a DataSource or none, the type or none, and what stands under ``spec``."""

    place: Place
    ref: str | None
    type: str | None
    spec: Place


@dataclass(frozen=True, slots=True)
class Sli:
    """An indicator: either a threshold metric, or parts of a ratio by key (good, bad, total, raw)."""

    name: str
    place: Place
    threshold: Source | None
    ratio: Mapping[str, Source]
    raw_type: str | None


@dataclass(frozen=True, slots=True)
class Condition:
    """When an alert fires: burn rate over ``lookback`` on the wrong side of ``threshold`` for ``after``."""

    severity: str
    operator: Literal["<=", ">=", "<", ">"]
    threshold: float
    lookback: Duration
    after: Duration


@dataclass(frozen=True, slots=True)
class Policy:
    """An alert policy: its condition, or a place that names one; ``breaching``: it speaks when that holds."""

    name: str
    breaching: bool
    condition: Condition | None
    condition_ref: Place | None
    target_refs: tuple[Place, ...]


def read_metadata(whole: Place) -> Metadata | None:
    """``metadata`` of an object, checked; None when it has no usable name."""
    if not whole.has("metadata"):
        return None
    place = whole.at("metadata")
    if not place.mapping(("name", "displayName", "labels", "annotations"), ("name",)):
        return None
    name = place.at("name").name()
    title = place.at("displayName").text()
    if place.filled("labels"):
        _read_labels(place.at("labels"))
    if place.filled("annotations"):
        _read_annotations(place.at("annotations"))
    return Metadata(name, title or name) if name is not None else None


def _read_labels(place: Place) -> None:
    for key, item in _entries(place):
        if not _KEY.fullmatch(key):
            item.error("is no label. Use at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends")
        if isinstance(item.value, list):
            for one in item.items() or ():
                one.text()
        else:
            item.text()


def _read_annotations(place: Place) -> None:
    for key, item in _entries(place):
        prefix, slash, name = key.rpartition("/")
        right = len(prefix) <= 253 and _PREFIX.fullmatch(prefix) if slash else True
        if not (right and _KEY.fullmatch(name)):
            item.error("is no annotation. Write prefix.example/name or name, of letters, digits, '-', '_' and '.'")
        item.text()


def _entries(place: Place) -> list[tuple[str, Place]]:
    if not isinstance(place.value, dict):
        place.error(f"is {show(place.value)}, not a mapping. Write key: value lines below it")
        return []
    return [(key, place.at(key)) for key in place.value]


def read_head(whole: Place) -> tuple[str, Metadata | None] | None:
    """(kind, metadata) of an object; None when it is no OpenSLO v1 object, which is then said."""
    needed = ("apiVersion", "kind", "metadata") + (() if whole.at("kind").value == "Service" else ("spec",))
    if not whole.mapping(("apiVersion", "kind", "metadata", "spec"), needed):
        return None
    version = whole.at("apiVersion")
    if whole.has("apiVersion") and version.value != VERSION:
        version.error(f"is {show(version.value)}. Only {VERSION} is read: write apiVersion: {VERSION}")
    kind = whole.at("kind").one_of(KINDS)
    return (kind or "", read_metadata(whole))


def describe(spec: Place) -> None:
    """Check the description that every spec may have."""
    spec.at("description").text(LONGEST_DESCRIPTION)


def read_data_source(meta: Metadata | None, spec: Place) -> str | None:
    """Its type."""
    if not spec.mapping(("description", "type", "connectionDetails"), ("type",)):
        return None
    describe(spec)
    kind = spec.at("type").text()
    if kind == "plimsoll" and spec.has("connectionDetails"):
        spec.at("connectionDetails").warn("is not used: Plimsoll's metrics come from the run itself")
    return kind if meta else None


def read_service(spec: Place) -> None:
    if spec.value is not None and spec.mapping(("description",)):
        describe(spec)


def read_notification_target(spec: Place) -> None:
    if spec.mapping(("description", "target"), ("target",)):
        describe(spec)
        spec.at("target").text()


def read_condition(meta: Metadata | None, spec: Place) -> Condition | None:
    if not spec.mapping(("description", "severity", "condition"), ("severity", "condition")):
        return None
    describe(spec)
    severity = spec.at("severity").text()
    place = spec.at("condition")
    keys = ("kind", "op", "threshold", "lookbackWindow", "alertAfter")
    if not (spec.has("condition") and place.mapping(keys, ("threshold", "lookbackWindow"))):
        return None
    place.at("kind").one_of(("burnrate",))
    lookback = read_duration(place.at("lookbackWindow"))
    after = read_duration(place.at("alertAfter"), zero=True) if place.has("alertAfter") else Duration("0m", 0, "")
    threshold = place.at("threshold").number()
    if threshold is not None and threshold <= 0:
        place.at("threshold").error("is not above 0. Give a burn rate: 1 spends the budget exactly in its period")
        threshold = None
    operator = _read_operator(place)
    if not (meta and severity and operator and lookback and after) or threshold is None:
        return None
    return Condition(severity, operator, float(threshold), lookback, after)


def _read_operator(place: Place) -> Literal["<=", ">=", "<", ">"] | None:
    if not place.has("op"):
        place.warn("has no op; read as gt: it fires while the burn rate is above the threshold. Write op: gt")
        return ">"
    word = place.at("op").one_of(tuple(OPERATORS))
    if word in ("lt", "lte"):
        what = "at or below" if word == "lte" else "below"
        place.at("op").warn(
            f"fires while the burn rate is {what} the threshold, so while all is well. To alert on trouble write "
            f"op: {word.replace('l', 'g')}"
        )
    return cast(Literal["<=", ">=", "<", ">"], OPERATORS[word]) if word else None


def read_policy(meta: Metadata | None, spec: Place) -> Policy | None:
    """An AlertPolicy; its condition may be another object."""
    flags = ("alertWhenBreaching", "alertWhenResolved", "alertWhenNoData")
    keys = ("description", *flags, "conditions", "notificationTargets")
    if not spec.mapping(keys, ("conditions", "notificationTargets")):
        return None
    describe(spec)
    when = {flag: spec.at(flag).boolean() for flag in flags if spec.has(flag)}
    if not any(when.values()):
        spec.warn("alerts on nothing: no alertWhen... is true. Add alertWhenBreaching: true")
    elif not when.get("alertWhenBreaching"):
        spec.warn("does not alert when its condition holds, so a run shows nothing of it. Add alertWhenBreaching: true")
    condition, condition_ref = None, None
    if spec.has("conditions"):
        conditions = spec.at("conditions").items()
        if conditions is not None and len(conditions) != 1:
            spec.at("conditions").error(
                f"has {len(conditions)} conditions. OpenSLO allows exactly one: write a policy for each"
            )
        for item in conditions or ():
            inline = _inline(item, "AlertCondition", "conditionRef")
            if inline is not None:
                condition = read_condition(*inline)
            elif item.has("conditionRef"):
                condition_ref = item.at("conditionRef")
    targets = _read_targets(spec.at("notificationTargets")) if spec.has("notificationTargets") else ()
    if meta is None:
        return None
    return Policy(meta.name, bool(when.get("alertWhenBreaching")), condition, condition_ref, targets)


def _read_targets(place: Place) -> tuple[Place, ...]:
    items = place.items()
    if items == ():
        place.error("is empty. OpenSLO asks for at least one: write - targetRef: NAME")
    refs = []
    for item in items or ():
        inline = _inline(item, "AlertNotificationTarget", "targetRef")
        if inline is not None:
            read_notification_target(inline[1])
        elif item.has("targetRef"):
            refs.append(item.at("targetRef"))
    return tuple(refs)


def _inline(item: Place, kind: str, ref: str) -> tuple[Metadata | None, Place] | None:
    """(metadata, spec) of an object written in place; None for a reference, or for neither, which is said."""
    if isinstance(item.value, dict) and ref in item.value:
        if item.mapping((ref,)):
            item.at(ref).text()
        return None
    if not item.mapping(("apiVersion", "kind", "metadata", "spec"), ()):
        return None
    missing = [key for key in ("kind", "metadata", "spec") if not item.has(key)]
    if missing:
        item.error(f"has neither {ref} nor {', '.join(missing)}. Write {ref}: NAME, or the whole {kind} here")
        return None
    item.at("kind").one_of((kind,))
    return read_metadata(item), item.at("spec")


def read_alert_policy_item(item: Place) -> Policy | Place | None:
    """One of an SLO's alertPolicies: written in place, or the place of a reference."""
    inline = _inline(item, "AlertPolicy", "alertPolicyRef")
    if inline is not None:
        return read_policy(*inline)
    return item.at("alertPolicyRef") if item.has("alertPolicyRef") else None


def read_sli(meta: Metadata | None, spec: Place) -> Sli | None:
    """An SLI's spec: exactly one of thresholdMetric and ratioMetric."""
    if not spec.mapping(("description", "thresholdMetric", "ratioMetric")):
        return None
    describe(spec)
    given = [key for key in ("thresholdMetric", "ratioMetric") if spec.has(key)]
    if len(given) != 1:
        has = "both thresholdMetric and ratioMetric" if given else "neither thresholdMetric nor ratioMetric"
        spec.error(f"has {has}. Give exactly one")
        return None
    name = meta.name if meta else ""
    if given == ["thresholdMetric"]:
        source = _read_metric(spec.at("thresholdMetric"))
        return Sli(name, spec, source, MappingProxyType({}), None) if source else None
    return _read_ratio(name, spec, spec.at("ratioMetric"))


def _read_ratio(name: str, spec: Place, place: Place) -> Sli | None:
    if not place.mapping(("counter", "good", "bad", "total", "raw", "rawType")):
        return None
    place.at("counter").boolean()
    parts = [key for key in ("good", "bad", "total", "raw") if place.has(key)]
    sources = {key: source for key in parts if (source := _read_metric(place.at(key))) is not None}
    kind = place.at("rawType").one_of(("success", "failure")) if place.has("rawType") else None
    if parts not in (["good", "total"], ["bad", "total"], ["raw"]):
        has = " and ".join(parts) or "none of its parts"
        place.error(f"has {has}. Give good and total, or bad and total, or raw with rawType")
        return None
    if (parts == ["raw"]) != place.has("rawType"):
        place.error("rawType and raw belong together. Add rawType: success or failure to raw, or remove rawType")
        return None
    if len(sources) != len(parts) or (parts == ["raw"] and kind is None):
        return None
    return Sli(name, spec, None, MappingProxyType(sources), kind)


def _read_metric(place: Place) -> Source | None:
    if not place.mapping(("metricSource",), ("metricSource",)) or not place.has("metricSource"):
        return None
    source = place.at("metricSource")
    if not source.mapping(("metricSourceRef", "type", "spec")):
        return None
    ref = source.at("metricSourceRef").text()
    kind = source.at("type").text()
    if not source.has("metricSourceRef") and not source.has("type"):
        source.error("has neither metricSourceRef nor type. Write type: plimsoll, or the name of a DataSource")
        return None
    return Source(source, ref, kind, source.at("spec"))


def dangling(place: Place, name: Any, kind: str, known: Mapping[str, Any]) -> None:
    """Say that a reference leads nowhere."""
    near = nearest(str(name), tuple(known))
    place.error(f"there is no {kind} named {show(name)} in this file. {near}Correct the name, or add the {kind} here")


# -- metricSource.type plimsoll: what an indicator means in the records of a run --------------------------------------

#     thresholdMetric   spec: {indicator: ttft, unit: ms}            one event a value; objective.value has that unit
#     good, raw         spec: {events: ok}                           requests that succeeded
#                       spec: {requests: "ttft <= 200ms and ..."}    ... and met every limit (also as a list)
#     bad, raw          spec: {events: errors}                       requests that failed
#     total             spec: {events: requests}                     every measured request
#
# ``total`` can only be every request: of any other set a failed request would fall out of the denominator, and failing
# would improve the outcome. Sources of other types are valid OpenSLO, and not ours to evaluate.

TYPE = "plimsoll"
EVENTS = ("requests", "ok", "errors")
_TIMES = tuple(name for name, (_, base) in UNITS.items() if base == "ns")


@dataclass(frozen=True, slots=True)
class Threshold:
    """An indicator whose values an objective holds against ``value`` in ``unit``."""

    indicator: str
    unit: str
    where: Selector = ()


@dataclass(frozen=True, slots=True)
class Foreign:
    """A metric of another system. ``threshold``: a thresholdMetric, whose objective has op and value."""

    type: str
    threshold: bool


Bound = Threshold | Requests | Foreign


def bind(sli: Sli, sources: Mapping[str, str | None]) -> Bound | None:
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
        wheres = {_where(source.spec) for source in parts.values()}
        if len(wheres) > 1 and None not in wheres:
            parts["total"].spec.error("and the other set are of different requests. Give both the same where")
            return None
        key = "good" if "good" in parts else "bad"
        return _events(parts[key].spec, "success" if key == "good" else "failure")
    return _events(parts["raw"].spec, "success" if sli.raw_type == "success" else "failure")


def _type(source: Source, sources: Mapping[str, str | None]) -> str | None:
    kind = source.type
    if source.ref is not None:
        if source.ref not in sources:
            dangling(source.place.at("metricSourceRef"), source.ref, "DataSource", sources)
            return None
        found = sources[source.ref]
        if found is None:
            return None  # its own errors are said already
        if kind is not None and kind != found:
            source.place.at("type").error(
                f"is {show(kind)}, but the DataSource {source.ref} is {show(found)}. Remove one of them"
            )
            return None
        kind = found
    if kind is not None and kind != TYPE and kind.lower() == TYPE:
        source.place.at("type").error(f"is {show(kind)}. Write {TYPE}, in lower case")
        return None
    return kind


def _threshold(spec: Place) -> Threshold | None:
    if not spec.mapping(("indicator", "unit", "where"), ("indicator",)) or not spec.has("indicator"):
        return None
    where = _where(spec)
    known = catalogue()
    name = spec.at("indicator").one_of(tuple(known))
    if name is None:
        return None
    base = known[name].unit
    if base == "ns":
        if not spec.has("unit"):
            others = ", ".join(unit for unit in _TIMES if unit != "ms")
            spec.at("unit").error(
                f"is missing: objective.value is a bare number. Say what it counts: unit: ms or {others}"
            )
            return None
        unit = spec.at("unit").one_of(_TIMES)
        return Threshold(name, unit, where) if unit and where is not None else None
    right = {"per_s": "/s", "bytes": "B"}.get(base, "")
    if spec.has("unit") and spec.at("unit").value != right:
        fix = f"Write unit: {right}" if right else f"{name} has no unit: remove it"
        spec.at("unit").error(f"is {show(spec.at('unit').value)}. {fix}")
        return None
    return None if where is None else Threshold(name, right, where)


def _where(spec: Place) -> Selector | None:
    """The rows that a source counts, all of them if it does not say; None: that is an error, and told."""
    if not spec.has("where"):
        return ()
    text = spec.at("where").text()
    try:
        return None if text is None else selector.parse(text.strip().removeprefix("{").removesuffix("}"))
    except SelectorError as error:
        spec.at("where").error(f"is no selector: {error}")
        return None


def _total(spec: Place) -> None:
    found = _event_set(spec)
    if found not in (None, "requests"):
        spec.error(
            "total is every measured request: of any other set failed requests would fall out of the denominator. "
            "Write {events: requests}"
        )


def _events(spec: Place, kind: Literal["success", "failure"]) -> Requests | None:
    """The good requests, from a set of good or of bad ones."""
    found, where = _event_set(spec), _where(spec)
    if where is None:
        return None
    if kind == "success" and isinstance(found, tuple):
        return Requests(found, where)
    right = "ok" if kind == "success" else "errors"
    if found == right:
        return Requests((), where)
    if found is not None:
        hint = "{events: ok} or {requests: 'ttft <= 200ms'}" if kind == "success" else "{events: errors}"
        why = "" if kind == "success" else "; to count slow requests, state the good ones instead"
        spec.error(f"these can't be the {'good' if kind == 'success' else 'bad'} ones. Write {hint}{why}")
    return None


def _event_set(spec: Place) -> str | tuple[Objective, ...] | None:
    """The word under ``events``, or the limits under ``requests``."""
    if not spec.mapping(("events", "requests", "where")):
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
    word = objective.at("op").one_of(tuple(OPERATORS))
    number = objective.at("value").number()
    if word is None or number is None:
        return None
    if isinstance(bound, Foreign):
        return None
    if number < 0:
        objective.at("value").error("is below 0, which no indicator ever is. Give a value from 0 up")
        return None
    value = format(Decimal(repr(objective.at("value").value)), "f")
    try:
        where = selector.text(bound.where)
        return Values(parse(f"{bound.indicator}{where} {OPERATORS[word]} {value}{bound.unit}"))
    except ObjectiveError as error:
        objective.at("op").error(error.errors[0])
        return None
