"""Who takes part in a distributed run: each agent, what is known of it, who is refused and why. It sends nothing.

A refusal concerns one agent and stops no other; the run's manifest names everybody who was refused. Digests of our own
code and of a scenario's data tell whether two hosts would do the same.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plimsoll
from plimsoll.harness.sealing.accounts import last_words
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios.samples.payload import add_part
from plimsoll.slo.records.foreign import NAME, cleaned, one_line

# -- clocks ---------------------------------------------------------------------------------------------------------
#
# Each host's monotonic clock counts from a moment of its own. A ping that left at ``sent`` and was back at ``back`` on
# the master's clock, and was stamped ``got`` on the agent's, says that the offset (agent - master) lies in ``got - back
# .. got - sent``, however unequal the two ways were; the ping with the shortest round trip is the best (RFC 5905). The
# offset serves one purpose: to say t0 to each agent in its own time. Latencies never see it.

#: Pings of one measurement, one after the other: the best of 16 finds a quiet moment on a busy path.
PINGS = 16
#: Two quartz clocks apart: 20 to 50 parts in a million each at worst; hosts that keep time differ by less than 1.
DRIFT = 50e-6
#: A wall clock further off than this is refused: server logs could not be joined to the records by time, and
#: certificates might be valid on one host and not on another. It costs no measured number, but a host that does not
#: keep time needs its owner first.
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


def estimate(echoes: Sequence[Echo]) -> Offset:
    """The offset by the quickest echo. Raises ValueError for none, or one that was back before it left."""
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
    """By how much an agent's wall clock is certainly off: 0 if the round trip may explain it. Signed: ahead is
    positive.

    ``master_wall_ns``: the master's, as the pong was back.
    """
    ahead = wall_ns - (master_wall_ns - round_trip_ns // 2)
    sure = max(0, abs(ahead) - (round_trip_ns + 1) // 2)
    return sure if ahead > 0 else -sure


# -- agents --------------------------------------------------------------------------------------------------------

#: So many names stand in one sentence.
NAMED = 5
#: So many refusals stand in the manifest; whoever reaches the port can cause one.
MOST_REFUSED = 1000
#: The facts of a host are some hundred bytes of JSON.
LONGEST_FACTS = 1 << 16
_WANTED: Mapping[str, type | tuple[type, ...]] = {
    "name": str,
    "version": str,
    "code": str,
    "workers": (int, type(None)),
    "region": (str, type(None)),
    "host": dict,
}


@dataclass(slots=True)
class Agent:
    """One agent that said hello. ``key``: its name in the transport; ``region``: a label, of whoever started it;
    ``shards``: its part of the run.

    ``lost``: why it is gone, in words; ``over``: it has handed everything over; ``part``: of rows that stay with it,
    where they are, and how many; ``echoes``: of the measurement under
    way; ``before`` and ``after``: its clock when the run began and when it was over; ``heard_s``: when it last said
    something.
    """

    key: str
    name: str
    host: Mapping[str, Any]
    version: str
    workers: int | None
    region: str | None = None
    accepted: bool = False
    shards: Sequence[int] = ()
    ready: Mapping[str, Any] | None = None
    faults: list[str] = field(default_factory=list)
    fault_code: int = 0
    lost: str | None = None
    over: Mapping[str, Any] | None = None
    part: Mapping[str, Any] | None = None
    echoes: list[Echo] = field(default_factory=list)
    before: Offset | None = None
    after: Offset | None = None
    heard_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.name} ({self.host.get('hostname', 'unknown host')})"

    def clock(self) -> Offset | None:
        """What the echoes of the last measurement say; None: there were none."""
        return estimate(self.echoes) if self.echoes else None

    def clock_fault(self) -> str | None:
        """Why its queries were not on time, as far as its clock tells; of a lost agent nothing is known."""
        if self.before is None or self.lost or not self.shards:
            return None
        if self.after is None:
            return f"the clock of agent {self} could not be measured after the run, so its drift is unknown"
        seen = drift(self.before, self.after)
        if seen.ok:
            return None
        return (
            f"the clock of agent {self} moved by {seen.moved_ns / 1e6:+.3f} ms against the master's in "
            f"{seen.elapsed_ns / 1e9:.1f} s, limit {seen.allowed_ns / 1e6:.3f} ms: "
            "its queries were not sent when the plan says"
        )

    def hand_in(self, message: Mapping[str, Any], members: Sequence[Member], t0_ns: int, now_ns: int) -> None:
        """Tell each of its ``members`` what became of it. ``t0_ns`` and ``now_ns`` are the master's."""
        self.over = message
        for shard in self.shards:
            member, key = members[shard], str(shard)
            said = message["done"].get(key)
            member.done = last_words(said)
            if member.done is None and said is not None:
                member.death = f"of agent {self} ended with a message that can't be read"
                member.died_ns = now_ns
            elif member.done is None:
                member.death = f"of agent {self} {message['deaths'].get(key, 'did not end')}"
                member.died_ns = t0_ns + int(message["died_ns"].get(key, 0))

    def fact(self) -> dict[str, Any]:
        """What the manifest says of it. ``cpu_s``: processor time of its site from t0 on, without its workers."""
        fact: dict[str, Any] = {"name": self.name, "region": self.region, "host": dict(self.host)}
        fact |= {"plimsoll": self.version, "shards": list(self.shards), "lost": self.lost}
        if self.over is not None and math.isfinite(self.over["cpu_s"]):
            fact["cpu_s"] = self.over["cpu_s"]
        for when, offset in (("clock", self.before), ("clock_after", self.after)):
            if offset is not None:
                fact[when] = {"offset_ns": offset.offset_ns, "error_ns": offset.error_ns}
        return fact

    @property
    def settled(self) -> bool:
        """Nothing more is expected of it."""
        return self.over is not None or self.lost is not None


class Roster:
    """Everybody who said hello to a master of this version and code that wants ``room`` agents."""

    def __init__(self, version: str, code: str, room: int) -> None:
        self._version = version
        self._code = code
        self._room = room
        self._agents: dict[str, Agent] = {}
        self._accepted: list[Agent] = []
        self.begun = False
        self.refused: list[dict[str, str]] = []

    def __getitem__(self, key: str) -> Agent | None:
        return self._agents.get(key)

    @property
    def accepted(self) -> list[Agent]:
        """In the order of their names: the same agents have the same shards, however they came."""
        return self._accepted

    @property
    def closed(self) -> str | None:
        """Why nobody can join any more."""
        if not self.begun and len(self.accepted) < self._room:
            return None
        late = f"it came too late: the run has begun with the {self._room} that were expected"
        return f"{late}. Start it before the next run"

    def hello(self, key: str, message: Mapping[str, Any], now_s: float) -> Agent | str:
        """The new agent, or why it is refused."""
        name = one_line(message.get("name", key), NAME)
        if any(not isinstance(message.get(field), kind) for field, kind in _WANTED.items()):
            return self._refuse(
                name, "its hello can't be read: is it another version of Plimsoll? Install the master's there"
            )
        version, code = one_line(message["version"], NAME), one_line(message["code"], NAME)
        region = one_line(message["region"], NAME) if message.get("region") else None
        agent = Agent(key, name, _host(message["host"]), version, message["workers"], region, heard_s=now_s)
        if version != self._version:
            reason = f"it has Plimsoll {version}, the master {self._version}. Install the master's version there"
        elif code != self._code:
            reason = (
                f"it has Plimsoll {self._version} as the master does, but other code (digest {code[:12]}, the "
                f"master's {self._code[:12]}). Install the same build on both"
            )
        elif self.closed is not None:
            reason = self.closed
        elif any(other.name == name and not other.lost for other in self._agents.values()):
            reason = f"another agent is called {name}. Give this one a name of its own (--name)"
        elif message["workers"] is not None and not 1 <= message["workers"] <= 4096:
            reason = f"it offers {message['workers']} workers. Offer 1 or more"
        else:
            self._agents[key] = agent
            return agent
        return self._refuse(str(agent), reason)

    def admit(self, agent: Agent, error_ns: int) -> str | None:
        """Accept it (None), or say why its wall clock, off by ``error_ns`` at least, or earlier agents forbid that."""
        closed = self.closed
        if closed is None and abs(error_ns) <= WALL_LIMIT_NS:
            agent.accepted = True
            self._accepted = sorted([*self._accepted, agent], key=lambda one: one.name)
            return None
        del self._agents[agent.key]
        if closed is not None:
            return self._refuse(str(agent), closed)
        way = "ahead of" if error_ns > 0 else "behind"
        return self._refuse(
            str(agent),
            f"its wall clock is {abs(error_ns) / 1e9:.1f} s {way} the master's, limit {WALL_LIMIT_NS / 1e9:g} s: "
            "server logs could not be joined to the records by time. "
            "Set the clocks (chronyc makestep) and start it again",
        )

    def forget(self, agent: Agent) -> None:
        """It left before the run had need of it."""
        self._agents.pop(agent.key, None)
        self._accepted = [one for one in self._accepted if one is not agent]

    def _refuse(self, who: str, reason: str) -> str:
        """Note it once: an agent that came too late asks again until the run is over."""
        one = {"agent": who, "reason": reason}
        if len(self.refused) < MOST_REFUSED and one not in self.refused:
            self.refused.append(one)
        return reason

    def refusals(self) -> list[str]:
        """Everybody who was refused: a sentence for each reason, with the first ``NAMED`` names."""
        by_reason: dict[str, list[str]] = {}
        for one in self.refused:
            by_reason.setdefault(one["reason"], []).append(one["agent"])
        return [_refusal(who, reason) for reason, who in by_reason.items()]


def _host(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an agent says of its host, fit for the manifest; of anything else only its name, which it always has."""
    kept: dict[str, Any] = cleaned(facts)
    name = {"hostname": one_line(kept.get("hostname") or "unknown host", NAME)}
    try:
        short = len(json.dumps(kept, allow_nan=False)) <= LONGEST_FACTS
    except ValueError:  # a number that no manifest can hold
        short = False
    return kept | name if short else name


def _refusal(who: Sequence[str], reason: str) -> str:
    if len(who) == 1:
        return f"agent {who[0]} was refused: {reason}"
    return f"agents {_listed(who)} were refused, each because {reason}"


def deal(shards: int, offers: Sequence[int]) -> list[list[int]]:
    """Shards for each of several agents that offer so many workers: in order, as many as offered; of fewer, everybody's
    share.

    Where there are fewer shards than workers (a closed loop has no more than its slots), they are dealt one a round.
    """
    counts = [0] * len(offers)
    left = shards
    while left > 0:
        for place, offer in enumerate(offers):
            if left and counts[place] < offer:
                counts[place] += 1
                left -= 1
        if counts == list(offers):
            break
    firsts = [sum(counts[:place]) for place in range(len(counts))]
    return [list(range(first, first + count)) for first, count in zip(firsts, counts, strict=True)]


def many(n: int, what: str) -> str:
    """``1 agent``, ``2 agents``."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def named(agents: Sequence[Agent]) -> str:
    """They, in brackets, with a space before; nothing of none."""
    return f" ({_listed(agents)})" if agents else ""


def _listed(names: Sequence[object]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(map(str, names[:NAMED]))}{more}"


# -- whether two hosts would do the same -----------------------------------------------------------------------------

_ROOT = Path(plimsoll.__file__).parent
#: What decides which queries are sent, when, how, and what is recorded of them.
_PACKAGES = ("documents", "scenarios", "harness", "slo")
#: Not the engine: its sources are not in every installation, and its build differs by machine.
_SUFFIXES = (".py", ".yaml")


def code_digest(root: Path = _ROOT) -> str:
    """SHA-256 in hex over every source file of the packages that plan, send and record."""
    digest = hashlib.sha256(b"plimsoll.code/1")
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file():
                add_part(digest, path.relative_to(root).as_posix().encode())
                add_part(digest, path.read_bytes())
    return digest.hexdigest()
