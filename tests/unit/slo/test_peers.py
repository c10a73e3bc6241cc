"""Other tools' variants, each against the tool's own arithmetic written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.reports.sections.peers import peers_part
from plimsoll.slo.metrics import deadlines
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.objective import parse, parse_all
from plimsoll.slo.peers import figures as peers
from plimsoll.slo.peers.figures import CATALOGUE, SAMPLES, limits
from plimsoll.slo.records.records import Phase, Records, Status, concat, from_columns
from plimsoll.slo.statistics.distribution import quantile, quantile_linear

MS = 1_000_000


def streamed(n: int = 1, **columns: object) -> Records:
    """Due 0, sent 2, first chunk 20, last 50, done 60 ms; 4 tokens in 4 chunks."""
    good: dict[str, object] = {
        "due_ns": 0, "ready_ns": 1 * MS, "sent_ns": 2 * MS, "headers_ns": 10 * MS, "first_byte_ns": 10 * MS,
        "first_token_ns": 20 * MS, "first_answer_ns": 20 * MS, "last_token_ns": 50 * MS, "done_ns": 60 * MS,
        "n_out": 4, "chunks": [[20 * MS, 24 * MS, 34 * MS, 50 * MS]] * n,
    }  # fmt: skip
    return from_columns(n, **(good | columns))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "ms"),
    [
        ("vllm.ttft", 18), ("vllm.tpot", 10), ("vllm.e2el", 48),
        ("sglang.ttft", 18), ("sglang.tpot", 40 / 3), ("sglang.e2el", 58),
        ("guidellm.ttft", 18), ("guidellm.tpot", 12), ("guidellm.itl", 10), ("guidellm.request_latency", 58),
        ("aiperf.ttft", 18), ("aiperf.itl", 10), ("aiperf.request_latency", 48), ("aiperf.effective_latency", 60),
        ("genai-perf.ttft", 18), ("genai-perf.itl", 10), ("genai-perf.request_latency", 48),
        ("llmperf.ttft", 18), ("llmperf.inter_token_latency", 12), ("llmperf.e2e", 58),
        ("loadgen.ttft", 20), ("loadgen.tpot", 13.333333), ("loadgen.latency", 60),
        ("endpoints.ttft", 18), ("endpoints.tpot", 40 / 3),
    ],
)  # fmt: skip
def test_each_variant_of_one_answer(name: str, ms: float) -> None:
    found = peers.measure(streamed())[name]
    assert found.n == 1
    assert found.mean == pytest.approx(ms * MS)
    assert found.percentiles == pytest.approx([ms * MS] * 4)


def test_a_failed_request_is_infinite_in_aiperfs_adjusted_band_and_absent_without_failures() -> None:
    assert not [name for name in peers.measure(streamed(3)) if "adj_" in name]
    sent = np.array([2, 3, 4, 5, 6]) * MS
    good = concat([streamed(sent_ns=int(at)) for at in sent])
    found = peers.measure(concat([good, streamed(2, status=int(Status.HTTP), chunks=[[], []], n_out=0)]))
    values = np.append(np.sort(20 * MS - sent), [np.inf] * 2)
    assert found["aiperf.adj_ttft"].n == 7
    assert found["aiperf.adj_ttft"].mean == np.inf
    expected = [float(np.percentile(values, p, method="nearest")) for p in (50, 90, 95, 99)]
    assert list(found["aiperf.adj_ttft"].percentiles) == expected == [17 * MS, np.inf, np.inf, np.inf]
    assert found["aiperf.ttft"].n == 5
    shown = peers_part(peers.measure(concat([good, streamed(status=int(Status.HTTP), chunks=[[]], n_out=0)])))
    assert shown["aiperf.adj_request_latency"].p99 is None
    assert shown["aiperf.adj_request_latency"].p50 is not None


def test_gaps_are_pooled_over_requests_and_interpolated() -> None:
    found = peers.measure(concat([streamed(3), streamed(chunks=[[20 * MS]], n_out=1)]))
    gaps = np.array([4, 10, 16] * 3) * MS
    for name in ("vllm.itl", "sglang.itl", "aiperf.icl"):
        assert found[name].n == 9
        assert found[name].mean == pytest.approx(10 * MS)
        assert found[name].percentiles == pytest.approx([np.percentile(gaps, p) for p in (50, 90, 95, 99)])


def test_an_answer_of_one_token_is_a_different_thing_to_each() -> None:
    one = streamed(n_out=1, chunks=[[20 * MS]], last_token_ns=20 * MS)
    found = peers.measure(one)
    means = {name: figures.mean for name, figures in found.items()}
    assert means["loadgen.tpot"] == -40 * MS  # the sign turns
    assert means["guidellm.tpot"] == means["llmperf.inter_token_latency"] == 18 * MS  # it is the TTFT
    undefined = {
        "vllm.tpot",
        "sglang.tpot",
        "guidellm.itl",
        "aiperf.itl",
        "genai-perf.itl",
        "endpoints.tpot",
        "vllm.itl",
    }
    assert not undefined & set(found)


def test_guidellm_weighs_by_tokens() -> None:
    """An answer of 2 tokens at 100 ms and one of 11 at 10 ms: 1 and 10 of the weight."""
    short = streamed(n_out=2, first_token_ns=100 * MS, last_token_ns=200 * MS, chunks=[[100 * MS, 200 * MS]])
    long = streamed(n_out=11, first_token_ns=100 * MS, last_token_ns=200 * MS, chunks=[[100 * MS, 200 * MS]])
    found = peers.measure(concat([short, long]))
    assert found["guidellm.itl"].mean == pytest.approx((100 + 10 * 10) / 11 * MS)
    assert list(found["guidellm.itl"].percentiles) == [10 * MS, 10 * MS, 100 * MS, 100 * MS]
    assert found["vllm.tpot"].mean == 55 * MS


def test_successes_without_content_are_a_ttft_of_zero_to_some_and_nothing_to_others() -> None:
    empty = from_columns(1, due_ns=0, sent_ns=0, done_ns=9 * MS, n_out=0)
    found = peers.measure(concat([streamed(), empty]))
    assert (found["guidellm.ttft"].n, found["guidellm.ttft"].mean) == (2, 9 * MS)
    assert (found["llmperf.ttft"].mean, found["sglang.ttft"].mean) == (9 * MS, 9 * MS)
    assert (found["vllm.ttft"].n, found["aiperf.ttft"].n, found["loadgen.ttft"].n) == (1, 1, 1)


def test_endpoints_divides_by_the_tokens_after_the_first_chunk() -> None:
    """8 tokens in 4 chunks: 2 came with the first."""
    found = peers.measure(streamed(n_out=8))
    assert found["endpoints.tpot"].mean == pytest.approx(40 / 6 * MS)
    assert found["endpoints.tps_per_user"].value == pytest.approx(150)
    assert "endpoints.tpot" not in peers.measure(streamed(n_out=8, chunks=[[20 * MS]]))


def test_the_same_hundred_answers_have_four_different_p99() -> None:
    done = np.arange(1, 101) * MS
    records = from_columns(100, due_ns=0, sent_ns=0, first_token_ns=done, last_token_ns=done, done_ns=done, n_out=1)
    found = peers.measure(records)
    assert found["vllm.ttft"].percentiles[3] == pytest.approx(99.01 * MS)  # interpolated
    assert found["guidellm.ttft"].percentiles[3] == 99 * MS  # nearest rank
    assert found["endpoints.ttft"].percentiles[3] == 99 * MS  # rounded down
    assert found["endpoints.ttft"].percentiles[1] == 90 * MS
    assert found["loadgen.ttft"].percentiles[3] == 100 * MS  # floor(p n)


def test_a_late_departure_shows_in_what_starts_at_the_due_time_only() -> None:
    found = peers.measure(streamed(due_ns=-(500 * MS), phase=int(Phase.MEASURE)))
    assert found["loadgen.ttft"].mean == 520 * MS
    assert found["vllm.ttft"].mean == found["endpoints.ttft"].mean == 18 * MS


def test_only_variants_whose_stamps_are_there_are_given() -> None:
    whole = from_columns(5, due_ns=0, sent_ns=0, done_ns=9 * MS)
    names = set(peers.measure(whole))
    assert names == {
        "sglang.e2el",
        "guidellm.request_latency",
        "llmperf.e2e",
        "loadgen.latency",
        "aiperf.effective_latency",
    }
    assert peers.measure(from_columns(0)) == {}
    assert peers.measure(from_columns(4, due_ns=0, status=int(Status.TIMEOUT))) == {}
    assert peers.measure(streamed(3, phase=int(Phase.WARMUP))) == {}


def test_etalons_entries_use_the_limits_that_were_promised() -> None:
    records = streamed()
    assert peers.measure(records)["etalon.fluidity"].mean == 1
    tight = peers.measure(records, [parse("ttft <= 18ms"), parse("tpot <= 5ms")])
    # 18 on time, slack 0; then 4 on time, slack 1; 10 > 6: floor(9 / 5) missed; 16: floor(16 / 5) missed.
    assert tight["etalon.fluidity"].mean == pytest.approx(1 - 4 / 6)
    assert tight["etalon.fluidity_docs"].mean == 0.5
    assert "5 ms" in tight["etalon.fluidity"].note
    # Gaps of 4, 10 and 16 ms are met by 10 ms each: 6 early, then even, then 6 late.
    assert tight["etalon.fluid_token_rate"].value == pytest.approx(100, rel=1e-3)


# -- goodput ---------------------------------------------------------------------------------------------------


def mixed() -> Records:
    """Due 0: two good, one slow to begin, one of a single token, one failed at 1 s."""
    return concat(
        [
            streamed(2),
            streamed(first_token_ns=45 * MS, last_token_ns=50 * MS, chunks=[[45 * MS, 50 * MS]], n_out=2),
            streamed(n_out=1, chunks=[[20 * MS]], last_token_ns=20 * MS),
            streamed(status=int(Status.TIMEOUT), done_ns=1000 * MS),
        ]
    )


def test_three_goodputs_of_one_run() -> None:
    asked = parse_all(["ttft <= 30ms", "tpot <= 12ms", "ratio(good) >= 50%"])[0]
    found = peers.measure(mixed(), asked)
    assert found["vllm.goodput"].value == pytest.approx(3.0)  # three good in the second that the failure took
    assert found["distserve.attainment"].value == 0.75  # of four results
    assert found["mlperf.goodput"].value is None
    assert "a request failed" in found["mlperf.goodput"].note
    assert not {"vllm.goodput", "distserve.attainment", "mlperf.goodput"} & set(peers.measure(mixed()))


def test_mlperf_counts_a_valid_run_by_completed_samples() -> None:
    asked = [parse("p99(ttft) <= 30ms"), parse("p99(tpot) <= 20ms")]
    due = np.arange(500) * MS
    rows = streamed(500, due_ns=due, done_ns=due + 60 * MS, first_token_ns=due + 20 * MS, last_token_ns=due + 50 * MS)
    assert peers.measure(rows, asked)["mlperf.goodput"].value == pytest.approx(499 / 0.559)
    few = rows.select(np.arange(458))
    found = peers.measure(few, asked)["mlperf.goodput"]
    assert found.value is None
    assert "early stopping wants 459 queries with 0 over the limit" in found.note


def test_limits_on_a_request_come_before_limits_on_the_run_and_the_strictest_counts() -> None:
    asked = parse_all(["ttft <= 30ms", "ttft <= 20ms", "p99(tpot) <= 9ms", "ratio(good) >= 50%"])[0]
    assert limits(asked) == {"ttft": 20 * MS}
    assert limits([parse("p99(tpot) <= 9ms"), parse("p50(latency) <= 2s"), parse("rate(ok) >= 1/s")]) == {
        "tpot": 9 * MS,
        "e2el": 2000 * MS,
    }


# -- why none of them judges ---------------------------------------------------------------------------------------


def test_vllms_p99_improves_when_the_slowest_requests_fail_and_ours_does_not() -> None:
    first = np.arange(1, 101) * MS
    rows: dict[str, object] = {"sent_ns": 0, "first_token_ns": first, "chunks": [[at] for at in first.tolist()]}
    plain = streamed(100, **rows)
    failing = streamed(100, **rows, status=np.where(first > 90 * MS, int(Status.TIMEOUT), int(Status.OK)))
    theirs = [peers.measure(some)["vllm.ttft"].percentiles[3] for some in (plain, failing)]
    ours = [quantile(np.sort(measure(catalogue()["ttft"], some).values), "0.99") for some in (plain, failing)]
    assert theirs[1] < theirs[0]
    assert ours[1] > ours[0]


def test_distserves_attainment_improves_when_bad_requests_fail() -> None:
    asked = [parse("ttft <= 30ms"), parse("tpot <= 12ms")]
    before = mixed()
    status = before.columns["status"].copy()
    status[2] = Status.CANCELLED
    after = Records({**before.columns, "status": status}, before.chunk_ns, before.chunk_offsets)
    shares = [peers.measure(some, asked)["distserve.attainment"].value for some in (before, after)]
    assert shares == [0.75, 1.0]


# -- the catalogue, the report part, selection ---------------------------------------------------------------------


def test_every_entry_says_what_it_is_and_where_that_is_written() -> None:
    for name, peer in CATALOGUE.items():
        tool, _, metric = name.partition(".")
        assert tool
        assert metric
        assert peer.source
        assert peer.definition.startswith(peer.formula)
        assert peer.percentile == "value" or peer.sample in {*SAMPLES, "gaps", "fluidity"}


def test_the_report_part_is_plain_numbers() -> None:
    found = peers_part(peers.measure(mixed(), [parse("ttft <= 30ms"), parse("tpot <= 12ms")]))
    assert list(found) == [name for name in CATALOGUE if name in found]
    one = found["vllm.tpot"].model_dump()
    assert (one["unit"], one["n"], one["p50"], one["value"]) == ("ns", 3, 10 * MS, None)
    assert found["vllm.goodput"].value == pytest.approx(3.0)
    assert found["mlperf.goodput"].value is None


@pytest.mark.parametrize("shape", ["even", "ties", "heavy"])
def test_weights_are_counted_where_the_sorted_ones_are(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    values = {
        "even": random.random(50_000) * 1e9,
        "ties": random.integers(0, 4, 50_000).astype(np.float64),
        "heavy": random.pareto(1.0, 50_000) * 1000,
    }[shape]
    weights = random.integers(1, 900, 50_000).astype(np.float64)
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    wanted = [values[order][np.searchsorted(reached, float(p) * reached[-1])] for p in peers.PERCENTILES]
    for few in (1_000, 100_000):
        monkeypatch.setattr(peers, "SLAB", few)
        found = peers.weighted(CATALOGUE["guidellm.tpot"], peers.Sample(values, weights))
        assert list(found.percentiles) == wanted
        assert found.mean == pytest.approx(float((values * weights).sum() / weights.sum()), rel=1e-14)


def test_gaps_that_fit_in_no_memory_have_the_same_percentiles(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(6)
    chunks = [(row * MS + np.cumsum(random.gamma(3, MS, 20)).astype(np.int64)).tolist() for row in range(300)]
    records = from_columns(300, due_ns=0, sent_ns=0, done_ns=10**12, n_out=20, chunks=chunks)
    held = peers.measure(records)
    monkeypatch.setattr(peers, "HELD", 100)
    monkeypatch.setattr(deadlines.slabs, "__defaults__", (64,))
    found = peers.measure(records)
    assert [found[name].percentiles for name in ("vllm.itl", "sglang.itl", "aiperf.icl")] == [
        held["vllm.itl"].percentiles
    ] * 3
    every = np.sort(np.concatenate([np.diff(row) for row in chunks]))
    assert held["vllm.itl"].percentiles == tuple(quantile_linear(every, p) for p in peers.PERCENTILES)


def test_of_failures_as_infinite_the_percentiles_are_those_of_the_whole_array() -> None:
    ordered = np.arange(1.0, 96.0)
    whole = np.append(ordered, [np.inf] * 5)
    found = peers.punished(CATALOGUE["aiperf.adj_ttft"], ordered, 5)
    assert found.percentiles == tuple(peers.quantile_rounded(whole, p) for p in peers.PERCENTILES)
    assert (found.n, found.mean) == (100, np.inf)
