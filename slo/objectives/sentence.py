"""What decides an objective, in one plain sentence: how many of how many broke it, how many of those failed, and by how
much.

    269 of 300 requests later than 200 ms where 1 % may be, 26 of them failed; p99 of the successful 12.8 s

Every text about a verdict is this one: the banner, the reasons, the line of a terminal or of CI, the cards of the page.
The counts are the verdict's own; nothing is measured or judged here. Bounds and method stand in
``ObjectiveVerdict.detail``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from plimsoll.slo.metrics.indicator import catalogue, entries
from plimsoll.slo.objectives.goodput import entries as entries_of_ratio
from plimsoll.slo.objectives.goodput import failing
from plimsoll.slo.objectives.objective import SPELLS, Promise, show
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, Outcome
from plimsoll.slo.statistics.confidence import deciding

#: Faults that are done and not been: "may", not "may be".
_DONE = frozenset(
    {
        "failed",
        "missed their deadline",
        "were turned away",
        "were sent again",
        "were answered by a fallback",
        "were spoken over",
    }
)
#: What fails itself; of anything else, such as a gap, its request failed.
_FAIL_THEMSELVES = frozenset({"requests", "queries", "frames", "sessions"})
_SHARE_OF = {
    "good": "good",
    "error": "failed",
    "frame_missed": "missed",
    "refused": "turned away",
    "retried": "retried",
    "degraded": "degraded",
    "talked_over": "spoken over",
}
#: So many values count as one before the sentence says that they come in clusters.
CLUSTERED = 1.5


def sentence(one: ObjectiveVerdict) -> str:
    """The sentence, without the objective's name and without a full stop."""
    if one.n == 0:
        return one.detail
    value = "" if one.among_values is None else f"{one.among_values[0]}, of {one.among_values[1]}: "
    if one.bad is not None:
        said = _counts(one) + _failed(one) + f"; {_size(one)}" + _distant(one) + _undecided(one)
    else:
        said = _fact(one) if one.p_pass is None else _sum(one) + _undecided(one)
    return value + "; ".join(filter(None, (said, one.lateness, one.repeats)))


def named(one: ObjectiveVerdict) -> str:
    """The sentence behind the objective's text."""
    return f"{one.text}: {sentence(one)}"


def decisive(found: Sequence[ObjectiveVerdict], outcome: Outcome) -> ObjectiveVerdict | None:
    """The objective that decides an outcome: of those that have it the one that uses most of what its promise allows;
    of undecided ones that without data, then the one that needs most. None where none has it.
    """
    those = [one for one in found if one.outcome == outcome]
    return max(those, key=_needs if outcome == "INCONCLUSIVE" else _used, default=None)


def broken(limit: Promise) -> str:
    """What a value that breaks a limit is: ``later than 200 ms``, ``above 40 ms``, ``below 20/s``."""
    indicator, value = catalogue()[limit.indicator], show(limit.threshold, limit.unit)
    if limit.operator in (">=", ">"):
        return f"{'below' if limit.operator == '>=' else 'not above'} {value}"
    inclusive = limit.operator == "<"
    if limit.unit != "ns":
        return f"{'not below' if inclusive else 'above'} {value}"
    if inclusive:
        return f"not under {value}"
    if indicator.from_due:
        return f"later than {value}"
    return f"{'longer than' if indicator.scope == 'gap' else 'above'} {value}"


def _used(one: ObjectiveVerdict) -> tuple[bool, float]:
    """How much of what a promise allows is used up: 1 is on its limit.

    Shares come before facts, which have no bounds.
    """
    share = one.objective.allowed
    if one.bad is not None and share is not None:
        return True, one.bad / max(one.n, 1) / float(share)
    if one.p_pass is not None and share is not None:
        return True, (1 - one.observed) / float(share) if one.observed == one.observed else math.inf
    more, most = (
        (one.observed, one.threshold) if one.objective.operator in ("<=", "<") else (one.threshold, one.observed)
    )
    return False, more / most if most else math.inf if more > 0 else 0.0


def _needs(one: ObjectiveVerdict) -> tuple[bool, float]:
    return one.n == 0, math.inf if one.n_needed is None else one.n_needed / max(one.n, 1)


def _entries(one: ObjectiveVerdict) -> str:
    if one.entries:
        return one.entries
    kind = one.objective.statistic
    if kind == "ratio":
        return entries_of_ratio(one.objective.indicator)
    fixed = {"rate": "requests", "accuracy": "samples"}.get(kind or "")
    return fixed or entries(catalogue()[one.objective.indicator].scope)


def _fault(one: ObjectiveVerdict) -> str:
    if one.fault:
        return one.fault
    if one.objective.statistic == "ratio":
        return failing(one.objective.indicator)
    return "wrong" if one.objective.statistic == "accuracy" else broken(one.objective)


def _counts(one: ObjectiveVerdict) -> str:
    assert one.objective.allowed is not None  # only what is promised of a share has bad ones
    fault, share = _fault(one), show(float(one.objective.allowed), "ratio")
    return f"{one.bad:,} of {one.n:,} {_entries(one)} {fault} where {share} {'may' if fault in _DONE else 'may be'}"


def _failed(one: ObjectiveVerdict) -> str:
    """How many of the bad ones, or of all that make a fact, are failures."""
    if not one.failed or (one.bad is not None and _fault(one) == "failed"):
        return ""
    if one.failed == one.bad:
        return f", {'all of them' if one.bad > 1 else 'it'} {_end(one)}"
    return f", {one.failed:,} of them {_end(one)}"


def _end(one: ObjectiveVerdict) -> str:
    """What became of the values that are no success's."""
    if _entries(one) in _FAIL_THEMSELVES:
        return "failed"
    return "without an output" if one.objective.statistic == "accuracy" else "of requests that failed"


def _lost(one: ObjectiveVerdict) -> bool:
    """Failures, or what never came, are what was observed."""
    worst = 0.0 if one.objective.operator in (">=", ">") and one.failed else math.inf
    return one.observed == worst


def _size(one: ObjectiveVerdict) -> str:
    kind = one.objective.statistic or ""
    if kind in ("ratio", "accuracy"):
        share = "right" if kind == "accuracy" else _SHARE_OF.get(one.objective.indicator, "good")
        return f"{_percent(one.observed)} {share}"
    return _statistic(one, kind)


def _percent(share: float) -> str:
    """A share in four digits, more where they would make nearly all of it all."""
    short = f"{share * 100:.4g}"
    return f"{short} %" if share in (0.0, 1.0) or 0 < float(short) < 100 else show(share, "ratio")


def _statistic(one: ObjectiveVerdict, kind: str) -> str:
    """A percentile or a mean; where failures are it, that of the successful ones."""
    if not _lost(one):
        differs = one.observed_ok is not None and one.observed_ok != one.observed
        alone = f", of the successful {show(one.observed_ok or 0.0, one.unit)}" if differs else ""
        return f"{kind} {show(one.observed, one.unit)}{alone}"
    if not one.failed:
        return f"{kind} is one that never came"
    if one.observed_ok is None:
        return "none succeeded"
    ok = "one that never came" if math.isinf(one.observed_ok) else show(one.observed_ok, one.unit)
    return f"{kind} of the successful {ok}"


def _fact(one: ObjectiveVerdict) -> str:
    """A mean, an extreme, a rate or a pooled share: judged as observed."""
    what, kind = f"{one.n:,} {_entries(one)}", one.objective.statistic or ""
    limit = f"limit {show(one.threshold, one.unit)}"
    if kind in SPELLS:
        low, high = (show(end, "ns") for end in one.interval)
        seen = "not kept again before the end" if math.isinf(one.observed) else show(one.observed, "ns")
        if not one.interval[1]:
            return f"no stretch of {what} broke it, {limit}"
        return f"{seen}, shown to lie between {low} and {high}, {limit}"
    if kind in ("mean", "max", "min") and _lost(one):
        said = f"{one.failed:,} of {what} {_end(one)}; " if one.failed else ""
        return f"{said}{_statistic(one, kind)}, {limit}"
    seen = (
        _percent(one.observed) if one.unit == "ratio" and math.isfinite(one.observed) else show(one.observed, one.unit)
    )
    if kind == "slope":
        low, high = (show(bound, one.unit) for bound in one.interval)
        return f"{seen}, between {low} and {high}, over {what}, {limit}{_undecided(one)}"
    return f"{seen} over {what}{_failed(one)}, {limit}{_undecided(one)}"


def _sum(one: ObjectiveVerdict) -> str:
    """A promise that is put together from parts, or from slices of time."""
    good = "a part of it has no data" if math.isnan(one.observed) else f"{_percent(one.observed)} good"
    return "; ".join([f"{good} where {show(one.threshold, 'ratio')} is promised", *one.parts])


def _worth(one: ObjectiveVerdict) -> str:
    worth = one.n / one.design_effect
    return f"{worth:,.0f}" if worth >= 10 else f"{worth:.1f}"


def _distant(one: ObjectiveVerdict) -> str:
    """What decided where the number alone would not have."""
    if one.by != "distance" or one.outcome not in ("PASS", "FAIL"):
        return ""
    far = "nearly all lie far within the limit"
    if one.outcome == "FAIL":
        far = "so many break it, or by so much, that no clustering explains it"
    worth = ""
    if one.design_effect >= CLUSTERED:
        worth = f" (by number {one.n:,} say as much as {_worth(one)}, because neighbours share their fate)"
    return f"; decided by distance: {far}{worth}"


def _undecided(one: ObjectiveVerdict) -> str:
    if one.outcome != "INCONCLUSIVE" or math.isnan(one.observed):
        return ""
    if one.objective.statistic in SPELLS and not one.among:
        return "; the limit lies between these: more requests per second, or a longer run, would decide"
    if one.n_needed is None:  # what is said of the lateness tells what to do
        return "" if one.lateness else "; so near the limit that no number decides it: change the limit"
    bare = _bare(one)
    far = ""
    if one.among:
        why = f"broken if judged alone, but of {one.among} objectives judged together one may look so by chance"
    elif one.design_effect >= CLUSTERED and one.n_needed > bare:
        why = f"too few to be sure, because neighbours share their fate ({one.n:,} say as much as {_worth(one)})"
        far = ", if they stay as far within the limit" if one.n_needed < 0.9 * bare * one.design_effect else ""
    else:
        why = "too few to be sure"
    lasting = "" if one.needed_ns is None else f" ({show(one.needed_ns, 'ns')} at this rate)"
    return f"; {why}: {one.n_needed:,} in all would decide{lasting}, {one.n_needed - one.n:,} more{far}"


def _bare(one: ObjectiveVerdict) -> float:
    """How many would decide if they were independent; infinite where the promise is no share of them."""
    if one.bad is None or one.objective.allowed is None or not one.n:
        return 0.0
    return deciding(Fraction(one.bad, one.n), one.objective.allowed) or math.inf
