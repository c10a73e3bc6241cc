"""Faults that come and go while the server runs: windows, chances, and what becomes of a request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.misfortune.fault import KINDS, Break, Misfortune, Window, check_models, parse_fault
from plimsoll.reference_server.misfortune.faults import UNBEGUN, Faults, linger
from plimsoll.reference_server.values.durations import Startup
from plimsoll.reference_server.values.errors import ConfigError, RequestError

SECOND = 1_000_000_000


def faults(*texts: str, seed: int = 0) -> Faults:
    return Faults([parse_fault(text) for text in texts], seed=seed, sleep=lambda _s: None)


def drawn(made: Faults, n: int, *, in_flight: int = 0) -> Iterator[Misfortune | int]:
    """What becomes of n requests, a millisecond apart: a misfortune, or the status of a refusal."""
    for i in range(n):
        try:
            yield made.draw(i * 1_000_000, in_flight=in_flight)
        except RequestError as error:
            yield error.status


durations = st.integers(0, 5_000)


@given(durations, st.integers(-1, 500), durations, st.integers(0, 20_000))
def test_a_window_changes_at_its_edges_and_nowhere_else(at_ns: int, for_ns: int, every_ns: int, now_ns: int) -> None:
    window = Window(at_ns, for_ns, every_ns)
    edge_ns = window.next_edge(now_ns)
    until_ns = now_ns + 12_000 if edge_ns is None else edge_ns
    assert until_ns > now_ns
    assert len({window.open(t) for t in range(now_ns, until_ns, 37)}) == 1
    if edge_ns is not None and for_ns != 0:
        assert window.open(edge_ns) != window.open(edge_ns - 1)


def test_a_repeated_window_opens_again_and_again() -> None:
    window = Window(at_ns=10, for_ns=3, every_ns=8)
    assert [t for t in range(40) if window.open(t)] == [10, 11, 12, 18, 19, 20, 26, 27, 28, 34, 35, 36]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_fault_written_in_full_reads_as_itself(name: str) -> None:
    needed = {"for": "2s", "by": "1ms"}
    keys = KINDS[name].keys
    text = ",".join(
        f"{key}:{needed.get(key, '0.5' if key == 'p' else '5')}" for key, value in keys.items() if value is None
    )
    fault = parse_fault(f"{name}={text}")
    assert parse_fault(fault.text) == fault


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("memory_leak=per:3MB", "no size"),
        ("memory_leak=0B", "between 1B and 64GiB"),
        ("content_type=type:html", "media type"),
        ("queue_build_up=1.5", "whole number"),
        ("stall=for:always", "write how long"),
        ("slow_drip=bytes:0", "between 1"),
        ("noisy_neighbour=0.5", "between 1 and 1000"),
        ("kv_thrash=keep:2", "between 0 and 1"),
        ("slow_start=compile:1s", "takes import, weights, warm_up"),
        ("jitter", "needs by"),
        ("reset=at:-1", "between 0"),
        ("error_rate=nan", "between 0 and 1"),
        ("error_rate=often", "p: 'often' is not a number. Correct"),
        (
            "error_rate=p=0.1,status=500",
            "'p=0.1' is no KEY:VALUE. error_rate takes p, status. Write it like error_rate=p:",
        ),
        ("cut=0.1:3", "unknown key '0.1'. cut takes p, at. Write it like cut=p:"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        parse_fault(text)


def test_a_fault_that_no_served_model_can_suffer_is_refused() -> None:
    check_models(parse_fault("kv_thrash"), ["scripted", "llm"])
    check_models(parse_fault("cut"), ["scripted"])
    with pytest.raises(ConfigError, match="strikes only llm; served here: scripted"):
        check_models(parse_fault("kv_thrash"), ["scripted"])


def test_times_count_from_the_call_that_placed_the_fault() -> None:
    made = faults()
    made.draw(0)
    placed = made.place(parse_fault("reject=at:1s,for:1s"), 50 * SECOND)
    made.draw(51 * SECOND - 1)
    with pytest.raises(RequestError):
        made.draw(51 * SECOND)
    made.draw(52 * SECOND)
    assert placed.n_hits == 1


def test_nothing_acts_before_the_first_request() -> None:
    made = faults("jitter=1ms")
    assert made.acting("jitter", 5) == []
    made.first(5)
    assert len(made.acting("jitter", 5)) == 1
    assert made.present[0].origin_ns == 5 != UNBEGUN


def test_rejections_come_in_bursts() -> None:
    made = faults("reject=for:2ms,every:5ms,status:429,retry_after:0s")
    assert [i for i, fate in enumerate(drawn(made, 15)) if fate == 429] == [0, 1, 5, 6, 10, 11]


def test_another_fault_does_not_shift_the_draws_of_the_first() -> None:
    alone = [isinstance(fate, Misfortune) and fate.cut_at for fate in drawn(faults("cut=0.3"), 200)]
    beside = faults("error_rate=0", "cut=0.3", "content_type=0.5")
    beside.place(parse_fault("reset=p:0"), 3)
    assert [isinstance(fate, Misfortune) and fate.cut_at for fate in drawn(beside, 200)] == alone


def test_a_fault_is_forgotten_when_it_is_taken_away() -> None:
    made = faults("reject=60m", "slow_headers=1s")
    assert list(drawn(made, 1)) == [503]
    assert [placed.fault.name for placed in made.remove("f1")] == ["reject"]
    assert made.remove("f1") == []
    assert next(drawn(made, 1)) == Misfortune(delay_ns=SECOND)
    assert len(made.remove()) == 1
    assert next(drawn(made, 1)) == Misfortune()


def test_the_fault_placed_last_says_how_an_answer_breaks() -> None:
    (fate,) = drawn(faults("cut=at:4", "reset=at:2"), 1)
    assert isinstance(fate, Misfortune)
    assert (fate.cut_at, fate.break_by, fate.breaks_at_once) == (2, Break.RESET, False)
    (fate,) = drawn(faults("half_open"), 1)
    assert isinstance(fate, Misfortune)
    assert (fate.break_by, fate.breaks_at_once) == (Break.MUTE, True)


def test_one_request_in_n_goes_to_the_stalled_replica() -> None:
    fates = list(drawn(faults("stalled_replica=n:4,by:1s"), 12))
    assert [i for i, fate in enumerate(fates) if isinstance(fate, Misfortune) and fate.hold_ns] == [3, 7, 11]


def test_load_above_the_limit_is_shed_at_a_cost_and_told_to_come_back_at_once() -> None:
    slept: list[float] = []
    made = Faults([parse_fault("retry_storm=limit:2,cost:5ms")], seed=0, sleep=slept.append)
    made.draw(0, in_flight=2)
    with pytest.raises(RequestError) as caught:
        made.draw(1, in_flight=3)
    assert (caught.value.status, caught.value.retry_after_s, slept) == (503, 0, [0.005])
    assert made.present[0].n_hits == 1


def test_a_leak_grows_to_its_cap_and_is_given_back() -> None:
    made = faults("memory_leak=per:1KiB,cap:4KiB")
    list(drawn(made, 10))
    (leak,) = made.present
    assert leak.n_hits == 4
    assert not leak.leak()
    made.remove()
    assert leak.leak()


def test_waits_are_exponential_and_belong_to_their_name() -> None:
    (placed,) = faults("jitter=10ms").present
    waits = [placed.wait_ns(str(i)) for i in range(2000)]
    assert waits == [placed.wait_ns(str(i)) for i in range(2000)]
    assert 9e6 < sum(waits) / len(waits) < 11e6


def test_a_slow_start_lengthens_the_phases_that_are_published() -> None:
    startup = Startup()
    slept: list[float] = []
    linger(faults("slow_start=weights:2s,warm_up:1s"), startup, slept.append)
    assert slept == [2.0, 1.0]
    assert list(startup.phases.spans_ns) == ["weights", "warm_up"]
