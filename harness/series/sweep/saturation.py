"""When a series need not go on: two neighbouring loads at which the endpoint did not keep up, or failed most requests.

More load would only measure how long the run was. Reads what the runs left on disk; stops nothing but runs that were not
begun.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from plimsoll.harness.series.comparison.interleave import Interleaving, Slot
from plimsoll.harness.series.sweep.places import Places
from plimsoll.reports.sweep.figures import Figures, standing
from plimsoll.reports.sweep.sweep_words import at
from plimsoll.slo.search.knee import Standing, saturated

#: Variables of which more is more load.
RISING = ("rate", "concurrency")


@dataclass(frozen=True, slots=True)
class Saturation:
    """Says of each run whether its series is saturated below it. ``read``: the figures of a run that was made."""

    places: Places
    read: Callable[[Slot], Figures]
    known: dict[int, Figures] = field(default_factory=dict)

    def __call__(self, plan: Interleaving, slot: Slot) -> str | None:
        """Why the run of ``slot`` need not be made; None: it is to be made."""
        if self.places.x not in RISING:
            return None
        series, x = self.places.of(slot)
        here: dict[float, list[Standing]] = {}
        for other in plan.slots:
            if other.state == "done" and self.places.of(other)[0] == series:
                load = self.places.of(other)[1]
                if other.number not in self.known:
                    self.known[other.number] = self.read(other)
                here.setdefault(load, []).append(standing(load, self.known[other.number]))
        # With repeats a load is hopeless only if every run of it is.
        judged = [next((s for s in stood if not s.hopeless), stood[0]) for stood in here.values()]
        limit = saturated(judged)
        if limit is None or x <= limit or x in here:
            return None
        return f"already saturated at {at(self.places.x, limit)}"
