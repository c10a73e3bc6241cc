"""What a server says of itself while a run goes on: the scraper's file (``server.samples``), read on at each look.

Of each source the last sample is held, because what is counted says something only since the sample before it, and no
other: a run of a week takes no more memory. What was said is told by name, as the report of the sealed run has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plimsoll.harness.sealing.samples_file import SAMPLES, Reader
from plimsoll.reports.sections.server import DRAWN
from plimsoll.slo.server.courses import courses
from plimsoll.slo.server.served import SCRAPE, Asked, Block, Served, Track

#: Samples that are taken at once, where nobody looked for long.
_AT_ONCE = 256


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
        self._last: dict[str, Block] = {}
        self._until_ns: int | None = None

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
        found = {name: [block] for name, block in self._last.items()}
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
        self._last = {name: some[-1] for name, some in found.items()}
        since, known = self._until_ns, courses(Served(sources, tuple(tracks)))[0]
        for name in (name for name in DRAWN if name in known):
            course = known[name]
            counted = course.kind == "counter"
            new = course.end_ns > since if since is not None else np.arange(len(course.end_ns)) >= counted
            for place in np.flatnonzero(new).tolist():
                seconds = float(course.seconds[place]) if counted else 0.0
                yield Said(name, int(course.end_ns[place]), float(course.values[place]), seconds)
        self._until_ns = max(block.stamps[2] for some in found.values() for block in some)

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
