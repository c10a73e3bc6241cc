"""A report in sentences: the verdict, its reason, and what to say of each objective. Shared by every format
for people.
"""

from __future__ import annotations

from types import MappingProxyType

from reports import units
from reports.accuracy import Accuracy
from reports.measures import LIVE
from reports.parts import Metric, Number, ObjectiveResult, Validity
from reports.report import Report
from reports.timer import Timer

#: In place of an interval, for what is a fact of the run and not an estimate.
AS_OBSERVED = "as observed"

_SYMBOLS = MappingProxyType(
    {"PASS": "✓", "FAIL": "✕", "INCONCLUSIVE": "?", "INVALID": "!", "MEASURED": "•", "VALID": "✓"}
)


def outcome(report: Report) -> str:
    """The word of the banner: the verdict's outcome, or MEASURED when a valid run had no objective to meet."""
    if report.verdict.outcome == "PASS" and not report.verdict.objectives:
        return "MEASURED"
    return report.verdict.outcome


def symbol(word: str) -> str:
    """A sign for an outcome, so that colour never carries the meaning alone."""
    return _SYMBOLS.get(word, "•")


def headline(report: Report) -> str:
    """The verdict's reason in one sentence."""
    word = outcome(report)
    if word == "INVALID":
        reason = next(iter(report.validity.reasons), next(iter(report.verdict.reasons), "the run can't be judged"))
        broken = {check.name for check in report.validity.checks if not check.ok}
        what = (
            "The load was not what was promised"
            if broken != {"steady"}
            else "The load was more than the endpoint keeps up with"
        )
        return f"{what}, so these numbers prove nothing. {sentence(reason)}"
    if word == "MEASURED":
        return f"The run is valid. No objective was given, so nothing was judged over {_requests(report)}."
    results = report.verdict.objectives
    wanted = [result for result in results if result.outcome == word]
    if word == "PASS":
        every = "The objective is" if len(results) == 1 else f"All {len(results)} objectives are"
        return f"{every} met with {_confidence(report)} confidence over {_requests(report)}."
    if not wanted:
        return sentence(next(iter(report.verdict.reasons), "no objective could be judged"))
    if word == "FAIL":
        share = "" if len(results) == 1 else f"{len(wanted)} of {len(results)} objectives failed. "
        return f"{share}{explain(wanted[0], report.confidence)}"
    share = "" if len(results) == 1 else f"{len(wanted)} of {len(results)} objectives can't be decided yet. "
    return f"{share}{explain(wanted[0], report.confidence)}"


def explain(result: ObjectiveResult, confidence: float) -> str:
    """One objective in one sentence: what was seen, against what, and what would decide it."""
    name = result.objective.partition(" ")[0]  # p99(ttft), or slo(checkout)
    if result.n == 0:
        return sentence(result.reason) or f"{name} has no data, and no data is not a pass."
    seen = f"{name} was {units.human(result.observed, result.unit, 4)}"
    if result.observed is None:
        seen += " (failed requests reach it)"
    limit = f"the limit of {units.limit(result.threshold, result.unit)}"
    if result.outcome == "INCONCLUSIVE" and "Holm" in result.reason:
        return sentence(f"{name}: {result.reason}")
    if result.outcome == "INCONCLUSIVE":
        needed = ""
        if result.n_needed and result.n_needed > result.n:
            needed = f"; about {units.count(result.n_needed)} values are needed, {units.count(result.n)} were seen"
        return f"{seen}, but its interval ({interval(result)}) can't be told from {limit}{needed}."
    known = interval(result)
    sure = "" if known in (AS_OBSERVED, units.INFINITE) else f" ({units.percent(confidence)} interval {known})"
    kept = ", which keeps" if result.outcome == "PASS" else " against"
    return f"{seen}{kept} {limit}{sure}."


def interval(result: ObjectiveResult) -> str:
    """``181 to 196 ms``: the ends share a unit when they can; facts of the run are "as observed"."""
    low, high = result.interval
    if low is not None and low == high:
        return AS_OBSERVED
    if result.n == 0 or (low is None and high is None):
        return units.NOTHING if result.observed is not None or result.n == 0 else units.INFINITE
    low_text = units.human(low, result.unit, 4) if low is not None else units.INFINITE
    high_text = units.human(high, result.unit, 4)
    low_number, _, low_unit = low_text.partition(" ")
    high_unit = high_text.partition(" ")[2]
    return f"{low_number} to {high_text}" if low_unit == high_unit else f"{low_text} to {high_text}"


def needed(result: ObjectiveResult) -> str:
    """How many values would decide the objective: a dash when it is decided, ∞ when no number would."""
    if result.n_needed is None:
        return units.INFINITE
    return units.count(result.n_needed) if result.n_needed else units.NOTHING


#: Metrics of a reader's patience: worth a row where somebody asked for them, or where room is no matter.
_READER = frozenset({"fluidity", "reader_idle", "reader_stalls", "reader_in_time"})
#: Metrics of speech that say nearly what another one says, or that the part on speech says of the whole run.
_SPEECH = frozenset(
    {
        "first_partial_from_stream_start",
        "first_partial_after_speech_end",
        "first_final_after_speech_end",
        "false_endpoints",
        "playback_stalls",
        "partial_churn",
        "rtfx",
        "audio_frame_lag",
    }
)


#: Times of a whole session.
_WHOLE = frozenset({"e2e", "latency", "service_time", "ttfb"})


def shown(report: Report, brief: bool = False) -> dict[str, Metric]:
    """The metrics a person wants in a table; ``brief``: in a terminal.

    The error flag of each request is better read as a count, and without reasoning tokens the first answer token is the
    first token: a row that says the same twice is left out.
    """
    ttft, answer = report.metrics.get("ttft"), report.metrics.get("ttft_answer")
    same = ttft is not None and answer is not None and answer.model_copy(update={"title": ttft.title}) == ttft
    hidden = {"error", "ttft_answer"} if same else {"error"}
    if brief:
        asked = {part.indicator for part in report.verdict.objectives}
        asked |= {part.indicator for part in report.verdict.request_objectives}
        hidden |= (_READER | _SPEECH) - asked
    names = [name for name in report.metrics if name not in hidden]
    if any(
        name in report.metrics for name in LIVE
    ):  # of a live session a latency is mostly the time that somebody spoke
        names.sort(key=lambda name: name in _WHOLE)
    return {name: report.metrics[name] for name in names}


def observed(result: ObjectiveResult) -> str:
    """What was seen, or "no data"."""
    return "no data" if result.n == 0 else units.human(result.observed, result.unit, 4)


def statistic(metric: Metric, value: Number) -> str:
    """One statistic of a metric; a dash when it has no data, ∞ when failures reach it."""
    return units.NOTHING if metric.n == 0 else units.human(value, metric.unit)


def names_its_period(objective: str) -> bool:
    """Somebody said over which period the promise holds: then its budget is worth a place among few lines."""
    return " over " in objective or objective.startswith("slo(")


def expression(text: str) -> str:
    """An objective with typographic signs: ``p99(ttft) ≤ 200ms``."""
    return text.replace("<=", "≤").replace(">=", "≥")


def health(validity: Validity) -> str:
    """One line on the generator: what was planned and sent, how late, and on which clock."""
    lag = validity.generator_lag_ns or validity.lag_ns
    late = units.NOTHING if lag.p99 is None else units.duration(lag.p99)
    worst = units.NOTHING if lag.max is None else units.duration(lag.max)
    stamp = f", {validity.stamp} time stamps" if validity.stamp not in ("", "none") else ""
    rates = f"{units.rate(validity.achieved_per_s)} against {units.rate(validity.offered_per_s)} offered, "
    return (
        f"{units.count(validity.sent)} of {units.count(validity.planned)} planned requests sent, "
        f"{rates if validity.offered_per_s else ''}"
        f"lag p99 {late}, max {worst}{stamp}"
    )


def own_error(report: Report) -> str:
    """The generator's own error in one sentence, to stand beside the percentiles."""
    error = report.validity.generator_error
    lag = units.NOTHING if error.lag_p99_ns is None else units.duration(error.lag_p99_ns)
    stamps = f", {error.stamp} stamps" if error.stamp not in ("", "none") else ""
    run = f"in this run lag p99 {lag}{stamps}"
    if error.added_ttft_ns is None:
        return f"Generator's own error: {error.note}; {run}."
    itl = "" if error.added_itl_ns is None else f", ITL {units.duration(error.added_itl_ns.p99)}"
    day = (error.calibrated_at or "").partition("T")[0]
    load = (
        ""
        if error.at_token_events_per_s is None
        else f" at {units.compact(error.at_token_events_per_s)} token events/s"
    )
    ttft = units.duration(error.added_ttft_ns.p99)
    return f"Generator's own error: p99 of TTFT {ttft}{itl} (calibrated {day}{load}); {run}."


def host_timer(timer: Timer | None) -> str:
    """What the probe before the load found and what was made of it, in one line; "" where nobody asked."""
    if timer is None:
        return ""
    ranks = (("p50", timer.p50_ns), ("p90", timer.p90_ns), ("p99", timer.p99_ns), ("max", timer.max_ns))
    late = ", ".join(f"{name} {units.duration(ns)}" for name, ns in ranks)
    return (
        f"late by {late} in {timer.sleeps} sleeps of 1 ms; awake for the last {units.duration(timer.spin_ns)} before each due time "
        f"({units.percent(timer.core_share, 2)} of a core at most)"
    )


def answers(accuracy: Accuracy) -> list[tuple[str, str, str]]:
    """(metric, value, of how many) for each metric of the answers."""
    rows = []
    for name, score in accuracy.scores.items():
        value = units.INFINITE if score.value is None else units.percent(score.value)
        if score.errors is not None:
            counts = f"{units.many(score.errors, 'error')} in {units.many(score.of, 'word')}"
        else:
            noun = "word" if score.interval is None else "sample"
            counts = f"{units.count(score.right or 0)} of {units.many(score.of, noun)} right"
        rows.append((name, value, counts))
    return rows


def answered(accuracy: Accuracy) -> str:
    """How many samples have an answer at all."""
    return f"{units.count(accuracy.answered)} of {units.many(accuracy.samples, 'sample')} answered"


def sentence(text: str) -> str:
    """``text`` with a capital and a full stop."""
    text = text.strip()
    if not text:
        return ""
    # A name such as p99(ttft) keeps its small letter.
    first = text.split(maxsplit=1)[0]
    start = text[0].upper() if first.isalpha() else text[0]
    return start + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _requests(report: Report) -> str:
    return units.many(report.counts.ok + report.counts.failed, "request")


def _confidence(report: Report) -> str:
    return units.percent(report.confidence).replace(" ", "\u00a0")
