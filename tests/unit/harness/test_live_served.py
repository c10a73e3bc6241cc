"""What the live page shows of the server: read on as it is written, by interval, and the same as the sealed run's."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from plimsoll.harness.live.served import Following, Said
from plimsoll.harness.live.state import MOST, LiveState
from plimsoll.harness.scraping.samples_writer import Writer
from plimsoll.harness.scraping.sources import Sample
from plimsoll.harness.sealing.samples_file import SAMPLES, server_of
from plimsoll.reports.documents.live import Intervals, RunPart, strips
from plimsoll.reports.formats.html_ import live_look
from plimsoll.reports.sections.server import by_bucket
from plimsoll.slo.server.courses import courses
from tests.unit.harness.live_runs import S, beginning, open_plan, status

T0 = 1_000 * S


class Server:
    """A page of vLLM's, asked by a scraper that writes what it finds."""

    def __init__(self, folder: Path, pages: int = 1) -> None:
        self.writer = Writer(str(folder / SAMPLES))
        for number in range(pages):
            self.writer.source(number, f"page {number}", f"http://127.0.0.1:{8000 + number}/metrics", 1.0)

    def close(self) -> None:
        self.writer.close()

    def says(self, at_s: float, waiting: float, preempted: float, number: int = 0, labels: str = "") -> None:
        values = {("vllm:num_requests_waiting", labels): waiting, ("vllm:num_preemptions_total", labels): preempted}
        at = T0 + round(at_s * S)
        self.writer.sample(number, Sample(at - 2000, at - 1000, at, 100, values, frozenset()), 1.0)  # type: ignore[arg-type]


def told(found: list[Said], name: str) -> list[tuple[float, float, float]]:
    return [(one.at_ns / S, one.value, one.seconds) for one in found if one.name == name]


def test_each_look_tells_what_is_new_and_a_count_since_the_sample_before(tmp_path: Path) -> None:
    following = Following(tmp_path, T0)
    with closing(Server(tmp_path)) as server:
        _looks(server, following)


def _looks(server: Server, following: Following) -> None:
    server.says(-1, 3, 10)
    server.says(0.5, 4, 12)
    first = list(following.news())
    assert told(first, "server.queue") == [(-1, 3, 0), (0.5, 4, 0)]
    assert told(first, "server.preempted") == [(0.5, 2, 1.5)]
    assert list(following.news()) == []
    server.says(1.5, 0, 12)
    server.writer.gap(0, T0 + 2 * S, T0 + 3 * S, "it answered 503")
    again = list(following.news())
    assert told(again, "server.preempted") == [(1.5, 0, 1)]
    assert told(again, "server.queue")[0] == (1.5, 0, 0)
    at, lost, _ = told(again, "server.queue")[1]
    assert at == 3
    assert math.isnan(lost)
    server.says(4, 7, 13)
    assert told(list(following.news()), "server.preempted") == [(4, 1, 2.5)]


def test_a_record_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    with closing(Server(tmp_path)) as server:
        server.says(0, 1, 0)
        server.says(1, 2, 5)
    whole = (tmp_path / SAMPLES).read_bytes()
    seen = []
    following = Following(tmp_path, T0)
    for size in range(len(whole) + 1):
        (tmp_path / SAMPLES).write_bytes(whole[:size])
        seen += following.news()
    assert told(seen, "server.queue") == [(0, 1, 0), (1, 2, 0)]
    assert told(seen, "server.preempted") == [(1, 5, 1)]


def test_what_is_told_bit_by_bit_is_what_the_sealed_run_knows(tmp_path: Path) -> None:
    following = Following(tmp_path, T0)
    rng, grown, seen = np.random.default_rng(4), [0, 0], list[Said]()
    with closing(Server(tmp_path, pages=2)) as server:
        for at in range(400):
            number = at % 2  # now and then it restarts
            grown[number] = 0 if rng.random() < 0.02 else grown[number] + int(rng.integers(9))
            server.says(at / 2, float(rng.integers(50)), grown[number], number)
            if rng.random() < 0.3:
                seen += following.news()
    seen += following.news()
    sealed, problem = server_of(tmp_path, {"t0_monotonic_ns": T0})
    assert problem is None
    assert sealed is not None
    known = courses(sealed)[0]
    queue, preempted = known["server.queue"], known["server.preempted"]
    assert [value for _, value, _ in told(seen, "server.queue")] == queue.values.tolist()
    mine, theirs = told(seen, "server.preempted"), preempted.values[1:]
    assert np.isnan(theirs).any()
    np.testing.assert_array_equal([value for _, value, _ in mine], theirs)
    assert list(following.news()) == []  # the file is gone, and the page goes on


def test_where_one_of_two_is_silent_for_long_what_was_counted_comes_whole_when_it_speaks_again(tmp_path: Path) -> None:
    following, seen = Following(tmp_path, T0), list[Said]()
    with closing(Server(tmp_path, pages=2)) as server:
        server.says(0, 1, 100, 1)
        for at in range(500):
            server.says(at + 0.5, 1, 3 * at)
            seen += following.news()
        assert told(seen, "server.preempted") == []
        assert max(len(some) for some in following._held.values()) <= 64
        server.says(500, 1, 107, 1)
        assert told(list(following.news()), "server.preempted") == [(500, 3 * 499 + 7, 499.5)]


def test_an_infinite_value_is_none_and_breaks_no_picture(tmp_path: Path) -> None:
    following = Following(tmp_path, T0)
    with closing(Server(tmp_path)) as server:
        for at, value in enumerate((2, math.inf, -math.inf, math.nan, 5)):
            server.says(at, value, value)
    state = LiveState(RunPart(), [])
    state.begin(beginning(open_plan(10, 60), T0), T0)
    state.served(following.news())
    state.heard(0, status(60, 60, latency=[S] * 60), T0 + 6 * S)
    assert shown(state, 6.7).served["server.queue"][:5] == [2, None, None, None, 5]
    assert "Waiting at the server" in live_look(state.report(T0 + 7 * S))
    known = courses(server_of(tmp_path, {"t0_monotonic_ns": T0})[0])[0]  # type: ignore[arg-type]
    assert by_bucket(known["server.queue"], np.arange(6) * S) == [2, None, None, None, 5]


def shown(state: LiveState, at_s: float) -> Intervals:
    found = state.report(T0 + round(at_s * S)).intervals
    assert found is not None
    return found


def test_an_interval_has_the_most_of_a_gauge_and_the_rate_of_a_count() -> None:
    state = LiveState(RunPart(), [])
    state.begin(beginning(open_plan(10, 60), T0, "2s"), T0)
    queue = [Said("server.queue", round(at * S), value, 0) for at, value in ((-3, 99), (0.2, 3), (0.9, 5), (2.1, 4))]
    counted = [Said("server.preempted", S, 8, 2.0), Said("server.preempted", 5 * S // 2, math.nan, 1.5)]
    state.served([*queue, *counted, Said("server.queue", 3 * S, math.nan, 0)])
    state.heard(0, status(60, 60, latency=[S] * 60), T0 + 6 * S)
    found = shown(state, 6.7)
    assert found.start_ns == -2 * S
    assert found.served == {
        "server.queue": [None, None, 5, 5, 4, None, None, None],
        "server.preempted": [None, None, None, 4, None, None, None, None],
    }
    report = state.report(T0 + round(6.7 * S))
    assert [one.title for one in strips(report)][-2:] == ["Waiting at the server", "Preempted at the server"]
    assert '"served":{"server.queue":[null,null,5.0' in report.model_dump_json()


@pytest.mark.parametrize("seconds", [MOST * 4])
def test_a_long_run_keeps_so_many_intervals_with_the_most_and_the_counts(seconds: int) -> None:
    state = LiveState(RunPart(), [])
    state.begin(beginning(open_plan(10, seconds), T0), T0)
    state.served(Said("server.queue", at * S, at % 7, 0) for at in range(seconds))
    state.served(Said("server.preempted", at * S, 2, 1) for at in range(seconds))
    found = shown(state, seconds + 4)
    queue, rate = found.served["server.queue"], found.served["server.preempted"]
    assert len(queue) <= MOST
    assert max(value for value in queue if value is not None) == 6
    assert {value for value in rate if value is not None} == {2.0}


def test_a_run_of_which_nobody_asks_the_server_has_no_such_chart(tmp_path: Path) -> None:
    assert list(Following(tmp_path, T0).news()) == []
