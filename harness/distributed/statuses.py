"""Status lines of one site's workers between two messages to the master: counters are the last, histograms are added up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plimsoll.harness.generator.recorder import FRESH


class Statuses:
    """What each worker said since the last ``take``."""

    def __init__(self) -> None:
        self._held: dict[int, dict[str, Any]] = {}

    def add(self, shard: int, message: Mapping[str, Any]) -> None:
        """One worker's ``status`` line."""
        before = self._held.get(shard)
        merged = dict(message)
        for name in FRESH if before is not None else ():
            counts = dict(before[name]) if before is not None else {}
            for key, count in message[name].items():
                counts[key] = counts.get(key, 0) + count
            merged[name] = counts
        self._held[shard] = merged

    def take(self, room: int) -> Iterator[list[tuple[int, dict[str, Any]]]]:
        """(shard, line) of every worker that said something, in lists whose JSON stays below ``room`` bytes.

        A line alone is bounded: a histogram has at most some 1,500 bins (32 an octave, from 1 ns to an hour) of 16 bytes.
        """
        held, self._held = self._held, {}
        batch: list[tuple[int, dict[str, Any]]] = []
        used = 0
        for shard, line in sorted(held.items()):
            size = 256 + 16 * sum(len(line[name]) for name in FRESH)
            if batch and used + size > room:
                yield batch
                batch, used = [], 0
            batch.append((shard, line))
            used += size
        if batch:
            yield batch
