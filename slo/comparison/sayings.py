"""What a comparison says of one quantity, in a sentence. Decides nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.comparison.effects import Measured
from plimsoll.slo.comparison.scale import back
from plimsoll.slo.objectives.objective import show
from plimsoll.slo.records.records import FloatArray

_TESTS = {"mann-whitney": "Mann-Whitney", "signed-rank": "Wilcoxon signed-rank"}


@dataclass(frozen=True, slots=True)
class Terms:
    """How a quantity is judged. ``needed``: runs per arm that would do, 0 with enough; ``alone``: within one pair of runs;
    ``proof``: no difference must be shown, too.
    """

    needed: int
    alone: bool
    proof: bool
    confidence: float


def why(m: Measured, outcome: str, adjusted_p: float, terms: Terms) -> str:
    """Why ``outcome``."""
    found = finding(m, outcome, adjusted_p, terms)
    if m.data != "enough":
        return found
    seen = f"{_value(m, m.base)} in the base, {_value(m, m.candidate)} in the candidate"
    if terms.alone or terms.needed:
        return f"{seen}; {found}"
    over = f" over all {m.family} together" if m.family > 1 else ""
    sure = f"{terms.confidence * 100:.4g} % interval{over} {size(m, *m.interval)}"
    test = f"{_TESTS[m.method]} over {_runs(m)}, adjusted p = {adjusted_p:.2g}"
    return f"{seen}: {found} ({sure}; {test})"


def finding(m: Measured, outcome: str, adjusted_p: float, terms: Terms) -> str:
    """The same without the numbers that stand beside it in a table."""
    if m.data != "enough":
        who = {"base": "the base has", "candidate": "the candidate has", "both": "both arms have"}[m.data]
        return f"{who} no value of it in some run. Compare what both measured"
    if terms.alone:
        return _of_two_runs(m, outcome)
    if terms.needed:
        one = min(len(m.base), len(m.candidate)) == 1
        what = "too few runs for any difference to be significant"
        return f"{'one run says nothing about how runs differ' if one else what}. Run at least {terms.needed} of each"
    return _of_runs(m, outcome, adjusted_p, terms)


def _of_runs(m: Measured, outcome: str, adjusted_p: float, terms: Terms) -> str:
    by, tolerance = change(m.effect, m), _tolerance(m)
    if outcome in ("REGRESSION", "IMPROVEMENT"):
        return f"{by}, beyond the tolerance of {tolerance}"
    if outcome == "INCONCLUSIVE" and m.shift.high == math.inf:
        return "failed requests reach it in too many runs for any limit on how much worse it got"
    if outcome == "INCONCLUSIVE":
        return f"not shown to stay within the tolerance of {tolerance}; {_most(m, m.most)} is possible"
    if adjusted_p <= 1 - terms.confidence and not m.better_limit <= m.shift.low <= m.shift.high <= m.worse_limit:
        return f"{by}, a difference not shown to be beyond the tolerance of {tolerance}"
    if m.shift.high <= m.worse_limit:
        return f"{by}, and within the tolerance of {tolerance}"
    if terms.proof:
        return f"{by}, and by itself within the tolerance of {tolerance}: {_most(m, m.most)} at most"
    return f"no difference shown; {_most(m, m.shift.high)} is possible"


def _most(m: Measured, worst: float) -> str:
    low, high = back(worst, worst, m.quantity)
    return f"{change(high if m.quantity.better == 'lower' else low, m)}"


def _of_two_runs(m: Measured, outcome: str) -> str:
    one = m.one_run
    if one is None:
        return "there is no test of it within a single run. Run at least 5 of each"
    counts = f"{one.base_over} of {one.base_n} and {one.candidate_over} of {one.candidate_n} values"
    where = "fail it" if m.quantity.scale == "difference" else "lie beyond the base's"
    verdict = {
        "REGRESSION": f"worse beyond the tolerance of {_tolerance(m)}",
        "IMPROVEMENT": f"better beyond the tolerance of {_tolerance(m)}",
        "INDISTINGUISHABLE": "no difference beyond the tolerance shown",
        "INCONCLUSIVE": "not decided",
    }[outcome]
    return f"{counts} {where}, p = {one.p:.2g}: {verdict} within this pair of runs, blind to how runs differ"


def change(effect: float, m: Measured) -> str:
    """``12 % more``, ``0.3 points less``, ``no change``."""
    if math.isnan(effect):
        return "a change that can't be put in a number"
    if m.quantity.scale == "difference":
        if effect == 0:
            return "no change"
        return f"{abs(effect) * 100:.3g} points {'more' if effect > 0 else 'less'}"
    if math.isinf(effect):
        return "an increase without limit"
    if effect == 1:
        return "no change"
    # Ten times is easier to read than 900 % more.
    if effect >= 3:
        return f"{effect:.3g} times as much"
    return f"{abs(effect - 1) * 100:.3g} % {'more' if effect > 1 else 'less'}"


def size(m: Measured, low: float, high: float) -> str:
    """An interval of the effect: ``0.98 to 1.04``, ``-0.1 to 0.4 points``."""
    if m.quantity.scale == "difference":
        return f"{low * 100:.3g} to {high * 100:.3g} points"
    if math.isinf(low):
        return "infinite"
    return f"{low:.4g} to {'infinite' if math.isinf(high) else format(high, '.4g')}"


def _tolerance(m: Measured) -> str:
    amount = f"{m.tolerance * 100:.4g}"
    if m.quantity.scale == "ratio":
        return f"{amount} %"
    return f"{amount} point" + ("" if amount == "1" else "s")


def _runs(m: Measured) -> str:
    return f"{len(m.base)} pairs of runs" if m.method == "signed-rank" else f"{len(m.base)} and {len(m.candidate)} runs"


def _value(m: Measured, values: FloatArray) -> str:
    return show(float(np.median(values)), m.quantity.unit)
