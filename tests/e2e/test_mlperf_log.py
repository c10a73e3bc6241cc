"""The ``mlperf`` formats beside the real LoadGen's files: the same labels in the same order, the same numbers to the
nanosecond.

LoadGen runs as in ``test_loadgen_parity.py``; Plimsoll's records hold the same schedule and the same latencies. The
summaries are then compared line by line, and the detail logs key by key, as a result checker reads them. Different on
purpose: the name of the system, the recommendations (our words), ``target_qps`` of a closed loop (Plimsoll has no such
hint), and rates in their last digit, because LoadGen counts from about a microsecond before its first query.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.reports.format import formats
from plimsoll.reports.report import Report, build
from plimsoll.slo.judge import judge
from plimsoll.slo.objectives.objective import parse_all
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from tests.e2e.test_loadgen_parity import CASES, MS, SAMPLES, SEEDS, Case, Observed, Replay, plan_of, run_loadgen

pytestmark = pytest.mark.e2e

TITLE = {"server": "Server", "single_stream": "SingleStream", "multi_stream": "MultiStream", "offline": "Offline"}
_TOKEN = re.compile(r'"Token_Latency".*"ts":(\d+)\.(\d{3}),"args":{ "issue_delay":(-?\d+),"issue_to_done":(\d+)}')
_SAMPLE = re.compile(r'"name":"Sample".*"ph":"b".*"ts":(\d+)\.(\d{3}),"args":{"sample_seq":(\d+).*"complete_ns":(\d+)}')


_OF_TOKENS = re.compile(r"^(.*(?:irst [Tt]oken|utput [Tt]oken|percentile estimate).*:) \d+$", re.MULTILINE)


def rendered(report: Report, name: str) -> str:
    return formats()[name].render(report).decode()


def read_detail(text: str) -> dict[str, Any]:
    """As result checkers do: the last value of each key."""
    entries = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]
    assert {*entries[0]} == {"key", "value", "time_ms", "namespace", "event_type", "metadata"}
    return {entry["key"]: entry["value"] for entry in entries}


def read_summary(text: str) -> dict[str, str]:
    """A reader made from the description of the file alone: split at the first colon, blanks optional."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def same_line(theirs: str, ours: str) -> bool:
    if theirs == ours:
        return True
    label, _, number = theirs.rpartition(":")
    own_label, _, own_number = ours.rpartition(":")
    if label != own_label:
        return False
    if label.startswith(("SUT name", "target_qps")):
        return True
    return "." in number and float(own_number) == pytest.approx(float(number), rel=1e-4)


def comparable(text: str) -> list[str]:
    """The lines without the recommendations, which are our own words."""
    lines, skipping = [], False
    for line in text.splitlines():
        if line == "Recommendations:":
            skipping = True
        elif skipping and not line.startswith(" "):
            skipping = False
        elif skipping and line.startswith("  "):
            continue
        if not skipping:
            lines.append(line)
    return lines


def assert_same_summary(theirs: str, ours: str) -> None:
    left, right = comparable(theirs), comparable(ours)
    assert len(left) == len(right), "\n".join(right)
    assert [pair for pair in zip(left, right, strict=True) if not same_line(*pair)] == []
    assert ("Recommendations:" in theirs) == ("Recommendations:" in ours)


def as_printed(theirs: Any, ours: Any) -> Any:
    """LoadGen prints six digits of a rate, which may make it whole."""
    return pytest.approx(theirs, rel=1e-4) if isinstance(ours, float) else theirs


def assert_same_detail(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Every result that LoadGen has, but what it gets wrong (see slo/peers/loadgen.py)."""
    kept = [
        key
        for key in theirs
        if key.startswith(("result_", "early_stopping_", "effective_", "qsl_reported_", "num_errors"))
    ]
    told = {"result_invalid_reason", "result_token_throughput", "effective_target_qps", "effective_target_duration_ms"}
    for key in sorted({*kept} - told):
        assert ours[key] == as_printed(theirs[key], ours[key]), key


def report_of(
    kind: str, records: Records, facts: GeneratorFacts, objectives: list[str], params: dict[str, Any]
) -> Report:
    scenario = {
        "kind": kind,
        "params": params,
        "seed": SEEDS["schedule_rng_seed"],
        "stop": {"max_queries": params.pop("max_queries", None)},
    }
    parsed, errors = parse_all(objectives)
    assert not errors
    return build({"source_samples": SAMPLES}, scenario, records, judge(records, facts, Promises(tuple(parsed))))


def judged(case: Case, observed: Observed) -> Report:
    plan = plan_of(case)
    records = Replay(plan, observed).records
    facts = GeneratorFacts(
        open_loop=plan.open_loop,
        planned=0 if plan.cyclic else len(records),
        min_queries=plan.stop.min_queries,
        min_duration_ns=case.stop.min_duration_ns,
    )
    order = {
        "process": "loadgen",
        "sample_index_seed": SEEDS["sample_index_rng_seed"],
        "qsl_seed": SEEDS["qsl_rng_seed"],
    }
    params = {**case.params, "order": order, "max_queries": case.stop.max_queries}
    target = case.settings.get("server_target_latency_ns", 0) // MS
    return report_of(case.scenario, records, facts, [f"p99(latency) <= {target}ms"] if target else [], params)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.scenario}: {case.name}")
def test_the_summary_and_the_detail_log_are_loadgens(case: Case, tmp_path: Path) -> None:
    observed = run_loadgen(case, tmp_path)
    report = judged(case, observed)
    assert report.mlperf is not None
    assert_same_summary(observed.summary, rendered(report, "mlperf"))
    assert_same_detail(observed.detail, read_detail(rendered(report, "mlperf-detail")))
    told = read_summary(rendered(report, "mlperf"))
    assert told["Result is"] == ("INVALID" if case.faults else "VALID")
    assert told["Scenario"] == TITLE[case.scenario]


TOKENS: dict[str, tuple[dict[str, Any], str | None]] = {
    "server": ({"scenario": "Server", "server_target_qps": 400, "min_duration_ms": 1500}, None),
    "server, first tokens late": ({"scenario": "Server", "server_target_qps": 400, "min_duration_ms": 1500}, "ttft"),
    "server, other tokens late": ({"scenario": "Server", "server_target_qps": 400, "min_duration_ms": 1500}, "tpot"),
    "single stream": (
        {"scenario": "SingleStream", "min_query_count": 700, "single_stream_expected_latency_ns": 100_000},
        None,
    ),
    "offline": ({"scenario": "Offline", "offline_expected_qps": 500}, None),
}
_LIMIT_NS = 10 * MS


def run_with_tokens(settings: dict[str, Any], slow: str | None, folder: Path) -> tuple[Records, str, str]:
    """LoadGen in token mode, and the records of a run with the same times."""
    spec = json.dumps({"settings": settings, "slow": slow})
    script = Path(__file__).with_name("loadgen_tokens.py")
    subprocess.run([sys.executable, str(script), spec, str(folder)], check=True, timeout=30, cwd=folder)
    trace = (folder / "mlperf_log_trace.json").read_text()
    ttft = {int(us + ns): int(delay) + int(took) for us, ns, delay, took in _TOKEN.findall(trace)}
    rows = sorted((int(seq), int(us + ns), int(took)) for us, ns, seq, took in _SAMPLE.findall(trace))
    seq, at, took = np.array(rows, dtype=np.int64).T
    due = at - at[0]
    first = due + np.array([ttft[t] for t in at.tolist()]) if ttft else due
    whole = settings["scenario"] == "Offline"
    records = from_columns(
        len(rows),
        query_id=np.zeros(len(rows), np.int64) if whole else seq,
        sample_ix=seq if whole else 0,
        payload_ix=seq % SAMPLES,
        due_ns=due,
        ready_ns=due,
        sent_ns=due,
        first_token_ns=first,
        last_token_ns=due + took,
        done_ns=due + took,
        n_out=2 + seq % 9,
        status=0,
    )
    return records, (folder / "mlperf_log_summary.txt").read_text(), (folder / "mlperf_log_detail.txt").read_text()


@pytest.mark.parametrize("name", TOKENS)
def test_token_latencies_are_loadgens(name: str, tmp_path: Path) -> None:
    settings, slow = TOKENS[name]
    full = {
        "min_query_count": 100,
        "min_duration_ms": 100,
        "ttft_latency": _LIMIT_NS,
        "tpot_latency": _LIMIT_NS,
        **settings,
    }
    kind = next(kind for kind, title in TITLE.items() if title == settings["scenario"])
    records, summary, detail = run_with_tokens(full, slow, tmp_path)
    params = {"rate": settings.get("server_target_qps"), "expected_rate": settings.get("offline_expected_qps")}
    facts = GeneratorFacts(
        open_loop=kind in ("server", "offline"),
        planned=len(records),
        min_queries=1 if kind == "offline" else full["min_query_count"],
        min_duration_ns=full["min_duration_ms"] * MS,
    )
    limits = [f"p99(ttft) <= {_LIMIT_NS // MS}ms", f"p99(tpot) <= {_LIMIT_NS // MS}ms"]
    report = report_of(kind, records, facts, limits, params)
    ours = rendered(report, "mlperf")
    # LoadGen leaves the TTFT section blank when the TPOT fails, and has seeds that this run has not.
    blank = "TTFT Early Stopping Result:\n\nTPOT Early Stopping Result:"
    assert slow != "tpot" or blank in summary
    section = ours.partition("TTFT Early Stopping Result:\n")[2].partition("TPOT Early")[0]
    filled = f"TTFT Early Stopping Result:\n{section}TPOT Early Stopping Result:"
    ours = re.sub(r"schedule_rng_seed : \d+", "schedule_rng_seed : 0", ours)
    summary = summary.replace(blank, filled)
    summary = re.sub(r"(t[tp][fo]t_latency \(ns\)): \d+", r"\1: 0", summary) if kind != "server" else summary
    if kind == "single_stream":  # its trace holds no first tokens: then the labels alone are compared
        summary, ours = (re.sub(_OF_TOKENS, r"\1 0", text) for text in (summary, ours))
    assert_same_summary(summary, ours)
    if kind != "single_stream":
        assert_same_results(read_detail(detail), read_detail(rendered(report, "mlperf-detail")))


def assert_same_results(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Of a token run: all results but those of LoadGen's that belong to another measure than their name says."""
    wrong = {"result_invalid_reason", "result_token_throughput"}
    if not theirs["early_stopping_ttft_result"] and theirs["effective_scenario"] == "Server":
        wrong.add("early_stopping_ttft_result")
    overhead = "result_token_throughput_with_loadgen_overhead"  # to when LoadGen issued the last query: its own lateness is in it  # noqa: E501
    if overhead in theirs:
        assert ours[overhead] == pytest.approx(theirs[overhead], rel=0.05)
        wrong.add(overhead)
    kept = [key for key in theirs if key.startswith(("result_", "early_stopping_")) and key not in wrong]
    assert len(kept) > 15
    for key in kept:
        assert ours[key] == as_printed(theirs[key], ours[key]), key
