"""The faults in force on one server, and what becomes of each request under them.

Times of the faults given at start count from the first inference request, whatever the start took; those of a later
fault count from its arrival or from the next request. Every draw comes from a seed, so that a run can be repeated.
Nothing misbehaves unasked.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from plimsoll.reference_server.misfortune.fault import Break, Fault, Misfortune, refusal
from plimsoll.reference_server.values.durations import PHASES, Startup
from plimsoll.reference_server.values.errors import RequestError

UNBEGUN = -1
"""The origin of a fault whose times have not begun to count."""
_BREAKS = {"cut": Break.CLOSE, "reset": Break.RESET, "half_open": Break.MUTE}


class Placed:
    """A fault and its state. Its chances are its own, so that another fault, come or gone, does not shift them."""

    def __init__(self, fault_id: str, fault: Fault, *, seed: str, origin_ns: int = UNBEGUN) -> None:
        """``seed`` names the stream of chances; ``origin_ns`` is the instant from which its times count."""
        self.fault_id = fault_id
        self.fault = fault
        self.origin_ns = origin_ns
        self.n_hits = 0
        self._window = fault.window()
        self._seed = seed
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._held: list[bytearray] = []
        self._n_held = 0
        self._n_turns = 0

    def acts(self, now_ns: int) -> bool:
        """Does it act now? Never before its times have begun."""
        return self.origin_ns != UNBEGUN and self._window.open(now_ns - self.origin_ns)

    def next_edge_ns(self, now_ns: int) -> int | None:
        """The next instant at which ``acts`` changes, if there is one."""
        if self.origin_ns == UNBEGUN:
            return None
        edge_ns = self._window.next_edge(now_ns - self.origin_ns)
        return None if edge_ns is None else self.origin_ns + edge_ns

    def hit(self) -> None:
        with self._lock:
            self.n_hits += 1

    def struck(self) -> bool:
        """The next draw: is it this one's turn? Always, for a fault without ``p``."""
        return self._random.random() < self.fault.number("p") if "p" in self.fault.values else True

    def marks(self, name: str, share: str = "p") -> bool:
        """Is whatever has that name struck? The same answer each time; ``share`` is the key that says how many are."""
        return random.Random(f"{self._seed}:{name}").random() < self.fault.number(share)

    def wait_ns(self, name: str = "") -> int:
        """An exponential wait with mean ``by``: of whatever has that name, or the next one drawn."""
        source = random.Random(f"{self._seed}:{name}") if name else self._random
        return round(source.expovariate(1.0) * self.fault.duration_ns("by"))

    def turn(self) -> int:
        """Which request since it began this one is, from 1 on."""
        self._n_turns += 1
        return self._n_turns

    def leak(self) -> bool:
        """Keep ``per`` more bytes, touched so that they take real memory; False when ``cap`` would be passed."""
        per, cap = self.fault.size("per"), self.fault.size("cap")
        if self._n_held + per > cap:
            return False
        self._held.append(bytearray(b"\x01") * per)
        self._n_held += per
        return True

    def release(self) -> None:
        self._held.clear()
        self._n_held = 0

    def as_json(self, now_ns: int) -> dict[str, Any]:
        return {
            "id": self.fault_id,
            "fault": self.fault.text,
            "about": self.fault.kind.about,
            "acts": self.acts(now_ns),
            "hits": self.n_hits,
        }


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
        return [placed.fault for placed in self.present if placed.fault.name == name]

    def acting(self, name: str, now_ns: int) -> list[Placed]:
        return [placed for placed in self.present if placed.fault.name == name and placed.acts(now_ns)]

    def late_ns(self, request_id: str, position: int, now_ns: int) -> int:
        """How late ``jitter`` makes the token at that position: the same in any order and any company."""
        late_ns = 0
        for placed in self.acting("jitter", now_ns) if self.present else ():
            late_ns += placed.wait_ns(f"{request_id}:{position}")
            placed.hit()
        return late_ns

    def rewords(self, request_id: str, now_ns: int) -> bool:
        """Does ``other_words`` strike that answer? The same in any order and any company."""
        struck = [placed for placed in self.acting("other_words", now_ns) if placed.marks(request_id)]
        for placed in struck:
            placed.hit()
        return bool(struck)

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


def linger(faults: Faults, startup: Startup, sleep: Callable[[float], object] = time.sleep) -> None:
    """Sleep for what ``slow_start`` adds to each phase, as a part of that phase."""
    for placed in faults.present:
        if placed.fault.name != "slow_start":
            continue
        for phase in PHASES:
            if phase in placed.fault.values and (for_ns := placed.fault.duration_ns(phase)) > 0:
                placed.hit()
                with startup.phase(phase):
                    sleep(for_ns / 1e9)
