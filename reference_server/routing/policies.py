"""Which replica takes a request, and which is left alone for a while after failures. No clock: instants are arguments.

A policy sees only what a router knows: how many requests each replica has under way, its weight, and the request's key.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from plimsoll.reference_server.values.errors import ConfigError

_PREFIX = 256
"""Bytes of a prompt that ``prefix-hash`` goes by."""
_PROMPT = (b'"content"', b'"prompt"', b'"input"', b'"text_input"')


@dataclass(slots=True)
class Breaker:
    """Keeps a replica out after ``failures`` in a row (0: never), then lets one through to see."""

    failures: int = 0
    open_ns: int = 0
    n_in_a_row: int = 0
    n_opened: int = 0
    n_probes: int = 0
    total_open_ns: int = 0
    """How long it was not closed, the present spell left out."""
    since_ns: int = -1
    """When it opened last; -1 while closed."""
    _until_ns: int = 0
    _probing: bool = False

    def state(self, now_ns: int) -> str:
        """closed (all go through), open (none) or half_open (one at a time)."""
        if self.since_ns < 0:
            return "closed"
        return "open" if now_ns < self._until_ns else "half_open"

    def lets_through(self, now_ns: int) -> bool:
        return self.since_ns < 0 or (now_ns >= self._until_ns and not self._probing)

    def sent(self, now_ns: int) -> None:
        """A request goes there now."""
        if self.state(now_ns) == "half_open":
            self._probing = True
            self.n_probes += 1

    def ended(self, status: int, now_ns: int) -> None:
        """It came to a status; 0 for an answer that broke off, -1 when its client left, which says nothing."""
        good = 0 < status < 500
        if status >= 0:
            self.n_in_a_row = 0 if good else self.n_in_a_row + 1
        if self._probing and good:
            self.total_open_ns += now_ns - self.since_ns
            self.since_ns = -1
        elif self.since_ns < 0 and 0 < self.failures <= self.n_in_a_row:
            self.since_ns, self._until_ns = now_ns, now_ns + self.open_ns
            self.n_opened += 1
        elif self._probing and status >= 0:
            self._until_ns = now_ns + self.open_ns
        self._probing = False


@dataclass(slots=True, eq=False)
class Replica:
    """One server behind the router. ``up`` alone takes new requests."""

    name: str
    weight: float = 1.0
    version: str = "1"
    breaker: Breaker = field(default_factory=Breaker)
    host: str = "127.0.0.1"
    port: int = 0
    grpc_port: int | None = None
    state: str = "starting"
    """starting, up, draining, down (can't be reached) or gone."""
    n_in_flight: int = 0
    n_channels: int = 0
    """gRPC connections, each with whatever calls it carries."""
    answers: dict[int, int] = field(default_factory=dict)
    """By status; 0 is an answer that broke off."""
    idle: list[Any] = field(default_factory=list)
    """Connections to it that nobody uses."""
    process: Any = None
    """None: a server that is not ours to end."""
    ready_s: float = -1.0
    credit: float = 0.0
    """Of ``weighted``: what it is owed."""
    turn: int = 0
    """Of ``least-requests``: when it was chosen last."""


class Route:
    """One policy and its state. Raises ConfigError for text that names none."""

    def __init__(self, text: str, seed: int = 0) -> None:
        name, _, value = text.partition("=")
        self.text = text
        self.name = {"weights": "weighted"}.get(name, name)
        policies = {
            "round-robin": self._round_robin,
            "random": self._random,
            "least-requests": self._least_requests,
            "power-of-two": self._power_of_two,
            "weighted": self._weighted,
            "sticky": _by_key,
            "prefix-hash": _by_key,
        }
        if self.name not in policies or (value and self.name not in ("weighted", "sticky")):
            raise ConfigError(f"--route {text}: unknown. Choose from {', '.join(policies)}")
        self.weights: tuple[float, ...] = ()
        try:
            if value and self.name == "weighted":
                self.weights = tuple(float(part) for part in value.split(","))
            if self.weights and not (min(self.weights) >= 0 and 0 < sum(self.weights) < 1e9):
                raise ValueError
        except ValueError:
            raise ConfigError(f"--route {text}: weights are numbers from 0 up. Write --route weighted=3,1,1") from None
        self.header = (value or "x-session-id").lower().encode()
        """Of ``sticky``: the header whose value decides; without it the client's connection does."""
        self._pick = policies[self.name]
        self._draws = random.Random(f"{seed}:route")
        self._turn = 0

    def choose(self, able: Sequence[Replica], key: bytes) -> Replica:
        """One of them; there is at least one."""
        self._turn += 1
        return able[0] if len(able) == 1 else self._pick(able, key)

    def _round_robin(self, able: Sequence[Replica], _key: bytes) -> Replica:
        return able[(self._turn - 1) % len(able)]

    def _random(self, able: Sequence[Replica], _key: bytes) -> Replica:
        return self._draws.choice(able)

    def _least_requests(self, able: Sequence[Replica], _key: bytes) -> Replica:
        best = min(able, key=lambda one: (one.n_in_flight, one.turn))
        best.turn = self._turn  # equals take turns
        return best

    def _power_of_two(self, able: Sequence[Replica], _key: bytes) -> Replica:
        return min(self._draws.sample(able, 2), key=lambda one: one.n_in_flight)

    def _weighted(self, able: Sequence[Replica], key: bytes) -> Replica:
        """Smooth turns: each is owed its weight, and who is owed most goes and pays for all."""
        total = sum(one.weight for one in able)
        if total == 0:
            return self._round_robin(able, key)
        for one in able:
            one.credit += one.weight
        best = max(able, key=lambda one: one.credit)
        best.credit -= total
        return best


def _by_key(able: Sequence[Replica], key: bytes) -> Replica:
    """The highest draw of key and name: whoever comes or goes moves only its own keys."""
    return max(able, key=lambda one: blake2b(one.name.encode() + b"\0" + key, digest_size=8).digest())


def prompt_key(body: bytes) -> bytes:
    """The beginning of the first prompt in a JSON body, as far as it has come; the body's where there is none."""
    at, n = min(((at, len(word)) for word in _PROMPT if (at := body.find(word)) >= 0), default=(0, 0))
    return body[at + n : at + n + _PREFIX]
