"""MLPerf LoadGen's summary of the run, with the labels and order of ``mlperf_log_summary.txt``: what reads one reads
the other.

It is no MLPerf submission, and is not one's start. What never completed is 9223372036854775807, the largest number of
LoadGen's type. The recommendations are our own words; nothing is computed here.
"""

from plimsoll.reports.format import Format
from plimsoll.reports.report import Report
from plimsoll.reports.sections.loadgen import Mlperf, MlperfEarlyStopping, MlperfSpread
from plimsoll.slo.peers.loadgen import NEVER

_RULE = "=" * 48
#: Parameters that have a unit, which their names tell.
UNITS = {"target_latency": "ns", "ttft_latency": "ns", "tpot_latency": "ns", "min_duration": "ms", "max_duration": "ms"}
#: Settings of LoadGen for which there is no switch here; each is 0, which is off.
UNUSED = (
    "accuracy_log_rng_seed", "accuracy_log_probability", "accuracy_log_sampling_target", "print_timestamps",
    "performance_issue_unique", "performance_issue_same", "performance_issue_same_index",
)  # fmt: skip


def summary(part: Mlperf) -> list[str]:
    if part.mode == "AccuracyOnly":  # LoadGen gives no number of such a run
        return ["", *_remarks(part)]
    results = [*_banner("MLPerf Results Summary"), *_results(part), ""]
    more = [*_banner("Additional Stats"), *_statistics(part), ""]
    return [*results, *more, *_banner("Test Parameters Used"), *_parameters(part), "", *_remarks(part)]


def without(kind: str) -> list[str]:
    """The file for a run of another kind: no reader may take it for a result."""
    return [
        *_banner("MLPerf Results Summary"),
        f"Scenario : {kind or 'none'}",
        "Mode     : PerformanceOnly",
        "Result is : INVALID",
        "Recommendations:",
        " * MLPerf has no such scenario: use kind server, single_stream, multi_stream or offline.",
    ]


def whole(value: int | None) -> int:
    """Nanoseconds for LoadGen's readers, to whom infinity is no number."""
    return NEVER if value is None else value


def _banner(title: str) -> list[str]:
    return [_RULE, title, _RULE]


def _yes(value: bool | None) -> str:
    return "Yes" if value else "NO"


def _results(part: Mlperf) -> list[str]:
    lines = [f"SUT name : {part.sut_name}", f"Scenario : {part.scenario}", f"Mode     : {part.mode}"]
    rates = part.rates
    if "completed_samples" in rates:
        lines.append(f"Completed samples per second    : {rates['completed_samples']:.2f}")
    if "samples" in rates:
        lines.append(f"Samples per second: {rates['samples']:.6g}")
    if part.scenario == "Server" and "completed_tokens" in rates:
        lines.append(f"Completed tokens per second: {rates['completed_tokens']:.2f}")
    if "tokens" in rates:
        lines.append(f"Tokens per second: {rates['tokens']:.6g}")
    if part.scenario in ("SingleStream", "MultiStream"):
        percent = f"{part.score_percentile * 100:.1f}th"
        lines.append(f"{percent} percentile latency (ns) : {whole(part.score_ns)}")
        if part.ttft is not None:
            lines.append(f"{percent} first token percentile latency (ns) : {whole(part.ttft_score_ns)}")
    lines.append(f"Result is : {'VALID' if part.valid else 'INVALID'}")
    if part.constraints_met is not None:
        lines.append(f"  Performance constraints satisfied : {_yes(part.constraints_met)}")
    lines += [
        f"  Min duration satisfied : {_yes(part.min_duration_met)}",
        f"  Min queries satisfied : {_yes(part.min_queries_met)}",
        f"  Early stopping satisfied: {_yes(part.early_stopping_met)}",
    ]
    if not part.valid:
        lines += ["Recommendations:", *(f" * {text}" for text in part.invalid_reasons)]
    return lines + early_stopping(part)


def early_stopping(part: Mlperf) -> list[str]:
    """A section for each measure that LoadGen has one of."""
    lines = []
    for one in part.early_stopping:
        if part.token_latencies and one.indicator == "latency":
            continue
        prefix = "" if one.indicator == "latency" else f"{one.indicator.upper()} "
        lines += [f"{prefix}Early Stopping Result:", *stopping_lines(one, part.scenario)]
    return lines


def stopping_lines(one: MlperfEarlyStopping, scenario: str) -> list[str]:
    """What LoadGen says of one criterion."""
    if scenario == "Server":
        if one.met:
            return [" * Run successful."]
        return [
            " * Run unsuccessful.",
            f" * Processed {one.n} queries.",
            f" * Would need to run at least {one.needed} more queries,",
            " with the run being successful if every additional",
            " query were under latency.",
        ]
    if not one.met:
        return [
            f" * Only processed {one.n} queries.",
            f" * Need to process at least {one.least} queries for early stopping.",
        ]
    lines = [
        f" * Processed at least {one.least} queries ({one.n}).",
        f" * Would discard {one.discarded} highest latency queries.",
        f" * Early stopping {one.percentile * 100:.1f}th percentile estimate: {whole(one.estimate_ns)}",
    ]
    if scenario == "SingleStream" and one.n >= one.tail_least:
        lines.append(f" * Early stopping 99.0th percentile estimate: {whole(one.tail_ns)}")
    elif scenario == "SingleStream":
        lines += [
            " * Not enough queries processed for 99.0th percentile",
            " early stopping estimate (would need to process at",
            f" least {one.tail_least} total queries).",
        ]
    return lines


def _statistics(part: Mlperf) -> list[str]:
    rates = part.rates
    lines = []
    if part.scenario == "Server":
        lines.append(f"Scheduled samples per second : {rates.get('scheduled_samples', 0.0):.2f}")
    elif part.scenario == "SingleStream":
        lines += [
            f"QPS w/ loadgen overhead         : {rates.get('qps_with_loadgen_overhead', 0.0):.2f}",
            f"QPS w/o loadgen overhead        : {rates.get('qps_without_loadgen_overhead', 0.0):.2f}",
            "",
        ]
    elif part.scenario == "MultiStream":
        lines.append("Per-query latency:  ")
    lines += _spread(part.latency, "latency (ns)", "latency (ns)")
    if part.token_latencies:
        lines.append("")
    if part.ttft is not None and part.tpot is not None:
        lines += _token_rates(part)
        lines += [*_spread(part.ttft, "First Token latency (ns)", "first token latency (ns)"), ""]
        lines += _spread(part.tpot, "Time per Output Token (ns)", "time to output token (ns)")
    return lines


def _token_rates(part: Mlperf) -> list[str]:
    rates = part.rates
    if part.scenario == "SingleStream":
        return [
            f"TPS w/ loadgen overhead         : {rates.get('tps_with_loadgen_overhead', 0.0):.2f}",
            f"TPS w/o loadgen overhead        : {rates.get('tps_without_loadgen_overhead', 0.0):.2f}",
        ]
    return [f"Completed tokens per second                 : {rates.get('completed_tokens', 0.0):.2f}"]


def _spread(spread: MlperfSpread, title: str, of: str) -> list[str]:
    extremes = {"Min": spread.min, "Max": spread.max, "Mean": spread.mean}
    lines = [f"{f'{name} {title}':<{_WIDTHS[title]}}: {whole(value)}" for name, value in extremes.items()]
    return lines + [f"{p} percentile {of:<{_OF[of]}}: {whole(value)}" for p, value in spread.percentiles.items()]


#: How wide LoadGen sets each label before its colon.
_WIDTHS = {"latency (ns)": 32, "First Token latency (ns)": 44, "Time per Output Token (ns)": 46}
_OF = {"latency (ns)": 15, "first token latency (ns)": 27, "time to output token (ns)": 28}


def _parameters(part: Mlperf) -> list[str]:
    last = ("performance_sample_count", "accuracy_sample_count")
    permuted = "sample_concatenate_permutation"
    listed = {name: value for name, value in part.parameters.items() if name not in (*last, permuted)}
    listed |= dict.fromkeys(UNUSED, 0) | {name: part.parameters.get(name, 0) for name in last}
    if part.parameters.get(permuted):
        listed[permuted] = 1
    # Where it writes a unit, LoadGen has no blank before the colon.
    names = {name: f"{name} ({UNITS[name]})" if name in UNITS else f"{name} " for name in listed}
    return [f"{names[name]}: {value if isinstance(value, int) else f'{value:.6g}'}" for name, value in listed.items()]


def _remarks(part: Mlperf) -> list[str]:
    lines = []
    for name, count in (("WARNING", len(part.warnings)), ("ERROR", part.failed + len(part.errors))):
        if count:
            lines += [f"{count} {name}{'S' if count > 1 else ''} encountered. See detailed log.", ""]
        else:
            lines += [f"No {name.lower()}s encountered during test.", ""]
    return lines[:-1]


def render(report: Report) -> bytes:
    part = report.mlperf
    lines = without(report.run.scenario.kind) if part is None else summary(part)
    return ("\n".join(" ".join(line.splitlines()) if "\n" in line else line for line in lines) + "\n").encode()


FORMAT = Format("mlperf", ".mlperf.txt", "MLPerf LoadGen's summary (mlperf_log_summary.txt)", render)
