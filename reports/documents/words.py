"""A report in sentences: the verdict, its reason, and what to say of each objective, the same in every format."""

from typing import NamedTuple

from plimsoll.reports.parts.measures import LIVE
from plimsoll.reports.parts.parts import LowEnd, Metric, ObjectiveResult, Statistics, Timer, Validity
from plimsoll.reports.parts.provenance import repeated
from plimsoll.reports.report import Report
from plimsoll.reports.wording import units
from plimsoll.reports.wording.phrases import expression, sentence

#: In place of an interval, for what is a fact of the run and not an estimate.
AS_OBSERVED = "as observed"
#: In place of a time, where what was observed is a request that failed.
LOST = "a failure"


def outcome(report: Report) -> str:
    """The word of the banner: the verdict's outcome, or MEASURED when a valid run had no objective to meet."""
    if report.verdict.outcome == "PASS" and not report.verdict.objectives:
        return "MEASURED"
    return report.verdict.outcome


def headline(report: Report) -> str:
    """The verdict in few sentences: the outcome, and the objective that decides it with count and size."""
    word = outcome(report)
    if word == "INVALID":
        reason = next(iter(report.validity.reasons), next(iter(report.verdict.reasons), "the run can't be judged"))
        broken = {check.name for check in report.validity.checks if not check.ok}
        if not broken:
            return f"The generator was too late to tell. {sentence(reason)}"
        what = (
            "The load was not what was promised"
            if broken != {"steady"}
            else "The load was more than the endpoint keeps up with"
        )
        return f"{what}, so these numbers prove nothing. {sentence(reason)}"
    if word == "MEASURED":
        return f"The run is valid. No objective was given, so nothing was judged over {_requests(report)}."
    results = report.verdict.objectives
    one = next((result for result in results if result.objective == report.verdict.decides), None)
    if one is None:
        return sentence(next(iter(report.verdict.reasons), "no objective could be judged"))
    said = sentence(f"{expression(one.objective)}: {explain(one)}")
    if word == "PASS":
        every = "The objective is" if len(results) == 1 else f"All {len(results)} objectives are"
        nearest = "" if len(results) == 1 else "Nearest to its limit is "
        return f"{every} met with {_confidence(report)} confidence over {_requests(report)}. {nearest}{said}"
    wanted = sum(result.outcome == word for result in results)
    what = "failed" if word == "FAIL" else "can't be decided yet"
    share = "" if len(results) == 1 else f"{wanted} of {len(results)} objectives {what}. "
    return f"{share}{said}"


def explain(result: ObjectiveResult) -> str:
    """What decides an objective, in one sentence behind its name."""
    return result.sentence or result.reason or "no data, and no data is not a pass"


def bounded(report: Report) -> bool:
    """Whether any objective has bounds at all: facts are judged as observed."""
    none = (AS_OBSERVED, units.NOTHING, units.INFINITE, LOST)
    return any(interval(result) not in none for result in report.verdict.objectives)


def bounds_note(report: Report) -> str:
    """What every bound on the page is."""
    sure, both = units.percent(report.confidence), units.percent(max(0.0, 2 * report.confidence - 1))
    return (
        f"Bounds: we are {sure} sure that the true value lies above the lower one, and {sure} sure that it lies below "
        f"the upper one (each one-sided; {both} for both at once)."
    )


def interval(result: ObjectiveResult) -> str:
    """``181 to 196 ms``: the ends share a unit when they can; facts of the run are "as observed"."""
    low, high = result.interval
    if low is not None and low == high:
        return AS_OBSERVED
    if result.n == 0 or (low is None and high is None):
        if result.n and result.observed is None:
            return AS_OBSERVED if result.p_pass is None else LOST if result.failed else units.INFINITE
        return units.NOTHING
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


class MetricTable(NamedTuple):
    """Metrics whose bad end is on the same side: ``columns`` by key and head lead from the middle to it."""

    title: str
    columns: tuple[tuple[str, str], ...]
    metrics: dict[str, Metric]


_UP = (("p50", "p50"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"), ("p99_9", "p99.9"), ("max", "max"))
_DOWN = (("p50", "p50"), ("p10", "p10"), ("p5", "p5"), ("p1", "p1"), ("p0_1", "p0.1"), ("min", "min"))


def metric_tables(report: Report, brief: bool = False) -> list[MetricTable]:
    """The metrics that ``shown`` gives: those of which less is better, and those of which more is, whose p99 is among
    the best.
    """
    known = shown(report, brief)
    higher = {name: metric for name, metric in known.items() if metric.better == "higher"}
    lower = {name: metric for name, metric in known.items() if name not in higher}
    tables = (MetricTable("Metrics", _UP, lower), MetricTable("Metrics of which more is better", _DOWN, higher))
    return [table for table in tables if table.metrics]


def cell(part: Metric | Statistics, unit: str, column: str) -> str:
    """One statistic of a metric, or of its successes; a dash when it has no data, ∞ when failures reach it."""
    low = part.low if column in LowEnd.model_fields else part
    return units.NOTHING if part.n == 0 or low is None else units.human(getattr(low, column), unit)


def observed(result: ObjectiveResult) -> str:
    """What was seen, or "no data"; where a request that failed is what was seen, "a failure"."""
    if result.n == 0:
        return "no data"
    if result.observed is None and result.failed:
        return LOST
    return units.human(result.observed, result.unit, 4)


def named(result: ObjectiveResult) -> str:
    """An objective by what its document calls it, then as it is judged."""
    return f"{result.title}: {expression(result.objective)}" if result.title else expression(result.objective)


def health(validity: Validity) -> str:
    """One line on the generator: what was planned and sent, how late, and on which clock."""
    lag = validity.generator_lag_ns or validity.lag_ns
    late = units.NOTHING if lag.p99 is None else units.duration(lag.p99)
    worst = units.NOTHING if lag.max is None else units.duration(lag.max)
    stamp = f", {validity.stamp} time stamps" if validity.stamp not in ("", "none") else ""
    rates = f"{units.rate(validity.achieved_per_s)} against {units.rate(validity.offered_per_s)} offered, "
    return (
        f"{units.count(validity.sent)} of {units.count(validity.planned)} planned requests sent, "
        f"{rates if validity.offered_per_s else ''}lag p99 {late}, max {worst}{stamp}"
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
        f"late by {late} in {timer.sleeps} sleeps of 1 ms; awake for the last {units.duration(timer.spin_ns)} before "
        f"each due time ({units.percent(timer.core_share, 2)} of a core at most)"
    )


def _requests(report: Report) -> str:
    return units.many(report.counts.ok + report.counts.failed, "request")


def _confidence(report: Report) -> str:
    return units.percent(report.confidence).replace(" ", "\u00a0")


def lines(report: Report) -> list[str]:
    """The outcome with its reasons, then a line for each objective."""
    found = [f"{report.verdict.outcome} {headline(report)}"]
    found += [text] if (text := repeated(report.attempts)) else []
    found += [one_line(result) for result in report.verdict.objectives]
    done, counts = report.throughput, report.counts
    found.append(
        f"{units.rate(done.requests_per_s)} completed, {units.count(counts.failed)} of "
        f"{units.many(counts.ok + counts.failed, 'request')} failed; generator {report.validity.outcome}"
    )
    return found


def verdict_line(report: Report) -> str:
    """``FAIL p99(ttft) <= 200ms: what decided it  runs/x``: the whole verdict on one line."""
    word = report.verdict.outcome
    one = deciding(report)
    if word == "INVALID" or one is None:
        text = next(iter(report.verdict.reasons), "no reason given")
    else:
        text = f"{one.objective}: {explain(one)}"
    return "  ".join(part for part in (" ".join(f"{word} {text}".split()).rstrip("."), report.run.directory) if part)


def deciding(report: Report) -> ObjectiveResult | None:
    """The objective that the outcome hangs on."""
    return next((one for one in report.verdict.objectives if one.objective == report.verdict.decides), None)


def one_line(result: ObjectiveResult) -> str:
    """``PASS p99(ttft) <= 200ms: 0 of 357 requests later than 200 ms where 1 % may be; p99 52 ms``."""
    return f"{result.outcome} {result.objective}: {explain(result)}"
