"""The sentence that decides an objective: one for each way a verdict can come out, and counts that are those of the
records.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import Objective, parse, show
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, judge_objective
from plimsoll.slo.objectives.openslo import parse as parse_slo
from plimsoll.slo.objectives.quantified import holm
from plimsoll.slo.objectives.sentence import broken, decisive, named, sentence
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.accuracy import Answer, judge_accuracy, score
from plimsoll.slo.verdict.verdict import Verdict, judge
from tests.memory_held import memory_held

MS = 1_000_000


def run(latency_ms: Sequence[float], failed: Sequence[int] = (), **columns: object) -> Records:
    """Requests 10 ms apart with these times to the first token and these rows failed."""
    n = len(latency_ms)
    status = np.zeros(n, int)
    status[list(failed)] = Status.HTTP
    due = np.arange(n) * 10 * MS
    first = np.where(status == 0, due + (np.asarray(latency_ms) * MS).astype(np.int64), -1)
    given_: dict[str, object] = {
        "query_id": np.arange(n), "due_ns": due, "ready_ns": due, "sent_ns": due, "first_byte_ns": first,
        "first_token_ns": first, "last_token_ns": np.where(first == -1, -1, first + 1000 * MS), "n_out": 101,
        "done_ns": np.where(first == -1, due + MS, first + 1000 * MS), "status": status,
    }  # fmt: skip
    return from_columns(n, **(given_ | columns))


def judged(text: str, records: Records) -> ObjectiveVerdict:
    objective = parse(text)
    with memory_held():  # made rows, and the words are what is tested
        return judge_objective(objective, records, goodput(records, [objective]), "0.95")


def verdict(records: Records, *texts: str) -> Verdict:
    objectives = [parse(text) for text in texts]
    n = len(records)
    facts = GeneratorFacts(open_loop=True, planned=n, planned_queries=n, elapsed_ns=10**12)
    with memory_held():
        return judge(records, objectives, assess(records, facts, objectives))


#: 31 in time, 243 late ones, of which the slowest takes 12.8 s, and 26 that failed.
STALL = run(
    [*np.full(31, 50.0), *np.linspace(300, 12_800, 243), *np.full(26, 1.0)], failed=range(274, 300)
)  # fmt: skip


def test_a_fail_with_failures_names_them_and_the_percentile_of_the_successful_in_place_of_infinite() -> None:
    found = judged("p99(ttft) <= 200ms", STALL)
    assert (found.outcome, found.observed) == ("FAIL", np.inf)
    assert sentence(found) == (
        "269 of 300 requests later than 200 ms where 1 % may be, 26 of them failed; p99 of the successful 12.7 s"
    )
    assert named(found).startswith("p99(ttft) <= 200ms: 269 of 300 requests")


def test_a_fail_without_failures_tells_count_and_size() -> None:
    found = judged("p90(ttft) <= 200ms", run([*np.full(150, 50.0), *np.full(150, 900.0)]))
    assert sentence(found) == "150 of 300 requests later than 200 ms where 10 % may be; p90 900 ms"


def test_a_percentile_that_failures_only_push_up_is_told_beside_that_of_the_successful() -> None:
    found = judged("p90(ttft) <= 200ms", run([*np.full(240, 50.0), *np.full(60, 900.0)], failed=range(10)))
    assert sentence(found).endswith("where 10 % may be, 10 of them failed; p90 900 ms")
    found = judged("p50(ttft) <= 70ms", run(np.linspace(10, 109, 100).tolist(), failed=range(20)))
    assert "59 of 100 requests later than 70 ms" in sentence(found)
    assert "20 of them failed; p50 79 ms, of the successful 69 ms" in sentence(found)


def test_a_pass_tells_how_many_broke_the_limit_all_the_same() -> None:
    found = judged("p90(ttft) <= 200ms", run([*np.full(295, 50.0), *np.full(5, 900.0)]))
    assert found.outcome == "PASS"
    assert sentence(found) == "5 of 300 requests later than 200 ms where 10 % may be; p90 50 ms"


def test_too_few_says_how_many_would_decide() -> None:
    found = judged("p99(ttft) <= 200ms", run([50.0] * 100))
    assert sentence(found) == (
        "0 of 100 requests later than 200 ms where 1 % may be; p99 50 ms; too few to be sure: 299 in all would "
        "decide (6.1 s at this rate), 199 more"
    )


def test_on_the_limit_no_number_decides() -> None:
    found = replace(judged("p90(ttft) <= 200ms", run([50.0] * 20)), n_needed=None)
    assert sentence(found).endswith("; so near the limit that no number decides it: change the limit")


def test_bad_ones_in_clusters_are_why_it_takes_more() -> None:
    found = replace(judged("p90(ttft) <= 200ms", run([50.0] * 20)), design_effect=4.0, n_needed=99)
    assert (
        "too few to be sure, because neighbours share their fate (20 say as much as 5.0): 99 in all would decide "
        "(1.798 s at this rate), 79 more" in (sentence(found))
    )


def test_what_only_several_objectives_together_leave_open_is_said() -> None:
    records = run([*np.full(280, 50.0), *np.full(20, 900.0)])
    alone = judged("p95(ttft) <= 200ms", records)
    broken_alone = replace(alone, outcome="FAIL", p_fail=0.04)
    first = holm([broken_alone, replace(alone, p_fail=0.5)], "0.95")[0]
    assert first.outcome == "INCONCLUSIVE"
    assert "broken if judged alone, but of 2 objectives judged together one may look so by chance" in sentence(first)


def test_what_holm_leaves_open_says_how_long_a_run_decides_it() -> None:
    """As many as fail at half of the 5 %, at this share and clustered as they are, and the time that they take."""
    alone = judged("p95(ttft) <= 200ms", run([*np.full(280, 50.0), *np.full(20, 900.0)]))
    broken_alone = replace(alone, outcome="FAIL", p_fail=0.04, bad=40, design_effect=5.0, by="distance", n_needed=0)
    first = holm([broken_alone, replace(alone, p_fail=0.5)], "0.95", 3 * 10**9)[0]
    assert first.by == ""
    assert first.n_needed is not None
    assert first.n_needed > 300
    assert first.needed_ns == round(first.n_needed / 300 * 3 * 10**9)


def test_what_distance_decided_is_said() -> None:
    found = replace(judged("p90(ttft) <= 200ms", run([50.0] * 60)), by="distance", outcome="PASS", design_effect=30.0)
    assert (
        "; decided by distance: nearly all lie far within the limit (by number 60 say as much as 2.0, because "
        "neighbours share their fate)" in sentence(found)
    )
    assert "no clustering explains it" in sentence(replace(found, outcome="FAIL"))


def test_an_invalid_run_gives_the_counts_and_asks_for_no_more_of_them() -> None:
    found = replace(judged("p99(ttft) <= 200ms", run([50.0] * 100)), outcome="INVALID")
    assert sentence(found) == "0 of 100 requests later than 200 ms where 1 % may be; p99 50 ms"


def test_what_the_generators_lateness_decides_or_not_is_said_behind_the_counts() -> None:
    due, behind = np.arange(600) * 10 * MS, np.where(np.arange(600) < 120, 150, 0)
    took = 400.0 + behind
    sent = due + behind * MS
    late = run(took.tolist(), ready_ns=sent, sent_ns=sent, first_byte_ns=due + (took * MS).astype(np.int64))
    (between,) = verdict(late, "p90(ttft) <= 450ms").objectives
    assert between.outcome == "INVALID"
    assert sentence(between).startswith(
        "120 of 600 requests later than 450 ms where 10 % may be; p90 550 ms; the generator's own lateness"
    )
    (certain,) = verdict(late, "p90(ttft) <= 100ms").objectives
    assert certain.outcome == "FAIL"
    assert "later than 100 ms where 10 % may be" in sentence(certain)
    assert "the generator was up to 150 ms late: " in sentence(certain)


def test_where_nothing_succeeded_there_is_no_percentile_to_tell() -> None:
    found = judged("p99(ttft) <= 200ms", run([50.0] * 30, failed=range(30)))
    assert sentence(found) == "30 of 30 requests later than 200 ms where 1 % may be, all of them failed; none succeeded"


def test_a_success_that_never_brought_a_token_is_no_failure() -> None:
    records = run([50.0] * 300, first_token_ns=np.where(np.arange(300) < 30, -1, np.arange(300) * 10 * MS + 50 * MS))
    found = judged("p99(ttft) <= 200ms", records)
    assert sentence(found) == "30 of 300 requests later than 200 ms where 1 % may be; p99 is one that never came"


def test_no_data_says_why() -> None:
    found = judged("p99(ttft) <= 200ms", run([50.0] * 20, first_token_ns=-1))
    assert sentence(found).startswith(
        "no ttft to judge: none of 20 successful requests has one: the answers came whole"
    )
    one_token = judged("p99(tpot) <= 200ms", run([50.0] * 20, n_out=1))
    assert sentence(one_token).startswith("no tpot to judge: none of 20 successful requests has one. Drop")


def test_of_what_more_is_better_the_low_end_is_held_against_the_limit() -> None:
    records = run([*np.full(280, 10.0), *np.full(20, 9000.0)], failed=range(4))
    found = judged("p5(output_rate) >= 50/s", records)
    assert sentence(found).startswith("24 of 300 requests below 50/s where 5 % may be, 4 of them failed; p5 ")
    assert "of the successful" in sentence(judged("p1(output_rate) >= 50/s", records))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ratio(error) <= 1%", "26 of 300 requests failed where 1 % may; 8.667 % failed"),
        ("ratio(good) >= 99%", "26 of 300 requests not good where 1 % may be, all of them failed; 91.33 % good"),
        ("max(ttft) <= 200ms", "26 of 300 requests failed; max of the successful 12.8 s, limit 200 ms"),
        ("min(ttft) <= 200ms", "50 ms over 300 requests, 26 of them failed, limit 200 ms"),
        ("p99(tpot) <= 5ms", None),
    ],
)
def test_shares_and_facts_have_their_own_words(text: str, said: str | None) -> None:
    found = sentence(judged(text, STALL))
    if said is None:
        assert found.startswith(
            "300 of 300 requests above 5 ms where 1 % may be, 26 of them failed; p99 of the successful 10 ms"
        )
    else:
        assert found == said


def test_a_rate_is_told_with_what_failed() -> None:
    found = judged("rate(ok) >= 40/s", STALL)
    assert re.fullmatch(r"[\d.]+/s over 300 requests, 26 of them failed, limit 40/s", sentence(found))


def test_gaps_are_of_requests_that_failed() -> None:
    n = 100
    records = run([50.0] * n, failed=range(5))
    chunks = [
        [at, at + 10 * MS, at + 90 * MS] if ok else [] for at, ok in zip(records["due_ns"], records.ok, strict=True)
    ]
    flat = np.array([one for row in chunks for one in row], np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in chunks])])
    found = judged("p99(itl) <= 50ms", replace(records, chunk_ns=flat, chunk_offsets=offsets))
    assert sentence(found) == (
        "105 of 200 gaps between chunks longer than 50 ms where 1 % may be, 10 of them of requests that failed; "
        "p99 of the successful 80 ms"
    )


def test_answers_are_wrong_or_missing() -> None:
    scores = score([Answer("a")] * 90 + [Answer("b")] * 6 + [None] * 4, ["a"] * 100)
    found = judge_accuracy(parse("accuracy(exact_match) >= 95%"), scores, "0.95")
    assert sentence(found).startswith(
        "10 of 100 samples wrong where 5 % may be, 4 of them without an output; 90 % right"
    )
    found = judge_accuracy(parse("accuracy(token_match) >= 95%"), scores, "0.95")
    assert sentence(found) == "90 % over 100 samples, 4 of them without an output, limit 95 %"


SLO = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  service: web
  timeWindow: [{duration: 28d, isRolling: true}]
  budgetingMethod: METHOD
"""
THRESHOLD = "  indicator: {metadata: {name: i}, spec: {thresholdMetric: {metricSource: {type: plimsoll, spec: {indicator: ttft, unit: ms}}}}}\n"  # noqa: E501
RATIO = (
    "  indicator: "
    "{metadata: {name: i}, spec: {ratioMetric: {counter: true, good: {metricSource: {type: plimsoll, spec: {events: ok}}}, total: {metricSource: {type: plimsoll, spec: {events: requests}}}}}}\n"  # noqa: E501
)


@pytest.mark.parametrize(
    ("method", "rest", "said"),
    [
        (
            "Occurrences",
            THRESHOLD + "  objectives: [{op: lte, value: 200, target: 0.99}]",
            "269 of 300 requests later than 200 ms where 1 % may be, 26 of them failed; 10.33 % good",
        ),
        (
            "Occurrences",
            RATIO + "  objectives: [{target: 0.99}]",
            "26 of 300 requests failed where 1 % may; 91.33 % good",
        ),
        ("RatioTimeslices", RATIO + "  objectives: [{target: 0.99, timeSliceWindow: 1m}]", "no data"),
    ],
)
def test_a_promise_of_openslo_has_the_same_sentence(method: str, rest: str, said: str) -> None:
    (slo,) = parse_slo(SLO.replace("METHOD", method) + rest).slos
    (found,) = slo.judge(STALL)
    assert sentence(found).startswith(said)
    assert named(found).startswith("slo(chat) >= 99%: ")


def test_slices_are_counted_as_slices_and_parts_are_named() -> None:
    long = run([50.0] * 30_000, failed=range(9_000, 9_300))
    text = SLO.replace("METHOD", "Timeslices") + RATIO
    (slo,) = parse_slo(text + "  objectives: [{target: 0.9, timeSliceTarget: 0.99, timeSliceWindow: 1m}]").slos
    assert sentence(slo.judge(long)[0]).startswith(
        "1 of 5 slices of 1 min bad where 10 % may be; 80 % good; too few to be sure"
    )
    (mean,) = parse_slo(
        text.replace("Timeslices", "RatioTimeslices") + "  objectives: [{target: 0.9, timeSliceWindow: 1m}]"
    ).slos
    assert sentence(mean.judge(long)[0]) == "99 % good where 90 % is promised; mean of 5 slices of 1 min"


def test_the_deciding_objective_of_a_fail_is_the_one_furthest_beyond_its_limit() -> None:
    found = verdict(STALL, "p50(ttft) <= 200ms", "p99(ttft) <= 200ms", "ratio(error) <= 50%", "max(ttft) <= 1s")
    assert found.outcome == "FAIL"
    assert found.decides is not None
    assert found.decides.text == "p99(ttft) <= 200ms"
    assert found.reasons[0].startswith("p50(ttft) <= 200ms: 269 of 300 requests later than 200 ms where 50 % may be")
    assert len(found.reasons) == 3


def test_of_a_pass_it_is_the_nearest_to_its_limit_and_of_undecided_ones_the_one_that_needs_most() -> None:
    fine = run([*np.full(59, 50.0), 900.0] * 10)
    passed = verdict(fine, "p50(ttft) <= 200ms", "p95(ttft) <= 200ms", "ratio(error) <= 1%")
    assert passed.outcome == "PASS"
    assert passed.decides is not None
    assert passed.decides.text == "p95(ttft) <= 200ms"
    short = verdict(run([50.0] * 50), "p50(ttft) <= 200ms", "p99(ttft) <= 200ms", "p99.9(ttft) <= 200ms")
    assert short.decides is not None
    assert short.decides.text == "p99.9(ttft) <= 200ms"
    assert decisive([], "PASS") is None
    invalid = replace(passed, outcome="INVALID")
    assert invalid.decides is None


def test_facts_decide_only_where_no_share_does() -> None:
    found = verdict(STALL, "max(ttft) <= 1s", "mean(ttft) <= 1s")
    assert found.decides is not None
    assert found.decides.text == "max(ttft) <= 1s"
    slow = verdict(run([500.0] * 300), "mean(ttft) <= 400ms", "mean(ttft) <= 100ms", "rate(ok) >= 1/s")
    assert slow.decides is not None
    assert slow.decides.text == "mean(ttft) <= 100ms"


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("ttft <= 200ms", "later than 200 ms"),
        ("latency < 1s", "not under 1 s"),
        ("tpot <= 40ms", "above 40 ms"),
        ("itl <= 40ms", "longer than 40 ms"),
        ("frame_jitter <= 5ms", "above 5 ms"),
        ("stall_ratio <= 0.1", "above 0.1"),
        ("output_rate >= 20/s", "below 20/s"),
        ("rtfx > 1", "not above 1"),
    ],
)
def test_what_a_value_beyond_its_limit_is(limit: str, words: str) -> None:
    assert broken(parse(limit)) == words


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("p99.9(ttft) <= 1s", 0.001),
        ("p5(rtfx) >= 1", 0.05),
        ("ratio(error) <= 2%", 0.02),
        ("ratio(good) >= 99.5%", 0.005),
    ],
)
def test_the_share_that_may_break_a_promise_is_exact(text: str, share: float) -> None:
    assert float(parse(text).allowed or 0) == share


TEXTS = (
    "p99(ttft) <= 200ms",
    "p90(latency) <= 1.3s",
    "p50(tpot) < 9ms",
    "p5(output_rate) >= 70/s",
    "ratio(error) <= 5%",
)


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(1, 1000), min_size=1, max_size=80),
    failed=st.sets(st.integers(0, 79)),
    text=st.sampled_from([*TEXTS, "ratio(good) >= 90%", "max(ttft) <= 500ms"]),
)
def test_the_counts_of_the_sentence_are_those_of_the_records(values: list[float], failed: set[int], text: str) -> None:
    lost = sorted(one for one in failed if one < len(values))
    records = run(values, failed=lost)
    found = judged(text, records)
    said = sentence(found)
    objective = parse(text)
    if objective.statistic == "max":
        worst = max((v for i, v in enumerate(values) if i not in lost), default=None)
        want = f"{len(lost)} of {len(values)} requests failed" if lost else f"max {show(int((worst or 0) * MS), 'ns')}"
        assert want in said or (
            not lost and f"{show(float(int((worst or 0) * MS)), 'ns')} over {len(values)} requests" in said
        )
        return
    bad = _breaking(objective, records)
    match = re.match(r"([\d,]+) of ([\d,]+) requests ", said)
    assert match is not None
    assert (int(match[1]), int(match[2])) == (int(bad.sum()), len(values))
    told = re.search(r", (?:(\d+) of them|(all of them|it)) failed", said)
    among = int((bad & ~records.ok).sum())
    if text.startswith("ratio(error)") or not among:
        assert told is None
    else:
        assert told is not None
        assert (int(told[1]) if told[1] else int(match[1])) == among


def _breaking(objective: Objective, records: Records) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """By hand: which rows break it, failed ones always."""
    ok = records.ok
    if objective.indicator in ("error", "good"):
        return ~ok
    ttft = (records["first_token_ns"] - records["due_ns"]).astype(float)
    whole = (records["done_ns"] - records["due_ns"]).astype(float)
    tpot = (records["last_token_ns"] - records["first_token_ns"]) / 100
    beyond = {
        "ttft": ttft > 200 * MS, "latency": whole > 1300 * MS, "tpot": tpot >= 9 * MS,
        "output_rate": 101e9 / whole < 70,
    }[objective.indicator]  # fmt: skip
    return np.asarray(~ok | beyond)
