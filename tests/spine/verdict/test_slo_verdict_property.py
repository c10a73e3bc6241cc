"""Nothing that makes a request worse makes a verdict better; texts and counts survive their round trips. A verdict and
its bounds are one: FAIL has the limit outside of them on one side, PASS on the other, whatever decided.
"""

from __future__ import annotations

import base64
import string
import zlib

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import Objective, ObjectiveError, parse
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, judge_objective
from plimsoll.slo.records.records import Phase, Records, Status, concat, from_columns
from plimsoll.slo.statistics import distribution as dist
from plimsoll.slo.statistics.confidence import n_required, order_statistic_bounds
from plimsoll.slo.statistics.share import course
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import Validity, assess
from plimsoll.slo.verdict.verdict import judge
from tests.histogram_rank import hdr_quantile
from tests.memory_held import memory_held
from tests.property.slo.slo_strategies import build, rows

MS = 1_000_000
ORDER = {"PASS": 0, "INCONCLUSIVE": 1, "FAIL": 2}

times = st.sampled_from(["latency", "ttft", "e2e", "ttfb", "service_time", "tpot"])
limits = st.sampled_from(["1ms", "50ms", "200ms", "700ms"])
statistic = st.sampled_from(["p50", "p90", "p99", "mean", "max", "min"])
on_run = st.one_of(
    st.builds("{}({}) {} {}".format, statistic, times, st.sampled_from(["<=", "<"]), limits),
    st.sampled_from(
        [
            "ratio(good) >= 50%",
            "ratio(good) >= 99%",
            "ratio(error) <= 40%",
            "rate(good) >= 1/s",
            "rate(ok) >= 3/s",
            "p10(output_rate) >= 3/s",
            "mean(output_tokens) >= 1",
            "max(error) <= 0",
            "rate(output_tokens) >= 5/s",
            "p50(itl) <= 50ms",
            "max(itl) <= 200ms",
        ]
    ),
)
on_request = st.builds("{} <= {}".format, times, limits)
objectives = st.tuples(st.lists(on_run, min_size=1, max_size=3), st.lists(on_request, max_size=2)).map(
    lambda pair: [parse(text) for text in (*pair[0], *pair[1])]
)


def valid(some: Records) -> Validity:
    found = assess(some, GeneratorFacts(open_loop=False, planned=0))
    object.__setattr__(found, "outcome", "VALID")
    return found


def outcome(some: Records, asked: list[Objective]) -> int:
    with memory_held():
        return ORDER[judge(some, asked, valid(some), "0.8").outcome]


def with_column(some: Records, **columns: np.ndarray) -> Records:
    return Records({**some.columns, **columns}, some.chunk_ns, some.chunk_offsets, some.errors, some.timings)


@given(rows=rows, times=st.integers(1, 12), asked=objectives, at=st.integers(0, 143))
def test_failing_a_request_never_improves_the_outcome(
    rows: list[dict[str, object]], times: int, asked: list[Objective], at: int
) -> None:
    some = concat([build(rows)] * times)
    assume(len(some))
    status = some.columns["status"].copy()
    status[at % len(some)] = Status.PROTOCOL
    assert outcome(with_column(some, status=status), asked) >= outcome(some, asked)


@given(rows=rows, times=st.integers(1, 12), asked=objectives, at=st.integers(0, 143), delay=st.integers(1, 900 * MS))
def test_making_a_request_slower_never_improves_the_outcome(
    rows: list[dict[str, object]], times: int, asked: list[Objective], at: int, delay: int
) -> None:
    """The first token and all that follows it come later, so every time of the request grows or stays.

    The gap before the last token grows too, so that ``tpot`` does not shrink.
    """
    some = concat([build(rows)] * times)
    assume(len(some))
    row = at % len(some)
    late = {}
    for name, by in (
        ("first_byte_ns", 1),
        ("first_token_ns", 1),
        ("first_answer_ns", 1),
        ("last_token_ns", 2),
        ("done_ns", 2),
    ):
        column = some.columns[name].copy()
        if column[row] != -1:
            column[row] += by * delay
        late[name] = column
    assert outcome(with_column(some, **late), asked) >= outcome(some, asked)


@given(rows=rows, asked=objectives)
def test_warm_up_never_matters(rows: list[dict[str, object]], asked: list[Objective]) -> None:
    some = build(rows)
    warm = with_column(some, phase=np.full(len(some), int(Phase.WARMUP), np.int8))
    alone, both = judge(some, asked, valid(some)), judge(concat([some, warm]), asked, valid(some))
    assert repr(alone) == repr(both)


@given(rows=rows, asked=objectives)
def test_an_undecided_objective_asks_for_more_and_a_decided_one_for_nothing(
    rows: list[dict[str, object]], asked: list[Objective]
) -> None:
    some = build(rows)
    for found in judge(some, asked, valid(some)).objectives:
        if found.outcome == "INCONCLUSIVE":
            assert found.n_needed is None or found.n_needed > found.n
        else:
            assert found.n_needed == 0
            assert found.n > 0


decimals = st.one_of(
    st.integers(1, 10**6).map(str), st.decimals("0.001", "99999", places=3).map(lambda d: format(d, "f"))
)
written = st.builds(
    lambda s, i, o, n, u, gaps: f"{gaps[0]}{s}{gaps[1]}({i}){gaps[2]}{o}{gaps[3]}{n}{u}",
    st.one_of(st.sampled_from(["mean", "max", "min"]), st.decimals("0.01", "99.99", places=2).map(lambda d: f"p{d}")),
    st.sampled_from([i.name for i in catalogue().values() if i.unit == "ns"]),
    st.sampled_from(["<=", "<"]),
    decimals,
    st.sampled_from(["ns", "us", "µs", "ms", "s", "m"]),
    st.tuples(*[st.sampled_from(["", " ", "  "])] * 4),
)


@given(written)
def test_parsing_the_printed_objective_gives_it_back(text: str) -> None:
    found = parse(text)
    assert parse(str(found)) == found
    assert str(parse(str(found))) == str(found)
    assert found.threshold == float(found.exact_threshold)


@given(st.text(string.printable + "µ≤%", max_size=40))
def test_any_text_is_an_objective_or_an_objective_error(text: str) -> None:
    try:
        found = parse(text)
    except ObjectiveError:
        return
    assert parse(str(found)) == found


values = st.lists(st.integers(0, 3_600_000_000_000), min_size=1, max_size=60)


@given(values, st.integers(1, 999))
def test_histogram_quantiles_are_within_one_bucket_of_exact(some: list[int], permille: int) -> None:
    counts, clamped = dist.hdr_counts(some)
    exact = dist.quantile(np.sort(np.array(some, float)), permille / 1000)
    found = hdr_quantile(counts, permille / 1000)
    assert clamped == 0
    assert exact <= found <= exact * (1 + 1 / 1024) + 1


@given(values, values)
def test_merging_is_the_histogram_of_the_union(left: list[int], right: list[int]) -> None:
    both = dist.merge([dist.hdr_counts(left)[0], dist.hdr_counts(right)[0]])
    assert np.array_equal(both, dist.hdr_counts(left + right)[0])


@given(values)
def test_decoding_gives_back_the_counts(some: list[int]) -> None:
    counts, _ = dist.hdr_counts(some)
    back, config = dist.decode(dist.encode(counts))
    assert np.array_equal(back, counts)
    assert config == dist.DEFAULT_HDR


@given(values, st.data())
def test_a_damaged_histogram_is_refused_or_is_a_histogram(some: list[int], data: st.DataObject) -> None:
    raw = base64.b64decode(dist.encode(dist.hdr_counts(some)[0]))
    body = bytearray(zlib.decompress(raw[8:]))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    squeezed = zlib.compress(bytes(body))
    text = base64.b64encode(raw[:4] + len(squeezed).to_bytes(4, "big") + squeezed)
    try:
        counts, config = dist.decode(text)
    except ValueError:
        return
    assert len(counts) == config.counts_len


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=200), st.sampled_from(["0.5", "0.9", "0.99", "0.999"]))
def test_a_percentile_lies_between_its_bounds_and_the_conventions_in_order(some: list[float], p: str) -> None:
    ordered = np.sort(np.array(some))
    lower, upper = order_statistic_bounds(len(some), p, sides=1)
    found = dist.quantile(ordered, p)
    assert found <= dist.quantile_loadgen(ordered, p)
    assert lower == 0 or ordered[lower - 1] <= found
    assert upper == len(some) + 1 or ordered[upper - 1] >= found
    assert (ordered <= found).mean() >= float(p) - 1e-12


@given(st.integers(0, 300), st.sampled_from(["0.5", "0.9", "0.99"]))
def test_more_failures_need_more_queries(t: int, p: str) -> None:
    assert n_required(t, p) < n_required(t + 1, p)


# -- a verdict and its bounds are one -------------------------------------------------------------------------------


def queue(seed: int, n: int, scale: float, walk: float, failed: float, burst: int) -> Records:
    """n requests whose times wander by ``walk`` and scatter; ``failed`` of them fail, ``burst`` in a row."""
    rng = np.random.default_rng(seed)
    moved = rng.normal(0, walk, n)
    for i in range(1, n):
        moved[i] += 0.98 * moved[i - 1]
    took = (scale * np.exp(moved) * rng.lognormal(0, 0.4, n) * MS).astype(np.int64) + 1
    due = np.arange(n) * 10 * MS
    status = np.zeros(n, int)
    for start in np.flatnonzero(rng.random(n) < failed / burst):
        status[start : start + burst] = int(Status.PROTOCOL)
    tokens = rng.integers(1, 200, n)
    return from_columns(
        n, due_ns=due, ready_ns=due, sent_ns=due, first_byte_ns=due + took, first_token_ns=due + took,
        done_ns=due + took, status=status, n_out=tokens,
    )  # fmt: skip


def consistent(found: ObjectiveVerdict) -> None:
    (low, high), limit = found.interval, found.threshold
    assert low <= high
    upper = found.objective.operator in ("<=", "<")
    if found.outcome == "PASS":
        assert high <= limit if upper else low >= limit, found
    elif found.outcome == "FAIL":
        assert low >= limit if upper else high <= limit, found


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([20, 60, 300, 700]),
    scale=st.sampled_from([1.0, 10.0, 40.0, 100.0, 400.0]),
    walk=st.sampled_from([0.0, 0.02, 0.2]),
    failed=st.sampled_from([0.0, 0.01, 0.3]),
    burst=st.sampled_from([1, 10]),
    growing=st.booleans(),
    text=st.sampled_from(
        [
            "p50(latency) <= 50ms",
            "p90(ttft) <= 50ms",
            "p99(latency) <= 50ms",
            "p99(latency) < 500ms",
            "p5(output_rate) >= 200/s",
            "p50(output_rate) >= 2000/s",
            "p10(output_tokens) >= 20",
            "ratio(good) >= 99%",
            "ratio(good) >= 50%",
            "ratio(error) <= 1%",
        ]
    ),
)
def test_the_limit_lies_on_the_side_of_the_bounds_that_the_verdict_says(
    seed: int, n: int, scale: float, walk: float, failed: float, burst: int, growing: bool, text: str
) -> None:
    records = queue(seed, n, scale, walk, failed, burst)
    limits = [parse("latency <= 50ms"), parse(text)]
    good = goodput(records, limits)
    consistent(judge_objective(limits[1], records, good, "0.95", course(records, growing=growing)))


@pytest.mark.parametrize("text", ["ratio(good) >= 50%", "ratio(good) >= 99%"])
def test_a_whole_run_beyond_its_limit_is_not_said_to_be_0_to_95_percent_good(text: str) -> None:
    """841 of 841 bad, in a run that remembers long: the bounds were 0 to 95 % and the verdict FAIL."""
    records = queue(3, 841, 400.0, 0.2, 0.0, 1)
    limits = [parse("latency <= 1ms"), parse(text)]
    found = judge_objective(limits[1], records, goodput(records, limits), "0.95")
    assert found.outcome == "FAIL"
    consistent(found)
