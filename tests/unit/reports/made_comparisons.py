"""Comparisons of every outcome, made of plain numbers, for tests of their renderers."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from types import MappingProxyType

import numpy as np

from plimsoll.reports.models.comparison_parts import ComparisonReport, build, front_part
from plimsoll.slo.comparison.arms import PROFILE_Q, Arm, Reading, RunSample, Within
from plimsoll.slo.comparison.compare import compare, false_alarm_rate
from plimsoll.slo.comparison.quantity import STREAMED, parse, parse_all
from plimsoll.slo.comparison.tiers import Point, cost, front, rank

MS = 1_000_000.0
QUANTITIES = parse_all(STREAMED)
CASES = ("regression", "improvement", "indistinguishable", "inconclusive", "single", "invalid", "failures", "bakeoff")


def arm(name: str, by: float = 1.0, runs: int = 5, seed: int = 1, failing: bool = False, within: bool = False) -> Arm:
    """Runs of a made endpoint that is ``by`` times as slow as another; ``failing``: two of them lose 2 % of the
    requests.
    """
    made = []
    for i in range(runs):
        spread = 1 + 0.018 * math.sin(7 * seed + 2.4 * i)  # no random generator, so that golden files never drift
        lost = failing and i < 2
        readings, profiles = {}, {}
        for key, middle in (("ttft", 90 * MS), ("tpot", 9 * MS), ("latency", 1200 * MS)):
            curve = middle * by * spread * (0.75 + 0.3 * -np.log10(1 - np.array(PROFILE_Q)))
            curve[np.array(PROFILE_Q) > 1 - 1 / 6000] = np.nan
            if lost:
                curve[np.array(PROFILE_Q) > 0.98] = np.inf
            profiles[key] = tuple(curve.tolist())
            for p in (0.5, 0.99):
                value = float(curve[PROFILE_Q.index(p)])
                ordered = -np.log(1 - (np.arange(6000) + 0.5) / 6000) * value / 4.6 if within else None
                readings[f"p{p * 100:g}({key})"] = Reading(
                    value, 6000, 120 if lost else 0, None if ordered is None else Within(ordered, 1.3)
                )
        readings["rate(output_tokens)"] = Reading(3000 / by * spread, 6000)
        bad = 120 if lost else 3
        counts = Within(np.empty(0), 1.0, bad, 6000) if within else None
        readings["ratio(error)"] = Reading(bad / 6000, 6000, bad, counts)
        made.append(
            RunSample(
                f"{name}-{i}",
                MappingProxyType(readings),
                i,
                f"runs/{name}-{i}",
                (),
                None,
                "4f1c9be2a07d55",
                6000,
                bad,
                MappingProxyType(profiles),
                30_000_000_000,
            )
        )
    return Arm(name, tuple(made))


@cache
def case(name: str) -> ComparisonReport:
    """One of ``CASES``."""
    base = arm("main")
    if name == "bakeoff":
        return _bakeoff()
    options = {"regression": 1.14, "improvement": 0.8, "indistinguishable": 1.004, "invalid": 1.2, "failures": 1.0}
    if name in ("inconclusive", "single"):
        few = 1 if name == "single" else 3
        base = arm("main", runs=few, within=few == 1)
        candidate = arm("pull-42", 1.3, few, 2, within=few == 1)
    else:
        candidate = arm("pull-42", options[name], seed=2, failing=name == "failures")
    if name == "invalid":
        broken = dataclasses.replace(candidate.runs[2], reasons=("p99 of the generator's own lateness is 21 ms",))
        candidate = Arm(candidate.name, (*candidate.runs[:2], broken, *candidate.runs[3:]))
    found = compare(base, [candidate], QUANTITIES)
    alarms = false_alarm_rate(arm("main", runs=10), QUANTITIES) if name == "regression" else None
    return build(
        found,
        base,
        [candidate],
        false_alarms=alarms,
        plimsoll="0.1.0",
        command="plimsoll compare main pull-42",
        started_at="2026-11-21T12:00:00+00:00",
    )


def _bakeoff() -> ComparisonReport:
    arms = [arm("engine-a", 1.0, 6, 1), arm("engine-b", 1.003, 6, 2), arm("engine-c", 1.35, 6, 3)]
    ranking = rank(arms, parse("p99(ttft)"), "0.95", 0.05, share_tolerance=0.01, family=6)
    costs = [found for a, price in zip(arms, (3.6, 2.9, 2.1), strict=True) if (found := cost(a, price))]
    points = [
        Point(
            f"{a.name} c={c}",
            tuple(c * 180 / by * (1 + 0.01 * i) / (1 + c / 60) for i in range(5)),
            tuple(110 / by / (1 + c / 24) * (1 + 0.01 * i) for i in range(5)),
            a.name,
        )
        for a, by in zip(arms, (1.0, 1.02, 1.35), strict=True)
        for c in (4, 16, 64)
    ]
    chart = front_part(
        "Throughput against interactivity", "output tokens/s in all", "tokens/s for one user", front(points)
    )
    return build(
        compare(arms[0], arms[1:], QUANTITIES),
        arms[0],
        arms[1:],
        title="Three engines, one card",
        rankings=[ranking],
        costs=costs,
        fronts=[chart],
        warnings=["engine-c counted its tokens from chunks"],
        plimsoll="0.1.0",
    )
