"""What a server said, over a run: several series as one, resets, gaps, and nothing that nobody said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.comparison.arms import sample
from plimsoll.slo.comparison.quantity import QuantityError, parse_all
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import Phase, Status, from_columns
from plimsoll.slo.server import served as table
from plimsoll.slo.server.canonical import name_of
from plimsoll.slo.server.courses import Course, courses
from plimsoll.slo.server.served import Asked, Block, Gap, Origin, Served, Track
from plimsoll.slo.server.server_side import ServerSide, energy_of, server_side, summary

S = 1_000_000_000


def asked(name: str, n: int, gaps: Sequence[Gap] = (), declared: Sequence[str] = (), late_ns: int = 0) -> Asked:
    origin = Origin(name, f"http://{name}/metrics", S, S, 0, tuple(gaps), tuple(declared))
    sent = np.arange(n) * S - S + late_ns
    return Asked(origin, sent, sent + 1_000_000, sent + 2_000_000, np.full(n, 100.0))


NAN, INF = float("nan"), float("inf")


def track(family: str, values: Sequence[float | None], source: str = "a", **labels: str) -> Track:
    there = [place for place, value in enumerate(values) if value is not None]
    numbers = np.array([values[place] for place in there], float)
    return Track(source, family, labels, name_of(family), np.array(there, np.int64), numbers)


def read(tracks: Sequence[Track], sources: Mapping[str, Asked] | None = None) -> dict[str, Course]:
    n = max(int(one.at.max(initial=-1)) + 1 for one in tracks)
    return courses(Served(sources or {"a": asked("a", n)}, tuple(tracks)))[0]


def test_two_ranks_with_forty_waiting_each_have_eighty_waiting() -> None:
    """The contract over series: queues are summed, the fullest KV cache counts."""
    found = read(
        [
            track("vllm:num_requests_waiting", [0, 40, 40], engine="0"),
            track("vllm:num_requests_waiting", [0, 40, 40], engine="1"),
            track("vllm:kv_cache_usage_perc", [0.1, 0.2, 0.9], engine="0"),
            track("vllm:kv_cache_usage_perc", [0.1, 0.8, 0.3], engine="1"),
        ]
    )
    assert summary(found["server.queue"])["max"] == 80
    assert found["server.kv_usage"].values.tolist() == [0.1, 0.8, 0.9]


@pytest.mark.parametrize("took_ns", [2_000_000, S // 3])
def test_a_rate_is_of_the_time_that_passed_however_long_scrapes_take(took_ns: int) -> None:
    """Windows from asking to the answer overlap by what a scrape takes; time passes once."""
    origin = Origin("a", "http://a/metrics", S, S, 0)
    sent = np.arange(11) * S
    sources = {"a": Asked(origin, sent, sent + took_ns, sent + took_ns, np.full(11, 100.0))}
    found = read([track("vllm:num_preemptions_total", [5.0 * at for at in range(11)])], sources)["server.preempted"]
    assert summary(found)["per_s"] == pytest.approx(5.0)
    assert summary(found.during(2 * S, 8 * S, 0))["per_s"] == pytest.approx(5.0)


def test_a_rate_of_two_servers_that_are_asked_in_turns_is_the_sum_of_theirs() -> None:
    sources = {"a": asked("a", 12), "b": asked("b", 12, late_ns=S // 2)}
    counted = [track("vllm:num_preemptions_total", [5.0 * at for at in range(12)], source) for source in sources]
    assert summary(read(counted, sources)["server.preempted"])["per_s"] == pytest.approx(10.0, rel=0.03)


@pytest.mark.parametrize("late_ns", [3_000_000, S // 2])
def test_a_window_of_several_servers_has_the_growth_of_each(late_ns: int) -> None:
    """Read one just after the other, each half of the windows would have one server's growth, and the short ones all of
    its second: the greatest rate was below the mean one.
    """
    sources = {"a": asked("a", 12), "b": asked("b", 12, late_ns=late_ns), "c": asked("c", 12, late_ns=late_ns // 3)}
    tracks = [track("vllm:prompt_tokens", [40.0 * at for at in range(12)], source) for source in sources]
    tracks += [track("vllm:request_queue_time_seconds_sum", [0.1 * at for at in range(12)], one) for one in "abc"]
    tracks += [
        track("vllm:request_queue_time_seconds_count", [w * at for at in range(12)], one)
        for w, one in zip((1.0, 2.0, 2.0), "abc", strict=True)
    ]
    found = read(tracks, sources)
    said = summary(found["server.prompt_tokens"])
    assert said["total"] == 11 * 120
    assert [said["per_s"], said["max"]] == pytest.approx([120, 120])
    assert found["server.queue_time"].values[1:] == pytest.approx(np.full(11, 0.3e9 / 5))


def test_the_window_of_a_restart_is_unknown_of_all_servers_and_a_rate_is_of_the_others() -> None:
    sources = {"a": asked("a", 12), "b": asked("b", 12, late_ns=3_000_000)}
    anew = [30.0 * at for at in range(6)] + [30.0 * at for at in range(6)]
    found = read(
        [track("vllm:prompt_tokens", [30.0 * at for at in range(12)]), track("vllm:prompt_tokens", anew, "b")], sources
    )["server.prompt_tokens"]
    assert int(found.unknown[1:].sum()) == 1
    assert summary(found)["per_s"] == pytest.approx(60)


def test_what_is_counted_ends_when_one_of_several_servers_is_read_no_more() -> None:
    sources = {"a": asked("a", 12), "b": asked("b", 6, late_ns=3_000_000)}
    found = read(
        [track("vllm:prompt_tokens", [30.0 * at for at in range(n)], one) for one, n in (("a", 12), ("b", 6))], sources
    )["server.prompt_tokens"]
    assert found.end_ns[-1] == sources["b"].end_ns[-1]
    assert found.during(0, 10 * S, 0).unknown[-1]


def test_the_queue_of_the_bundled_server_is_that_of_all_its_models() -> None:
    """Its models of fixed outputs have a depth alone, ``llm`` and ``scripted`` say theirs twice."""
    found = read(
        [
            track("reference_queue_depth", [2, 7], model="dlrm"),
            track("reference_queue_depth", [0, 3], model="llm"),
            track("reference_waiting", [0, 3], model="llm"),
        ]
    )
    assert found["server.queue"].values.tolist() == [2, 10]
    assert read([track("reference_waiting", [0, 3], model="llm")])["server.queue"].values.tolist() == [0, 3]


def test_means_are_weighted_by_count() -> None:
    found = read(
        [
            track("vllm:time_to_first_token_seconds_sum", [0, 1.0, 1.0], engine="0"),
            track("vllm:time_to_first_token_seconds_count", [0, 10, 10], engine="0"),
            track("vllm:time_to_first_token_seconds_sum", [0, 3.0, 3.0], engine="1"),
            track("vllm:time_to_first_token_seconds_count", [0, 10, 10], engine="1"),
        ]
    )["server.ttft"]
    assert found.values[1] == pytest.approx(0.2e9)
    assert np.isnan(found.values[2])  # nothing happened: no mean, and not 0
    assert summary(found)["mean"] == pytest.approx(0.2e9)


@pytest.mark.parametrize(
    ("sign", "values"),
    [
        ("vllm:prompt_tokens_total", [5, 9, 2, 4]),
        ("process_start_time_seconds", [1000.0, 1000.0, 2000.0, 2000.0]),
        ("vllm:generation_tokens_created", [1000.0, 1000.0, 2000.0, 2000.0]),
    ],
)
def test_the_window_of_a_restart_is_unknown(sign: str, values: list[float]) -> None:
    """Each sign of a restart makes every counter of that source unknown there, also one that came further since."""
    served = Served(
        {"a": asked("a", 4)}, (track("vllm:generation_tokens_total", [10, 20, 25, 35]), track(sign, values))
    )
    found, restarts = courses(served)
    assert np.isnan(found["server.generated_tokens"].values).tolist() == [True, False, True, False]
    assert summary(found["server.generated_tokens"])["total"] == 20
    assert [(one.source, one.before_ns) for one in restarts] == [("a", 1 * S)]


def test_a_series_that_appears_began_at_nothing_and_one_that_is_left_out_stands_still() -> None:
    found = read(
        [
            track("vllm:request_success_total", [None, 7, None, 9], finished_reason="stop"),
            track("vllm:request_success_total", [3, 3, 3, 4], finished_reason="length"),
        ]
    )["server.requests"]
    assert found.values[1:].tolist() == [7, 0, 3]


def test_a_declared_counter_without_series_counted_nothing_and_another_is_absent() -> None:
    sources = {"a": asked("a", 3, declared=["vllm:num_preemptions_total"])}
    found = read([track("vllm:num_requests_waiting", [0, 0, 0])], sources)
    assert summary(found["server.preempted"])["total"] == 0
    assert "server.requests" not in found


def test_nothing_is_known_of_a_gauge_while_a_source_is_silent() -> None:
    gap = Gap(int(0.5 * S), int(0.6 * S), 1, "no answer")
    sources = {"a": asked("a", 4), "b": asked("b", 2, [gap], late_ns=1000)}
    served = [track("tgi_queue_size", [1, 1, 1, 1]), track("tgi_queue_size", [5, 5], "b")]
    found = read(served, sources)["server.queue"]
    known = dict(zip(found.end_ns.tolist(), found.values.tolist(), strict=True))
    assert known[2_000_000 + 1000] == 6
    assert np.isnan(known[S + 2_000_000])
    assert np.isnan(known[2 * S + 2_000_000])


def test_a_gap_of_the_only_source_is_unknown_and_so_is_what_comes_after_its_last_sample() -> None:
    """A server that was silent for a while, or from some time on, was not seen to keep anything then."""
    gap = Gap(int(1.1 * S), int(1.4 * S), 2, "no answer")
    found = read([track("tgi_queue_size", [1, 2, 3, 4])], {"a": asked("a", 4, [gap])})["server.queue"]
    assert np.isnan(found.values).tolist() == [False, False, False, True, False]
    whole = found.during(0, 3 * S, 2 * S)
    assert int(whole.unknown.sum()) == 1
    assert int(found.during(0, 60 * S, 2 * S).unknown.sum()) == 2
    counted = read([track("vllm:prompt_tokens_total", [1, 2, 3, 4])])["server.prompt_tokens"]
    assert not counted.during(0, 2 * S, 0).unknown.any()
    assert counted.during(0, 4 * S, 0).unknown.tolist() == [False, False, False, True]


def test_the_newest_name_counts_where_a_server_has_both() -> None:
    found = read(
        [
            track("vllm:kv_cache_usage_perc", [0.5, 0.5]),
            track("vllm:gpu_cache_usage_perc", [0.9, 0.9]),
            track("vllm:prefix_cache_hits_total", [0, 30]),
            track("vllm:prefix_cache_queries_total", [0, 60]),
            track("vllm:gpu_prefix_cache_hits_total", [0, 30]),
            track("vllm:gpu_prefix_cache_queries_total", [0, 60]),
        ]
    )
    assert found["server.kv_usage"].values.tolist() == [0.5, 0.5]
    assert found["server.prefix_hit"].values[1] == 0.5


def test_a_host_that_is_told_of_twice_counts_once() -> None:
    served = Served(
        {"a": asked("a", 2), "pid-1": asked("pid-1", 2)},
        (track("process_resident_memory_bytes", [5, 5]), track("proc_resident_bytes", [7, 7], "pid-1", pid="1")),
    )
    assert courses(served)[0]["host.rss"].values.tolist() == [7, 7]


def test_reasons_for_a_lower_clock_tell_throttling_from_idling() -> None:
    found = read([track("nvml_clock_event_reasons", [0x1, 0x4, 0x0, 0x41], gpu="0")])["gpu.throttle"]
    assert found.values.tolist() == [0, 1, 0, 1]


def test_a_share_of_nothing_is_unknown() -> None:
    found = read([track("reference_kv_blocks_used", [0, 0]), track("reference_kv_blocks", [0, 0])])
    assert np.isnan(found["server.kv_usage"].values).all()


@given(st.lists(st.lists(st.integers(0, 1000), min_size=4, max_size=4), min_size=1, max_size=4))
def test_growth_of_any_series_is_what_they_grew_together(steps: list[list[int]]) -> None:
    tracks = [
        track("vllm:prompt_tokens_total", np.cumsum(one).tolist(), engine=str(place)) for place, one in enumerate(steps)
    ]
    found = read(tracks)["server.prompt_tokens"]
    assert found.values[1:].tolist() == np.sum(steps, axis=0)[1:].tolist()


def test_a_file_gives_back_what_was_written_and_another_schema_is_refused(tmp_path: Path) -> None:
    origin = Origin("a", "http://a/metrics", S, 2 * S, 17, (Gap(1, 2, 3, "why"),), ("x_total",))
    series = [
        ("a", "scrape_bytes", "{}", table.SCRAPE),
        ("a", "vllm:num_requests_waiting", '{"engine": "0"}', "server.queue"),
        ("a", "nobody_knows", "{}", ""),
    ]
    blocks = [
        Block(np.array([0, 1, 2]), np.array([100.0, float(k), 1.0]), (k * S, k * S + 1, k * S + 2)) for k in range(3)
    ]
    with (tmp_path / "server.parquet").open("wb") as file:
        table.write(file, blocks, series, lambda: [origin])
    found = table.load(tmp_path / "server.parquet")
    assert found.sources["a"].origin == origin
    assert found.sources["a"].sent_ns.tolist() == [0, S, 2 * S]
    (only,) = found.tracks
    assert (only.family, only.labels, only.values.tolist()) == ("vllm:num_requests_waiting", {"engine": "0"}, [0, 1, 2])
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "server.parquet").num_rows == 9  # what means nothing is kept too
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="schema"):
        table.load(tmp_path / "other.parquet")


def joules(name: str, *windows: tuple[float, float, float]) -> Course:
    begin, end, values = (np.array(column) for column in zip(*windows, strict=True))
    times = (begin * S).astype(np.int64), (end * S).astype(np.int64)
    return Course(name, "counter", *times, values, np.ones(len(values)), "e", (), (), 1, times[0])


def test_joules_of_the_run_are_shared_out_over_what_was_answered() -> None:
    rows = from_columns(
        5, due_ns=0, ready_ns=0, sent_ns=0, done_ns=4 * S, n_out=[10, 10, 30, 50, -1],
        status=[Status.OK] * 4 + [Status.TIMEOUT],
    )  # fmt: skip
    gpu = joules("gpu.energy", (-1, 1, 100.0), (1, 3, 200.0), (3, 5, 80.0))
    found = energy_of({"gpu.energy": gpu, "host.energy": joules("host.energy", (0, 4, 10.0))}, rows, 4 * S)
    assert found is not None
    assert found.joules == pytest.approx(50 + 200 + 40 + 10)  # what lies within 0 to 4 s
    assert (found.names, found.requests, found.tokens) == (("gpu.energy", "host.energy"), 4, 100)
    untold = from_columns(1, due_ns=0, ready_ns=0, sent_ns=0, done_ns=4 * S, n_out=-1)
    alone = energy_of({"gpu.energy": gpu}, untold, 4 * S)
    assert alone is not None
    assert alone.tokens is None
    assert energy_of({"gpu.energy": joules("gpu.energy", (0, 2, 9.0), (2, 4, np.nan))}, rows, 4 * S) is None
    assert energy_of({}, rows, 4 * S) is None


def test_a_comparison_takes_what_the_server_says_as_one_number_of_a_run_and_nothing_that_is_unknown() -> None:
    asked_for = parse_all(["max(server.queue)", "rate(server.preempted) 10%", "mean(host.rss)", "max(gpu.power)"])
    tracks = [
        track("vllm:num_requests_waiting", [0, 4, 7, 1]),
        track("vllm:num_preemptions_total", [0, 0, 6, 8]),
        track("process_resident_memory_bytes", [5, 5, None, 5]),
    ]
    found = {name: one.during(0, 2 * S, S) for name, one in read(tracks).items()}
    side = ServerSide(Served({}, ()), found, {}, (), ())
    rows = from_columns(1, due_ns=0, ready_ns=0, sent_ns=0, done_ns=2 * S)
    readings = sample(rows, asked_for, side=side).readings
    assert readings["max(server.queue)"].value == 7
    assert readings["rate(server.preempted)"].value == pytest.approx(8 / 3, rel=0.01)
    assert np.isnan(readings["max(gpu.power)"].value)
    assert np.isnan(sample(rows, asked_for).readings["max(server.queue)"].value)
    with pytest.raises(QuantityError) as caught:
        parse_all(["rate(server.queue)", "max(server.queue{class=chat})", "p99(server.queue)", "max(server.queu)"])
    assert len(caught.value.errors) == 4
    assert "did you mean server.queue" in caught.value.errors[3]
    assert "server.ttft" in caught.value.errors[3]
    assert " ttft" not in caught.value.errors[3]  # of the server's names only


MS = 1_000_000


def test_what_was_tried_twice_is_reconciled_by_what_went_over_the_wire() -> None:
    """A request refused and sent again, and one whose first attempt was dropped unanswered: the server saw four."""
    records = from_columns(
        6,
        query_id=[0, 1, 0, 0, 1, 1],
        due_ns=0,
        sent_ns=[0, 0, 0, 300 * MS, 0, 60 * MS],
        headers_ns=[320 * MS, 80 * MS, 5 * MS, 320 * MS, -1, 80 * MS],
        first_token_ns=[320 * MS, 80 * MS, -1, 320 * MS, -1, 80 * MS],
        done_ns=400 * MS,
        phase=[Phase.MEASURE] * 2 + [Phase.ATTEMPT] * 4,
        status=[Status.OK, Status.OK, Status.REFUSED, Status.OK, Status.CANCELLED, Status.OK],
    ).labelled(LabelTable.of({"tries": [2] * 6, "attempt": [1, 1, 0, 1, 0, 1]}))
    said = [
        track("reference_requests_total", [0, 4, 4], outcome="ok"),
        track("reference_ttft_seconds_sum", [0, 0.03, 0.03]),
        track("reference_ttft_seconds_count", [0, 2, 2]),
    ]
    found = server_side(Served({"a": asked("a", 3)}, tuple(said)), records)
    assert [(book.what, book.difference) for book in found.books] == [("requests, dropped ones among them", 0)]
    assert found.first_token is not None
    assert (found.first_token.theirs_ns, found.first_token.ours_ns) == (15 * MS, 20 * MS)


def test_a_series_that_comes_back_after_a_restart_tells_of_no_second_one() -> None:
    """A new process shows a counter with labels once it has counted something: one sample later than its start."""
    tracks = (
        track("process_start_time_seconds", [100, 100, 200, 200, 200]),
        track("vllm:request_success_total", [10, 90, None, 32, 50], model_name="m"),
        track("vllm:request_success_created", [100, 100, None, 201, 201], model_name="m"),
    )
    found, restarts = courses(Served({"a": asked("a", 5)}, tracks))
    assert len(restarts) == 1
    assert found["server.requests"].values[1:].tolist() == [80, pytest.approx(np.nan, nan_ok=True), 32, 18]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [1e308, -1e308, INF, NAN])
def test_what_no_server_can_mean_is_unknown_and_no_sum_of_it_is_without_end(value: float) -> None:
    found = read(
        [
            *(track("vllm:num_requests_waiting", [1, value, 3], engine=rank) for rank in "01"),
            *(track("vllm:prompt_tokens_total", [1, value, 3, value], engine=rank) for rank in "01"),
            track("vllm:time_to_first_token_seconds_sum", [0, 1, 2]),
            track("vllm:time_to_first_token_seconds_count", [0, 1e-320, 2e-320]),
            track("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", [value, 1e99, 4]),
        ]
    )
    assert found["server.queue"].values.tolist()[::2] == [2, 6]
    assert np.isnan(found["server.queue"].values[1])
    for one in found.values():
        assert not np.isinf(one.values).any()
