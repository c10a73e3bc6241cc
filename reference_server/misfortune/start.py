"""A slow cold start: phases that take longer than they need to. Sleeps, so for a thread beside the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable

from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.values.startup import PHASES, Startup


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
