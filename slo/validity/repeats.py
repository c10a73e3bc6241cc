"""Requests that were sent more than once: counted, told, and what the verdicts were if they counted as failed.

A request is repeated only where the server can't have begun it: it had closed the connection before a byte of it came,
or said that it refuses the call. That may still be its fault, so what would change if it were is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict
from plimsoll.slo.records.records import BoolArray, Records, Status
from plimsoll.slo.validity.generator import GeneratorFacts


def repeated(records: Records) -> BoolArray:
    """bool[n]: the measured row's request was sent more than once."""
    return np.asarray(records.in_measure & (records["attempts"] > 1))


def warnings(records: Records, facts: GeneratorFacts) -> list[str]:
    """That some were, and why. An older run counted them and kept no column of it."""
    rows = repeated(records)
    n, failed = int(rows.sum()), int((rows & ~records.ok).sum())
    if not n:
        older = (
            f"{facts.retried} requests were sent again on another connection, none of which is known to be a measured one "
            "(column attempts). If the run is older than that column, the server may have read and dropped some of them: "
            "measure again"
        )
        return [older] if facts.retried else []
    end = f"{failed} of them failed all the same" if failed else "all of them were answered then"
    advice = (
        "" if failed else ". If it closes connections that are idle, a longer keep-alive time-out on it avoids this"
    )
    return [
        f"{n} of {len(records)} requests were sent again, because the server had closed the connection, or refused the "
        f"call, before it could read them; {end}, and their latency includes it (column attempts){advice}"
    ]


def as_failures(records: Records) -> Records | None:
    """The records with every answer to a repeated request as a failure; None where there is none."""
    rows = repeated(records) & records.ok
    if not rows.any():
        return None
    status = np.where(rows, int(Status.CONNECT), records["status"]).astype(np.int8)
    status.setflags(write=False)
    columns = MappingProxyType({**records.columns, "status": status})
    return replace(records, columns=columns)


def told(
    found: Sequence[ObjectiveVerdict], records: Records, judge: Callable[[Records], Sequence[ObjectiveVerdict]]
) -> tuple[ObjectiveVerdict, ...]:
    """The same verdicts; one that another count of repeated requests changes says so. ``judge`` judges these objectives
    on other records.
    """
    other = as_failures(records)
    if other is None:
        return tuple(found)
    n = int((repeated(records) & records.ok).sum())
    result = []
    for one, failing in zip(found, judge(other), strict=True):
        if one.outcome != failing.outcome:
            said = f"with the {n} requests that were sent again counted as failed it is {failing.outcome}"
            one = replace(one, detail=f"{one.detail}; {said}", repeats=said)
        result.append(one)
    return tuple(result)
