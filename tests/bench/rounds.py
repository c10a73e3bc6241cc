"""Rounds taken in turns, and what may be said of them: medians, ratios of medians, and how far single rounds differ.

Contestants run A B C, A B C, ... so that a slow minute of the machine hits them all. Pure but for ``alternate``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Round = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rounds of one comparison, by contestant; ``left_out`` says who could not take part and why."""

    key: str
    rounds: Mapping[str, Sequence[Round]]
    left_out: Sequence[str] = ()
    repeated: int = 0

    def median(self, who: str, figure: str) -> float | None:
        """The median over the rounds; None for somebody who did not take part or has no such figure."""
        values = [one[figure] for one in self.rounds.get(who, ()) if figure in one]
        return statistics.median(values) if values else None

    def ratio(self, who: str, other: str, figure: str) -> Ratio | None:
        """``who`` over ``other``."""
        top, bottom = self.median(who, figure), self.median(other, figure)
        if top is None or not bottom:
            return None
        pairs = zip(self.rounds[who], self.rounds[other], strict=True)
        each = [mine[figure] / theirs[figure] for mine, theirs in pairs]
        return Ratio(top / bottom, min(each), max(each))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians, and the lowest and highest ratio within one round."""

    value: float
    low: float
    high: float

    def inverse(self) -> Ratio:
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low)


def alternate(
    key: str,
    contestants: Mapping[str, Callable[[], Round]],
    rounds: int,
    left_out: Sequence[str],
    say: Callable[[str], None],
) -> Comparison:
    """Take the rounds. One that breaks is taken once more, and counted; a second break ends the benchmark."""
    taken: dict[str, list[Round]] = {who: [] for who in contestants}
    repeated = 0
    for number in range(rounds):
        for who, contestant in contestants.items():
            try:
                one = contestant()
            except RuntimeError as error:
                say(f"{key}: {who} is repeated: {error}")
                repeated += 1
                one = contestant()
            taken[who].append(one)
            say(f"{key:12} round {number + 1}  {who:12} " + "  ".join(f"{k} {v:,.4g}" for k, v in one.items()))
    return Comparison(key, taken, tuple(left_out), repeated)
