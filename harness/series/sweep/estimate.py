"""How long a sweep takes, before it is begun. Sends nothing.

In an open loop the schedule says so. In a closed loop nobody knows before: a second per answer is assumed, and said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.harness.outlook.load import load_of
from plimsoll.harness.run.job import find_scenario
from plimsoll.harness.series.comparison.rounds import Contest
from plimsoll.scenarios.discovery import kinds

#: Starting the senders, sealing and judging a run, about.
_AROUND_NS = 1_500_000_000
#: What an answer of a closed loop is taken to need.
ASSUMED_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of the whole sweep. ``requests``: by the schedules; ``assumed``: some loops are closed, so a latency was assumed."""

    duration_ns: int
    requests: int
    assumed: bool


def estimate(contest: Contest) -> Estimate:
    """Add up every run of the contest. Raises ScenarioError for a load that can't be planned."""
    duration, requests, assumed = 0, 0, False
    for level in contest.levels:
        flags: Mapping[str, Any] = {**contest.flags, **level.flags}
        scenario = find_scenario(contest.scenario, dict(flags))  # type: ignore[arg-type]
        closed = not kinds()[scenario.kind].open_loop(scenario.params) and scenario.kind != "offline"
        pace = load_of(scenario).pace(ASSUMED_NS if closed else None)
        duration += pace.duration_ns + scenario.warmup_ns + _AROUND_NS + contest.cooldown_ns
        requests += pace.requests
        assumed |= closed
    times = len(contest.arms) * contest.repeats
    return Estimate(max(duration * times - contest.cooldown_ns, 0), requests * times, assumed)
