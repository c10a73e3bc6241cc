"""Due times of an arrival process in one array, of lists short enough for that."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from plimsoll.scenarios.plan.arrival import Process, RateProfile, due_blocks
from plimsoll.scenarios.plan.plan import IntArray

PROCESSES: tuple[Process, ...] = get_args(Process)


def due_times(process: Process, profile: RateProfile, seed: int, **minima: Any) -> IntArray:
    """As ``due_blocks``, which says what ``minima`` are."""
    return np.concatenate([*due_blocks(process, profile, seed, **minima)])
