"""The faults in force on one server, and what becomes of each request under them. Pure but for what ``retry_storm`` burns.

Times of the faults given at start count from the first inference request, which makes them independent of how long the start took;
those of a fault that came later count from then, or from the next request. Every draw comes from a seed, so a run can be repeated. It refuses to misbehave unasked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from plimsoll.reference_server.misfortune.fate import Break, Misfortune, refusal
from plimsoll.reference_server.misfortune.fault import Fault
from plimsoll.reference_server.misfortune.placed import UNBEGUN, Placed
from plimsoll.reference_server.values.errors import RequestError

_BREAKS = {"cut": Break.CLOSE, "reset": Break.RESET, "half_open": Break.MUTE}


class Faults:
    """The faults of one server; draws are made in order of arrival."""

    def __init__(self, faults: Sequence[Fault] = (), *, seed: int, sleep: Callable[[float], None] = time.sleep) -> None:
        self._seed = seed
        self._sleep = sleep
        self._n_placed = 0
        self.present: tuple[Placed, ...] = ()
        """Those in force, oldest first; replaced, never changed, so that any thread may walk it."""
        for fault in faults:
            self.place(fault, UNBEGUN)

    def first(self, now_ns: int) -> bool:
        """Note a request; true when the times of some faults begin to count with it."""
        unbegun = [placed for placed in self.present if placed.origin_ns == UNBEGUN]
        for placed in unbegun:
            placed.origin_ns = now_ns
        return bool(unbegun)

    def place(self, fault: Fault, now_ns: int) -> Placed:
        """Put a fault in force; its times count from ``now_ns``, or from the next request where that is UNBEGUN."""
        same = sum(placed.fault.name == fault.name for placed in self.present)
        self._n_placed += 1
        placed = Placed(f"f{self._n_placed}", fault, seed=f"{self._seed}:{fault.name}:{same}", origin_ns=now_ns)
        self.present = (*self.present, placed)
        return placed

    def remove(self, fault_id: str | None = None) -> list[Placed]:
        """Take away the fault of that id, or all; returns what was taken away."""
        gone = [placed for placed in self.present if fault_id in (None, placed.fault_id)]
        self.present = tuple(placed for placed in self.present if placed not in gone)
        for placed in gone:
            placed.release()
        return gone

    def named(self, name: str) -> list[Fault]:
        """The faults of that name, acting or not."""
        return [placed.fault for placed in self.present if placed.fault.name == name]

    def acting(self, name: str, now_ns: int) -> list[Placed]:
        """Those of that name that act now."""
        return [placed for placed in self.present if placed.fault.name == name and placed.acts(now_ns)]

    def draw(self, now_ns: int, *, in_flight: int = 0) -> Misfortune:
        """What becomes of a request that arrived now, the last of ``in_flight``.

        Raises RequestError when it is refused or fails at once.
        """
        self.first(now_ns)
        delay_ns = hold_ns = drip_bytes = drip_ns = 0
        error_at, cut_at, break_by, content_type = -1, -1, Break.CLOSE, ""
        refused: RequestError | None = None
        for placed in self.present:
            fault = placed.fault
            # Draw for every fault, whatever the outcome of the others: one that is refused must not shift the rest.
            if not placed.struck() or not placed.acts(now_ns):
                continue
            match fault.name:
                case "slow_headers":
                    delay_ns += fault.duration_ns("by")
                case "stalled_replica" if placed.turn() % fault.whole("n") == 0:
                    hold_ns += fault.duration_ns("by")
                case "stream_error":
                    error_at = fault.whole("at")
                case "cut" | "reset" | "half_open":
                    cut_at, break_by = fault.whole("at"), _BREAKS[fault.name]
                case "slow_drip":
                    drip_bytes, drip_ns = fault.whole("bytes"), fault.duration_ns("by")
                case "content_type":
                    content_type = fault.values["type"]
                case "memory_leak" if placed.leak():
                    pass
                case "error_rate":
                    refused = refusal(fault.whole("status"), "error_rate", 1)
                case "reject":
                    refused = refusal(fault.whole("status"), "reject", _retry_after_s(fault))
                case "retry_storm" if in_flight > fault.whole("limit"):
                    self._sleep(fault.duration_ns("cost") / 1e9)
                    refused = refusal(fault.whole("status"), "retry_storm", _retry_after_s(fault))
                case _:
                    continue
            placed.hit()
        if refused is not None:
            raise refused
        return Misfortune(delay_ns, error_at, cut_at, break_by, hold_ns, content_type, drip_bytes, drip_ns)


def _retry_after_s(fault: Fault) -> int:
    """Whole seconds, rounded up, as the header has them."""
    return -(-fault.duration_ns("retry_after") // 1_000_000_000)
