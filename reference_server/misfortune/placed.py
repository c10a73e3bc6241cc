"""One fault in force: since when, how often it struck, and its own source of chance. Shared by the loop and the step threads."""

from __future__ import annotations

import random
import threading
from typing import Any

from plimsoll.reference_server.misfortune.fault import Fault

UNBEGUN = -1
"""The origin of a fault whose times have not begun to count."""


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
        """It struck once."""
        with self._lock:
            self.n_hits += 1

    def struck(self) -> bool:
        """The next draw: is it this one's turn? Always, for a fault without ``p``."""
        return self._random.random() < self.fault.number("p") if "p" in self.fault.values else True

    def marks(self, name: str, share: str = "p") -> bool:
        """Is whatever has that name struck? The same answer each time, in any order; ``share`` is the key that says how many are."""
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
        """Give back what was kept."""
        self._held.clear()
        self._n_held = 0

    def as_json(self, now_ns: int) -> dict[str, Any]:
        """What the admin route shows."""
        return {
            "id": self.fault_id,
            "fault": self.fault.text,
            "about": self.fault.kind.about,
            "acts": self.acts(now_ns),
            "hits": self.n_hits,
        }
