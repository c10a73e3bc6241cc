"""One objective over the run: was it kept, and does the run show it?

A percentile or a share passes only when the share of values that break its limit is shown to be small enough, and fails
only when it is shown to be too large (``plimsoll.slo.statistics.share``); in between, or without data, the run is too
short to say and the verdict says how long it should be. A mean, an extreme or a rate is a fact about this run and
judged as observed: no bound of a mean is both honest for heavy tails and monotone, and a slower request must never turn
a FAIL into a PASS.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from plimsoll.slo.metrics.indicator import Measured, catalogue, measure, succeeded, successes
from plimsoll.slo.metrics.word_errors import word_error_rate
from plimsoll.slo.objectives.goodput import Goodput, Throughput, against, entries, failing, over, throughput
from plimsoll.slo.objectives.objective import Objective, Promise, show
from plimsoll.slo.records.records import BoolArray, IntArray, Records
from plimsoll.slo.statistics import confidence as sure
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.statistics.distribution import exact, quantile
from plimsoll.slo.statistics.memory import Memory
from plimsoll.slo.statistics.order import Entries, Folded, Ordered, mapped
from plimsoll.slo.statistics.share import bounds

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]
_BREAKS: Mapping[str, Literal[">", ">=", "<", "<="]] = {"<=": ">", "<": ">=", ">=": "<", ">": "<="}
#: Begins what a detail says of a decision by distance.
BY_DISTANCE = "; decided by distance"


@dataclass(frozen=True, slots=True)
class Ends:
    """What an objective is at both ends of the generator's lateness (``slo/validity/bracket.py``): as measured, and
    without it.

    ``lateness_ns``: the most that may have been in any request's time.
    """

    lower: float
    upper: float
    outcome_lower: Outcome
    outcome_upper: Outcome
    lateness_ns: int


@dataclass(frozen=True, slots=True)
class ObjectiveVerdict:
    """One objective over the run.

    ``observed`` and ``threshold`` are in ``unit``; ``observed`` is NaN for no data and may be +inf. ``interval``: a
    lower and an upper bound, each at the confidence (for facts about the run, the fact itself; for a mean, Student's t,
    for information). ``n`` values, ``bad`` of them break the limit, ``max_bad_allowed`` of n would still pass (-1:
    none, None: does not apply). ``n_needed``: 0 when decided, else the total n that would decide if the observed share
    of bad ones held, None when no n would. ``missing``: successful requests without a value. ``p_pass`` and ``p_fail``:
    how often a share on the limit would look as good, or as bad (None: not a share). ``design_effect``: how many values
    count as one, because neighbours share their fate; ``by``: ``number`` or ``distance``, what decided; ``needed_ns``:
    how long a run of ``n_needed`` takes at this one's rate. ``bracket``: both ends, None where the generator's lateness
    touches nothing; ``lateness``: what they make of the verdict, in words; ``repeats``: what it were if requests that
    were sent again counted as failed (``slo/validity/bracket.py``), where that is something else. For the sentence
    (``plimsoll.slo.objectives.sentence``): ``failed`` of the bad ones (of a fact: of all) are of requests that failed;
    ``observed_ok``: the same statistic of the successful ones alone, None where none failed or none is left;
    ``entries`` and ``fault``: what the values are and what a bad one is, where the objective does not say it;
    ``parts``: those that the promise is put together from; ``among_values``: of a promise about the worst value of a
    label, the one that decides, and of how many; ``among``: of so many objectives, and not alone, it is
    undecided (Holm). ``memory``: as of ``ShareTest``.
    """

    objective: Promise
    outcome: Outcome
    observed: float
    interval: tuple[float, float]
    n: int
    n_needed: int | None
    detail: str
    missing: int = 0
    bad: int | None = None
    max_bad_allowed: int | None = None
    p_pass: float | None = None
    p_fail: float | None = None
    design_effect: float = 1.0
    by: str = ""
    needed_ns: int | None = None
    failed: int | None = None
    observed_ok: float | None = None
    entries: str = ""
    fault: str = ""
    parts: tuple[str, ...] = ()
    among: int = 0
    among_values: tuple[str, int] | None = None
    bracket: Ends | None = None
    lateness: str = ""
    repeats: str = ""
    memory: Memory | None = None

    @property
    def text(self) -> str:
        return str(self.objective)

    @property
    def threshold(self) -> float:
        return self.objective.threshold

    @property
    def unit(self) -> str:
        """``ns``, ``ratio``, ``per_s`` or ``1``."""
        return self.objective.unit


def by_test(
    promise: Promise, test: share.ShareTest, observed: float, interval: tuple[float, float], detail: str, **more: Any
) -> ObjectiveVerdict:
    """The verdict that a test of shares gives."""
    return ObjectiveVerdict(
        promise,
        test.outcome,
        observed,
        interval,
        test.n,
        test.n_needed,
        detail,
        bad=test.bad,
        max_bad_allowed=test.allowed,
        p_pass=test.p_pass,
        p_fail=test.p_fail,
        design_effect=test.design_effect,
        memory=test.memory,
        **more,
    )


def as_observed(
    objective: Objective, observed: float, interval: tuple[float, float], n: int, detail: str, **more: Any
) -> ObjectiveVerdict:
    """The verdict on a fact about the run, which the limit meets or not."""
    outcome: Outcome = "PASS" if objective.met_by(observed) else "FAIL"
    return ObjectiveVerdict(objective, outcome, observed, interval, n, 0, detail, **more)


def no_data(promise: Promise, detail: str, needed: int | None = 1, **more: Any) -> ObjectiveVerdict:
    """No data is never a pass."""
    return ObjectiveVerdict(promise, "INCONCLUSIVE", math.nan, (math.nan, math.nan), 0, needed, detail, **more)


def judge_objective(
    objective: Objective,
    records: Records,
    good: Goodput,
    confidence: sure.Probability,
    along: share.Course | None = None,
) -> ObjectiveVerdict:
    """Judge one objective over the run. ``good``: the goodput of these records under all of the objectives; ``along``:
    their course, if it is known already.
    """
    along = share.course(records) if along is None else along
    if objective.statistic == "ratio":
        return _ratio(objective, records, good, confidence, along)
    if objective.statistic == "rate":
        return _rate(objective, records, good)
    if objective.statistic == "accuracy":
        return judge_words(objective, records, confidence)
    if objective.quantile is not None:
        return _percentile(objective, records, objective.quantile, confidence, along)
    measured = measure(catalogue()[objective.indicator], records, judged=True)
    return _with_failures(fact_of(objective, measured, confidence), objective, records, measured)


def _with_failures(
    found: ObjectiveVerdict, objective: Objective, records: Records, measured: Measured
) -> ObjectiveVerdict:
    """The same, with how many are failures and what the successful ones alone show."""
    if not measured.n:
        return found
    indicator = catalogue()[objective.indicator]
    alone = successes(indicator, records, measured)
    if alone is None:
        return replace(found, failed=0)
    good, failed = succeeded(indicator, records), 0
    for values, row in measured.slabs():
        bad = ~good[row]
        if objective.quantile is not None:
            bad &= ~np.asarray(objective.met_by(values))
        failed += int(np.count_nonzero(bad))
    return replace(found, failed=failed, observed_ok=statistic(objective, alone) if alone.n else None)


def statistic(objective: Objective, entries: Entries) -> float:
    """The percentile, mean or extreme of values."""
    if objective.quantile is not None:
        return quantile(entries.ordered, objective.quantile)
    if objective.statistic == "mean":
        return entries.mean()
    return float(entries.ordered[-1 if objective.statistic == "max" else 0])


def not_compared(objective: Objective) -> ObjectiveVerdict:
    """An objective on answers, where none were kept."""
    return no_data(
        objective, "no answers were compared with a reference. Run with --mode accuracy and give --reference"
    )


def judge_words(objective: Objective, records: Records, confidence: sure.Probability) -> ObjectiveVerdict:
    """The pooled word error rate of a run that kept no answers but counted words, as observed; its bounds are for
    information.

    Any other objective on answers, or a run whose references are not known: no data, which is never a pass.
    """
    found = word_error_rate(records, confidence) if objective.indicator == "wer" else None
    if found is None or not found.words:
        return not_compared(objective)
    failed = f", {found.failed} of them failed and wrong in every word" if found.failed else ""
    detail = (
        f"{show(found.rate, 'ratio')}: {found.errors} errors in {found.words} words of {found.sessions} "
        f"sessions{failed}; judged as observed; {_between(found.interval, 'ratio', confidence)}"
    )
    return as_observed(
        objective, found.rate, found.interval, found.sessions, detail, failed=found.failed, entries="sessions"
    )


#: What every answer has that came as a stream with any output.
_STREAMED = ("ttft", "e2e")


def _no_data(objective: Objective, measured: Measured, confidence: sure.Probability) -> ObjectiveVerdict:
    needed = sure.n_needed(0, 0, objective.allowed, confidence) if objective.allowed is not None else 1
    why = f"none of {measured.missing} successful requests has one" if measured.missing else "nothing was measured"
    drop = "Drop the objective, or measure what has one"
    if objective.indicator.startswith("stage."):
        drop = "Name a stage that the server says (the report's 'where the time goes'), or drop the objective"
    elif measured.missing and objective.indicator in _STREAMED:
        why += ": the answers came whole. No stream was asked for, or the server or a proxy before it gave none"
    detail = f"no {objective.indicator} to judge: {why}. {drop}"
    # p = 1, not none: it counts in Holm's correction as it is, so its first bad value can't unsettle the FAIL of
    # another.
    p = 1.0 if objective.quantile is not None else None
    return no_data(objective, detail, needed, missing=measured.missing, p_pass=p, p_fail=p)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the values that an objective promises a percentile of; ``seen`` and ``far``: those that break
    its limit, by their number and by how far all are from it.
    """

    measured: Measured
    laid: share.Series
    seen: share.Counted
    far: Distance | None


def evidence_of(objective: Objective, records: Records, along: share.Course) -> Measured | Evidence:
    """The evidence on a promised percentile, made once for verdict and budget; without values what was measured."""

    def laid() -> tuple[Measured, share.Series | None]:
        indicator = catalogue()[objective.indicator]
        measured = measure(indicator, records, judged=True)
        worst = indicator.worst if measured.failed else None
        return measured, share.lay(measured, along, worst) if measured.n else None

    def weighed() -> Measured | Evidence:
        measured, series = along.once(objective.indicator, laid)
        if series is None:
            return measured
        bad = beyond(objective)
        failed = series.errors if bool(bad.of(np.array([catalogue()[objective.indicator].worst]))[0]) else None
        return Evidence(measured, series, series.beyond(bad, failed), distance(objective, measured.ordered, series))

    return along.once(objective, weighed)


def beyond(objective: Objective) -> share.Beyond:
    """The values that break its limit."""
    return share.Beyond(_BREAKS[objective.operator], objective.threshold)


def _percentile(
    objective: Objective, records: Records, p: Fraction, confidence: sure.Probability, along: share.Course
) -> ObjectiveVerdict:
    known = evidence_of(objective, records, along)
    found = percentile_of(objective, known, p, confidence, along)
    return _with_failures(found, objective, records, known.measured if isinstance(known, Evidence) else known)


def percentile_of(
    objective: Objective, known: Measured | Evidence, p: Fraction, confidence: sure.Probability, along: share.Course
) -> ObjectiveVerdict:
    """The verdict on a promised percentile by what is known of its values; ``along``: how long they took to send."""
    if not isinstance(known, Evidence):
        return _no_data(objective, known, confidence)
    allowed, ordered = objective.allowed, known.measured.ordered
    assert allowed is not None
    side = {"upward": objective.operator in ("<=", "<"), "scaled": known.far is not None}
    floor = -math.inf if catalogue()[objective.indicator].signed else 0.0

    def asked() -> tuple[share.ShareTest, tuple[float, float], float]:
        ends = bounds(known.laid, p, confidence, **side, floor=floor)
        return share.weigh(known.seen, allowed, confidence, known.far), ends, quantile(ordered, p)

    if isinstance(ordered, Folded):
        ordered.ahead(asked)
    test, (low, high), observed = asked()
    detail = (
        f"{show(observed, objective.unit)} observed, {_between((low, high), objective.unit, confidence)}; "
        f"{test.bad} of {test.n} values break {objective.operator} {objective.threshold_text}, {_how_many(test)}"
    )
    return _shown(objective, test, observed, (low, high), detail, along, missing=known.measured.missing)


def distance(objective: Objective, ordered: Ordered, laid: share.Series) -> Distance | None:
    """How far values, ascending, are from the limit, in multiples of it; None where a multiple means nothing, as of a
    share.
    """
    if objective.unit not in ("ns", "per_s") or objective.threshold <= 0:
        return None
    falls = objective.operator not in ("<=", "<")
    return Distance(mapped(ordered, lambda values: over(objective, values), falls), laid.memory)


def _shown(
    objective: Objective,
    test: share.ShareTest,
    observed: float,
    interval: tuple[float, float],
    detail: str,
    along: share.Course,
    **more: int,
) -> ObjectiveVerdict:
    said, longer = detail + _more(test, along), _needed_ns(test, along)
    return by_test(objective, test, observed, interval, said, by=test.by, needed_ns=longer, **more)


def _between(interval: tuple[float, float], unit: str, confidence: sure.Probability) -> str:
    low, high = (show(bound, unit) for bound in interval)
    sure_of = f"{float(exact(confidence)) * 100:.4g} % sure"
    return f"{sure_of} above {low}, {'no bound above it' if interval[1] == float('inf') else f'{sure_of} below {high}'}"


def _how_many(test: share.ShareTest) -> str:
    if test.allowed < 0:
        return "too few values to allow any"
    evenly = "" if test.design_effect < 1.5 else " if they lay evenly"
    return f"{test.allowed} may{evenly}"


def _more(test: share.ShareTest, along: share.Course) -> str:
    clustered = ""
    if test.design_effect >= 1.5 and test.n:
        worth = test.n / test.design_effect
        independent = f"{worth:.{0 if worth >= 10 else 1}f} independent ones"
        clustered = f"; they come in clusters: {test.n} values say as much as {independent}"
    if test.by == "distance":
        far = "nearly all of them are far enough within the limit"
        if test.outcome == "FAIL":
            far = "so many break the limit, or by so much, that no clustering explains it"
        return f"{clustered}{BY_DISTANCE}: {far}"
    if test.outcome != "INCONCLUSIVE":
        return clustered
    if test.n_needed is None:
        return f"{clustered}; exactly on the limit, so no number of requests decides it: change the limit"
    longer = _needed_ns(test, along)
    lasting = "" if longer is None else f" ({show(longer, 'ns')} at this rate)"
    total = f"{test.n_needed} in all would decide{lasting}, {test.n_needed - test.n} more"
    return f"{clustered}; at this share {total}: let the run go on"


def _needed_ns(test: share.ShareTest, along: share.Course) -> int | None:
    """How long a run that decides would take at this one's rate; None: decided, or no rate."""
    if not test.n_needed or not test.n or not along.span_ns:
        return None
    return round(test.n_needed / test.n * along.span_ns)


def fact_of(objective: Objective, measured: Measured, confidence: sure.Probability) -> ObjectiveVerdict:
    """Mean, max or min, as observed."""
    if not measured.n:
        return _no_data(objective, measured, confidence)
    observed = statistic(objective, measured)
    if objective.statistic == "mean":
        interval = sure.mean_interval(measured.ordered, confidence, sides=1)
        note = f"; {_between(interval, objective.unit, confidence)}, if the mean is near normal"
        note = note if np.isfinite(interval).all() else ""
    else:
        interval, note = (observed, observed), ""
    failures = f", {measured.failed} of them failed" if measured.failed else ""
    detail = f"{show(observed, objective.unit)} over {measured.n} values{failures}; judged as observed{note}"
    return as_observed(objective, observed, interval, measured.n, detail, missing=measured.missing)


def _ratio(
    objective: Objective, records: Records, good: Goodput, confidence: sure.Probability, along: share.Course
) -> ObjectiveVerdict:
    """A share of all measured requests, tested on those that count against it."""
    bad, rows = against(objective.indicator, records, good.good)
    seen, far = of_entries(objective, bad, rows, good, along) if len(rows) else (share.counted(bad), None)
    whole = succeeded(catalogue()["frame_missed"], records) if objective.indicator == "frame_missed" else records.ok
    return ratio_of(objective, seen, far, int(np.count_nonzero(bad & ~whole[rows])), confidence, along)


def ratio_of(
    objective: Objective,
    seen: share.Counted,
    far: Distance | None,
    failed: int,
    confidence: sure.Probability,
    along: share.Course,
) -> ObjectiveVerdict:
    """The verdict on a promised share by the evidence on it; ``failed`` of what counts against it did not succeed."""
    upward = objective.operator in ("<=", "<")
    limit = objective.allowed
    assert limit is not None
    if not seen.n:
        detail = "nothing was measured; see the errors of the run, then measure again"
        if objective.indicator == "frame_missed":
            detail = "no query had a deadline: give params.frame_interval"
        elif objective.indicator in ("retried", "degraded"):
            key = "client.retry" if objective.indicator == "retried" else "degraded"
            detail = f"no row says whether it was {objective.indicator}: the scenario's {key} makes rows that do"
        elif objective.indicator == "talked_over":
            detail = "no turn says whether the server spoke over it: kind sessions on openai-realtime makes such turns"
        return no_data(objective, detail, sure.n_needed(0, 0, limit, confidence), p_pass=1.0, p_fail=1.0)
    test = share.weigh(seen, limit, confidence, far)
    low, high = test.interval
    interval = (low, high) if upward else (1.0 - high, 1.0 - low)
    observed = test.bad / test.n if upward else (test.n - test.bad) / test.n
    detail = (
        f"{show(observed, 'ratio')} observed, {_between(interval, 'ratio', confidence)}; {test.bad} of {test.n} "
        f"{entries(objective.indicator)} {failing(objective.indicator)}, {_how_many(test)}"
    )
    return _shown(objective, test, observed, interval, detail, along, failed=failed)


def of_entries(
    objective: Objective, bad: BoolArray, rows: IntArray, good: Goodput, along: share.Course
) -> tuple[share.Counted, Distance | None]:
    """What counts against a ratio. Of good requests all their times show the memory; of errors only the errors do."""
    if objective.indicator != "good" or not good.attainment:
        return share.counted(along.in_order(bad, rows), along.growing), None
    severity = good.severity[rows]
    laid = share.series(severity, rows, along)
    timed = all(one.objective.unit in ("ns", "per_s") for one in good.attainment)
    return laid.count(bad, np.isinf(severity)), Distance(laid.entries.ordered, laid.memory) if timed else None


def _rate(objective: Objective, records: Records, good: Goodput) -> ObjectiveVerdict:
    measured = records.in_measure
    # Tokens were counted, but only of requests that failed; or what failed might have counted some.
    counted = bool((((records["n_out"] >= 0) | ~records.ok) & measured).any())
    return rate_of(objective, throughput(records), good, counted, int(np.count_nonzero(~records.ok & measured)))


def rate_of(objective: Objective, done: Throughput, good: Goodput, counted: bool, failed: int) -> ObjectiveVerdict:
    """A rate over the run's span, as observed. ``counted``: some request counted tokens, or might have."""
    observed: float | None = {
        "good": good.goodput_per_s,
        "ok": done.requests_per_s,
        "output_tokens": done.output_tokens_per_s,
    }[objective.indicator]
    if observed is None and counted:
        observed = 0.0
    if observed is None or good.n == 0:
        what = "no request counted its tokens" if good.n else "nothing was measured"
        return no_data(objective, f"{what}, so there is no rate. Drop the objective, or measure what has one")
    over = show(done.span_ns, "ns")
    detail = f"{show(observed, 'per_s')} over {over}, from t0 to the last answer; judged as observed"
    return as_observed(objective, observed, (observed, observed), good.n, detail, failed=failed)
