"""What an agent's status lines say, in the shape of a table of requests: counts by milliseconds, for somebody else's live display.

Everything is in aggregate: the cost is of a status line, never of a request. Coarse by nature (a bin is 2.2 % wide, and who shows it
may round further): the report is made of records, never of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.harness.generator.recorder import FRESH

REQUESTS = "requests"
#: name in a status line -> name in the table.
_NAMES = {name: name.upper() if name in ("ttft", "tpot") else name.replace("_", " ") for name in FRESH}


@dataclass(slots=True)
class Row:
    """What is new of one line of the table. ``times``: {milliseconds: how many}; ``failed`` and ``untimed`` are of ``n``."""

    n: int = 0
    failed: int = 0
    times: Counter[float] = field(default_factory=Counter)

    @property
    def untimed(self) -> int:
        """Those without a time: failures, warm-up, live audio."""
        return self.n - sum(self.times.values())


def milliseconds(bin_: str) -> float:
    """The middle of a bin of ``plimsoll.harness.generator.recorder.spread``."""
    return float(2.0 ** ((int(bin_) + 0.5) / 32) / 1e6)


class Feed:
    """Adds up the lines of every worker of one site until somebody takes what is new."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._rows: dict[str, Row] = {}

    def heard(self, shard: int, status: Mapping[str, Any]) -> None:
        """One worker's status line: counters are cumulative, histograms are of what is new."""
        done, failed = int(status.get("done", 0)), int(status.get("failed", 0))
        before = self._seen.get(shard, (0, 0))
        self._seen[shard] = (done, failed)
        requests = self._row(REQUESTS)
        requests.n += max(0, done - before[0])
        requests.failed += max(0, failed - before[1])
        for name in FRESH:
            bins = status.get(name) or {}
            row = requests if name == "latency" else self._row(_NAMES[name]) if bins else requests
            for key, count in bins.items():
                row.times[milliseconds(key)] += int(count)
                row.n += 0 if row is requests else int(count)

    def take(self) -> dict[str, Row]:
        """What came since the last call, by name; rows with nothing new are left out."""
        rows, self._rows = self._rows, {}
        for row in rows.values():
            row.n = max(row.n, sum(row.times.values()), row.failed)  # a bin may come before its counter
        return {name: row for name, row in rows.items() if row.n}

    def _row(self, name: str) -> Row:
        return self._rows.setdefault(name, Row())
