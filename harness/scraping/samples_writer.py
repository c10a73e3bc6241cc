"""``server.samples``, written while a run goes on: one record a scrape, whole before the next one is begun.

A record is a line of JSON, and of a sample its values follow as float64. ``harness/sealing/samples_file.py`` reads it.
The first line is a list, with room enough: what a full disk took no more is written over it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
import time
from array import array
from collections import Counter
from typing import Any

from plimsoll.harness.scraping.sources import Sample
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.wire.exposition import Written
from plimsoll.slo.server.canonical import name_of

#: Series that are kept of one source, by whether its family is part of a name: a page that invents some at every scrape
#: grows no further.
MOST = {True: 10_000, False: 100_000}
_ROOM = 4096


class Writer:
    """Takes what the threads of all sources find. A disk that takes no more ends the file and nothing else."""

    def __init__(self, path: str) -> None:
        self._file = io.FileIO(path, "wb")
        self._file.write(_line([]))
        self._lock = threading.Lock()
        self._many: Counter[tuple[int, bool]] = Counter()
        #: Of each source the scrapes that no disk took: [source, first sent, last end, how many].
        self._unwritten: dict[int, list[int]] = {}
        self._series: dict[tuple[int, Written], int] = {}
        self._last: dict[int, list[Written]] = {}
        self._full = False
        self.last_reason = ""

    def close(self) -> None:
        self._file.close()

    def source(self, number: int, name: str, where: str, period_s: float) -> None:
        self._add({"is": "source", "source": number, "name": name, "where": where, "period_s": period_s})

    def gap(self, number: int, sent_ns: int, end_ns: int, reason: str) -> None:
        """A scrape that failed. Neighbours of a gap are no neighbours of each other."""
        self.last_reason = _shown(reason)
        self._add({"is": "gap", "source": number, "sent_ns": sent_ns, "end_ns": end_ns, "reason": self.last_reason})

    def sample(self, number: int, found: Sample, period_s: float) -> None:
        with self._lock:
            written = list(found.values)
            if self._last.get(number) != written:
                written = [one for one in written if self._keeps(number, one)]
            record: dict[str, Any] = {
                "is": "sample", "source": number, "sent_ns": found.sent_ns, "first_ns": found.first_ns,
                "end_ns": found.end_ns, "bytes": found.n_bytes, "period_s": period_s, "n": len(written),
                "left_out": len(found.values) - len(written),
            }  # fmt: skip
            if self._last.get(number) != written:
                record["series"] = [self._series[number, one] for one in written]
                known = self._last.get(number, [])
                record["new"] = [
                    [self._series[number, one], *map(_shown, one)]
                    for one in dict.fromkeys(written).keys() - dict.fromkeys(known).keys()
                ]
                self._last[number] = written
                record["declared"] = sorted(family for family in found.declared if name_of(family))
            record["cpu_ns"] = time.process_time_ns()
            self._write(record, array("d", (found.values[one] for one in written)).tobytes())

    def _keeps(self, number: int, series: Written) -> bool:
        """Whether a source's series was known before, or there is room for one more."""
        if (number, series) not in self._series:
            place = number, bool(name_of(series[0]))
            if self._many[place] == MOST[place[1]]:
                return False
            self._many[place] += 1
            self._series[number, series] = len(self._series)
        return True

    def _add(self, record: dict[str, Any]) -> None:
        with self._lock:
            self._write(record)

    def _write(self, record: dict[str, Any], values: bytes = b"") -> None:
        data = json.dumps(record, separators=(",", ":")).encode() + b"\n" + values
        with contextlib.suppress(OSError):
            if not self._full and self._file.write(data) == len(data):
                return
        self._full = True
        if "sent_ns" in record:
            lost = self._unwritten.setdefault(record["source"], [record["source"], record["sent_ns"], 0, 0])
            lost[2:] = record["end_ns"], lost[3] + 1
            with contextlib.suppress(OSError):
                os.pwrite(self._file.fileno(), _line([*self._unwritten.values()]), 0)


def _line(unwritten: list[list[int]]) -> bytes:
    return json.dumps(unwritten[: _ROOM // 100]).encode().ljust(_ROOM - 1) + b"\n"


def _shown(text: str) -> str:
    """A server's words without secrets that it repeats, and without halves of characters, which JSON may hold."""
    return redact(text).encode(errors="replace").decode()
