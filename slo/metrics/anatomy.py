"""Where the time of a typical and of a slow request goes: the stages that servers report, by percentile of latency.
Pure.

What servers say of their stages, ``plimsoll.slo.metrics.stages`` reads. A percentile of each stage alone would add
up to no request that ever was; so the requests nearest in rank to p50, and those nearest to p99, are taken whole, and
the means of their stages are shown. It refuses to blame: what no stage explains is named as that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.metrics.stages import longest, parent, parse
from plimsoll.slo.records.records import IntArray, Records

PERCENTILES = (50.0, 99.0)
#: Requests of a band: this share of all, nearest in rank to the percentile; not fewer than so many where the ranks
#: allow it, and not more.
BAND_SHARE, BAND_MIN, BAND_MAX = 0.01, 10, 1000
#: Stages shown; a server that names each request's stages otherwise has no anatomy worth a page.
MAX_STAGES = 24


@dataclass(frozen=True, slots=True)
class Band:
    """The ``n`` requests around one percentile of latency; means over them, ns.

    ``held_ns``: from when they were due until they were sent (the generator late, or no connection free).
    ``stages_ns``: of the stages in the order in which servers name them; 0 for a request that does not name it.
    ``rest_ns``: what no stage explains (network, kernel, the server's own front-end); negative where the stages
    overlap.
    """

    percentile: float
    n: int
    latency_ns: int
    held_ns: int
    stages_ns: dict[str, int]
    rest_ns: int


@dataclass(frozen=True, slots=True)
class Anatomy:
    """``n`` successful requests said how long their stages took, of ``n_ok`` that succeeded."""

    n: int
    n_ok: int
    bands: tuple[Band, ...]


def anatomy(records: Records) -> Anatomy | None:
    """The anatomy of the measured requests that succeeded; None when none of them named a stage."""
    ok = records.in_measure & records.ok & (records["done_ns"] >= 0)
    said = np.flatnonzero(ok & (records["server_timing"] >= 0))
    if not len(said):
        return None
    latency = records["done_ns"][said] - records["due_ns"][said]
    bands = [_band(records, said[around(latency, percentile)], percentile) for percentile in PERCENTILES]
    if not any(band.stages_ns for band in bands):
        return None
    return Anatomy(len(said), int(np.count_nonzero(ok)), tuple(bands))


def around(latency: IntArray, percentile: float) -> IntArray:
    """The places of the values nearest in rank to the percentile (nearest rank), evenly to both sides; fewer where the
    ranks end. Of equal ones the earlier is the lower.
    """
    n = len(latency)
    rank = max(0, int(np.ceil(n * percentile / 100)) - 1)
    half = max(BAND_MIN, min(BAND_MAX, int(n * BAND_SHARE))) // 2
    half = min(half, rank, n - 1 - rank)
    first, last = rank - half, rank + half
    ends = np.partition(latency, (first, last))
    some = np.flatnonzero((latency >= ends[first]) & (latency <= ends[last]))
    below = int(np.count_nonzero(latency < ends[first]))
    return some[np.argsort(latency[some], kind="stable")][first - below : last - below + 1]


def _band(records: Records, rows: IntArray, percentile: float) -> Band:
    told = zip(records["server_timing"][rows].tolist(), longest(records.select(rows)).tolist(), strict=True)
    parsed = [{name: ns for name, ns in parse(records.timings[i]).items() if ns <= most} for i, most in told]
    stages = {name: round(sum(one.get(name, 0) for one in parsed) / len(parsed)) for name in _names(parsed)}
    latency = _mean(records["done_ns"][rows] - records["due_ns"][rows])
    sent = records["sent_ns"][rows]
    held = _mean(np.where(sent >= 0, sent - records["due_ns"][rows], 0))
    whole = sum(ns for name, ns in stages.items() if not _is_part(name, stages))
    return Band(percentile, len(rows), latency, held, stages, latency - held - whole)


def _names(parsed: Sequence[dict[str, int]]) -> list[str]:
    """Every stage once, in the order in which most requests first name it; parts directly after their whole."""
    seen: dict[str, list[int]] = {}
    for one in parsed:
        for place, name in enumerate(one):
            seen.setdefault(name, []).append(place)
    common = sorted(seen, key=lambda name: (-len(seen[name]), name))[:MAX_STAGES]
    by_place = sorted(common, key=lambda name: (sum(seen[name]) / len(seen[name]), name))
    wholes = [name for name in by_place if not _is_part(name, common)]
    return [name for whole in wholes for name in by_place if name == whole or name.startswith(f"{whole}.")]


def wholes(records: Records) -> list[str]:
    """The stages that most texts name and that are no part of another one, at most ``MAX_STAGES``."""
    said = Counter(name for text in records.timings for name in parse(text))
    return [name for name, _ in said.most_common(MAX_STAGES) if not _is_part(name, said)]


def _is_part(stage: str, names: Container[str]) -> bool:
    """Whether the stage is a part of one that is named too, at whatever depth."""
    while stage := parent(stage):
        if stage in names:
            return True
    return False


def _mean(values: IntArray) -> int:
    return round(float(values.mean()))
