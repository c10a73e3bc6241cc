"""Objectives on what the server says of itself, over its samples between t0 and the last answer.

They are facts about the run, judged as observed, but for a slope, which has an interval; and a sample says nothing of
the time between two, and nothing is known while a source was silent or restarted. What is seen to break a limit breaks
it; a limit that nothing was seen to break is kept only if nothing is unknown. No sample is no data, and never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plimsoll.slo.objectives.objective import Objective, show
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, Outcome, as_observed, no_data
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics.share import Course as Along
from plimsoll.slo.statistics.slope import FEWEST

if TYPE_CHECKING:
    from plimsoll.slo.server.courses import Course
    from plimsoll.slo.server.server_side import ServerSide

#: So many of the samples may be unknown to a mean: it is of the others then, and says so.
_MOST_UNKNOWN = 0.05


@dataclass(frozen=True, slots=True)
class Observed:
    """Objectives on the server, and what it said; None: nobody asked."""

    objectives: tuple[Objective, ...]
    side: ServerSide | None

    @property
    def limits(self) -> tuple[Objective, ...]:
        """None on times: what a server says of itself is no request's."""
        return ()

    def judge(
        self, records: Records, confidence: sure.Probability, along: Along | None = None
    ) -> tuple[ObjectiveVerdict, ...]:
        """One verdict for each objective."""
        return tuple(judge_server(one, self.side, confidence) for one in self.objectives)


def split(
    objectives: Sequence[Objective], side: ServerSide | None
) -> tuple[tuple[Objective, ...], tuple[Observed, ...]]:
    """The objectives on requests, and those on the server with what they are judged by."""
    of_server = tuple(one for one in objectives if one.of_server)
    return tuple(one for one in objectives if not one.of_server), (Observed(of_server, side),) if of_server else ()


def judge_server(
    objective: Objective, side: ServerSide | None, confidence: sure.Probability = "0.95"
) -> ObjectiveVerdict:
    """One objective on the samples of the run."""
    name = objective.indicator
    if side is None:
        return no_data(objective, "nobody asked the server. Run with --server-metrics auto, or name its page")
    course = side.courses.get(name)
    if course is None:
        return no_data(
            objective, f"{side.absent.get(name, f'no source says {name}')}. Drop the objective, or have it said"
        )
    known = course.known
    n, unknown = int(known.sum()), int(course.unknown.sum())
    if not n:
        return no_data(objective, f"none of {len(known)} samples has a value. Drop the objective, or measure longer")
    if objective.statistic == "slope":
        return _growth(objective, side, course, confidence)
    observed, least, most = _statistic(objective, course)
    detail = f"{show(observed, objective.unit)}: sampled every {show(_period(side, course), 'ns')}: {n} samples"
    certain = unknown == 0 or (objective.statistic == "mean" and unknown <= _MOST_UNKNOWN * len(known))
    if unknown:
        detail += f", {unknown} more unknown (no answer, or a restart)"
    if not certain and bool(objective.met_by(least)) != bool(objective.met_by(most)):
        said = f"{detail}; what is unknown would decide. Measure again"
        return ObjectiveVerdict(
            objective, "INCONCLUSIVE", observed, (least, most), n, n + unknown, said, entries="samples"
        )
    return as_observed(objective, observed, (observed, observed), n, f"{detail}; judged as observed", entries="samples")


def _growth(objective: Objective, side: ServerSide, course: Course, confidence: sure.Probability) -> ObjectiveVerdict:
    """A trend, unlike the rest no fact about the samples: kept, or broken, where its bound is on that side."""
    n, unknown, unit = int(course.known.sum()), int(course.unknown.sum()), objective.unit
    each = f"every {show(_period(side, course), 'ns')}"
    if any(one.source in course.sources for one in side.restarts):
        return no_data(objective, "the server restarted during the run, and it began anew. Measure again")
    if unknown > _MOST_UNKNOWN * len(course.values):
        return no_data(objective, f"of {len(course.values)} samples {unknown} are unknown. Measure again")
    found = course.growth(confidence, 1)
    if found is None:
        said = f"{n} samples, {each}, are too few: a slope takes {FEWEST}. Measure longer"
        return no_data(objective, said, FEWEST)
    bounds, gap = (found.low, found.high), abs(objective.threshold - found.per_h)
    between = f"between {show(found.low, unit)} and {show(found.high, unit)} (each at {float(confidence):.6g})"
    detail = f"{show(found.per_h, unit)}, {between}; sampled {each}: {n} samples"
    met = [bool(objective.met_by(one)) for one in bounds]
    outcome: Outcome = "INCONCLUSIVE" if met[0] != met[1] else "PASS" if met[0] else "FAIL"
    needed: int | None = 0
    if outcome == "INCONCLUSIVE":  # so many of a walk; of noise about a line it takes fewer
        needed = math.ceil(n * ((found.high - found.per_h) / gap) ** 2) if gap else None
    return ObjectiveVerdict(objective, outcome, found.per_h, bounds, n, needed, detail, entries="samples")


def _statistic(objective: Objective, course: Course) -> tuple[float, float, float]:
    """The statistic of what is known, and between what it lies whatever the rest was."""
    known = course.known
    values = course.values[known]
    if objective.statistic == "max":
        return float(values.max()), float(values.max()), math.inf
    if objective.statistic == "min":
        return float(values.min()), -math.inf, float(values.min())
    if objective.statistic == "mean":
        return course.average, -math.inf, math.inf
    spans = course.seconds
    total = float(values.sum())
    return total / max(float(spans[known].sum()), 1e-9), total / max(float(spans.sum()), 1e-9), math.inf


def _period(side: ServerSide, course: Course) -> float:
    return float(max(side.served.sources[name].origin.slowed_ns for name in course.sources))
