"""The player keeps absolute deadlines, in virtual time. Time-outs of exchanges on the wire: each once, none early, and
a storm of them costs no more than a calm. What the live protocols share: kinds of messages, tolerant reading,
handshakes, text that is fed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._clients import models_path
from plimsoll.harness.protocols._speech.hearing import fault_in, kind_of, member, ns_of, text_at
from plimsoll.harness.protocols._speech.sending import feed
from plimsoll.harness.transport.live.flights import SWEEP_EACH_NS, Flights
from plimsoll.harness.transport.live.handshake import handshake_headers, request_target
from plimsoll.harness.transport.live.player import Player
from tests.virtual_time import VirtualClock

MS = 1_000_000


class Wire:
    """What was written, and when."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.said: list[tuple[int, bytes]] = []
        self.untaken = 0

    def write(self, data: bytes) -> int:
        now = self._clock.now_ns()
        self.said.append((now, data))
        return now

    def unsent(self) -> int:
        return self.untaken


def played(
    n: int, frame_ms: int = 20, needed: int | None = None, closing_ms: int | None = None
) -> tuple[VirtualClock, Wire, Player]:
    clock = VirtualClock()
    wire = Wire(clock)
    dues = [(i + 1) * frame_ms * MS for i in range(n)]
    end = closing_ms * MS if closing_ms is not None else n * frame_ms * MS
    frames = [bytes([i]) for i in range(n)]
    player = Player(clock, frames, dues, n if needed is None else needed, b"end", end, wire.write, wire.unsent)
    return clock, wire, player


def test_every_frame_leaves_when_it_is_due_and_the_closing_at_the_true_end() -> None:
    clock, wire, player = played(50, closing_ms=1010)
    player.start(clock.now_ns() + 5 * MS)
    clock.run()
    start = wire.said[0][0] - 20 * MS
    assert [t_ns - start for t_ns, _ in wire.said] == [*((i + 1) * 20 * MS for i in range(50)), 1010 * MS]
    assert wire.said[-1][1] == b"end"
    assert player.lag_ns.tolist() == [0] * 50
    assert player.ended_ns == start + 1010 * MS


def test_frames_that_became_late_go_out_at_once_and_the_rest_keep_their_deadlines() -> None:
    clock, wire, player = played(6)
    start = clock.now_ns()
    player.start(start - 70 * MS)  # three frames are late already
    clock.run()
    assert player.lag_ns.tolist() == [50 * MS, 30 * MS, 10 * MS, 0, 0, 0]
    assert [t_ns - start for t_ns, _ in wire.said] == [0, 0, 0, 10 * MS, 30 * MS, 50 * MS, 50 * MS]


def test_late_frames_keep_the_least_distance_until_they_have_caught_up() -> None:
    clock = VirtualClock()
    wire = Wire(clock)
    dues = [(i + 1) * 20 * MS for i in range(8)]
    player = Player(clock, [b"f"] * 8, dues, 8, b"end", 160 * MS, wire.write, wire.unsent, [0] + [10 * MS] * 7)
    start = clock.now_ns()
    player.start(start - 70 * MS)  # three frames are late already, and twice the speed is the most that is allowed
    clock.run()
    assert [(t_ns - start) // MS for t_ns, _ in wire.said] == [0, 10, 20, 30, 40, 50, 70, 90, 90]
    assert [lag // MS for lag in player.lag_ns] == [50, 40, 30, 20, 10, 0, 0, 0]


def test_a_cut_ends_the_unneeded_frames_at_once_but_never_the_needed_ones() -> None:
    clock, wire, player = played(10, needed=4)
    start = clock.now_ns()
    player.start(start)
    clock.wake_at(start + 50 * MS, player.cut)
    clock.run()
    assert [data for _, data in wire.said] == [b"\0", b"\1", b"\2", b"\3", b"end"]
    assert player.ended_ns == start + 80 * MS

    clock, wire, player = played(10, needed=4)
    start = clock.now_ns()
    player.start(start)
    clock.wake_at(start + 130 * MS, player.cut)
    clock.run()
    assert [data for _, data in wire.said] == [bytes([i]) for i in range(6)] + [b"end"]
    assert player.ended_ns == start + 130 * MS


def test_the_backlog_of_one_session_lets_the_others_have_their_turn() -> None:
    clock = VirtualClock()
    cost = 10_000  # ns a frame

    class Slow(Wire):
        def write(self, data: bytes) -> int:
            clock.spend(cost)
            return super().write(data)

    wire, other = Slow(clock), Slow(clock)
    start = clock.now_ns()
    burst = Player(clock, [b"x"] * 20_000, [0] * 20_000, 20_000, b"end", 0, wire.write, wire.unsent)
    live = Player(clock, [b"f"] * 5, [20 * MS * (i + 1) for i in range(5)], 5, b"", 100 * MS, other.write, other.unsent)
    burst.start(start)
    live.start(start)
    clock.run()
    assert len(wire.said) == 20_001
    assert burst.finished
    assert live.finished
    assert max(live.lag_ns) < MS


def test_a_stopped_player_says_nothing_more() -> None:
    clock, wire, player = played(10)
    start = clock.now_ns()
    player.start(start)
    clock.wake_at(start + 50 * MS, player.stop)
    clock.run()
    assert len(wire.said) == 2
    assert not player.finished


def test_what_the_peer_does_not_take_is_looked_at_every_second_and_at_the_end() -> None:
    clock, wire, player = played(80)
    start = clock.now_ns()
    player.start(start)
    wire.untaken = 10
    clock.wake_at(start + 1100 * MS, lambda: setattr(wire, "untaken", 7))
    clock.run()
    assert player.most_unsent == 10


def test_a_script_without_frames_says_its_closing() -> None:
    clock, wire, player = played(0)
    player.start(clock.now_ns())
    clock.run()
    assert [data for _, data in wire.said] == [b"end"]
    assert player.finished


# -- flights --------------------------------------------------------------------------------------------------------


def fly(n: int, apart_ns: int, timeout_ns: int) -> tuple[list[int], int]:
    """(how late each of ``n`` exchanges timed out, sweeps) where nothing is ever answered."""
    clock = VirtualClock()
    late: list[int] = []
    sweeps = 0

    def give_up(exchange: Exchange, status: int, error: str) -> None:
        late.append(clock.now_ns() - exchange.ready_ns - timeout_ns)
        flights.land(exchange)

    flights = Flights(clock, give_up)

    def send(query: int) -> None:
        exchange = Exchange(query, 0, 0, clock.now_ns(), None)
        exchange.ready_ns, exchange.on_done = clock.now_ns(), lambda _: None
        flights.add(exchange, timeout_ns)

    start = clock.now_ns()
    for query in range(n):
        clock.wake_at(start + query * apart_ns, lambda query=query: send(query))  # type: ignore[misc]
    seen = -1
    while clock._heap:
        clock.run(clock._heap[0][0])
        sweeps += len(late) > max(seen, 0)
        seen = len(late)
    assert len(flights) == 0
    return late, sweeps


def test_one_that_is_not_answered_times_out_on_time() -> None:
    assert fly(1, 0, 50 * MS) == ([0], 1)


def test_a_storm_of_time_outs_is_swept_together_and_none_is_early() -> None:
    n = 2000
    late, sweeps = fly(n, 10_000, 20 * MS)  # 100,000 a second: 2,000 under way
    assert len(late) == n
    assert all(0 <= each <= n * SWEEP_EACH_NS for each in late)
    assert sweeps < n / 20


# -- messages -------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_characters='{}"\\', exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "a", "b"]), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.text(st.characters(min_codepoint=32, exclude_characters='"\\', exclude_categories=["Cs"]), max_size=8),
    st.dictionaries(st.sampled_from("abc"), JSON),
    st.dictionaries(st.sampled_from("def"), JSON),
    st.sampled_from([None, 1]),
)
def test_the_kind_of_an_object_is_its_own_type_wherever_it_stands(
    kind: str, before: dict[str, Any], after: dict[str, Any], indent: int | None
) -> None:
    message = json.dumps({**before, "type": kind, **after}, indent=indent, ensure_ascii=False).encode()
    assert kind_of(message) == kind.encode()


@pytest.mark.parametrize("message", [b"", b"{", b'["type"]', b'{"a":{"type":"x"}}', b'{"type":1}', b"\xff" * 40])
def test_what_has_no_type_of_its_own_has_no_kind(message: bytes) -> None:
    assert kind_of(message) == b""


def test_a_path_that_leads_nowhere_reads_as_nothing() -> None:
    value = {"a": [{"b": "x"}], "c": 3}
    assert member(value, "a", 0, "b") == text_at(value, "a", -1, "b") == "x"
    assert member(value, "a", 5) is member(value, "c", "d") is member(value, 0) is None
    assert text_at(value, "c") == ""


@pytest.mark.parametrize(
    ("value", "ns"),
    [(1.5, 1_500_000_000), (0, 0), (-1, -1), (True, -1), ("1", -1), (None, -1), (1e300, -1), (10**400, -1)],
)
def test_a_position_is_a_number_of_seconds_that_a_recording_may_have(value: Any, ns: int) -> None:
    assert ns_of(value) == ns


@pytest.mark.parametrize(
    ("said", "message", "overloaded"),
    [
        ({"message": "no", "code": 7}, "no (7)", False),
        ({"message": "Rate limit reached"}, "Rate limit reached", True),
        ({"message": "x", "code": "insufficient_quota"}, "x (insufficient_quota)", True),
        ({"message": "x", "code": 429}, "x (429)", True),
        ({"message": "item a4291 is bad"}, "item a4291 is bad", False),
        ({"type": "Error", "n": 1, "deep": [[]]}, "type: Error, n: 1", False),
    ],
)
def test_an_error_is_told_in_the_servers_words(said: dict[str, Any], message: str, overloaded: bool) -> None:
    fault = fault_in(said, ("message",), ("code",))
    assert (fault.message, fault.overloaded) == (message, overloaded)


@pytest.mark.parametrize(
    ("url", "path", "target"),
    [
        ("ws://h", None, "/v1/listen?a=1&b=true&c=x+y&c=z"),
        ("wss://h/base/", None, "/base/v1/listen?a=1&b=true&c=x+y&c=z"),
        ("http://h/v1", None, "/v1/listen?a=1&b=true&c=x+y&c=z"),
        ("https://h/v1/listen?k=1", None, "/v1/listen?k=1&a=1&b=true&c=x+y&c=z"),
        ("h:80", "/other?k=2", "/other?k=2&a=1&b=true&c=x+y&c=z"),
    ],
)
def test_a_handshakes_path_is_below_the_urls_own_and_keeps_its_query(url: str, path: str | None, target: str) -> None:
    query: dict[str, Any] = {"a": 1, "b": True, "c": ["x y", "z"], "none": None}
    assert request_target(url, "/v1/listen", path, query) == target


def test_the_list_of_models_is_beside_a_websocket() -> None:
    assert models_path("wss://h/base/v1/realtime?k=1") == "/base/v1/models?k=1"


def test_a_key_takes_the_form_that_the_vendor_wants() -> None:
    given = (("authorization", "bearer KEY"), ("x-a", "1"))
    assert handshake_headers(given, "token")[0] == ("authorization", "Token KEY")
    assert handshake_headers(given, "bare")[0] == ("authorization", "KEY")
    assert handshake_headers(given, "bearer") == given
    assert handshake_headers((("Authorization", "Token T"),), "bare") == (("Authorization", "Token T"),)
    assert handshake_headers(given, "bare", {"X-A": "2", "X-B": "3"})[1:] == (("x-a", "1"), ("X-B", "3"))


@pytest.mark.parametrize("name", ["Sec-WebSocket-Key", "Host", "Upgrade"])
def test_headers_of_the_transport_are_refused_without_their_values(name: str) -> None:
    with pytest.raises(HarnessFault, match="written by the transport") as refused:
        handshake_headers(((name, "my-secret"),), "bearer")
    assert "my-secret" not in str(refused.value)


@given(st.text(max_size=60).filter(str.strip), st.none() | st.floats(0.1, 100), st.integers(1, 20))
def test_fed_pieces_together_are_the_text_in_order_and_none_is_too_long(
    text: str, words_per_s: float | None, most: int
) -> None:
    fed = feed(text, words_per_s, most)
    assert "".join(piece for _, piece in fed) == text
    assert all(0 < len(piece) <= most for _, piece in fed)
    dues = [due for due, _ in fed]
    assert dues == sorted(dues)
    assert dues[0] == 0
    assert (words_per_s is None) <= (not any(dues))
