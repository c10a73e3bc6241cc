"""A run of several classes: what its directory says of all of them together, and of each alone. Values only.

Each class is planned, sent and checked as a run of its own, in ``classes/NAME``; the rows of all lie together, with the
class of each, so that they are kept once and judged once. In a class queries and workers count from 0; in the run those
of class k begin at k * ``IDS`` and after the workers of the classes before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.slo.objectives.selector import Condition, selected
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.labels import SET, LabelTable
from plimsoll.slo.records.records import Records
from plimsoll.slo.validity.generator import GeneratorFacts

#: The folder of the classes' own, in the run's directory.
FOLDER = "classes"
#: So many queries a class may have: more than a plan holds.
IDS = 10_000_000_000
#: What is true of a run only where it is true of every class.
_ALL = ("open_loop", "no_endpoint", "aligned")
#: What of a class says nothing of the run.
_OWN = ("process", "frame_interval_ns", "frame_deadline_ns", "slots")
#: What of a class's manifest is not the run's.
_ITS = (
    "class",
    "first_query_id",
    "first_worker",
    "source_samples",
    "payloads_sha256",
    "scenario_sha256",
    "calibration",
    "timer",
    "token_calibration",
)


def whole(parts: Mapping[str, tuple[Mapping[str, Any], Records]]) -> Records:
    """The rows of all classes, by manifest and rows of each."""
    names = tuple(parts)
    return rec.concat([_labelled(rows, manifest, names) for manifest, rows in parts.values()])


def _labelled(rows: Records, manifest: Mapping[str, Any], names: tuple[str, ...]) -> Records:
    place, n = names.index(str(manifest["class"])), len(rows)
    held = LabelTable(MappingProxyType({}), MappingProxyType({}), n) if rows.labels is None else rows.labels
    column = np.broadcast_to(np.int64(place), n)
    own = _numbered(held.columns, int(manifest["first_query_id"]))
    labels = LabelTable(MappingProxyType({"class": column, **own}), MappingProxyType({"class": names, **held.texts}), n)
    return _moved(rows, int(manifest["first_query_id"]), int(manifest["first_worker"])).labelled(labels)


def _numbered(columns: Mapping[str, Any], by: int) -> dict[str, Any]:
    """Sessions and sets of frames are counted as queries are."""
    found = dict(columns)
    for name in found.keys() & {"session", SET}:
        number = np.asarray(found[name], np.int64)
        found[name] = np.where(number >= 0, number + by, -1)
    return found


def part(records: Records, manifest: Mapping[str, Any]) -> Records:
    """The rows of one class, as it has them itself."""
    labels = records.labels
    if labels is None or "class" not in labels.columns or manifest["class"] not in labels.texts.get("class", ()):
        return records.select(slice(0, 0))
    place = labels.texts["class"].index(str(manifest["class"]))
    mine = records.select(np.flatnonzero(np.asarray(labels.columns["class"]) == place))
    held = mine.labels
    assert held is not None
    others = {label: held.columns[label] for label in held.columns if label != "class"}
    others = _numbered(others, -int(manifest["first_query_id"]))
    texts = {label: texts for label, texts in held.texts.items() if label != "class"}
    left = LabelTable(MappingProxyType(others), MappingProxyType(texts), len(mine)) if others else None
    return _moved(mine, -int(manifest["first_query_id"]), -int(manifest["first_worker"])).labelled(left)


def only(records: Records, names: tuple[str, ...]) -> Records:
    """The rows of these classes, whose labels know of no other class and no other arm."""
    rows = selected(records, (Condition("class", "=", names),))
    assert rows.labels is not None
    columns, texts = {name: rows.labels.columns[name] for name in rows.labels.columns}, dict(rows.labels.texts)
    for label in {"class", "arm"} & texts.keys():
        there, place = np.unique(np.asarray(columns[label]), return_inverse=True)
        columns[label] = place - int((there < 0).any())
        texts[label] = tuple(texts[label][one] for one in there if one >= 0)
    return rows.labelled(LabelTable(MappingProxyType(columns), MappingProxyType(texts), len(rows)))


def _moved(rows: Records, queries: int, workers: int) -> Records:
    columns = {"query_id": rows["query_id"] + queries, "worker": rows["worker"] + workers}
    return rows.with_columns(**{name: column.astype(rec.COLUMNS[name]) for name, column in columns.items()})


def fault_of(faults: Mapping[str, HarnessFault]) -> HarnessFault:
    """One of all classes, "" of a run that is no mix: each error once, with the classes that it is of."""
    told: dict[str, list[str]] = {}
    for name, fault in faults.items():
        for text in fault.errors:
            told.setdefault(text, []).append(name)
    errors = [f"{_whose(names)}{text}" for text, names in told.items()]
    return HarnessFault(errors, next(iter(faults.values())).code)


def _whose(names: Sequence[str]) -> str:
    return f"class{'es' * (len(names) > 1)} {', '.join(names)}: " if names[0] else ""


def facts_of(parts: Mapping[str, GeneratorFacts]) -> GeneratorFacts:
    """What generators of several classes know together: counts add up, and of times the worst counts."""
    found: dict[str, Any] = {}
    for field in fields(GeneratorFacts):
        name, values = field.name, [getattr(one, field.name) for one in parts.values()]
        if name in _OWN:
            continue
        if isinstance(values[0], bool):
            found[name] = all(values) if name in _ALL else any(values)
        elif isinstance(values[0], int):
            found[name] = max(values) if name.endswith("_ns") else sum(values)
        elif isinstance(values[0], tuple):
            found[name] = tuple(
                f"class {one}: {text}" if isinstance(text, str) else text
                for one, held in zip(parts, values, strict=True)
                for text in held
            )
        else:
            found[name] = next((value for value in values if value is not None), None)
    if not all(one.plan_samples for one in parts.values()):  # a closed loop has none, and more rows than planned
        found["plan_samples"] = 0
    sent = -1 if any(one.sent < 0 for one in parts.values()) else found["sent"]
    recorded = -1 if any(one.recorded < 0 for one in parts.values()) else found["recorded"]
    return replace(GeneratorFacts(**found), sent=sent, recorded=recorded)


def manifest_of(parts: Mapping[str, Mapping[str, Any]], scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The run's manifest, made of the classes'."""
    first, listed = next(iter(parts.values())), parts.values()
    found = {key: value for key, value in first.items() if key not in _ITS}
    if any(one.get("traceparent") != first.get("traceparent") for one in listed):
        found.pop("traceparent", None)  # some requests have none, or another share of them is sampled
    prints = "".join(f"{name}\0{parts[name]['plan_fingerprint']}\0" for name in sorted(parts))
    urls = [str(one["target"]["url"]) for one in listed]
    models = [str(one["target"]["model"]) for one in listed]
    bundled = next((one["target"]["bundled"] for one in listed if one["target"]["bundled"]), None)
    target = {
        "url": " ".join(dict.fromkeys(urls)),
        "model": " ".join(dict.fromkeys(filter(None, models))),
        "bundled": bundled,
    }
    return found | {
        "scenario_name": scenario.get("name", ""),
        "seed": scenario.get("seed"),
        "target": target,
        "plan_fingerprint": hashlib.sha256(prints.encode()).hexdigest(),
        "workers": sum(int(one["workers"]) for one in listed),
        "foreseen": list(dict.fromkeys(text for one in listed for text in one.get("foreseen", ()))),
        "classes": list(parts),
    }
