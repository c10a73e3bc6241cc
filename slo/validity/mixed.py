"""Did the generator keep its promise to every class of a mix? Each is judged by itself, and together they are one run.

A class that was not sent as planned makes the run INVALID: what the others met beside it was another load.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.selector import Condition
from plimsoll.slo.records import cancelled
from plimsoll.slo.records.records import Records
from plimsoll.slo.records.tables import Merged, merged_chunks
from plimsoll.slo.validity import lateness
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import Validity, assess, sent_of, stamp_of


def assess_run(
    records: Records,
    facts: GeneratorFacts,
    classes: Mapping[str, GeneratorFacts],
    objectives: Sequence[Objective] = (),
    *,
    judged: bool | None = None,
    strict: bool = False,
    merged: Merged | None = None,
) -> Validity:
    """As ``assess``; with ``classes``, of rows that have one of these each."""
    if not classes:
        return assess(records, facts, objectives, judged=judged, strict=strict, merged=merged)
    found = {
        name: assess(
            of_class(records, name), facts, about(name, objectives), judged=judged, strict=strict, merged=merged
        )
        for name, facts in classes.items()
    }
    parts = list(found.values())
    rows = cancelled.planned(records)
    sent = sent_of(rows, GeneratorFacts(open_loop=False, planned=0))
    stamp, share = stamp_of(rows)
    unstable = [f"class {name}: {one.unstable}" for name, one in found.items() if one.unstable is not None]

    def said(name: str, texts: Sequence[str]) -> list[str]:
        return [f"class {name}: {text}" for text in texts]

    return Validity(
        outcome="INVALID" if any(one.outcome == "INVALID" for one in parts) else "VALID",
        reasons=tuple(text for name, one in found.items() for text in said(name, one.reasons)),
        warnings=tuple(text for name, one in found.items() for text in said(name, one.warnings)),
        checks=tuple(
            replace(check, seen=f"class {name}: {check.seen}") for name, one in found.items() for check in one.checks
        ),
        planned=sum(one.planned for one in parts),
        sent=sum(one.sent for one in parts),
        unsent=sum(one.unsent for one in parts),
        offered_per_s=sum(one.offered_per_s for one in parts),
        achieved_per_s=sum(one.achieved_per_s for one in parts),
        lag_ns=lateness.summary(sent.left["sent_ns"] - sent.left["due_ns"]),
        generator_lag_ns=lateness.summary(sent.first["ready_ns"] - sent.first["due_ns"]),
        stamp=stamp,
        kernel_share=share,
        arrivals=parts[0].arrivals if all(one.arrivals is not None for one in parts) else None,
        unstable="; ".join(unstable) or None,
        merged_chunks=merged_chunks(rows) if merged is None else merged,
        live_audio=lateness.live_audio(rows),
        paced=any(one.paced for one in parts),
        pooled=any(one.pooled for one in parts),
        classes=found,
    )


def of_rows(part: Records, records: Records, validity: Validity) -> tuple[Records, Validity]:
    """The rows that a part of a run belongs to and the verdict on their generator: a class's, where they are its."""
    if not validity.classes or part.labels is None or not len(part):
        return records, validity
    place = np.asarray(part.labels.columns["class"])
    if place.min() != place.max():
        return records, validity
    name = part.labels.texts["class"][int(place[0])]
    return of_class(records, name), validity.classes[name]


def of_class(records: Records, name: str) -> Records:
    """The rows of one class."""
    labels = records.labels
    if labels is None or name not in labels.texts.get("class", ()):
        return records.select(slice(0, 0))
    place = labels.texts["class"].index(name)
    return records.select(np.flatnonzero(np.asarray(labels.columns["class"]) == place))


def about(name: str, objectives: Sequence[Objective]) -> list[Objective]:
    """Those that this class may break."""
    return [one for one in objectives if not any(_excludes(part, name) for part in one.where)]


def _excludes(part: Condition, name: str) -> bool:
    return part.label == "class" and ((part.operator == "=") != (name in part.values))
