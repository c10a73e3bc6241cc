"""What ``slo`` decided, as parts of the report. Translates; decides nothing itself.

In an INVALID run every objective is written as INVALID, so that no script finds a PASS in a run that proves
nothing; but where only the generator's lateness decides an objective, the others are as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from plimsoll.reports.parts.bracket import Bracket
from plimsoll.reports.parts.parts import (
    MAX_ERRORS,
    Arrivals,
    Attainment,
    Check,
    Counts,
    ErrorCount,
    GeneratorError,
    Lag,
    MergedChunks,
    Metric,
    ObjectiveResult,
    Throughput,
    Validity,
    Verdict,
)
from plimsoll.reports.sections.chart_data import number
from plimsoll.reports.sections.provenance import public_text
from plimsoll.reports.sections.steadiness import SteadinessPart
from plimsoll.reports.wording.units import many
from plimsoll.slo.objectives.goodput import Goodput
from plimsoll.slo.objectives.sentence import sentence
from plimsoll.slo.records.records import Phase, Records, Status, TokensFrom
from plimsoll.slo.validity import validity as slo_validity
from plimsoll.slo.validity.arrivals import Arrivals as SloArrivals
from plimsoll.slo.validity.steady import T_LIMIT
from plimsoll.slo.verdict import verdict as slo_verdict

_TEXT = 300
#: Only where a protocol asks for usage by an option of ours, and it was switched off.
_ASK = ". Ask the server for it: leave target.options.include_usage on"


def validity_part(
    seen: slo_validity.Validity,
    facts: slo_validity.GeneratorFacts,
    judged: slo_verdict.Verdict,
    own_error: GeneratorError,
) -> Validity:
    """The generator's health. A check that holds has no ``detail``, which is written for when it breaks.

    INVALID for the run as a whole: by the generator, or because nothing can be said of a growing backlog.
    """
    invalid = judged.outcome == "INVALID"
    return Validity(
        outcome="INVALID" if invalid else "VALID",
        reasons=list(judged.reasons) if invalid else [],
        planned=seen.planned,
        sent=seen.sent,
        unsent=seen.unsent,
        offered_per_s=seen.offered_per_s,
        achieved_per_s=seen.achieved_per_s,
        lag_ns=_lag(seen.lag_ns),
        stamp=seen.stamp,
        checks=[
            Check(name=c.name, ok=c.ok, detail="" if c.ok else c.detail, seen=_seen(c, seen), cause=c.cause)
            for c in seen.checks
        ],
        generator_lag_ns=_lag(seen.generator_lag_ns),
        kernel_share=seen.kernel_share,
        merged_chunks=MergedChunks(
            count=seen.merged_chunks.merged,
            share=seen.merged_chunks.share,
            uncertainty_p99_ns=seen.merged_chunks.uncertainty_p99_ns,
        ),
        arrivals=None if seen.arrivals is None else _arrivals(seen.arrivals),
        loop_stall_count=facts.loop_stall_count,
        loop_stall_max_ns=facts.loop_stall_max_ns,
        worker_cpu=list(facts.worker_cpu),
        engine_cpu=list(facts.engine_cpu),
        gc_pause_count=facts.gc_pause_count,
        gc_pause_max_ns=facts.gc_pause_max_ns,
        pool_waits=facts.pool_waits,
        pool_wait_p99_ns=facts.pool_wait_p99_ns,
        generator_error=own_error,
    )


def _seen(check: slo_validity.Check, seen: slo_validity.Validity) -> str:
    """What a check looked at, without what follows from it when it breaks."""
    if check.name == "steady" and check.ok and seen.backlog is not None:
        before, after = seen.backlog.in_flight
        return (
            f"{before} requests in flight after a third of the run, {after} at its end, "
            f"t = {seen.backlog.statistic:.1f} (what grows and is above {T_LIMIT:g} is a backlog)"
        )
    # "... limit 95 %: what it means": the meaning holds for a broken check only.
    return check.detail.partition(": what was measured")[0].partition(": the others are")[0]


def _lag(lag: slo_validity.Lag) -> Lag:
    return Lag(p50=lag.p50, p99=lag.p99, max=lag.max)


def _arrivals(shape: SloArrivals) -> Arrivals:
    names = ("dispersion_planned", "dispersion_ready", "dispersion_sent", "ks_p")
    values = {name: getattr(shape, name) for name in names}
    return Arrivals(**{name: v if v is not None and np.isfinite(v) else None for name, v in values.items()})


def verdict_part(judged: slo_verdict.Verdict, good: Goodput, titles: Mapping[str, str] | None = None) -> Verdict:
    """The verdict with every objective over the run, and the attainment of every limit on single requests.

    ``titles``: what the user calls an objective, by its text.
    """
    return Verdict(
        outcome=judged.outcome,
        reasons=list(judged.reasons),
        decides="" if judged.decides is None else judged.decides.text,
        objectives=[
            _objective(one, judged.outcome == "INVALID" and not judged.by_lateness, (titles or {}).get(one.text, ""))
            for one in judged.objectives
        ],
        request_objectives=[
            Attainment(
                objective=str(part.objective),
                met=part.met,
                n=part.n,
                attainment=part.fraction if part.n else None,
                indicator=part.objective.indicator,
                operator=part.objective.operator,
                threshold=number(part.objective.threshold, part.objective.unit),
                unit=part.objective.unit,
            )
            for part in good.attainment
        ],
    )


def _objective(one: slo_verdict.ObjectiveVerdict, invalid: bool, title: str) -> ObjectiveResult:
    if invalid:
        one = replace(one, outcome="INVALID")
    low, high = one.interval
    return ObjectiveResult(
        objective=one.text,
        title=public_text(title),
        outcome=one.outcome,
        observed=number(one.observed, one.unit),
        threshold=number(one.threshold, one.unit),
        unit=one.unit,
        interval=(number(low, one.unit), number(high, one.unit)),
        n=one.n,
        n_needed=one.n_needed,
        indicator=one.objective.indicator,
        statistic=one.objective.statistic or "",
        operator=one.objective.operator,
        missing=one.missing,
        bad=one.bad,
        max_bad_allowed=one.max_bad_allowed,
        reason=one.detail,
        p_pass=one.p_pass,
        p_fail=one.p_fail,
        design_effect=float(f"{one.design_effect:.4g}"),
        by=one.by,
        needed_ns=one.needed_ns,
        sentence=sentence(one),
        failed=one.failed,
        observed_ok=None if one.observed_ok is None else number(one.observed_ok, one.unit),
        bracket=_bracket(one),
    )


def _bracket(one: slo_verdict.ObjectiveVerdict) -> Bracket | None:
    ends = one.bracket
    if ends is None:
        return None
    return Bracket(
        lower=number(ends.lower, one.unit),
        upper=number(ends.upper, one.unit),
        outcome_lower=ends.outcome_lower,
        outcome_upper=ends.outcome_upper,
        lateness_ns=ends.lateness_ns,
    )


def throughput_part(done: slo_verdict.Throughput, good: Goodput) -> Throughput:
    """What got done per second, and the good part of it."""
    return Throughput(
        requests_per_s=done.requests_per_s,
        output_tokens_per_s=done.output_tokens_per_s,
        goodput_per_s=good.goodput_per_s,
        good_fraction=good.good_fraction,
        input_tokens_per_s=done.input_tokens_per_s,
        output_tokens=done.output_tokens,
        input_tokens=done.input_tokens,
        input_tokens_planned=done.input_tokens_planned,
        span_ns=done.span_ns,
    )


def counts_part(records: Records) -> Counts:
    """How measured requests ended, with the most frequent error texts of those that failed."""
    measured = records["phase"] == Phase.MEASURE
    status = records["status"][measured]
    number_of = np.bincount(status, minlength=len(Status))
    error = records["error"][measured]
    failed = status != Status.OK
    # One integer for each pair of status and text, so that a single pass counts them all.
    width = len(records.errors) + 1
    pairs, numbers = np.unique(status[failed] * width + error[failed] + 1, return_counts=True)
    order = np.lexsort((pairs, -numbers))
    listed = [(int(pairs[i]), int(numbers[i])) for i in order if pairs[i] % width][:MAX_ERRORS]
    errors = [
        ErrorCount(
            text=public_text(records.errors[pair % width - 1])[:_TEXT],
            status=Status(pair // width).name,
            count=count,
        )
        for pair, count in listed
    ]
    n_failed = int(np.count_nonzero(failed))
    return Counts(
        ok=int(number_of[Status.OK]),
        failed=n_failed,
        by_status={status.name: int(number_of[status]) for status in Status if number_of[status]},
        errors=errors,
        other_errors=n_failed - sum(error.count for error in errors),
        warmup=int(np.count_nonzero(records["phase"] == Phase.WARMUP)),
        **dict(zip(("asked_exactly", "short_of_asked"), exact_output(records), strict=True)),
    )


def exact_output(records: Records) -> tuple[int, int]:
    """Of the measured successes: how many were asked for an exact number of tokens and counted theirs; how many had fewer."""
    asked = records.ok & records.in_measure & (records["n_asked"] >= 0) & (records["tokens_from"] == TokensFrom.USAGE)
    return int(np.count_nonzero(asked)), int(np.count_nonzero(asked & (records["n_out"] < records["n_asked"])))


def _token_warnings(records: Records, usage_off: bool) -> list[str]:
    """Numbers of tokens that nobody counted, or that are not those asked for."""
    found = []
    counted = records.ok & records.in_measure
    guessed = int(np.count_nonzero((records["tokens_from"] == TokensFrom.CHUNKS) & counted))
    if guessed:
        found.append(
            f"output tokens of {guessed} requests are counted by chunks, because the server sent no usage: "
            "token rates and TPOT are estimates" + (_ASK if usage_off else "")
        )
    planned = int(np.count_nonzero((records["n_in_from"] == TokensFrom.PLAN) & (records["n_out"] >= 0) & counted))
    if planned:
        found.append(
            f"input tokens of {planned} requests are the plan's lengths, because the server counted none: no rate has them"
        )
    asked, short = exact_output(records)
    if short:
        found.append(
            f"{short} of {asked} answers had fewer tokens than asked exactly: the load was lighter than planned. The server may "
            "not know exact_output's fields (min_tokens, ignore_eos), or it cut those answers. Look at its log"
        )
    return found


def _all_empty_400(rows: Records) -> bool:
    return bool((rows["code"] == 400).all()) and {"HTTP 400"} == set(rows.texts("error"))


def warnings_part(
    records: Records,
    seen: slo_validity.Validity,
    metrics: Mapping[str, Metric],
    steady: SteadinessPart | None,
    options: Mapping[str, Any],
) -> list[str]:
    """What a reader should know before quoting a number: the generator's warnings, and the limits of the
    data. ``options``: the target's, as far as the scenario gives them.
    """
    found = list(seen.warnings)
    n = int(np.count_nonzero(records["phase"] == Phase.MEASURE))
    if n == 0:
        return [*found, "nothing was measured: every request was of the warm-up, or chosen to be cancelled"]
    if n < 1000:
        found.append(
            f"{many(n, 'request')}: p99.9 is the largest value of most metrics" + (", and so is p99" if n < 100 else "")
        )
    found += _token_warnings(records, options.get("include_usage") is False)
    if options.get("request_id", True) and _all_empty_400(records.measured()):
        found.append(
            "every request got a 400 without a word, and each carried an x-request-id. Some servers (llama-cpp-python) "
            "refuse one that is no UUID: set target.options.request_id: false, which leaves it out"
        )
    for name, metric in metrics.items():
        if metric.missing and metric.n and name in ("ttft", "latency", "ttfb"):
            how = "they are not in its percentiles" if name != "ttft" else "they rank as infinitely slow"
            found.append(f"{metric.missing} successful requests have no {name}: {how}")
    return [*found, *(steady.notes if steady is not None else ())]
