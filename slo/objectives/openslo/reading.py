"""An OpenSLO file -> the promises in it, or everything that is wrong with it at once.

References are followed inside the file only: what a gate promises should stand in one place. An SLO on the metrics of
another system is valid and kept apart (``Loaded.outside``): it can be checked and not judged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from plimsoll.documents import files
from plimsoll.documents.text import written
from plimsoll.slo.objectives.budgets.ledger import AlertRule
from plimsoll.slo.objectives.objective import ObjectiveError, other_than_objectives, read_text
from plimsoll.slo.objectives.openslo import objects
from plimsoll.slo.objectives.openslo.binding import Bound, Foreign, Threshold, bind, values
from plimsoll.slo.objectives.openslo.counting import Component, Requests, Terms, Values
from plimsoll.slo.objectives.openslo.objects import Condition, DataSource, Policy, Sli, dangling
from plimsoll.slo.objectives.openslo.place import Findings, Place, nearest, show
from plimsoll.slo.objectives.openslo.promise import Slo, percent
from plimsoll.slo.objectives.openslo.slo_object import ObjectiveRead, SloRead, read_slo


@dataclass(frozen=True, slots=True)
class Outside:
    """An SLO that Plimsoll can't evaluate: its metrics come from a source of another ``type``."""

    name: str
    type: str

    @property
    def why(self) -> str:
        """What it is and what to do."""
        return (
            f"SLO {self.name}: its metrics come from {self.type}, which a run does not have. Bind it with "
            "metricSource.type: plimsoll, or move it to another file"
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file holds: its ``text``, promises to judge, those of other systems, warnings, and how many objects of each
    kind.
    """

    file: str
    text: str
    slos: tuple[Slo, ...]
    outside: tuple[Outside, ...]
    warnings: tuple[str, ...]
    kinds: Mapping[str, int]

    def to_judge(self) -> tuple[Slo, ...]:
        """Every promise of the file. Raises ``ObjectiveError`` when one can't be judged, for then no PASS would be true."""
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
    sources: dict[str, DataSource | None] = field(default_factory=dict)
    slis: dict[str, Sli | None] = field(default_factory=dict)
    conditions: dict[str, Condition | None] = field(default_factory=dict)
    policies: dict[str, Policy | None] = field(default_factory=dict)
    targets: dict[str, None] = field(default_factory=dict)
    services: dict[str, None] = field(default_factory=dict)
    slos: list[SloRead] = field(default_factory=list)

    def read(self, whole: Place) -> None:
        """Take in one object."""
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
        bound = {name: bind(sli, self.sources) if sli else None for name, sli in self.slis.items()}
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
                dangling(place, place.value, "AlertNotificationTarget", self.targets)
        condition = policy.condition
        if policy.condition_ref is not None and isinstance(policy.condition_ref.value, str):
            name = policy.condition_ref.value
            if name not in self.conditions:
                dangling(policy.condition_ref, name, "AlertCondition", self.conditions)
            condition = self.conditions.get(name)
        if condition is None or not policy.breaching:
            return None
        look = condition.lookback.ns
        return AlertRule(
            name=policy.name,
            severity=condition.severity,
            long_ns=look,
            short_ns=look,
            factor=condition.threshold,
            operator=condition.operator,
            after_ns=condition.after.ns,
        )

    def _rules(self, slo: SloRead) -> tuple[AlertRule, ...]:
        found = []
        for item in slo.policies:
            policy: Policy | None
            if isinstance(item, Place):
                if not isinstance(item.value, str):
                    continue
                if item.value not in self.policies:
                    dangling(item, item.value, "AlertPolicy", self.policies)
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
                dangling(indicator, indicator.value, "SLI", bound)
            return bound.get(indicator.value)
        return bind(indicator, self.sources) if indicator else None

    def _build(self, slo: SloRead, bound: Mapping[str, Bound | None]) -> list[Slo | Outside]:
        rules = self._rules(slo)
        if slo.service and self.services and slo.service not in self.services:
            near = nearest(slo.service, tuple(self.services))
            slo.spec.at("service").warn(f"there is no Service named {show(slo.service)} in this file. {near}".rstrip())
        whole = None if slo.composite else self._bound(slo.indicator, bound)
        each = [self._bound(item.indicator, bound) if slo.composite else whole for item in slo.objectives]
        if _is_threshold(whole) and len(slo.objectives) > 1:
            slo.spec.at("objectives").error(
                f"has {len(slo.objectives)} objectives on one thresholdMetric. OpenSLO allows one: write an SLO for each, "
                "or give each objective its own indicator (a composite)"
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
        events = values(found, item.place)
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
    described: Any = slo.spec.at("description").value
    title = slo.meta.title
    if suffix:
        title = f"{title}: {items[0].title or suffix}"
    return Slo(
        name=slo.meta.name + suffix,
        title=title,
        service=slo.service or "",
        source=f"{slo.spec.findings.file}: {slo.spec.label}",
        terms=terms,
        period=slo.window.words,
        period_ns=slo.window.ns,
        rules=rules,
        production_per_s=slo.production_per_s,
        description=described if isinstance(described, str) else "",
    )
