"""How far an agent's clock is from the master's, how well that is known, and whether it stayed so. Pure: stamps are handed in.

Every host's monotonic clock counts from a moment of its own. A ping that left at ``sent`` and was back at ``back`` on the master's clock and
was stamped ``got`` on the agent's tells that the offset (agent - master) lies in ``got - back .. got - sent``, however unequal the two ways were. Its middle is
off by at most half the round trip: the ping with the least round trip is the best one, and half of that is the bound that is
recorded (RFC 5905's clock filter, with the agent's turn-around inside the round trip, where it only widens the bound).

What the offset is for is one thing: to say t0 to each agent in its own time. Latencies are differences on one host's clock and never see it. An
error of the offset shifts one agent's shards against the others', which is why it is bounded, shown, and limited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Pings of one measurement, one after the other: the best of 16 finds a quiet moment on a busy path.
PINGS = 16
#: Two quartz clocks apart: 20 to 50 parts in a million each at worst; hosts that keep time differ by less than 1.
DRIFT = 50e-6
#: A wall clock further off than this is refused: server logs could not be joined to the records by time, and certificates
#: might be valid on one host and not on another. It costs no measured number, but a host that does not keep time needs its owner first.
WALL_LIMIT_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Echo:
    """One ping: ``sent_ns`` and ``back_ns`` on the master's monotonic clock, ``got_ns`` on the agent's."""

    sent_ns: int
    got_ns: int
    back_ns: int

    @property
    def round_trip_ns(self) -> int:
        return self.back_ns - self.sent_ns


@dataclass(frozen=True, slots=True)
class Offset:
    """``offset_ns`` (agent - master) is true to ``error_ns``, at ``at_ns`` of the master's clock."""

    offset_ns: int
    error_ns: int
    at_ns: int

    @property
    def round_trip_ns(self) -> int:
        return 2 * self.error_ns


@dataclass(frozen=True, slots=True)
class Drift:
    """How far an offset moved over ``elapsed_ns``, and how far it may by its errors and the drift of good clocks."""

    moved_ns: int
    allowed_ns: int
    elapsed_ns: int

    @property
    def ok(self) -> bool:
        return abs(self.moved_ns) <= self.allowed_ns


def pong(ping: Mapping[str, Any], monotonic_ns: int, wall_ns: int) -> dict[str, Any]:
    """The answer to a ``ping``: the clocks must have been read as it came."""
    return {
        "type": "pong",
        "number": ping["number"],
        "sent_ns": ping["sent_ns"],
        "got_ns": monotonic_ns,
        "wall_ns": wall_ns,
    }


def estimate(echoes: Sequence[Echo]) -> Offset:
    """The offset by the echo with the least round trip. Raises ValueError for none, or one that was back before it left."""
    if not echoes or min(echo.round_trip_ns for echo in echoes) < 0:
        raise ValueError("no echo to tell an offset by, or one from before its ping")
    best = min(echoes, key=lambda echo: echo.round_trip_ns)
    middle = (best.sent_ns + best.back_ns) // 2
    return Offset(best.got_ns - middle, (best.round_trip_ns + 1) // 2, middle)


def drift(before: Offset, after: Offset) -> Drift:
    """What the two measurements say of the time between them."""
    elapsed = max(0, after.at_ns - before.at_ns)
    allowed = before.error_ns + after.error_ns + int(DRIFT * elapsed)
    return Drift(after.offset_ns - before.offset_ns, allowed, elapsed)


def wall_error(wall_ns: int, master_wall_ns: int, round_trip_ns: int) -> int:
    """By how much an agent's wall clock is certainly off: 0 if the round trip may explain it. Signed: ahead is positive.

    ``master_wall_ns``: the master's, as the pong was back.
    """
    ahead = wall_ns - (master_wall_ns - round_trip_ns // 2)
    sure = max(0, abs(ahead) - (round_trip_ns + 1) // 2)
    return sure if ahead > 0 else -sure
