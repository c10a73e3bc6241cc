"""The ``mlperf`` part of a report: what MLPerf LoadGen would have written of this run, as data. No page shows it; two
formats do.

Only for the four scenarios that LoadGen has. Numbers are LoadGen's own (``slo/peers/loadgen.py``): other percentiles,
other throughputs than the report's.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.parts.parts import Text
from plimsoll.reports.parts.provenance import public_url
from plimsoll.slo.objectives.presets import TITLES
from plimsoll.slo.peers import loadgen
from plimsoll.slo.peers.loadgen import NEVER, EarlyStopping, Limit, Result
from plimsoll.slo.records.records import Records
from plimsoll.slo.validity.generator import GeneratorFacts

#: LoadGen's performance questions; what else the generator promised comes on top.
_ASKED_ALREADY = frozenset({"min_duration", "min_queries"})


class MlperfSpread(BaseModel, frozen=True, extra="forbid"):
    """One measure by LoadGen's rank, ``sorted[floor(p n)]``, in ns; null: never, because that many failed."""

    n: int = 0
    min: int | None = None
    max: int | None = None
    mean: int | None = None
    percentiles: dict[str, int | None] = Field(default_factory=dict, description='by "50.00", "90.00" ... "99.90"')


class MlperfLimit(BaseModel, frozen=True, extra="forbid"):
    """One constraint of a server run."""

    indicator: Literal["latency", "ttft", "tpot"]
    percentile: float
    limit_ns: int
    met: bool


class MlperfEarlyStopping(BaseModel, frozen=True, extra="forbid"):
    """LoadGen's criterion at 99 % confidence: a yes or no for a server run, a score for a stream."""

    indicator: Literal["latency", "ttft", "tpot"]
    met: bool
    n: int
    percentile: float
    least: int = Field(description="queries without which there is no answer")
    over: int = 0
    needed: int = Field(default=0, description="further queries within the limit that would pass")
    estimate_ns: int | None = None
    discarded: int = 0
    tail_ns: int | None = Field(default=None, description="the estimate for the 99th percentile")
    tail_least: int = 0


class Mlperf(BaseModel, frozen=True, extra="forbid"):
    """A run in LoadGen's terms. ``valid`` is LoadGen's answer, and no unless every sample completed and the generator
    kept its promise.
    """

    scenario: str = ""
    mode: Literal["PerformanceOnly", "AccuracyOnly"] = "PerformanceOnly"
    sut_name: Text = ""
    valid: bool = False
    constraints_met: bool | None = Field(default=None, description="null: the scenario has no constraint")
    min_duration_met: bool = False
    min_queries_met: bool = False
    early_stopping_met: bool = False
    invalid_reasons: list[Text] = Field(default_factory=list)
    limits: list[MlperfLimit] = Field(default_factory=list)
    early_stopping: list[MlperfEarlyStopping] = Field(default_factory=list)
    queries: int = 0
    samples: int = 0
    failed: int = 0
    token_latencies: bool = False
    one_token_answers: int = 0
    over_latency: int | None = None
    score_percentile: float = 0.99
    score_ns: int | None = None
    ttft_score_ns: int | None = None
    latency: MlperfSpread = MlperfSpread()
    sample_latency: MlperfSpread | None = Field(
        default=None, description="multi-stream: of samples; latency is of queries"
    )
    ttft: MlperfSpread | None = None
    tpot: MlperfSpread | None = None
    rates: dict[str, float] = Field(default_factory=dict, description="per second, by LoadGen's formulas")
    parameters: dict[str, int | float] = Field(default_factory=dict, description="LoadGen's settings of the run")
    errors: list[Text] = Field(default_factory=list)
    warnings: list[Text] = Field(default_factory=list)
    started_at: Text = ""


def mlperf_part(run: JudgedRun) -> Mlperf | None:
    """The part, or None for a kind that is not one of MLPerf's four. Objectives give the limits of a server run.

    Frames at an interval are no MLPerf scenario, though their kind is multi_stream, and LoadGen cancels nothing.
    """
    facts, manifest, scenario = run.judged.facts, run.manifest, run.scenario
    kind = str(scenario.get("kind", ""))
    if kind not in loadgen.QUANTILES or facts.frame_interval_ns or scenario.get("cancel"):
        return None
    result = loadgen.summarise(
        run.records,
        kind,
        run.judged.objectives,
        min_duration_ns=facts.min_duration_ns,
        min_queries=facts.min_queries,
        planned=facts.planned,
    )
    broken = [check.reason for check in run.judged.validity.checks if not check.ok and check.name not in _ASKED_ALREADY]
    return Mlperf(
        mode="AccuracyOnly" if scenario.get("mode") == "accuracy" else "PerformanceOnly",
        sut_name=_sut_name(manifest, scenario),
        valid=result.valid and not broken,
        invalid_reasons=_reasons(result, broken),
        parameters=_parameters(run.records, facts, manifest, scenario, result),
        errors=_errors(result, facts, scenario, broken),
        warnings=_warnings(result),
        started_at=str(manifest.get("started_at", "")),
        **_numbers(result),
    )


def _numbers(result: Result) -> dict[str, Any]:
    """What LoadGen computes, by the names of the part."""
    kind = result.kind
    return {
        "scenario": TITLES[kind],
        "constraints_met": result.constraints_met if kind == "server" else None,
        "min_duration_met": result.min_duration_met,
        "min_queries_met": result.min_queries_met,
        "early_stopping_met": result.early_stopping_met,
        "limits": [_limit(one, result) for one in result.limits],
        "early_stopping": [_stopping(one) for one in result.early_stopping],
        "queries": result.queries,
        "samples": result.samples,
        "failed": result.failed,
        "token_latencies": result.tokens_mode,
        "one_token_answers": result.one_token,
        "over_latency": result.over_latency,
        "score_percentile": float(result.limits[0].quantile if result.limits else loadgen.QUANTILES[kind]),
        "score_ns": _ns(result.percentile_ns),
        "ttft_score_ns": None if result.ttft_percentile_ns is None else _ns(result.ttft_percentile_ns),
        "latency": _spread(result.latency),
        "sample_latency": _spread(result.of_samples) if kind == "multi_stream" else None,
        "ttft": None if result.ttft is None else _spread(result.ttft),
        "tpot": None if result.tpot is None else _spread(result.tpot),
        "rates": _rates(result),
    }


def _ns(value: int) -> int | None:
    return None if value == NEVER else value


def _spread(spread: loadgen.Spread) -> MlperfSpread:
    at = {name: _ns(value) for name, value in spread.at.items()}
    return MlperfSpread(
        n=spread.n, min=_ns(spread.min_ns), max=_ns(spread.max_ns), mean=_ns(spread.mean_ns), percentiles=at
    )


def _limit(limit: Limit, result: Result) -> MlperfLimit:
    met = result.constraints[limit.indicator]
    percentile = float(limit.quantile)
    return MlperfLimit.model_validate(
        {"indicator": limit.indicator, "percentile": percentile, "limit_ns": limit.limit_ns, "met": met}
    )


def _stopping(one: EarlyStopping) -> MlperfEarlyStopping:
    names = ("indicator", "met", "n", "least", "over", "needed", "discarded", "tail_least")
    estimates = {name: None if (ns := getattr(one, name)) is None else _ns(ns) for name in ("estimate_ns", "tail_ns")}
    given = {name: getattr(one, name) for name in names}
    return MlperfEarlyStopping.model_validate({**given, **estimates, "percentile": float(one.quantile)})


def _rates(result: Result) -> dict[str, float]:
    names = {
        "scheduled_samples": result.scheduled_per_s,
        "completed_samples": result.completed_per_s,
        "completed_tokens": result.tokens_per_s if result.kind != "offline" else None,
        "qps_with_loadgen_overhead": result.qps_with_overhead,
        "qps_without_loadgen_overhead": result.qps_without_overhead,
        "tps_with_loadgen_overhead": result.tps_with_overhead,
        "tps_without_loadgen_overhead": result.tps_without_overhead,
        "samples": result.offline_per_s,
        "tokens": result.tokens_per_s if result.kind == "offline" else None,
    }
    return {name: rate for name, rate in names.items() if rate is not None}


def _sut_name(manifest: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    """The model and where it was reached."""
    reached, asked = _mapping(manifest.get("target")), _mapping(scenario.get("target"))
    model = str(reached.get("model") or asked.get("model") or "")
    url = public_url(str(reached.get("url") or asked.get("url") or ""))
    return " at ".join(part for part in (model, url) if part) or "endpoint"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: object, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _parameters(
    records: Records, facts: GeneratorFacts, manifest: Mapping[str, Any], scenario: Mapping[str, Any], result: Result
) -> dict[str, int | float]:
    """LoadGen's settings by its names. What Plimsoll has no counterpart of has LoadGen's value for "not used"."""
    params, stop = _mapping(scenario.get("params")), _mapping(scenario.get("stop"))
    order = _mapping(params.get("order"))
    used = int(records["payload_ix"].max(initial=-1)) + 1
    set_size = _whole(manifest.get("source_samples"), used)
    limits = {limit.indicator: limit.limit_ns for limit in result.limits}
    server = result.kind == "server"
    targets = {"target_latency": limits.get("latency", 0)}
    if result.tokens_mode:
        targets = {"ttft_latency": limits.get("ttft", 0), "tpot_latency": limits.get("tpot", 0)}
    return {
        "samples_per_query": result.samples_per_query,
        "target_qps": _target_qps(params, result),
        **targets,
        "max_async_queries": 0 if server else 1,
        "min_duration": facts.min_duration_ns // 1_000_000,
        "max_duration": _milliseconds(stop.get("max_duration")),
        "min_query_count": facts.min_queries,
        "max_query_count": _whole(stop.get("max_queries")),
        "qsl_rng_seed": _whole(order.get("qsl_seed")),
        "sample_index_rng_seed": _whole(order.get("sample_index_seed")),
        "schedule_rng_seed": _whole(scenario.get("seed"), _whole(manifest.get("seed"))),
        "performance_sample_count": set_size,
        "accuracy_sample_count": set_size,
        "sample_concatenate_permutation": int(params.get("order") == "permutation"),
    }


def _milliseconds(duration: object) -> int:
    """A duration as scenario files have it (``30s``); 0 for none."""
    found = re.fullmatch(r"([0-9.]+)(ns|us|ms|s|m|h)", duration) if isinstance(duration, str) else None
    units = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
    return int(Fraction(found[1]) * units[found[2]] / 10**6) if found else 0


def _target_qps(params: Mapping[str, Any], result: Result) -> int | float:
    """The rate asked for, where it varies the mean of the schedule; a closed loop has none."""
    given = params.get("rate" if result.kind == "server" else "expected_rate", 0)
    if isinstance(given, int | float) and not isinstance(given, bool):
        return given
    return round(result.scheduled_per_s or 0.0, 6)


def _reasons(result: Result, broken: list[str]) -> list[str]:
    """Why the result is INVALID, each with what to do."""
    reasons = []
    if result.kind == "server" and not result.limits:
        reasons.append(
            "No latency limit was given: add p99(latency) <= 100ms, or p99(ttft) and p99(tpot), or a preset."
        )
    titles = {"latency": "The latency", "ttft": "The time to first token", "tpot": "The time per output token"}
    reasons += [
        f"{titles[name]} is above its limit: lower the rate." for name, met in result.constraints.items() if not met
    ]
    if not result.min_duration_met:
        reasons.append("The run ended before its minimum duration: let it go on, or raise the expected rate.")
    if not result.min_queries_met:
        reasons.append("The run ended before its minimum number of queries.")
    if result.failed:
        reasons.append(f"{result.failed} of {result.samples} samples failed: MLPerf knows only samples that complete.")
    return reasons + [f"The load generator broke a promise: {text}" for text in broken]


def _errors(result: Result, facts: GeneratorFacts, scenario: Mapping[str, Any], broken: list[str]) -> list[str]:
    """What LoadGen would have logged as errors, and every failed sample as one error text with its count."""
    errors = []
    most = _whole(_mapping(scenario.get("stop")).get("max_queries"))
    if most and result.queries >= most and not (result.min_duration_met and result.min_queries_met):
        errors.append(f"Ending early: the maximum number of queries was reached ({result.queries}).")
    if facts.max_duration_hit:
        errors.append("Ending early: the maximum duration was reached.")
    if facts.interrupted:
        errors.append("Ending early: the run was interrupted.")
    return errors + broken


def _warnings(result: Result) -> list[str]:
    if not result.one_token:
        return []
    return [f"{result.one_token} answers of at most one token have no time per output token and are left out of it."]


SECTION = ReportSection("mlperf", 0, mlperf_part, lambda _part, _report: [])
