"""What ``slo`` judged, as parts of the report: health, verdict, counts, throughput, and what a reader should know.
Decides nothing.

In an INVALID run every objective is written as INVALID, so that no script finds a PASS in a run that proves nothing;
but where only the generator's lateness decides an objective, the others are as they are.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from plimsoll.reports.parts.charts import number
from plimsoll.reports.parts.parts import (
    Arrivals,
    Attainment,
    Bracket,
    Check,
    Counts,
    ErrorCount,
    ErrorSpread,
    GeneratorError,
    MergedChunks,
    Metric,
    ObjectiveResult,
    Throughput,
    Validity,
    Verdict,
    part,
)
from plimsoll.reports.parts.provenance import public_text
from plimsoll.reports.wording.units import many
from plimsoll.slo.judge import Judged
from plimsoll.slo.objectives.goodput import Attainment as Met
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict
from plimsoll.slo.objectives.sentence import sentence
from plimsoll.slo.records.cancelled import Cancelled
from plimsoll.slo.records.records import Status
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import Validity as Health
from plimsoll.slo.verdict import counts as slo_counts

_TEXT = 300
#: Only where a protocol asks for usage by an option of ours, and it was switched off.
#: Prompts whose tokens differ by more than this share from the plan's are told of.
_TOKENS_APART = 0.1
_ASK = ". Ask the server for it: leave target.options.include_usage on"
UNKNOWN = "not calibrated on this machine: run `plimsoll calibrate`"
_BEYOND = "the calibration covers less load than this run's (see the warnings)"


class Cancellation(BaseModel, frozen=True, extra="forbid"):
    """Of the measured phase: requests chosen before the run to be cancelled after a delay."""

    chosen: int = Field(description="requests that were to be cancelled; in no metric, ratio or objective")
    by_status: dict[str, int] = Field(description="how they ended: CANCELLED, or what came before their time")


def validity_part(judged: Judged, manifest: Mapping[str, Any]) -> Validity:
    """The generator's health. A check that holds has no ``detail``, which is written for when it breaks.

    INVALID for the run as a whole: by the generator, or because nothing can be said of a growing backlog.
    """
    seen, facts = judged.validity, judged.facts
    invalid = judged.verdict.outcome == "INVALID"
    shape = seen.arrivals
    return part(
        Validity,
        seen,
        facts,
        outcome="INVALID" if invalid else "VALID",
        reasons=judged.verdict.reasons if invalid else (),
        checks=[part(Check, one, detail="" if one.ok else one.detail) for one in seen.checks],
        merged_chunks=part(MergedChunks, seen.merged_chunks, count=seen.merged_chunks.merged),
        arrivals=None if shape is None else part(Arrivals, shape, **_finite(shape, tuple(Arrivals.model_fields))),
        generator_error=generator_error(manifest, seen, facts),
    )


def _finite(value: object, names: tuple[str, ...]) -> dict[str, float | None]:
    found = {name: getattr(value, name) for name in names}
    return {name: one if one is not None and math.isfinite(one) else None for name, one in found.items()}


def verdict_part(judged: Judged) -> Verdict:
    """The verdict with every objective over the run, and the attainment of every limit on single requests."""
    told = judged.verdict
    titles = {str(slo.promise): slo.title for slo in judged.promises.slos if slo.title != slo.name}
    invalid = told.outcome == "INVALID" and not told.by_lateness
    return part(
        Verdict,
        told,
        decides="" if told.decides is None else told.decides.text,
        objectives=[
            objective_part(replace(one, outcome="INVALID") if invalid else one, titles.get(one.text, ""))
            for one in told.objectives
        ],
        request_objectives=[_attainment(one) for one in judged.goodput.attainment],
    )


def objective_part(one: ObjectiveVerdict, title: str = "") -> ObjectiveResult:
    """One objective; ``title``: what the user calls it."""
    ends = one.bracket
    return part(
        ObjectiveResult,
        one,
        **{name: number(getattr(one, name), one.unit) for name in ("observed", "threshold")},
        objective=one.text,
        title=public_text(title),
        interval=tuple(number(end, one.unit) for end in one.interval),
        indicator=one.objective.indicator,
        where=getattr(one.objective, "about", ""),
        statistic=one.objective.statistic or "",
        operator=one.objective.operator,
        reason=one.detail,
        design_effect=float(f"{one.design_effect:.4g}"),
        sentence=sentence(one),
        observed_ok=None if one.observed_ok is None else number(one.observed_ok, one.unit),
        bracket=None
        if ends is None
        else part(Bracket, ends, lower=number(ends.lower, one.unit), upper=number(ends.upper, one.unit)),
    )


def _attainment(one: Met) -> Attainment:
    limit = one.objective
    return part(
        Attainment,
        one,
        limit,
        objective=str(limit),
        where=limit.about,
        attainment=one.fraction if one.n else None,
        threshold=number(limit.threshold, limit.unit),
    )


def throughput_part(judged: Judged) -> Throughput:
    """What got done per second, and the good part of it."""
    return part(Throughput, judged.throughput, judged.goodput)


def counts_part(found: slo_counts.Counts) -> Counts:
    """How measured requests ended, with the most frequent error texts of those that failed."""
    return part(
        Counts, found, errors=[part(ErrorCount, one, text=public_text(one.text)[:_TEXT]) for one in found.errors]
    )


def cancellation_part(found: Cancelled | None) -> Cancellation | None:
    """None for a run whose scenario cancels nothing."""
    return None if found is None else part(Cancellation, found)


def cancellation_notes(found: Cancelled | None, recorded: bool = False) -> list[str]:
    """For the reader of any format: nothing is left out in silence."""
    if found is None:
        return []
    dropped = found.by_status.get(Status.CANCELLED.name, 0)
    early = [f"{number} {name}" for name, number in found.by_status.items() if name != Status.CANCELLED.name]
    before = f", {found.chosen - dropped} were over before their time ({', '.join(early)})" if early else ""
    how, rest = "chosen at random, before the run, to be cancelled", "a random part of the load"
    if recorded:
        how, rest = (
            "given up when they were recorded, and now likewise",
            "those whose users waited then, no random part",
        )
    return [
        f"{found.chosen} of {found.of} requests were {how}: {dropped} were{before}. None of them is in any metric, "
        f"ratio or objective; the others are {rest}"
    ]


def warnings_part(
    judged: Judged, metrics: Mapping[str, Metric], steady_notes: list[str], options: Mapping[str, Any]
) -> list[str]:
    """What a reader should know before quoting a number: the generator's warnings, and the limits of the data.
    ``options``: the target's, as far as the scenario gives them.
    """
    found, counts = list(judged.validity.warnings), judged.counts
    n = counts.measured
    if n == 0:
        return [*found, "nothing was measured: every request was of the warm-up, or chosen to be cancelled"]
    if n < 1000:
        found.append(
            f"{many(n, 'request')}: p99.9 is the largest value of most metrics" + (", and so is p99" if n < 100 else "")
        )
    found += _token_warnings(counts, options.get("include_usage") is False) + _other_tokens(judged.facts)
    if options.get("request_id", True) and counts.all_empty_400:
        found.append(
            "every request got a 400 without a word, and each carried an x-request-id. Some servers (llama-cpp-python) "
            "refuse one that is no UUID: set target.options.request_id: false, which leaves it out"
        )
    for name, metric in metrics.items():
        if metric.missing and metric.n and name in ("ttft", "latency", "ttfb"):
            how = "they are not in its percentiles" if name != "ttft" else "they rank as infinitely slow"
            found.append(f"{metric.missing} successful requests have no {name}: {how}")
    return [*found, *steady_notes]


def _other_tokens(facts: GeneratorFacts) -> list[str]:
    """The prompts had another length than planned, by the endpoint's own count."""
    planned, told = facts.planned_tokens, facts.told_tokens
    if not planned or abs(told / planned - 1) <= _TOKENS_APART:
        return []
    return [
        f"prompts had {told / planned:.3g} times the tokens of the plan: {told:,} by the endpoint's count, {planned:,} "
        "planned. Its tokenizer is another one: measure with --calibrate-tokens, or set source.tokens_per_word"
    ]


def _token_warnings(counts: slo_counts.Counts, usage_off: bool) -> list[str]:
    """Numbers of tokens that nobody counted, or that are not those asked for; and what the server says and can't be."""
    found = []
    if counts.guessed_output:
        found.append(
            f"output tokens of {counts.guessed_output} requests are counted by chunks, because the server sent no "
            "usage: token rates and TPOT are estimates" + (_ASK if usage_off else "")
        )
    if counts.planned_input:
        found.append(
            f"input tokens of {counts.planned_input} requests are the plan's lengths, because the server counted "
            "none: no rate has them"
        )
    if counts.short_of_asked:
        found.append(
            f"{counts.short_of_asked} of {counts.asked_exactly} answers had fewer tokens than asked exactly: the load "
            "was lighter than planned. The server may not know exact_output's fields (min_tokens, ignore_eos), or it "
            "cut those answers. Look at its log"
        )
    for n, what in (
        (counts.false_cached, "more of the prompt was cached than the prompt has tokens: that is left out"),
        (counts.false_stages, "a stage took longer than the whole request: such a stage is left out"),
    ):
        found += [f"of {many(n, 'answer')} the server says that {what}"] if n else []
    return found


# -- the generator's own error
# ------------------------------------------------------------------------------------------


def generator_error(manifest: Mapping[str, Any], seen: Health, facts: GeneratorFacts) -> GeneratorError:
    """What it added by its calibration, and how late it was in this run. Of the manifest: ``calibration`` with
    ``table``, ``note`` and ``beyond``, so that a report says the same wherever it is made. A calibration counts only
    for a run that it covers: the same engine, the same stamps, and not more load than was found honest.
    """
    run = GeneratorError(lag_p99_ns=seen.generator_lag_ns.p99, stamp=seen.stamp, note=UNKNOWN)
    told = manifest.get("calibration")
    if not isinstance(told, Mapping):
        return run if not facts.no_endpoint else run.model_copy(update={"note": "the null protocol has no endpoint"})
    table = told.get("table")
    added = table.get("added") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or not isinstance(added, Mapping):
        busy = "this machine was too busy when it was calibrated: run `plimsoll calibrate` again"
        return run.model_copy(update={"note": str(told.get("note") or busy)})
    why = _why_not(table, added, seen, facts, bool(told.get("beyond")))
    known: dict[str, Any] = {
        "calibrated_at": str(table.get("measured_at", "")),
        "engine": str(table.get("host", {}).get("engine", "")),
        "note": why,
    }
    if not why:
        known |= {
            "added_ttft_ns": _spread(added.get("ttft_error_ns")),
            "added_itl_ns": _spread(added.get("itl_error_ns")),
            "at_token_events_per_s": added.get("token_events_per_s"),
        }
    return run.model_copy(update=known)


def _why_not(
    table: Mapping[str, Any], added: Mapping[str, Any], seen: Health, facts: GeneratorFacts, over: bool
) -> str:
    engine = "native" if facts.engine_cpu else "python"
    calibrated = table.get("host", {}).get("engine")
    if calibrated != engine:
        return f"calibrated with the {calibrated} engine, and this run used the {engine} one: its error is not known"
    if float(added.get("kernel_share", 0.0)) > seen.kernel_share + 0.01:
        return "calibrated with kernel stamps, and this run has userland ones: its error is larger and not known"
    return _BEYOND if over else ""


def _spread(told: object) -> ErrorSpread | None:
    if not isinstance(told, Mapping) or told.get("p99") is None:
        return None
    return ErrorSpread(p50=int(told["p50"]), p99=int(told["p99"]))
