"""How late each token of a timetable comes under ``jitter``: known beforehand, whatever else happens. Pure."""

from __future__ import annotations

from plimsoll.reference_server.misfortune.faults import Faults


class Lateness:
    """Waits drawn from the request and the position, so that neither order nor company matters."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def of_ns(self, request_id: str, position: int, now_ns: int) -> int:
        """Nanoseconds that the token at that position comes late, as the faults that act now want it."""
        if not self._faults.present:
            return 0
        late_ns = 0
        for placed in self._faults.acting("jitter", now_ns):
            late_ns += placed.wait_ns(f"{request_id}:{position}")
            placed.hit()
        return late_ns
