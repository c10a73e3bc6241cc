"""Joint goodput with nothing left out of the denominator, and one span for every rate."""

from __future__ import annotations

import pytest

from plimsoll.slo.objectives.goodput import goodput, held, span_ns, throughput
from plimsoll.slo.objectives.objective import from_goodput, parse
from plimsoll.slo.objectives.selector import parse as selector
from plimsoll.slo.objectives.selector import selected
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import Records, from_columns

MS = 1_000_000


def run(**columns: object) -> Records:
    """Four streamed requests, TTFT 10 20 30 40 ms, TPOT 5 ms, done by 100 ms, 3 tokens each."""
    first = [10 * MS, 20 * MS, 30 * MS, 40 * MS]
    good: dict[str, object] = {
        "due_ns": 0, "ready_ns": 0, "sent_ns": 0, "first_byte_ns": first, "first_token_ns": first,
        "last_token_ns": [t + 10 * MS for t in first], "done_ns": [50 * MS, 60 * MS, 70 * MS, 100 * MS],
        "n_out": 3, "n_in": 2, "chunks": [[t, t + 4 * MS, t + 10 * MS] for t in first],
    }  # fmt: skip
    return from_columns(4, **(good | columns))  # type: ignore[arg-type]


def test_good_is_every_limit_at_once_not_each_alone() -> None:
    limits = [parse("ttft <= 30ms"), parse("latency <= 65ms")]
    found = goodput(run(), limits)
    assert found.good.tolist() == [True, True, False, False]
    assert [(a.met, a.n) for a in found.attainment] == [(3, 4), (2, 4)]
    assert (found.good_fraction, int(found.good.sum())) == (0.5, 2)


def test_failed_requests_stay_in_the_denominator_and_never_in_the_numerator() -> None:
    found = goodput(run(status=[0, 3, 9, 0]), from_goodput("ttft:1000"))
    assert found.good.tolist() == [True, False, False, True]
    assert found.good_fraction == 0.5
    assert (found.attainment[0].met, found.attainment[0].fraction) == (2, 0.5)


def test_without_limits_good_means_succeeded() -> None:
    assert goodput(run(status=[0, 3, 0, 0]), []).good_fraction == 0.75


def test_a_one_token_answer_satisfies_a_tpot_limit_and_an_unknown_one_does_not() -> None:
    some = run(n_out=[3, 1, -1, 0])
    assert held(parse("tpot <= 5ms"), some)[0].tolist() == [True, True, False, True]
    assert held(parse("tpot <= 4ms"), some)[0].tolist() == [False, True, False, True]


def test_a_missing_stamp_does_not_satisfy_a_limit() -> None:
    assert held(parse("ttft <= 1s"), run(first_token_ns=-1))[0].tolist() == [False] * 4


def test_every_gap_of_a_request_must_meet_a_gap_limit() -> None:
    some = run(chunks=[[0, 4 * MS, 5 * MS], [0, 1 * MS, 9 * MS], [0], []])
    assert held(parse("itl <= 4ms"), some)[0].tolist() == [True, False, True, False]


def test_a_lower_limit_is_broken_by_the_smallest_value() -> None:
    assert held(parse("output_tokens >= 3"), run(n_out=[3, 2, -1, 4]))[0].tolist() == [True, False, False, True]


def test_a_run_objective_is_not_met_by_a_request() -> None:
    with pytest.raises(ValueError, match="is about the run"):
        held(parse("p99(ttft) <= 1s"), run())[0]


def test_rates_are_over_t0_to_the_last_answer_failed_ones_included() -> None:
    some = run(status=[0, 0, 0, 3])
    found = throughput(some)
    assert found.span_ns == span_ns(some) == 100 * MS
    assert found.requests_per_s == pytest.approx(30.0)
    assert (found.output_tokens, found.input_tokens) == (9, 6)
    assert found.output_tokens_per_s == pytest.approx(90.0)
    assert goodput(some, []).goodput_per_s == pytest.approx(30.0)


def test_warm_up_is_neither_good_nor_counted() -> None:
    some = run(phase=[1, 0, 0, 1])
    assert goodput(some, []).good.tolist() == [False, True, True, False]
    assert throughput(some).span_ns == 70 * MS
    assert goodput(some, []).n == 2


def test_no_tokens_known_is_not_zero_tokens() -> None:
    found = throughput(run(n_out=-1))
    assert (found.output_tokens, found.output_tokens_per_s) == (None, None)


def test_prompts_that_no_server_counted_are_in_no_rate() -> None:
    found = throughput(run(n_in=[2, 3, 40, 50], n_in_from=[1, 1, 4, 4], status=[0, 0, 0, 3]))
    assert (found.input_tokens, found.input_tokens_planned) == (5, 40)
    assert found.input_tokens_per_s == pytest.approx(50.0)
    none = throughput(run(n_in=480, n_in_from=4))
    assert (none.input_tokens, none.input_tokens_per_s, none.input_tokens_planned) == (None, None, 1920)


def test_nothing_measured_gives_no_rate() -> None:
    found = throughput(from_columns(0))
    assert (found.requests_per_s, found.span_ns) == (0.0, 0)
    assert goodput(from_columns(0), []).good_fraction == 0.0


def test_a_rate_of_a_phase_is_per_second_of_it_and_not_since_t0() -> None:
    due = [0, 10 * MS, 60 * MS, 80 * MS]
    some = run(due_ns=due, ready_ns=due, sent_ns=due, done_ns=[20 * MS, 30 * MS, 70 * MS, 160 * MS])
    some = some.labelled(LabelTable.of({"phase": ["before", "before", "after", "after"]}))
    assert span_ns(selected(some, selector("phase=after"))) == 100 * MS
    assert span_ns(selected(some, selector("phase=before"))) == 30 * MS
    assert span_ns(some) == 160 * MS
    assert goodput(selected(some, selector("phase=after")), []).goodput_per_s == 20
