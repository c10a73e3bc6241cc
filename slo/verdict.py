"""PASS, FAIL, INCONCLUSIVE or INVALID: were the objectives kept, and does the run show it?

A percentile or a share passes only when its upper bound keeps the promise, and fails only when its lower
bound breaks it, each at the given confidence; in between, or without data, the run is too short to say and
the verdict says how long it should be. A mean, an extreme or a rate is a fact about this run and judged as
observed: no bound of a mean is both honest for heavy tails and monotone, and a slower request must never
turn a FAIL into a PASS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from slo import confidence as sure
from slo.distribution import exact, quantile
from slo.goodput import Goodput, Throughput, goodput, throughput
from slo.indicator import Measured, catalogue, measure
from slo.objective import Objective, show
from slo.records import Records
from slo.validity import Validity

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]
_RANK: tuple[Outcome, ...] = ("PASS", "INCONCLUSIVE", "FAIL", "INVALID")


@dataclass(frozen=True, slots=True)
class ObjectiveVerdict:
    """One objective over the run.

    ``observed`` and ``threshold`` are in ``unit``; ``observed`` is NaN for no data and may be +inf.
    ``interval``: a lower and an upper bound, each at the confidence (for facts about the run, the fact
    itself; for a mean, Student's t, for information). ``n`` values, ``bad`` of them break the limit,
    ``max_bad_allowed`` of n would still pass (-1: none, None: does not apply). ``n_needed``: 0 when
    decided, else the total n that would decide if the observed share of bad ones held, None when no n
    would. ``missing``: successful requests without a value.
    """

    objective: Objective
    outcome: Outcome
    observed: float
    interval: tuple[float, float]
    n: int
    n_needed: int | None
    detail: str
    missing: int = 0
    bad: int | None = None
    max_bad_allowed: int | None = None

    @property
    def text(self) -> str:
        """The objective as text."""
        return str(self.objective)

    @property
    def threshold(self) -> float:
        """The objective's threshold in ``unit``."""
        return self.objective.threshold

    @property
    def unit(self) -> str:
        """``ns``, ``ratio``, ``per_s`` or ``1``."""
        return self.objective.unit


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole: the worst outcome of any objective, or INVALID. ``objectives`` holds those over the run."""

    outcome: Outcome
    reasons: tuple[str, ...]
    objectives: tuple[ObjectiveVerdict, ...]
    confidence: float


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """INVALID before FAIL before INCONCLUSIVE before PASS; PASS for none."""
    return max(outcomes, key=_RANK.index, default="PASS")


def judge(
    records: Records,
    objectives: Sequence[Objective],
    validity: Validity,
    confidence: sure.Probability = "0.95",
) -> Verdict:
    """Judge the measured rows. ``confidence`` is of each bound alone (one-sided), between 0 and 1."""
    good = goodput(records, objectives)
    judged = tuple(_one(o, records, good, confidence) for o in objectives if o.scope == "run")
    if validity.outcome == "INVALID":
        outcome: Outcome = "INVALID"
        reasons = validity.reasons
    else:
        outcome = worst([v.outcome for v in judged])
        reasons = tuple(f"{v.text}: {v.detail}" for v in judged if v.outcome != "PASS")
        if not judged:
            outcome, reasons = _without_objectives(records)
        outcome, reasons = _unless_unstable(outcome, reasons, validity.unstable)
    return Verdict(outcome, reasons, judged, float(exact(confidence)))


def _unless_unstable(
    outcome: Outcome, reasons: tuple[str, ...], unstable: str | None
) -> tuple[Outcome, tuple[str, ...]]:
    """A FAIL stands: with a growing backlog a longer run only fails by more. Nothing else does.

    A PASS was kept by stopping in time, more requests would decide nothing, and percentiles without objectives are those of
    this length of run alone.
    """
    if unstable is None:
        return outcome, reasons
    return ("FAIL", (*reasons, unstable)) if outcome == "FAIL" else ("INVALID", (unstable,))


def _without_objectives(records: Records) -> tuple[Outcome, tuple[str, ...]]:
    """Nobody promised anything, but an endpoint that answered nothing at all has not passed."""
    rows = records.measured()
    if len(rows) and not rows.ok.any():
        texts = [text for text in rows.texts("error") if text]
        common = max(set(texts), key=texts.count) if texts else "no error text"
        return "FAIL", (f"not one of {len(rows)} requests succeeded; most often: {common}",)
    return "PASS", ("no objective given",)


def _one(objective: Objective, records: Records, good: Goodput, confidence: sure.Probability) -> ObjectiveVerdict:
    if objective.statistic == "ratio":
        return _ratio(objective, records, good, confidence)
    if objective.statistic == "rate":
        return _rate(objective, records, good)
    measured = measure(catalogue()[objective.indicator], records)
    if measured.n == 0:
        return _no_data(objective, measured, confidence)
    if objective.quantile is not None:
        return _percentile(objective, measured, objective.quantile, confidence)
    return _fact(objective, measured, confidence)


def _limit(objective: Objective) -> Fraction:
    """The share of values that may break the limit of a percentile."""
    assert objective.quantile is not None
    return 1 - objective.quantile if objective.operator in ("<=", "<") else objective.quantile


def _no_data(objective: Objective, measured: Measured, confidence: sure.Probability) -> ObjectiveVerdict:
    needed = sure.n_needed(0, 0, _limit(objective), confidence) if objective.quantile is not None else 1
    why = f"none of {measured.missing} successful requests has one" if measured.missing else "nothing was measured"
    detail = f"no {objective.indicator} to judge: {why}. Drop the objective, or measure what has one"
    nan = float("nan")
    return ObjectiveVerdict(objective, "INCONCLUSIVE", nan, (nan, nan), 0, needed, detail, measured.missing)


def _percentile(
    objective: Objective, measured: Measured, p: Fraction, confidence: sure.Probability
) -> ObjectiveVerdict:
    ordered, n = np.sort(measured.values), measured.n
    lower, upper = sure.order_statistic_bounds(n, p, confidence, sides=1)
    # Every indicator is at least 0: that is the bound when the sample is too small for a better one.
    low = float(ordered[lower - 1]) if lower >= 1 else 0.0
    high = float(ordered[upper - 1]) if upper <= n else float("inf")
    upward = objective.operator in ("<=", "<")
    proven = lower >= 1 if not upward else upper <= n
    # The bound on the side that hurts must keep the promise; to fail, even the other one must break it.
    hurts, helps = (high, low) if upward else (low, high)
    if proven and objective.met_by(hurts):
        outcome: Outcome = "PASS"
    else:
        outcome = "INCONCLUSIVE" if objective.met_by(helps) else "FAIL"
    bad = int(np.count_nonzero(~np.asarray(objective.met_by(measured.values))))
    allowed = sure.most_bad_allowed(n, _limit(objective), confidence)
    needed = sure.n_needed(bad, n, _limit(objective), confidence) if outcome == "INCONCLUSIVE" else 0
    observed = quantile(ordered, p)
    detail = (
        f"{show(observed, objective.unit)} observed, {_between((low, high), objective.unit, confidence)}; "
        f"{bad} of {n} values break {objective.operator} {objective.threshold_text}, {_allowed(allowed)}"
        f"{_more(outcome, needed, n)}"
    )
    if catalogue()[objective.indicator].scope == "gap":
        detail += "; gaps of one request depend on each other, so the true bounds are wider"
    return ObjectiveVerdict(
        objective, outcome, observed, (low, high), n, needed, detail, measured.missing, bad, allowed
    )


def _between(interval: tuple[float, float], unit: str, confidence: sure.Probability) -> str:
    low, high = (show(bound, unit) for bound in interval)
    sure_of = f"{float(exact(confidence)) * 100:.4g} % sure"
    return f"{sure_of} above {low}, {sure_of} below {high}"


def _allowed(allowed: int) -> str:
    return f"{allowed} may" if allowed >= 0 else "too few values to allow any"


def _more(outcome: Outcome, needed: int | None, n: int) -> str:
    if outcome != "INCONCLUSIVE":
        return ""
    if needed is None:
        return "; exactly on the limit, so no number of requests decides it: change the limit"
    return f"; at this share {needed} in all would decide, {needed - n} more: let the run go on"


def _fact(objective: Objective, measured: Measured, confidence: sure.Probability) -> ObjectiveVerdict:
    """Mean, max or min, as observed."""
    if objective.statistic == "mean":
        observed = float(np.sort(measured.values).mean())
        interval = sure.mean_interval(measured.values, confidence, sides=1)
        note = f"; {_between(interval, objective.unit, confidence)}, if the mean is near normal"
        note = note if np.isfinite(interval).all() else ""
    else:
        observed = float(measured.values.max() if objective.statistic == "max" else measured.values.min())
        interval, note = (observed, observed), ""
    kept = bool(objective.met_by(observed))
    failures = f", {measured.failed} of them failed" if measured.failed else ""
    detail = f"{show(observed, objective.unit)} over {measured.n} values{failures}; judged as observed{note}"
    return ObjectiveVerdict(
        objective, "PASS" if kept else "FAIL", observed, interval, measured.n, 0, detail, measured.missing
    )


def _ratio(objective: Objective, records: Records, good: Goodput, confidence: sure.Probability) -> ObjectiveVerdict:
    """A share of all measured requests: exact binomial, on the count of those that count against it."""
    n = good.n
    upward = objective.operator in ("<=", "<")
    ok = int(np.count_nonzero(records.ok & records.in_measure))
    bad = n - (good.n_good if objective.indicator == "good" else ok)
    limit = objective.exact_threshold if upward else 1 - objective.exact_threshold
    needed = sure.n_needed(bad, n, limit, confidence)
    if n == 0:
        nan = float("nan")
        detail = "nothing was measured; see the errors of the run, then measure again"
        return ObjectiveVerdict(objective, "INCONCLUSIVE", nan, (nan, nan), 0, needed, detail)
    outcome: Outcome = "INCONCLUSIVE"
    if sure.shows_few(bad, n, limit, confidence):
        outcome = "PASS"
    elif sure.shows_many(bad, n, limit, confidence):
        outcome = "FAIL"
    low, high = sure.clopper_pearson(bad, n, confidence, sides=1)
    interval = (low, high) if upward else (1.0 - high, 1.0 - low)
    observed = bad / n if upward else (n - bad) / n
    allowed = sure.most_bad_allowed(n, limit, confidence)
    name = "failed" if objective.indicator == "error" else "not good"
    detail = (
        f"{show(observed, 'ratio')} observed, {_between(interval, 'ratio', confidence)}; {bad} of {n} "
        f"requests {name}, {_allowed(allowed)}{_more(outcome, needed, n)}"
    )
    return ObjectiveVerdict(objective, outcome, observed, interval, n, needed, detail, 0, bad, allowed)


def _rate(objective: Objective, records: Records, good: Goodput) -> ObjectiveVerdict:
    """A rate over the run's span, as observed."""
    done = throughput(records)
    observed: float | None = {
        "good": good.goodput_per_s,
        "ok": done.requests_per_s,
        "output_tokens": done.output_tokens_per_s,
    }[objective.indicator]
    measured = records.in_measure
    if observed is None and ((records["n_out"] >= 0) & measured).any():
        observed = 0.0  # tokens were counted, but only of requests that failed
    if observed is None and not (records.ok & measured).any():
        observed = 0.0
    if observed is None or good.n == 0:
        nan = float("nan")
        what = "no request counted its tokens" if good.n else "nothing was measured"
        detail = f"{what}, so there is no rate. Drop the objective, or measure what has one"
        return ObjectiveVerdict(objective, "INCONCLUSIVE", nan, (nan, nan), 0, 1, detail)
    over = show(done.span_ns, "ns")
    detail = f"{show(observed, 'per_s')} over {over}, from t0 to the last answer; judged as observed"
    outcome: Outcome = "PASS" if objective.met_by(observed) else "FAIL"
    return ObjectiveVerdict(objective, outcome, observed, (observed, observed), good.n, 0, detail)


__all__ = [
    "Goodput",
    "ObjectiveVerdict",
    "Outcome",
    "Throughput",
    "Verdict",
    "goodput",
    "judge",
    "throughput",
    "worst",
]
