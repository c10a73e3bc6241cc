"""``build``: the public contract, honest infinities, no secrets, and agreement with ``slo``."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from plimsoll.reports.documents import words
from plimsoll.reports.parts.parts import MAX_BUCKETS, MAX_CURVE_POINTS, Metric, Statistics
from plimsoll.reports.parts.provenance import public_command, public_text, public_url
from plimsoll.reports.report import Report, json_schema
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Phase, Status, from_arrays, from_columns
from plimsoll.slo.statistics.distribution import decode
from plimsoll.slo.verdict.counts import MAX_ERRORS
from tests.exact_summary import summary
from tests.unit.reports.made_reports import CASES, GOOD, MANIFEST, SCENARIO, built, case, facts, records, report

CONTRACT = {
    "": {"schema", "validity", "verdict", "metrics", "throughput", "counts"},
    "validity": {
        "outcome",
        "reasons",
        "planned",
        "sent",
        "unsent",
        "offered_per_s",
        "achieved_per_s",
        "lag_ns",
        "stamp",
    },
    "validity.lag_ns": {"p50", "p99", "max"},
    "verdict": {"outcome", "reasons", "objectives"},
    "verdict.objectives.0": {"objective", "outcome", "observed", "threshold", "unit", "interval", "n", "n_needed"},
    "metrics.ttft": {"unit", "n", "missing", "mean", "min", "p50", "p90", "p95", "p99", "p99.9", "max"},
    "throughput": {"requests_per_s", "output_tokens_per_s", "goodput_per_s", "good_fraction"},
    "counts": {"ok", "failed", "by_status"},
}


@pytest.mark.parametrize("place", CONTRACT)
def test_every_key_of_the_contract_is_there(place: str) -> None:
    node = case("fail").document()
    for step in filter(None, place.split(".")):
        node = node[int(step)] if isinstance(node, list) else node[step]
    assert CONTRACT[place] <= node.keys()


def test_times_are_whole_nanoseconds() -> None:
    document = case("pass").document()
    ttft = document["metrics"]["ttft"]
    assert ttft["unit"] == "ns"
    assert all(isinstance(ttft[key], int) for key in ("mean", "min", "p50", "p99", "p99.9", "max"))
    first = document["verdict"]["objectives"][0]
    assert all(isinstance(v, int) for v in (first["observed"], first["threshold"], *first["interval"]))


@pytest.mark.parametrize("name", CASES)
def test_a_report_survives_json_and_its_own_schema(name: str) -> None:
    import jsonschema

    text = json.dumps(case(name).document(), allow_nan=False)
    assert Report.model_validate_json(text) == case(name)
    jsonschema.validate(json.loads(text), json_schema())


def test_failures_are_null_and_counted_beside_it() -> None:
    ttft = case("fail").metrics["ttft"]
    assert (ttft.max, ttft.p99_9, ttft.mean) == (None, None, None)
    assert ttft.failed == 20
    assert ttft.of_ok is not None
    assert (ttft.of_ok.n, ttft.n) == (1980, 2000)
    assert ttft.of_ok.max is not None


def test_without_failures_there_is_nothing_to_leave_out() -> None:
    assert all(metric.of_ok is None for metric in case("pass").metrics.values())


def test_metrics_are_those_of_slo() -> None:
    made = records(500, fail_every=50)
    shown = report(made).metrics
    for name, indicator in catalogue().items():
        found = measure(indicator, made)
        if found.n == 0:
            assert name not in shown
            continue
        expected = summary(found.values)
        for key in ("mean", "min", "p50", "p90", "p95", "p99", "p99_9", "max"):
            _same(shown[name], key, getattr(expected, key))
        ok = summary(found.values[made.ok[found.row]])
        part = shown[name].of_ok
        if part is not None:
            _same(part, "p99", ok.p99)


def _same(part: Metric | Statistics, key: str, expected: float) -> None:
    seen = getattr(part, key)
    assert (float("inf") if seen is None else seen) == pytest.approx(expected, rel=1e-12, abs=0.5)


def test_an_invalid_run_has_no_objective_that_passed() -> None:
    made = case("invalid")
    assert made.verdict.outcome == made.validity.outcome == "INVALID"
    assert {result.outcome for result in made.verdict.objectives} == {"INVALID"}
    assert made.validity.reasons


def test_a_pass_on_a_growing_backlog_is_written_as_invalid_and_not_blamed_on_the_generator() -> None:
    made = case("unstable")
    assert made.verdict.outcome == made.validity.outcome == "INVALID"
    assert {result.outcome for result in made.verdict.objectives} == {"INVALID"}
    assert [check.name for check in made.validity.checks if not check.ok] == ["steady"]
    assert made.validity.reasons[0].startswith("unstable: the backlog grew to the end")
    assert words.headline(made).startswith("The load was more than the endpoint keeps up with")
    assert "not what was promised" in words.headline(case("invalid"))


def test_only_broken_checks_say_why() -> None:
    assert all(bool(check.detail) != check.ok for check in case("invalid").validity.checks)


def test_too_little_data_says_how_much_is_needed() -> None:
    first = case("inconclusive").verdict.objectives[0]
    assert first.outcome == "INCONCLUSIVE"
    assert first.interval[1] is None
    assert first.n_needed is not None
    assert first.n_needed > first.n


def test_an_objective_without_data_is_shown_with_its_metric() -> None:
    made = report(records(100, tokens=False), ("p99(ttft) <= 500ms",))
    assert made.verdict.outcome == "INCONCLUSIVE"
    assert made.verdict.objectives[0].n == 0
    assert (made.metrics["ttft"].n, made.metrics["ttft"].missing) == (0, 100)


def test_a_run_whose_every_request_was_to_be_cancelled_is_not_said_to_be_a_warm_up() -> None:
    whole = records(20)
    columns = {**whole.columns, "phase": np.full(20, Phase.CANCEL), "status": np.full(20, Status.CANCELLED)}
    made = report(from_arrays(columns, whole.chunk_ns, whole.chunk_offsets, whole.errors, whole.timings))
    assert "nothing was measured: every request was of the warm-up, or chosen to be cancelled" in made.warnings


def test_each_limit_on_single_requests_has_its_own_attainment() -> None:
    parts = case("fail").verdict.request_objectives
    assert [part.objective for part in parts] == ["ttft <= 400ms", "tpot <= 60ms"]
    assert parts[1].met == 1980
    assert parts[1].attainment == pytest.approx(0.99)


def test_kinds_of_error_texts_are_counted_by_status_and_cut_to_the_most_frequent() -> None:
    counts = case("fail").counts
    assert [(e.status, e.count) for e in counts.errors] == [("REFUSED", 13), ("TIMEOUT", 7)]
    many = from_arrays(
        records(300, fail_every=1).columns | {"error": np.arange(300) % 60 - 1},
        np.empty(0, np.int64),
        np.zeros(301, np.int64),
        [f"error {chr(97 + i // 8)}{chr(97 + i % 8)}" for i in range(59)],
        (),
    )
    counts = report(many).counts
    assert len(counts.errors) == MAX_ERRORS
    assert sum(e.count for e in counts.errors) + counts.other_errors == counts.failed == 300
    assert all(e.text for e in counts.errors)


def test_an_error_text_is_public_and_short() -> None:
    made = records(10, fail_every=1)
    told = replace(made, errors=("see https://user:pw@host/a?token=1 " + "x" * 900, "b"))
    texts = [error.text for error in report(told).counts.errors]
    assert any(text.startswith("see https://host/a xxx") for text in texts)
    assert max(map(len, texts)) <= 300


def test_a_report_holds_no_secret_of_the_target_or_the_command() -> None:
    text = json.dumps(case("pass").document())
    assert "s3cret" not in text
    assert "me:pw" not in text
    assert case("pass").run.target.url == "https://api.example.test/v1/chat/completions"


@pytest.mark.parametrize(
    ("given", "public"),
    [
        ("https://u:p@h:8443/a/b?k=v#f", "https://h:8443/a/b"),
        ("http://[::1]:80/x?y", "http://[::1]:80/x"),
        ("grpc://h:1", "grpc://h:1"),
        ("u:p@h:1/x?k=v", "h:1/x"),
        ("", ""),
    ],
)
def test_a_public_url_has_no_user_query_or_fragment(given: str, public: str) -> None:
    assert public_url(given) == public


def test_what_only_looks_like_a_url_is_shown_and_breaks_nothing() -> None:
    said = "see http://[SERVER_IP]/docs, http://[::1, http://[redacted]:80/a?b and //x"
    assert public_text(said) == "see http://[SERVER_IP]/docs, http://[::1, http://[redacted]:80/a and //x"


def test_a_public_command_hides_values_of_secret_options() -> None:
    words = ["plimsoll", "run", "--api-key", "A", "--header=authorization: B", "-H", "C", "--output-tokens", "5"]
    assert public_command(words) == "plimsoll run --api-key *** --header=*** -H *** --output-tokens 5"
    assert public_command(["x", "--url", "http://a:b@h/?q=1"]) == "x --url http://h/"
    assert public_command(None) == ""


def test_public_text_cleans_urls_inside_sentences() -> None:
    assert public_text("to http://a:b@h/x?q=1 and back") == "to http://h/x and back"


def test_everything_in_a_report_is_bounded() -> None:
    charts = case("fail").charts
    assert all(len(curve.q) <= MAX_CURVE_POINTS for curve in charts.curves.values())
    assert charts.timeline is not None
    assert len(charts.timeline.due) <= MAX_BUCKETS
    assert set(charts.curves) == {"ttft", "tpot", "itl", "latency", "service_time"}
    assert set(charts.timeline.bands) == {"ttft", "tpot"}


def test_a_run_without_tokens_has_latency_over_time() -> None:
    charts = case("latency_only").charts
    assert charts.timeline is not None
    assert set(charts.timeline.bands) == {"latency"}
    assert set(charts.curves) == {"latency", "service_time"}
    assert case("latency_only").throughput.output_tokens_per_s is None


def test_histograms_hold_every_finite_value() -> None:
    made = case("fail")
    for name, blob in made.histograms.items():
        counts, _ = decode(blob)
        assert counts.sum() == made.metrics[name].n - made.metrics[name].failed


def test_the_order_of_the_rows_changes_nothing() -> None:
    made = records(400, fail_every=40)
    mixed = made.select(np.random.default_rng(5).permutation(len(made)))
    assert report(mixed, GOOD) == report(made, GOOD)


def test_warm_up_rows_are_counted_and_never_measured() -> None:
    made = case("measured")
    assert made.counts.warmup == 100
    assert made.counts.ok == made.metrics["latency"].n == 1900


def test_nothing_measured_is_invalid_and_not_a_crash() -> None:
    made = case("nothing")
    assert made.verdict.outcome == "INVALID"
    assert made.charts.timeline is None
    assert any("nothing was measured" in text for text in made.warnings)


def test_confidence_reaches_the_intervals() -> None:
    made = records(600)
    wide, narrow = (
        built(MANIFEST, SCENARIO, made, facts(made), [parse("p90(ttft) <= 1s")], confidence=c) for c in ("0.99", "0.8")
    )
    (a, b), (c, d) = (r.verdict.objectives[0].interval for r in (wide, narrow))
    assert None not in (a, b, c, d)
    assert a < c  # type: ignore[operator]
    assert d < b  # type: ignore[operator]
    assert (wide.confidence, narrow.confidence) == (0.99, 0.8)


def test_a_run_is_described_by_its_manifest_and_nothing_else_is_needed() -> None:
    made = records(20)
    run = built({}, {}, made, facts(made), []).run
    assert (run.id, run.seed, run.command, run.started_at_epoch_ns) == ("", None, "", None)
    told = case("pass").run
    assert (told.id, told.workers, told.host["clock_resolution_s"]) == ("20260311-140512-7f3a", 2, "1e-09")


def test_estimated_token_counts_are_announced() -> None:
    made = records(50)
    guessed = replace(made, columns={**made.columns, "tokens_from": np.full(50, 2, "i1")})
    assert any("counted by chunks" in text for text in report(guessed).warnings)
    assert not any("counted by chunks" in text for text in report(made).warnings)


def test_prompt_lengths_that_nobody_counted_are_announced_and_in_no_rate() -> None:
    made = records(50)
    planned = report(replace(made, columns={**made.columns, "n_in_from": np.full(50, 4, "i1")}))
    assert any("input tokens of 50 requests are the plan's lengths" in text for text in planned.warnings)
    assert (planned.throughput.input_tokens, planned.throughput.input_tokens_planned) == (None, 50 * 128)
    assert all(one.n_in_planned for one in planned.slowest.ttft)
    counted = report(made)
    assert not any("the plan's lengths" in text for text in counted.warnings)
    assert (counted.throughput.input_tokens, counted.throughput.input_tokens_planned) == (50 * 128, None)


def test_answers_shorter_than_asked_exactly_are_counted_and_announced() -> None:
    made = records(50)
    asked = np.where(np.arange(50) < 40, 20, -1)
    short = int(np.count_nonzero((made["n_out"] < 20) & (asked > 0)))
    found = report(replace(made, columns={**made.columns, "n_asked": asked}))
    assert 0 < short < 40
    assert (found.counts.asked_exactly, found.counts.short_of_asked) == (40, short)
    assert any(f"{short} of 40 answers had fewer tokens than asked exactly" in text for text in found.warnings)
    # Chunks are no count of tokens, so nothing can be said of them.
    guessed = {**made.columns, "n_asked": asked, "tokens_from": np.full(50, 2, "i1")}
    assert report(replace(made, columns=guessed)).counts.asked_exactly == 0


def test_usage_is_asked_for_only_where_an_option_of_ours_switched_it_off() -> None:
    made = records(50)
    guessed = replace(made, columns={**made.columns, "tokens_from": np.full(50, 2, "i1")})
    target = dict(SCENARIO["target"])
    off = {**SCENARIO, "target": {**target, "options": {"include_usage": False}}}
    assert any("leave target.options.include_usage on" in text for text in report(guessed, scenario=off).warnings)
    assert not any("Ask the server" in text for text in report(guessed).warnings)


def test_an_empty_400_to_everything_offers_to_leave_the_request_id_out() -> None:
    made = from_columns(
        20,
        due_ns=0,
        ready_ns=1,
        sent_ns=2,
        first_byte_ns=3,
        done_ns=4,
        code=400,
        status=Status.HTTP,
        errors=["HTTP 400"] * 20,
    )
    hint = "set target.options.request_id: false"
    assert any(hint in text for text in report(made).warnings)
    without = {**SCENARIO, "target": {**SCENARIO["target"], "options": {"request_id": False}}}
    assert not any(hint in text for text in report(made, scenario=without).warnings)
    texts = ["HTTP 400"] * 19 + ["HTTP 400: no such model"]
    explained = from_columns(20, due_ns=0, sent_ns=2, done_ns=4, code=400, status=Status.HTTP, errors=texts)
    assert not any(hint in text for text in report(explained).warnings)


def test_statuses_are_named() -> None:
    assert case("fail").counts.by_status == {Status.OK.name: 1980, Status.TIMEOUT.name: 7, Status.REFUSED.name: 13}
