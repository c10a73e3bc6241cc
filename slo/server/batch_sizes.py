"""How large the batches of a run were, as the server counted them: by size where it counts each, else by its buckets.

Counted is from the last sample before t0 to the first after the last answer. What a server counted before and after,
or others had it do meanwhile, can't be told apart; where it restarted between, nothing is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from urllib.parse import urlsplit

import numpy as np

from plimsoll.slo.server.canonical import Sizes, engines
from plimsoll.slo.server.courses import Restart, sane
from plimsoll.slo.server.served import Asked, Served, Track


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """``sizes``: (low, high, batches) of more than low and at most high members each (``exact``: of high). ``of``: what
    members are. ``why``: why nothing is known, "" where it is.
    """

    source: str
    of: str
    exact: bool
    since_ns: int
    until_ns: int
    sizes: tuple[tuple[float, float, int], ...] = ()
    why: str = ""

    @property
    def mean(self) -> float | None:
        """Of exact sizes alone."""
        n = sum(count for _, _, count in self.sizes) if self.exact else 0
        return sum(high * count for _, high, count in self.sizes) / n if n else None


def batch_sizes(served: Served, restarts: Sequence[Restart], last_ns: int) -> tuple[BatchSizes, ...]:
    """Of every source that counts them; of two engines at one host the one that ranks first."""
    served, found, taken = sane(served), list[BatchSizes](), dict[str, str]()
    for engine in engines().values():
        for sizes, (name, asked) in product(engine.sizes, served.sources.items()):
            mine = (track for track in served.tracks if track.source == name and track.family in sizes.families)
            tracks = [track for track in mine if _size(track, sizes) > 0]
            host = urlsplit(asked.origin.where).hostname or ""
            if tracks and len(asked.end_ns) and taken.setdefault(host, engine.name) == engine.name:
                found.append(_of(name, asked, sizes, tracks, restarts, last_ns))
    return tuple(found)


def _of(
    name: str, asked: Asked, sizes: Sizes, tracks: Iterable[Track], restarts: Sequence[Restart], last_ns: int
) -> BatchSizes:
    first = max(int(np.searchsorted(asked.end_ns, 0, side="right")) - 1, 0)
    last = min(int(np.searchsorted(asked.sent_ns, last_ns)), len(asked.sent_ns) - 1)
    since, until = int(asked.end_ns[first]), int(asked.sent_ns[last])
    told = BatchSizes(name, sizes.of, sizes.exact, since, until)
    if any(one.source == name and one.before_ns > since and one.after_ns < until for one in restarts):
        return replace(told, why="it restarted during the run")
    grown: Counter[float] = Counter()
    for track in tracks:
        grown[_size(track, sizes)] += round(_value(track, last) - _value(track, first))
    low, below, found = 0.0, 0, []
    for high in sorted(grown):
        count = grown[high] - below
        if count > 0:
            found.append((high - 1 if sizes.exact else low, high, count))
        low, below = high, 0 if sizes.exact else grown[high]
    return replace(told, sizes=tuple(found))


def _size(track: Track, sizes: Sizes) -> float:
    """NaN: the label is none; a bucket may have no end."""
    try:
        size = float(track.labels.get(sizes.label, "nan"))
    except ValueError:
        return math.nan
    return size if size < 1 << 62 or not sizes.exact else math.nan


def _value(track: Track, at: int) -> float:
    """What a series had counted by then: before its first sample nothing."""
    until = track.values[: int(np.searchsorted(track.at, at, side="right"))]
    known = until[~np.isnan(until)]
    return float(known[-1]) if len(known) else 0.0
