"""MLPerf LoadGen's detail log of the run, one ``:::MLLOG {json}`` a line: the keys of ``mlperf_log_detail.txt`` that
checkers read.

Left out: LoadGen's version and the state of its logger, which Plimsoll has not, and ``result_token_throughput``, which
LoadGen divides by nanoseconds. Rates keep all their digits; nothing is computed here.
"""

import json
from collections.abc import Iterator
from typing import Any

from plimsoll.reports.format import Format
from plimsoll.reports.formats.mlperf import UNITS, UNUSED, stopping_lines, whole
from plimsoll.reports.report import Report
from plimsoll.reports.sections.loadgen import Mlperf, MlperfSpread

PREFIX = ":::MLLOG "

_RATES = {
    "scheduled_samples": "result_scheduled_samples_per_sec",
    "completed_samples": "result_completed_samples_per_sec",
    "samples": "result_samples_per_second",
    "tokens": "result_tokens_per_second",
    "qps_with_loadgen_overhead": "result_qps_with_loadgen_overhead",
    "qps_without_loadgen_overhead": "result_qps_without_loadgen_overhead",
    "tps_with_loadgen_overhead": "result_token_throughput_with_loadgen_overhead",
    "completed_tokens": "result_completed_tokens_per_second",
}

#: Of the settings that are never used here, those that are switches and no numbers.
_SWITCHES = ("print_timestamps", "performance_issue_unique", "performance_issue_same")

Entry = tuple[str, Any, str]


def detail(part: Mlperf | None) -> list[str]:
    """The lines of the file. None, a run that is none of MLPerf's: nothing but that it is INVALID."""
    if part is None:
        reason = "MLPerf has no such scenario: use kind server, single_stream, multi_stream or offline."
        other = (("result_validity", "INVALID", "info"), ("result_invalid_reason", reason, "info"))
        return [PREFIX + json.dumps(_entry(*entry)) for entry in other]
    return [PREFIX + json.dumps(_entry(*entry), ensure_ascii=False) for entry in _entries(part)]


def _entry(key: str, value: Any, level: str) -> dict[str, Any]:
    marks = {"is_error": level == "error", "is_warning": level == "warning"}
    # No clock is read here, and no line of LoadGen's sources is meant: the places stay, empty.
    metadata = {**marks, "file": "", "line_no": 0, "pid": 0, "tid": 0}
    return {
        "key": key,
        "value": value,
        "time_ms": 0.0,
        "namespace": "mlperf::logging",
        "event_type": "POINT_IN_TIME",
        "metadata": metadata,
    }


def _entries(part: Mlperf) -> Iterator[Entry]:
    yield "loadgen_version", "plimsoll", "info"
    yield "test_datetime", part.started_at, "info"
    yield "sut_name", part.sut_name, "info"
    samples = part.parameters.get("performance_sample_count", 0)
    yield "qsl_reported_total_count", samples, "info"
    yield "qsl_reported_performance_count", samples, "info"
    yield from _settings(part)
    yield "generated_query_count", part.queries, "info"
    yield "generated_samples_per_query", part.parameters.get("samples_per_query", 0), "info"
    for text in part.warnings:
        yield "warning_runtime", text, "warning"
    for text in part.errors:
        yield "error_runtime", text, "error"
    if part.failed:
        yield "error_runtime", f"{part.failed} of {part.samples} samples failed", "error"
    if part.mode == "PerformanceOnly":
        yield from _results(part)
    yield "num_errors", part.failed + len(part.errors), "info"
    yield "num_warnings", len(part.warnings), "info"


def _settings(part: Mlperf) -> Iterator[Entry]:
    yield "requested_scenario", part.scenario, "info"
    yield "requested_test_mode", part.mode, "info"
    yield "effective_scenario", part.scenario, "info"
    yield "effective_test_mode", part.mode, "info"
    yield "effective_target_latency_percentile", part.score_percentile, "info"
    given = dict(part.parameters)
    permuted = given.pop("sample_concatenate_permutation", 0)
    for name, value in given.items():
        yield f"effective_{name}_{UNITS[name]}" if name in UNITS else f"effective_{name}", value, "info"
    for name in UNUSED:
        yield f"effective_{name}", False if name in _SWITCHES else 0, "info"
    per_query = given.get("samples_per_query", 1)
    smallest = per_query * given.get("min_query_count", 0)
    yield "effective_min_sample_count", smallest, "info"
    yield "effective_sample_concatenate_permutation", bool(permuted), "info"


def _results(part: Mlperf) -> Iterator[Entry]:
    yield "result_validity", "VALID" if part.valid else "INVALID", "info"
    if part.constraints_met is not None:
        yield "result_perf_constraints_met", part.constraints_met, "info"
    yield "result_min_duration_met", part.min_duration_met, "info"
    yield "result_min_queries_met", part.min_queries_met, "info"
    yield "early_stopping_met", part.early_stopping_met, "info"
    if not part.valid:
        yield "result_invalid_reason", " ".join(part.invalid_reasons), "info"
    if not part.early_stopping:
        for name in ("ttft_", "tpot_") if part.token_latencies else ("",):
            yield f"early_stopping_{name}result", "", "info"
    for one in part.early_stopping:
        name = "early_stopping_result" if one.indicator == "latency" else f"early_stopping_{one.indicator}_result"
        yield name, " ".join(stopping_lines(one, part.scenario)), "info"
    yield "result_query_count", part.queries, "info"
    if part.over_latency is not None:
        yield "result_overlatency_query_count", part.over_latency, "info"
    yield from _scores(part)
    for name, key in _RATES.items():
        if name in part.rates:
            yield key, part.rates[name], "info"
    if part.sample_latency is not None:
        yield from _spread(part.latency, _PER_QUERY)
    yield from _spread(part.sample_latency or part.latency, _LATENCY)
    if part.ttft is not None:
        yield from _spread(part.ttft, _TTFT)
    if part.tpot is not None:
        yield from _spread(part.tpot, _TPOT)


def _scores(part: Mlperf) -> Iterator[Entry]:
    """What a stream is scored by: of the latency, whatever other measures there are."""
    latency = next((one for one in part.early_stopping if one.indicator == "latency"), None)
    if latency is None or part.scenario not in ("SingleStream", "MultiStream"):
        return
    estimate = whole(latency.estimate_ns) if latency.met else 0
    if part.scenario == "MultiStream":
        yield "early_stopping_latency_ms", estimate, "info"
        return
    yield "early_stopping_latency_ss", estimate, "info"
    yield "early_stopping_latency_ms", whole(latency.tail_ns) if latency.n >= latency.tail_least else 0, "info"


#: The keys of a spread: of its minimum, maximum and mean, and of a percentile.
_LATENCY = ("result_{}_latency_ns", "result_{}_percentile_latency_ns")
_PER_QUERY = ("result_{}_query_latency_ns", "result_{}_percentile_per_query_latency_ns")
_TTFT = ("result_first_token_{}_latency_ns", "result_first_token_{}_percentile_latency_ns")
_TPOT = ("result_time_to_output_token_{}", "result_time_per_output_token_{}_percentile_ns")


def _spread(spread: MlperfSpread, keys: tuple[str, str]) -> Iterator[Entry]:
    for name, value in (("min", spread.min), ("max", spread.max), ("mean", spread.mean)):
        yield keys[0].format(name), whole(value), "info"
    for p, value in spread.percentiles.items():
        yield keys[1].format(p), whole(value), "info"


def render(report: Report) -> bytes:
    """The file, UTF-8; a run that is none of MLPerf's says only that it is INVALID."""
    return ("\n".join(detail(report.mlperf)) + "\n").encode()


FORMAT = Format("mlperf-detail", ".mlperf-detail.txt", "MLPerf LoadGen's detail log (mlperf_log_detail.txt)", render)
