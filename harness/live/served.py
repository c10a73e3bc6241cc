"""What a server says of itself while a run goes on: the scraper's file (``server.samples``), read on at each look.

Of each source those samples are held that the next window of something counted begins with: the last one, or where
several sources tell of one thing those since all of them were read, thinned where one of them is silent for long. A
run of a week takes no more memory. What was said is told by name, as the report of the sealed run has it.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plimsoll.harness.sealing.samples_file import SAMPLES, Reader
from plimsoll.reports.sections.server import DRAWN
from plimsoll.slo.server.courses import Course, courses
from plimsoll.slo.server.served import SCRAPE, Asked, Block, Served, Track

#: Samples that are taken at once, where nobody looked for long.
_AT_ONCE = 256
#: Samples of a source that are held; beyond them every other one, because what was counted is in the next.
_HELD = 64
_NEVER = 2**63


@dataclass(frozen=True, slots=True)
class Said:
    """One value of a name at ``at_ns`` after t0; NaN: it is unknown. Of what is counted, what it grew by in
    ``seconds``, else 0 seconds.
    """

    name: str
    at_ns: int
    value: float
    seconds: float


class Following:
    """Reads on in one run's directory."""

    def __init__(self, directory: Path, t0_ns: int) -> None:
        self._reader = Reader(directory / SAMPLES, t0_ns)
        self._held: dict[str, list[Block]] = {}
        self._until_ns: int | None = None
        self._ends_ns: dict[str, int] = {}

    def news(self) -> Iterator[Said]:
        """What was said since the last look; nothing where nobody asks, or once the run is sealed."""
        try:
            some: list[Block] = []
            for block in self._reader.blocks():
                some.append(block)
                if len(some) == _AT_ONCE:
                    yield from self._told(some)
                    some = []
            yield from self._told(some)
        except (OSError, ValueError, KeyError, TypeError):  # the page goes on without it
            return

    def _told(self, blocks: Sequence[Block]) -> Iterator[Said]:
        found = {name: list(some) for name, some in self._held.items()}
        for block in blocks:
            found.setdefault(self._reader.series[int(block.series[0])][0], []).append(block)
        if not found:
            return
        origins = {one.name: one for one in self._reader.origins()}
        sources = {}
        for name, some in found.items():
            sent, first, end = np.array([block.stamps for block in some], np.int64).T
            n_bytes = np.array([block.values[0] for block in some])
            sources[name] = Asked(origins[name], sent, first, end, n_bytes)
        tracks = [track for some in found.values() for track in self._tracks(some)]
        known = courses(Served(sources, tuple(tracks)), self._ends_ns)[0]
        for name in (name for name in DRAWN if name in known):
            yield from self._new(known[name])
        self._until_ns = max(block.stamps[2] for some in found.values() for block in some)
        shared = (name for name, one in known.items() if name in DRAWN and one.kind != "gauge" and len(one.sources) > 1)
        floor = min((self._ends_ns.get(name, -_NEVER) for name in shared), default=_NEVER)
        self._held = {name: _kept(some, floor) for name, some in found.items()}

    def _new(self, course: Course) -> Iterator[Said]:
        counted, windows = course.kind == "counter", course.kind != "gauge"
        since = self._ends_ns.get(course.name, self._until_ns) if windows else self._until_ns
        new = course.end_ns > since if since is not None else np.arange(len(course.end_ns)) >= counted
        for place in np.flatnonzero(new).tolist():
            seconds = float(course.seconds[place]) if counted else 0.0
            yield Said(course.name, int(course.end_ns[place]), float(course.values[place]), seconds)
        if windows and len(course.end_ns):
            self._ends_ns[course.name] = int(course.end_ns[-1])

    def _tracks(self, blocks: list[Block]) -> Iterator[Track]:
        rows: dict[int, tuple[list[int], list[float]]] = {}
        for at, block in enumerate(blocks):
            for one, value in zip(block.series.tolist(), block.values.tolist(), strict=True):
                if self._reader.series[one][3] not in ("", SCRAPE):
                    there = rows.setdefault(one, ([], []))
                    there[0].append(at)
                    there[1].append(value)
        for one, (places, values) in rows.items():
            source, family, labels, name = self._reader.series[one]
            yield Track(source, family, json.loads(labels), name, np.array(places), np.array(values))


def _kept(some: list[Block], floor_ns: int) -> list[Block]:
    """Of one source's samples the last that was read by then and those since, and no more than are held."""
    ends = [block.stamps[2] for block in some]
    kept = some[max(bisect.bisect_right(ends, floor_ns) - 1, 0) :]
    return kept if len(kept) <= _HELD else [kept[0], *kept[-1:0:-2][::-1]]
