"""What a run is judged against, in every grammar, as one value. It reads nothing and judges nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.verdict.hops import Hop

if TYPE_CHECKING:  # its documents are rare, and what reads them is 30 ms of imports
    from plimsoll.slo.objectives.openslo import Slo

DEFAULT_CONFIDENCE = "0.95"


@dataclass(frozen=True, slots=True)
class Promises:
    """What a run is judged against.

    ``objectives``: of the short grammar, both scopes. ``slos``: of OpenSLO documents. ``confidence`` is of each bound
    alone, as text, strictly between 0 and 1. ``production_per_s``: requests per second in production, for budgets by
    events. ``notes``: what the user should know of these promises. ``hops``: a latency budget, which explains and
    promises nothing.
    """

    objectives: tuple[Objective, ...] = ()
    slos: tuple[Slo, ...] = ()
    confidence: str = DEFAULT_CONFIDENCE
    production_per_s: float | None = None
    notes: tuple[str, ...] = ()
    hops: tuple[Hop, ...] = ()
