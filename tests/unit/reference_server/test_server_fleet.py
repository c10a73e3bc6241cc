"""What a fleet's router decides: where a message ends, who takes a request, who is left out. No network."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.crew import read
from plimsoll.reference_server.fleet import merged
from plimsoll.reference_server.routing.framing import BadMessage, Body, Head, body_of, body_of_answer
from plimsoll.reference_server.routing.policies import Breaker, Replica, Route, prompt_key
from plimsoll.reference_server.values.errors import ConfigError

MS = 1_000_000


def chunked(pieces: list[bytes], trailer: bytes = b"") -> bytes:
    return b"".join(b"%x;x=1\r\n%s\r\n" % (len(p), p) for p in pieces if p) + b"0\r\n" + trailer + b"\r\n"


@given(
    st.lists(st.binary(max_size=40), max_size=5),
    st.sampled_from([b"", b"x-version: 2\r\n"]),
    st.binary(max_size=20),
    st.randoms(use_true_random=False),
)
def test_a_chunked_body_ends_at_the_same_byte_however_it_is_cut(
    pieces: list[bytes], trailer: bytes, after: bytes, cuts: random.Random
) -> None:
    whole = chunked(pieces, trailer)
    data = whole + after
    body, taken = Body(0, chunked=True), 0
    while taken < len(data) and not body.over:
        step = data[taken : taken + cuts.randint(1, 12)]
        taken += body.take(step)
    assert body.over
    assert taken == len(whole)


@given(st.integers(0, 60), st.integers(1, 7))
def test_a_counted_body_ends_with_its_last_byte(n: int, step: int) -> None:
    body, data, taken = Body(n), b"x" * 80, 0
    while not body.over:
        taken += body.take(data[taken : taken + step])
    assert taken == n


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        (b"Content-Length: 3\r\nContent-Length: 3\r\n", "there twice"),
        (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "not chunked alone"),
        (b"Transfer-Encoding: gzip, chunked\r\n", "not chunked alone"),
        (b"Content-Length: +3\r\n", "no number"),
        (b" folded\r\n", "not NAME: VALUE"),
        (b"Content-Length : 3\r\n", "not NAME: VALUE"),
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(fields: bytes, part: str) -> None:
    with pytest.raises(BadMessage, match=part):
        body_of(Head(b"POST / HTTP/1.1\r\n" + fields + b"\r\n"), 0)


def test_a_chunk_without_a_size_is_refused() -> None:
    with pytest.raises(BadMessage, match="no size"):
        Body(0, chunked=True).take(b"-1\r\n")


def test_an_answer_without_a_length_ends_with_its_connection_and_one_to_head_at_once() -> None:
    head = Head(b"HTTP/1.1 200 OK\r\n\r\n")
    assert body_of_answer(head, b"GET").endless
    assert body_of_answer(head, b"HEAD").over
    assert body_of_answer(Head(b"HTTP/1.1 204 No Content\r\n\r\n"), b"POST").over


@pytest.mark.parametrize(
    ("raw", "closes"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n", True),
    ],
)
def test_a_head_says_whether_its_connection_stays(raw: bytes, closes: bool) -> None:
    assert Head(raw).closes is closes


def members(*in_flight: int, weights: tuple[float, ...] = ()) -> list[Replica]:
    made = [Replica(f"r{i + 1}", n_in_flight=n) for i, n in enumerate(in_flight)]
    for member, weight in zip(made, weights, strict=False):
        member.weight = weight
    return made


def names(route: Route, those: list[Replica], n: int, key: bytes = b"") -> list[str]:
    return [route.choose(those, key).name for _ in range(n)]


def test_round_robin_takes_turns() -> None:
    assert names(Route("round-robin"), members(0, 9, 0), 6) == ["r1", "r2", "r3"] * 2


def test_least_requests_goes_to_the_emptiest_and_equals_take_turns() -> None:
    route = Route("least-requests")
    assert set(names(route, members(3, 1, 2), 5)) == {"r2"}
    assert Counter(names(route, members(0, 5, 0), 100)) == {"r1": 50, "r3": 50}


def test_power_of_two_never_takes_the_fullest_and_spreads_by_what_pairs_give() -> None:
    chosen = Counter(names(Route("power-of-two", seed=3), members(0, 1, 2), 3000))
    assert "r3" not in chosen
    assert chosen["r1"] / 3000 == pytest.approx(2 / 3, abs=0.03)


def test_weights_are_kept_in_every_full_turn() -> None:
    route = Route("weighted=3,1,0")
    those = members(0, 0, 0, weights=route.weights)
    assert Counter(names(route, those, 8)) == {"r1": 6, "r2": 2}


def test_a_key_stays_with_its_replica_and_only_keys_of_the_one_that_left_move() -> None:
    route = Route("sticky")
    keys = [f"session-{i}".encode() for i in range(3000)]
    four = members(0, 0, 0, 0)
    before = {key: route.choose(four, key).name for key in keys}
    after = {key: route.choose(four[:3], key).name for key in keys}
    assert {key for key in keys if before[key] != after[key]} == {key for key in keys if before[key] == "r4"}
    assert all(abs(n / 3000 - 0.25) < 0.03 for n in Counter(before.values()).values())


def test_prompts_that_begin_alike_have_one_key_whatever_stands_before_them() -> None:
    system = "You are helpful. " * 20
    one, two = (f'{{"model": "{m}", "messages": [{{"content": "{system} {m}"}}]}}'.encode() for m in ("a", "bcd"))
    assert prompt_key(one) == prompt_key(two) != prompt_key(one.replace(b"You", b"We"))


@pytest.mark.parametrize("text", ["fastest", "weighted=a", "weighted=0,0", "random=3", "weighted=-1,2"])
def test_a_route_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--route {text}"):
        Route(text)


def test_a_breaker_opens_after_failures_in_a_row_lets_one_through_and_closes_on_its_success() -> None:
    breaker = Breaker(3, 1000 * MS)
    for at in (1, 2):
        breaker.ended(500, at)
    breaker.ended(200, 3)
    for at in (4, 5, 6):
        assert breaker.lets_through(at)
        breaker.ended(500, at)
    assert (breaker.state(7), breaker.lets_through(7)) == ("open", False)
    half = 6 + 1000 * MS
    assert (breaker.state(half), breaker.lets_through(half)) == ("half_open", True)
    breaker.sent(half)
    assert not breaker.lets_through(half + 1)
    breaker.ended(500, half + 2)  # the probe failed: open again, as long
    assert breaker.state(half + 3) == "open"
    again = half + 2 + 1000 * MS
    breaker.sent(again)
    breaker.ended(200, again + 4)
    assert (breaker.state(again + 5), breaker.n_opened, breaker.n_probes) == ("closed", 1, 2)
    assert breaker.total_open_ns == again + 4 - 6


def test_a_fault_with_a_number_strikes_that_replica_and_others_all() -> None:
    faults = ["--fault", "1:stall=2s", "--fault", "slow_headers=5ms"]
    made = read(["--replicas", "2", "--itl", "1ms", *faults, "--replica", "2:--version 2 --ttft '80ms'"])
    shared = ("--itl", "1ms", "--grace", "2000000000ns", "--fault")
    assert made.flags[0] == (*shared, "stall=2s", "--fault", "slow_headers=5ms")
    assert made.flags[1] == (*shared, "slow_headers=5ms", "--version", "2", "--ttft", "80ms")


def test_everything_wrong_with_a_fleet_is_said_at_once() -> None:
    flags = ["--fault", "4:stall=1s", "--replica", "x", "--ttft", "5", "--route", "best", "--breaker", "many"]
    with pytest.raises(ConfigError) as refused:
        read(["--replicas", "3", *flags])
    lines = str(refused.value).splitlines()
    assert len(lines) == 5, lines
    for part in ("--fault 4:stall=1s: not", "--replica x: not N:FLAGS", "--ttft", "--route best", "--breaker many"):
        assert any(part in line for line in lines), part


def test_a_replica_may_not_set_what_the_fleet_sets() -> None:
    with pytest.raises(ConfigError, match="--http-port: the fleet sets it"):
        read(["--replicas", "1", "--replica", "1:--http-port=80"])


def test_pages_of_metrics_become_one_with_each_family_together() -> None:
    page = '# HELP a About a\n# TYPE a counter\na 1.0\n# HELP b About b\n# TYPE b gauge\nb{model="{}"} 2.0\n'
    merged_page = "".join(merged({name: page.replace("{}", model) for name, model in (("r1", "x"), ("r2", "y"))}))
    assert merged_page == (
        '# HELP a About a\n# TYPE a counter\na{replica="r1"} 1.0\na{replica="r2"} 1.0\n'
        '# HELP b About b\n# TYPE b gauge\nb{replica="r1",model="x"} 2.0\nb{replica="r2",model="y"} 2.0\n'
    )
