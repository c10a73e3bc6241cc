"""How many requests an objective takes, before the run: the same binomial arithmetic as the verdict, read backwards.

Pure arithmetic on shares. It assumes nothing about latencies, and cannot know how many requests will in truth break the
limit: that share is an assumption, and is said to be one. Dependence between requests enters as a design effect, by which
every count is multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from plimsoll.slo.statistics.confidence import (
    CLUSTERED,
    Probability,
    binomial_at_most,
    most_bad_allowed,
    n_needed,
    n_required,
    passing,
)
from plimsoll.slo.statistics.distribution import exact


@dataclass(frozen=True, slots=True)
class Sample:
    """What one objective on a share or a percentile takes.

    ``limit``: the share of values that may break it. ``least``: values for a PASS if not one is bad. ``assumed``: the bad
    share that ``with_bad`` is for: the least number from which on a run passes with probability ``power``; None when none
    would, because the assumed share is not below the limit or too close to it. ``loadgen`` and ``loadgen_estimate``: what
    MLPerf LoadGen's early stopping asks for at 99 % with none over, and for its percentile estimate.
    """

    limit: Fraction
    least: int
    assumed: Fraction
    power: float
    with_bad: int | None
    loadgen: int
    loadgen_estimate: int


def sample(
    limit: Fraction,
    confidence: Probability = "0.95",
    assumed: Probability | None = None,
    power: Probability = "0.9",
    design_effect: float = 1.0,
) -> Sample:
    """How many values show that fewer than ``limit`` are bad. ``assumed``: the true bad share, half of the limit by default.

    ``design_effect`` >= 1: one over the worth of a request beside an independent one (ValueError below 1).
    """
    if not design_effect >= 1:
        raise ValueError(
            f"design effect {design_effect}: 1 is independent, dependent requests are worth less. Give 1 or more"
        )
    share = limit / 2 if assumed is None else exact(assumed)
    least = n_needed(0, 0, limit, confidence)
    assert least is not None  # without a bad one some number always does
    with_bad = passing(limit, share, confidence, power)
    allowance = CLUSTERED if share else Fraction(1)
    return Sample(
        limit,
        _dependent(least, design_effect),
        share,
        float(exact(power)),
        None
        if with_bad is None
        else max(_dependent(with_bad * allowance, design_effect), _dependent(least, design_effect)),
        n_required(0, 1 - limit),
        n_required(1, 1 - limit),
    )


def _dependent(n: int | Fraction, design_effect: float) -> int:
    return math.ceil(n * Fraction(str(design_effect)))


def chance_to_pass(
    n: int, limit: Fraction, share: Probability, confidence: Probability = "0.95", design_effect: float = 1.0
) -> float:
    """About how likely a run of n values is to pass when ``share`` of them is bad in truth."""
    bad = exact(share)
    worth = int(n / Fraction(str(design_effect)))
    without = float(1 - bad) ** worth if most_bad_allowed(worth, limit, confidence) >= 0 else 0.0
    counted = int(worth / CLUSTERED) if bad else worth
    allowed = most_bad_allowed(counted, limit, confidence)
    return max(without, 0.0 if allowed < 0 else binomial_at_most(allowed, counted, bad))


def without_bad(burns: Sequence[Fraction], confidence: Probability = "0.95", design_effect: float = 1.0) -> int:
    """The least n at which a composite passes when no component has a bad entry among n.

    ``burns``: weight over allowed share of each; the burn of the whole is the sum of these times the bad shares, at most 1.
    Each of m components is bounded at 1 - (1 - confidence) / m, because nothing is known of how they depend.
    """
    alpha = float(1 - exact(confidence)) / len(burns)
    total = float(sum(burns))
    # 0 of n shows a share below u = 1 - alpha^(1/n), and total * u <= 1.
    return _dependent(max(1, math.ceil(math.log(alpha) / math.log1p(-1 / total))), design_effect) if total > 1 else 1
