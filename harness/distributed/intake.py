"""Files that agents send during a run: put together, checked, and written into the run directory, each whole or not at all.

What no disk of the master takes is kept in memory. What stays damaged after a second try is a fault, and stays on the agent's own disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from plimsoll.harness.distributed.pieces import Assembly, Damaged, shard_of
from plimsoll.harness.generator.segments import load_segment
from plimsoll.harness.process.writing import whole
from plimsoll.slo.records.records import Records

#: So many files that could not be taken are named.
MOST_FAULTS = 100


class Intake:
    """The receiving end of all agents. ``keep(shard, records)``: for rows that the disk did not take."""

    def __init__(self, folder: Path, keep: Callable[[int, Records], None]) -> None:
        self._folder = folder
        self._keep = keep
        self._open: dict[
            str, tuple[str, Assembly]
        ] = {}  # of each agent the file that it began last: they come one after the other
        self._again: set[str] = set()
        self.faults: list[str] = []
        self.bytes = 0
        self.files = 0

    def take(self, who: str, shards: Collection[int], piece: Mapping[str, Any]) -> dict[str, Any]:
        """Take one ``piece`` of an agent and return the answer to it: ``taken`` or ``again``."""
        name, number = str(piece["file"]), int(piece["piece"])
        last = number == int(piece["pieces"]) - 1
        shard = shard_of(name)
        if shard is None or shard not in shards:
            self._fault(f"agent {who} sent a file that is none of its segments ({name[:80]!r})")
            return _taken(name, number, whole=last, good=False)
        try:
            if number == 0:
                self._open[who] = name, Assembly(piece)
            begun, assembly = self._open.get(who, ("", None))
            assembly = assembly if begun == name else None
            data = assembly.take(piece) if assembly is not None else None
        except Damaged as damage:
            del self._open[who]
            data, problem = None, str(damage)
        else:
            problem = "its first pieces did not come" if assembly is None else ""
        if not last:
            return _taken(name, number, whole=False, good=not problem)
        if assembly is not None:
            self._open.pop(who, None)
        if data is not None:
            return _taken(name, number, whole=True, good=self._write(who, shard, name, data))
        if name not in self._again:
            self._again.add(name)
            return {"type": "again", "file": name}
        self._fault(f"{name} of agent {who} came damaged twice ({problem}): its rows are missing")
        return _taken(name, number, whole=True, good=False)

    def _write(self, who: str, shard: int, name: str, data: bytes) -> bool:
        path = self._folder / name
        self.files += 1
        self.bytes += len(data)
        try:
            whole(path, data)  # no fsync: the agent has its own until the run is over
        except OSError as error:
            if not name.endswith(".seg"):
                self._fault(f"{name} of agent {who} could not be written to {self._folder} ({error.strerror})")
                return False
            try:
                self._keep(shard, load_segment(data))
            except (ValueError, KeyError) as damage:
                self._fault(f"{name} of agent {who} is no segment ({damage}): its rows are missing")
                return False
        return True

    def _fault(self, text: str) -> None:
        """What is missing is counted when the run is sealed; here the first faults say why."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)


def _taken(name: str, number: int, *, whole: bool, good: bool) -> dict[str, Any]:
    return {"type": "taken", "file": name, "piece": number, "whole": whole, "good": good}
