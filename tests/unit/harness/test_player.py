"""The player keeps absolute deadlines, in virtual time."""

from __future__ import annotations

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
