"""``server.samples``, which the scraper wrote while a run went on, becomes ``server.parquet`` of the run directory.

What was written before a process was killed is read; a record that was cut is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from plimsoll.harness.process.writing import whole
from plimsoll.harness.wire.exposition import labels_of
from plimsoll.slo.server import served
from plimsoll.slo.server.canonical import name_of
from plimsoll.slo.server.served import SCRAPE, Block, Gap, Origin, Served

SAMPLES, FILE = "server.samples", "server.parquet"
_FULL = "it was read, and the disk took no more"


def server_of(path: Path, manifest: Mapping[str, Any]) -> tuple[Served | None, str | None]:
    """What the server of a run said about itself (None: nobody asked), and what went wrong as it was read.

    Of a run that was cut off the file is made now.
    """
    left, file = path / SAMPLES, path / FILE
    try:
        if left.is_file() and "t0_monotonic_ns" in manifest:
            reader = Reader(left, int(manifest["t0_monotonic_ns"]))
            whole(file, lambda to: served.write(to, reader.blocks(), reader.series, reader.origins))
            left.unlink()
        return (served.load(file) if file.is_file() else None), None
    except (OSError, ValueError, KeyError, TypeError) as error:  # what a run measured is judged without it
        what = error.strerror if isinstance(error, OSError) else error
        return None, f"what the server said of itself can't be read: {what}"


class Reader:
    """Samples in the order in which they were written, times since ``t0_ns``; a file that still grows is read on from
    where it was left.
    """

    def __init__(self, path: Path, t0_ns: int) -> None:
        self._path, self._t0_ns, self._at = path, t0_ns, 0
        self._sources: dict[int, dict[str, Any]] = {}
        self._place: dict[int, int] = {}
        self._order: dict[int, list[int]] = {}
        self._lost: dict[int, list[Gap]] = {}
        self.series: list[served.Series] = []

    def origins(self) -> list[Origin]:
        """Where samples came from, and what went wrong in the blocks that were read last; known once they were."""
        return [
            Origin(
                name=one["name"],
                where=one["where"],
                period_ns=int(one["period_s"] * 1e9),
                slowed_ns=int(one["slowed_s"] * 1e9),
                cpu_ns=one["cpu_ns"],
                gaps=(*_merged(one["tries"]), *self._lost.get(number, [])),
                declared=tuple(sorted(one["declared"])),
                unwritten=sum(gap.count for gap in self._lost.get(number, [])),
                left_out=one["left_out"],
            )
            for number, one in self._sources.items()
        ]

    def blocks(self) -> Iterator[Block]:
        """One for each whole sample that was written since the last time."""
        t0 = self._t0_ns
        for source in self._sources.values():
            source["tries"].clear()
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in iter(file.readline, b""):
                if not line.endswith(b"\n"):
                    return
                record = json.loads(line)
                if isinstance(record, list):
                    self._lost = {at: [Gap(one - t0, end - t0, n, _FULL)] for at, one, end, n in record}
                    self._at = file.tell()
                    continue
                values = file.read(8 * record.get("n", 0))
                if len(values) < 8 * record.get("n", 0):
                    return
                self._at = file.tell()
                number = record["source"]
                if record["is"] == "source":
                    self._sources[number] = {
                        **record,
                        "slowed_s": record["period_s"],
                        "tries": [],
                        "cpu_ns": 0,
                        "left_out": 0,
                        "declared": set(),
                    }
                    self.series.append((record["name"], "scrape_bytes", "{}", SCRAPE))
                    self._place[-1 - number] = len(self.series) - 1
                    continue
                source = self._sources[number]
                stamps = [record[name] - t0 for name in ("sent_ns", "first_ns", "end_ns") if name in record]
                source["tries"].append((record.get("reason"), stamps[0], stamps[-1]))
                if record["is"] == "gap":
                    continue
                source |= {"cpu_ns": record["cpu_ns"], "slowed_s": max(source["slowed_s"], record["period_s"])}
                source["left_out"] = max(source["left_out"], record.get("left_out", 0))
                self._learn(number, source["name"], record)
                places = [self._place[-1 - number], *self._order[number]]
                found = np.concatenate([[float(record["bytes"])], np.frombuffer(values)])
                yield Block(np.array(places), found, (stamps[0], stamps[1], stamps[2]))

    def _learn(self, number: int, source: str, record: Mapping[str, Any]) -> None:
        for one, family, labels in record.get("new", ()):
            self._place[one] = len(self.series)
            text = json.dumps(labels_of(labels), sort_keys=True, ensure_ascii=False)
            self.series.append((source, family, text, name_of(family)))
        self._sources[number]["declared"] |= set(record.get("declared", ()))
        if "series" in record:
            self._order[number] = [self._place[one] for one in record["series"]]


def _merged(tries: list[tuple[str | None, int, int]]) -> Iterator[Gap]:
    for reason, group in groupby(tries, key=lambda one: one[0]):
        failed = list(group)
        if reason is not None:
            yield Gap(failed[0][1], failed[-1][2], len(failed), reason)
