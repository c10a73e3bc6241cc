"""The ``mlperf`` and ``mlperf-detail`` formats: what a reader of LoadGen's files finds, and that nothing but VALID
reads so. That their lines are LoadGen's own is shown beside the real one in ``tests/e2e/test_mlperf_log.py``. A CI
log is annotated by outcome, and nothing in a text can end a line or a property of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from made_reports import GOOD, MANIFEST, SCENARIO, built, records, report

from plimsoll.reports.format import formats
from plimsoll.reports.formats.annotations import FORMAT
from plimsoll.reports.parts.parts import Counts, ObjectiveResult, Outcome, Run, Scenario, Validity, Verdict
from plimsoll.reports.report import Report
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import from_columns
from plimsoll.slo.validity.generator import GeneratorFacts

LIMITS = ["p99(ttft) <= 2s", "p99(tpot) <= 100ms"]


def made(
    limits: list[str] | None = None, scenario: dict[str, Any] | None = None, planned: int = 2000, **given: Any
) -> Report:
    rows = records(2000, **given)
    objectives = [parse(text) for text in (LIMITS if limits is None else limits)]
    facts = GeneratorFacts(open_loop=True, planned=planned, min_queries=100, min_duration_ns=10_000_000_000)
    return built(MANIFEST, {**SCENARIO, **(scenario or {})}, rows, facts, objectives)


def summary(report: Report) -> dict[str, str]:
    text = formats()["mlperf"].render(report).decode()
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def detail(report: Report) -> dict[str, Any]:
    lines = formats()["mlperf-detail"].render(report).decode().splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    entries = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    return {entry["key"]: entry["value"] for entry in entries}


def test_a_valid_run_reads_valid_in_both_files() -> None:
    told, logged = summary(made()), detail(made())
    assert told["Result is"] == logged["result_validity"] == "VALID"
    assert told["Scenario"] == logged["effective_scenario"] == "Server"
    assert told["Mode"] == logged["effective_test_mode"] == "PerformanceOnly"
    assert told["Early stopping satisfied"] == "Yes"
    assert logged["num_errors"] == 0
    assert float(told["Completed tokens per second"]) == pytest.approx(
        logged["result_completed_tokens_per_second"], abs=0.01
    )


def test_every_answer_that_is_no_reads_invalid() -> None:
    for broken in (
        made(slow=30.0),
        made(fail_every=500),
        made(limits=[]),
        made(scenario={"kind": "concurrency"}),
        report(records(50), GOOD),
    ):
        assert summary(broken)["Result is"] == "INVALID"
        assert detail(broken)["result_validity"] == "INVALID"
        assert "VALID\n" not in formats()["mlperf"].render(broken).decode().replace("INVALID\n", "")


def test_failed_samples_are_errors_over_latency_and_named() -> None:
    broken = made(fail_every=500)
    assert detail(broken)["num_errors"] == 4
    assert detail(broken)["result_max_latency_ns"] == 2**63 - 1
    assert "4 of 2000 samples failed" in detail(broken)["result_invalid_reason"]
    assert "4 ERRORS encountered. See detailed log." in formats()["mlperf"].render(broken).decode()


def test_no_latency_limit_is_told_with_the_next_step() -> None:
    assert "p99(latency) <= 100ms" in detail(made(limits=[]))["result_invalid_reason"]


def test_the_broken_promise_of_the_generator_is_told() -> None:
    short = made(planned=2100)
    assert short.validity.outcome == "INVALID"
    assert summary(short)["Result is"] == "INVALID"
    assert "The load generator broke a promise" in detail(short)["result_invalid_reason"]


def test_the_name_of_the_system_holds_no_secret() -> None:
    name = summary(made())["SUT name"]
    assert name == "https://api.example.test/v1/chat/completions"
    assert "s3cret" not in formats()["mlperf-detail"].render(made()).decode()


def test_an_accuracy_run_has_no_number_in_its_summary() -> None:
    text = formats()["mlperf"].render(made(scenario={"mode": "accuracy"})).decode()
    assert text == "\nNo warnings encountered during test.\n\nNo errors encountered during test.\n"
    assert "result_validity" not in detail(made(scenario={"mode": "accuracy"}))


def test_settings_are_told_by_loadgens_names() -> None:
    scenario = {
        "params": {"rate": 50, "order": {"process": "loadgen", "sample_index_seed": 7, "qsl_seed": 3}},
        "stop": {"max_queries": None, "max_duration": "2m"},
        "seed": 16159082839903944936,
    }
    told = summary(made(scenario=scenario))
    wanted = {
        "target_qps": "50",
        "ttft_latency (ns)": "2000000000",
        "tpot_latency (ns)": "100000000",
        "min_duration (ms)": "10000",
        "max_duration (ms)": "120000",
        "min_query_count": "100",
        "schedule_rng_seed": "16159082839903944936",
        "sample_index_rng_seed": "7",
        "qsl_rng_seed": "3",
    }
    assert {name: told[name] for name in wanted} == wanted


@pytest.mark.parametrize("name", ["mlperf", "mlperf-detail"])
@pytest.mark.parametrize("outcome", ["valid", "invalid"])
def test_golden(golden: Callable[[str, bytes], None], name: str, outcome: str) -> None:
    found = formats()[name]
    rendered = found.render(made() if outcome == "valid" else made(fail_every=500, slow=30.0))
    golden(f"reports/{outcome}{found.suffix}", rendered)


def test_an_empty_run_is_invalid_and_can_be_rendered() -> None:
    facts = GeneratorFacts(open_loop=True, planned=0)
    for kind in ("server", "single_stream", "multi_stream", "offline"):
        empty = built({}, {"kind": kind}, from_columns(0), facts, [parse("p99(latency) <= 1s")])
        assert summary(empty)["Result is"] == "INVALID"
        assert detail(empty)["result_validity"] == "INVALID"


# -- annotations ----------------------------------------------------------------------------------------------------


def result(outcome: Outcome, text: str = "p99(ttft) <= 200ms") -> ObjectiveResult:
    return ObjectiveResult(
        objective=text, outcome=outcome, observed=250_000_000, threshold=200_000_000, unit="ns", interval=(1, 2), n=9
    )


def lines(**parts: object) -> list[str]:
    run = Run(scenario=Scenario(name="a:b, 100%\nc"))
    return FORMAT.render(Report(run=run, counts=Counts(ok=9), **parts)).decode().splitlines()  # type: ignore[arg-type]


def test_each_objective_is_a_line_at_the_level_of_its_outcome() -> None:
    results = [result("FAIL"), result("INCONCLUSIVE"), result("PASS")]
    found = lines(verdict=Verdict(outcome="FAIL", objectives=results))
    assert [line.split(" ")[0] for line in found] == ["::error", "::warning", "::notice"]


def test_an_invalid_run_is_one_error_whatever_its_objectives_say() -> None:
    verdict = Verdict(outcome="INVALID", reasons=["too late"], objectives=[result("INVALID")])
    (line,) = lines(verdict=verdict, validity=Validity(outcome="INVALID", reasons=["too late"]))
    assert line.startswith("::error title=a%3Ab%2C 100%25%0Ac%3A INVALID::")
    assert line.endswith("Too late.")


def test_a_run_without_objectives_is_a_notice_and_one_that_answered_nothing_an_error() -> None:
    assert lines()[0].startswith("::notice")
    assert lines(verdict=Verdict(outcome="FAIL", reasons=["not one succeeded"]))[0].startswith("::error")
