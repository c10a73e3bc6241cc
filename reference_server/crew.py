"""The replicas' processes: each a bundled server of its own, started, watched and ended.

A replica ends with the fleet, however that ends. Flags are checked before anything starts, all of them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from plimsoll.reference_server.config import ServerConfig, configure, fleet_parser, parser, unread
from plimsoll.reference_server.routing.policies import Breaker, Replica, Route
from plimsoll.reference_server.routing.router import Router
from plimsoll.reference_server.values.durations import parse_duration_ns
from plimsoll.reference_server.values.errors import ConfigError

MAX_REPLICAS = 64
_READY_S = 180.0
_LOOK_S = 0.2
_OF_ONE = re.compile(r"(\d+):(.*)", re.DOTALL)
_OURS = ("--http-port", "--host", "--ready-fd", "--until-stdin-closes", "--replicas", "--served-by", "--help", "-h")


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """What the flags of a fleet say; ``flags`` are each replica's."""

    route: Route
    flags: tuple[tuple[str, ...], ...]
    shared: tuple[str, ...]
    breaker: tuple[int, int]
    """Failures in a row, and for how many nanoseconds it stays open."""
    host: str
    http_port: int
    grpc_port: int | None
    admin_port: int
    grace_ns: int


def read(arguments: Sequence[str]) -> FleetConfig:
    """The settings that the flags make. Raises ConfigError with a line for each that can't be honoured."""
    given, shared = fleet_parser().parse_known_args(list(arguments))
    wrong = dict.fromkeys(unread(given))
    if wrong:
        raise ConfigError("\n".join(wrong))
    shared += ["--grace", f"{given.grace}ns"]
    if not 0 <= given.replicas <= MAX_REPLICAS:
        wrong[f"--replicas {given.replicas}: choose 0 to {MAX_REPLICAS}"] = None
    n = min(MAX_REPLICAS, max(0, given.replicas))
    flags = [list(shared) for _ in range(n)]
    for flag, texts in (("--fault", given.fault or ()), ("--replica", given.replica or ())):
        for text in texts:
            one = _OF_ONE.fullmatch(text)
            if one is None and flag == "--fault":
                for all_of_them in flags:
                    all_of_them += ["--fault", text]
            elif one is None or not 1 <= int(one[1]) <= n:
                wrong[f"{flag} {text}: not N:FLAGS with a replica N from 1 to {n}, as in '2:--ttft 200ms'"] = None
            else:
                flags[int(one[1]) - 1] += ["--fault", one[2]] if flag == "--fault" else words(one[2])
    breaker, route = (0, 0), Route("round-robin")
    try:
        route = Route(given.route or "round-robin")
    except ConfigError as error:
        wrong[str(error)] = None
    try:
        failures, _, open_for = (given.breaker or "0").partition(":")
        breaker = (int(failures), parse_duration_ns(open_for or "2s"))
    except ValueError:
        wrong[f"--breaker {given.breaker}: not N or N:D. Write it like 5:2s"] = None
    for own in flags:
        try:
            check(own)
        except ConfigError as error:
            wrong |= dict.fromkeys(str(error).splitlines())  # what holds for all is said once
    if wrong:
        raise ConfigError("\n".join(wrong))
    ports = (given.http_port, given.grpc_port, given.admin_port or 0)
    return FleetConfig(route, tuple(map(tuple, flags)), tuple(shared), breaker, given.host, *ports, given.grace)


def words(text: str) -> list[str]:
    """Flags as a shell would read them; what it could not read is one word, which ``check`` refuses."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def check(flags: Sequence[str]) -> ServerConfig:
    """What a replica's flags say. Raises ConfigError for those that it can't honour."""
    for flag in flags:
        if (name := flag.partition("=")[0]) in _OURS:
            raise ConfigError(f"{name}: the fleet sets it for its replicas. Leave it out")
    return configure(parser().parse_args(flags))


class Crew:
    """Who joins and leaves."""

    def __init__(self, router: Router, config: FleetConfig) -> None:
        self.router = router
        self._config = config
        self._n = 0
        self._watchers: set[asyncio.Task[None]] = set()

    def _new(self, weight: float, version: str) -> Replica:
        self._n += 1
        weight = dict(enumerate(self._config.route.weights, 1)).get(self._n, weight)
        replica = Replica(f"r{self._n}", weight, version, Breaker(*self._config.breaker))
        self.router.replicas.append(replica)
        return replica

    async def join(self, flags: Sequence[str], weight: float = 1.0) -> Replica:
        """Start a server and take it in once it is ready. Raises ConfigError when it does not get so far."""
        replica, begun_s = self._new(weight, check(flags).version), time.monotonic()
        wanted = ["--http-port", "0", *(["--grpc-port", "0"] if self._config.grpc_port is not None else ())]
        process = replica.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "plimsoll.reference_server"),
            *(*flags, *wanted, "--served-by", replica.name, "--until-stdin-closes"),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            line = json.loads(await asyncio.wait_for(process.stdout.readline(), _READY_S))
        except (TimeoutError, ValueError):
            await self.leave(replica, 0)
            why = f"replica {replica.name} did not start; it says why on stderr"
            raise ConfigError(f"{why}. Correct its flags") from None
        replica.grpc_port = int(line["grpc"].rpartition(":")[2]) if line.get("grpc") else None
        replica.ready_s = time.monotonic() - begun_s
        self._up(replica, line["url"])
        return replica

    def adopt(self, url: str, weight: float = 1.0, version: str = "") -> Replica:
        """Take in a server that runs already. Raises ConfigError for an address that is none."""
        try:
            parts = urlsplit(url)
            if parts.scheme != "http" or not parts.hostname or parts.port == 0:
                raise ValueError
        except ValueError:
            raise ConfigError(f"url: {url!r} is no http://HOST:PORT. Write one") from None
        replica = self._new(weight, version)
        self._up(replica, url)
        return replica

    def _up(self, replica: Replica, url: str) -> None:
        parts = urlsplit(url)
        replica.host, replica.port, replica.state = parts.hostname or "", parts.port or 80, "up"
        task = asyncio.get_running_loop().create_task(self._watch(replica))
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)

    async def _watch(self, replica: Replica) -> None:
        """Notice its death at once, and, when it could not be reached, that it can be again."""
        while replica.state != "gone":
            dead = replica.process.wait() if replica.process is not None else asyncio.Event().wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(dead, _LOOK_S)
                replica.state = "gone"
            if replica.state == "down":
                with contextlib.suppress(OSError, TimeoutError):
                    _, writer = await asyncio.wait_for(asyncio.open_connection(replica.host, replica.port), _LOOK_S)
                    writer.close()
                    replica.state = "up"

    async def leave(self, replica: Replica, grace_ns: int) -> bool:
        """Give it no new requests, wait that long at most until it has none, end it and list it no more.

        True when it had none.
        """
        replica.state = "draining" if replica.state != "gone" else "gone"
        deadline_ns = time.monotonic_ns() + grace_ns
        while replica.n_in_flight and time.monotonic_ns() < deadline_ns:
            await asyncio.sleep(0.01)
        empty = replica.n_in_flight == 0
        for upstream in [*replica.idle]:
            upstream.transport.close()
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if replica.process is not None and replica.process.returncode is None:
                with contextlib.suppress(ProcessLookupError, TimeoutError):
                    replica.process.send_signal(number)
                    await asyncio.wait_for(replica.process.wait(), 3.0 + self._config.grace_ns / 1e9)
        replica.state = "gone"
        if replica in self.router.replicas:
            self.router.replicas.remove(replica)
        return empty

    async def stop(self) -> None:
        """End them all."""
        await asyncio.gather(*(self.leave(replica, self._config.grace_ns) for replica in [*self.router.replicas]))
        for task in self._watchers:
            task.cancel()
