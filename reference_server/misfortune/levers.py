"""Faults that work on the server's own machinery: who sets what, and when it is set back. For the event loop.

Most faults are asked for when a request or a step comes by. These change a setting for as long as they act, so something must
happen when they begin and end; a timer at the next such instant sees to that. It refuses to know what a lever moves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.misfortune.placed import UNBEGUN, Placed
from plimsoll.reference_server.values.timetable import DeadlineWheel, Entry, Fire

LEVER_FAULTS = frozenset({"slots", "queue_build_up", "batch_window", "prefill_stall", "kv_thrash"})


class Lever(Protocol):
    """One part of the server that faults act on."""

    def pull(self, now_ns: int) -> None:
        """Set it as the faults that act now want it."""


class Levers:
    """All levers of one server, and the timers of its faults."""

    def __init__(self, wheel: DeadlineWheel, faults: Faults) -> None:
        self._wheel = wheel
        self._faults = faults
        self._levers: list[Lever] = []
        self._edge: Entry | None = None
        self._stalls: dict[str, Entry] = {}

    def attach(self, lever: Lever) -> None:
        """Take a lever into the row, and set it."""
        self._levers.append(lever)
        lever.pull(time.monotonic_ns())

    def changed(self, now_ns: int) -> None:
        """The faults in force are others, or their times began: set everything anew."""
        self._stall(self._faults.present)
        self._pull(now_ns)

    def _pull(self, now_ns: int) -> None:
        for lever in self._levers:
            lever.pull(now_ns)
        if self._edge is not None:
            self._edge.cancel()
        edges = [placed.next_edge_ns(now_ns) for placed in self._faults.present if placed.fault.name in LEVER_FAULTS]
        due_ns = min((edge for edge in edges if edge is not None), default=None)
        self._edge = None if due_ns is None else self._wheel.at(due_ns, self._at_edge)

    def _at_edge(self, due_ns: int) -> None:
        self._edge = None
        self._pull(max(due_ns, time.monotonic_ns()))

    def _stall(self, present: Sequence[Placed]) -> None:
        stalls = {placed.fault_id: placed for placed in present if placed.fault.name == "stall"}
        for fault_id in self._stalls.keys() - stalls.keys():
            self._stalls.pop(fault_id).cancel()
        for fault_id, placed in stalls.items():
            if fault_id not in self._stalls and placed.origin_ns != UNBEGUN:
                at_ns = placed.origin_ns + placed.fault.duration_ns("at")
                self._stalls[fault_id] = self._wheel.at(at_ns, _freezer(self._wheel, placed, at_ns))


def _freezer(wheel: DeadlineWheel, placed: Placed, at_ns: int) -> Fire:
    """Stop the whole event loop for a while: nothing is read, nothing written, and all timetables move on by it."""
    for_ns, every_ns = placed.fault.duration_ns("for"), placed.fault.duration_ns("every")

    def fire(due_ns: int) -> int | None:
        nonlocal at_ns
        placed.hit()
        while (left_ns := due_ns + for_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        wheel.postpone(for_ns)
        at_ns += every_ns
        return at_ns if every_ns > 0 else None

    return fire
