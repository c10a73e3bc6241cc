"""What servers said of themselves as columns beside runs: one number a run, under the name of a quantity.

A run lacks a number where nobody said it, or where some of the run's is unknown: a largest value of what was seen would
pass for that of the run. They are shown and never compared; who names one in ``--metric`` has it compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plimsoll.slo.server.canonical import NAMES

if TYPE_CHECKING:
    from plimsoll.slo.server.server_side import ServerSide

ENERGY = "joules per output token"
_SHOWN = (
    ("max", "server.queue"),
    ("max", "server.kv_usage"),
    ("mean", "server.running"),
    ("mean", "server.batch"),
    ("mean", "server.busy"),
    ("max", "host.rss"),
    ("mean", "gpu.utilisation"),
)
#: Each column with its unit, in the order in which they stand.
COLUMNS: Mapping[str, str] = {**{f"{how}({name})": NAMES[name].unit for how, name in _SHOWN}, ENERGY: "J"}


def of_side(side: ServerSide) -> dict[str, float]:
    """Of a run whose series are at hand."""
    from plimsoll.slo.server.server_side import summary

    names = {name: {**summary(one), "unknown": int(one.unknown.sum())} for name, one in side.courses.items()}
    used = side.energy
    return of_names(names, used.joules / used.tokens if used is not None and used.tokens else None)


def of_names(names: Mapping[str, Mapping[str, Any]], per_token_j: float | None) -> dict[str, float]:
    """Of a run by the summary of each name, with how many of its samples are ``unknown``."""
    found = {
        f"{how}({name})": float(value)
        for how, name in _SHOWN
        if name in names and not names[name]["unknown"] and (value := names[name].get(how)) is not None
    }
    return found if per_token_j is None else {**found, ENERGY: per_token_j}


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of several runs, of each column that all of them have."""
    return {
        name: statistics.median(one[name] for one in runs)
        for name in COLUMNS
        if runs and all(name in one for one in runs)
    }
