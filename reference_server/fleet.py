"""``--replicas N``: a fleet behind one port, and what it says of itself and lets a script do, from its own host only.

Every change is one call that answers when it is done, so that a rolling restart is a few lines of shell.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import resource
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

import aiohttp
from aiohttp import web

from plimsoll.reference_server.crew import Crew, FleetConfig, words
from plimsoll.reference_server.dialects.admin import check_caller, read_fields
from plimsoll.reference_server.routing.policies import Replica, Route
from plimsoll.reference_server.routing.router import Front, Router
from plimsoll.reference_server.transports.http_calls import refusals
from plimsoll.reference_server.values.durations import parse_duration_ns
from plimsoll.reference_server.values.errors import ConfigError, RequestError, invalid

_PATIENCE_S = 2.0
"""With a replica that is asked about itself."""
_STATES = ("starting", "up", "draining", "down", "gone")
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (.*)")
_OF_ONE = re.compile(r"(\d+):(.+)")
_ROW = ("request_id", "replica", "status", "received_ns", "sent_ns", "answered_ns", "written_ns", "done_ns")


async def serve(config: FleetConfig, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` gets the ready line. Raises ConfigError, and OSError for a port."""
    loop = asyncio.get_running_loop()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a stream is two descriptors
    router = Router(config.route)
    crew = Crew(router, config)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    listeners: list[asyncio.Server] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_PATIENCE_S)) as session:
        admin = Admin(crew, config, session)
        try:
            router.own.port = await admin.start(config.admin_port)
            for port in filter(lambda port: port is not None, (config.http_port, config.grpc_port)):
                made = await loop.create_server(lambda: Front(router), config.host, port, backlog=4096)
                listeners.append(made)
            starting = asyncio.gather(*map(crew.join, config.flags))
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                gc.freeze()
                host = f"[{config.host}]" if ":" in config.host else config.host
                ports = [listener.sockets[0].getsockname()[1] for listener in listeners]
                line = {"ready": True, "url": f"http://{host}:{ports[0]}", "models": await admin.models()}
                line |= {"device": "fleet", "grpc": f"{host}:{ports[1]}"} if ports[1:] else {"device": "fleet"}
                announce(json.dumps(line | {"admin": f"http://127.0.0.1:{router.own.port}", "startup_s": {}}))
            starting.cancel()
            await stopped
        finally:
            for listener in listeners:
                listener.close()
            await crew.stop()
            for client in [*router.fronts]:
                client.transport.close()
            await admin.runner.cleanup()


class Admin:
    """The routes, on a port of their own; the router passes them on from its own port."""

    def __init__(self, crew: Crew, config: FleetConfig, session: aiohttp.ClientSession) -> None:
        self._crew = crew
        self._router = crew.router
        self._flags = config.shared
        self._session = session
        app = web.Application(middlewares=[refusals])
        for method, path, handler in (
            ("GET", "/fleet", self._show),
            ("GET", "/fleet/truth", self._log),
            ("PUT", "/fleet/route", self._route),
            ("POST", "/fleet/replicas", self._join),
            ("POST", "/fleet/replicas/{name}/{verb:drain|resume|kill}", self._do),
            ("DELETE", "/fleet/replicas/{name}", self._leave),
            ("GET", "/health", self._health),
            ("GET", "/metrics", self._metrics),
            ("GET", "/truth", self._truth),
            ("POST", "/admin/faults", self._fault),
            ("GET", "/admin/faults", self._faults),
            ("DELETE", "/admin/faults", self._faults),
        ):
            app.router.add_route(method, path, handler)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def start(self, port: int) -> int:
        """Listen on this host; returns the port. Raises ConfigError."""
        await self.runner.setup()
        try:
            await web.TCPSite(self.runner, "127.0.0.1", port).start()
        except OSError as error:
            why = f"can't listen on 127.0.0.1:{port}: {error.strerror}"
            raise ConfigError(f"{why}. Choose another --admin-port") from None
        return int(self.runner.addresses[0][1])

    async def _show(self, _request: web.Request) -> web.Response:
        replicas = [described(one) for one in self._router.replicas]
        passed = {"sent_elsewhere": self._router.n_elsewhere, "nobody": self._router.n_nobody}
        return web.json_response({"route": self._router.route.text, "replicas": replicas, **passed})

    async def _log(self, _request: web.Request) -> web.Response:
        rows = (json.dumps(dict(zip(_ROW, row, strict=True))) for row in [*self._router.log])
        return web.Response(text="".join(f"{row}\n" for row in rows), content_type="application/x-ndjson")

    async def _route(self, request: web.Request) -> web.Response:
        check_caller(request)
        try:
            route = Route((await read_fields(request, ("route",))).text("route"))
        except ConfigError as error:
            raise invalid("route", str(error).removeprefix("--route ")) from None
        for one, weight in zip(self._router.replicas, route.weights, strict=False):
            one.weight, one.credit = weight, 0.0
        self._router.route = route
        return await self._show(request)

    async def _join(self, request: web.Request) -> web.Response:
        check_caller(request)
        fields = await read_fields(request, ("flags", "url", "weight", "version"))
        weight = fields.number("weight", 1.0, low=0.0, high=1e6)
        flags = [flag for text in fields.strings("flags") for flag in words(text)]
        try:
            if fields.has("url"):
                joined = self._crew.adopt(fields.text("url"), weight, fields.text("version", ""))
            else:
                joined = await self._crew.join([*self._flags, *flags], weight)
        except ConfigError as error:
            raise RequestError(400, str(error), param="flags", code="invalid_value") from None
        return web.json_response(described(joined), status=201)

    def _named(self, request: web.Request) -> Replica:
        check_caller(request)
        name = request.match_info["name"]
        for one in self._router.replicas:
            if one.name == name:
                return one
        there = ", ".join(one.name for one in self._router.replicas) or "none"
        raise RequestError(404, f"there is no replica {name!r}. There are: {there}", code="unknown_replica")

    async def _do(self, request: web.Request) -> web.Response:
        one, verb = self._named(request), request.match_info["verb"]
        if one.state in ("gone", "starting") or (verb == "kill" and one.process is None):
            raise RequestError(409, f"replica {one.name} is {one.state}, or not ours to kill", code="wrong_state")
        if verb == "kill":
            one.process.kill()
            await one.process.wait()
        one.state = {"drain": "draining", "resume": "up", "kill": "gone"}[verb]
        return web.json_response(described(one))

    async def _leave(self, request: web.Request) -> web.Response:
        one = self._named(request)
        try:
            empty = await self._crew.leave(one, parse_duration_ns(request.query.get("grace", "30s")))
        except ValueError as error:
            raise invalid("grace", str(error)) from None
        return web.json_response(described(one) | {"empty": empty})

    async def _health(self, _request: web.Request) -> web.Response:
        states = {one.name: one.state for one in self._router.replicas}
        up = "up" in states.values()
        body = {"status": "ok" if up else "no_replica", "models": await self.models(), "replicas": states}
        return web.json_response(body, status=200 if up else 503, headers=None if up else {"Retry-After": "1"})

    async def models(self) -> list[str]:
        """What the replicas say that they serve."""
        return sorted({name for page in (await self._ask("/health")).values() for name in json.loads(page)["models"]})

    async def _metrics(self, _request: web.Request) -> web.Response:
        pages = {name: page.decode() for name, page in (await self._ask("/metrics")).items()}
        text = "".join((*merged(pages), *self._own_metrics()))
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def _own_metrics(self) -> Iterable[str]:
        there = self._router.replicas
        flights = {f'{{replica="{one.name}"}}': one.n_in_flight for one in there}
        states = {f'{{state="{state}"}}': sum(one.state == state for one in there) for state in _STATES}
        counted = {
            f'{{replica="{one.name}",version="{one.version}",status="{status}"}}': n
            for one in there
            for status, n in sorted(one.answers.items())
        }
        for name, kind, about, samples in (
            ("replicas", "gauge", "Replicas by state", states),
            ("in_flight", "gauge", "Requests under way", flights),
            ("answers_total", "counter", "Answers; status 0 broke off", counted),
            ("unserved_total", "counter", "Requests that nobody could take", {"": self._router.n_nobody}),
        ):
            yield f"# HELP reference_fleet_{name} {about}\n# TYPE reference_fleet_{name} {kind}\n"
            yield from (f"reference_fleet_{name}{labels} {value}\n" for labels, value in samples.items())

    async def _truth(self, request: web.Request) -> web.Response:
        pages = await self._ask(f"/truth?{request.query_string}")
        rows = [json.loads(line) | {"replica": name} for name, page in pages.items() for line in page.splitlines()]
        return web.Response(text="".join(f"{json.dumps(row)}\n" for row in rows), content_type="application/x-ndjson")

    async def _fault(self, request: web.Request) -> web.Response:
        check_caller(request)
        fields = await read_fields(request, ("fault", "from"))
        one = _OF_ONE.fullmatch(fields.text("fault"))
        body = fields.values if one is None else fields.values | {"fault": one[2]}
        pages = await self._ask("/admin/faults", "POST", body, "" if one is None else f"r{one[1]}")
        return web.json_response({name: json.loads(page) for name, page in pages.items()}, status=201)

    async def _faults(self, request: web.Request) -> web.Response:
        check_caller(request)
        pages = await self._ask("/admin/faults", request.method)
        return web.json_response({name: json.loads(page)["faults"] for name, page in pages.items()})

    async def _ask(self, path: str, method: str = "GET", body: Any = None, only: str = "") -> dict[str, bytes]:
        """The same of every replica that we started and that answers, or of one. Raises RequestError as it does."""
        there = [one for one in self._router.replicas if one.process is not None and one.state in ("up", "draining")]
        asked = [one for one in there if only in ("", one.name)]
        if only and not asked:
            raise RequestError(404, f"there is no replica {only} that is up. See /fleet", code="unknown_replica")

        async def page_of(one: Replica) -> bytes | None:
            try:
                async with self._session.request(method, f"http://{one.host}:{one.port}{path}", json=body) as answer:
                    page = await answer.read()
            except (aiohttp.ClientError, TimeoutError):
                return None  # it stands still, or is on its way out
            if answer.status >= 400 and body is not None:
                raise RequestError(answer.status, f"replica {one.name}: {page[:500].decode(errors='replace')}")
            return page if answer.status < 400 else None

        pages = await asyncio.gather(*map(page_of, asked))
        return {one.name: page for one, page in zip(asked, pages, strict=True) if page is not None}


def described(one: Replica) -> dict[str, object]:
    """A replica as /fleet shows it."""
    loop_ns = time.monotonic_ns()
    since_ns = one.breaker.since_ns
    open_ns = one.breaker.total_open_ns + (loop_ns - since_ns if since_ns >= 0 else 0)
    shown = {key: getattr(one, key) for key in ("name", "state", "version", "weight", "grpc_port")}
    breaker = {"state": one.breaker.state(loop_ns), "opened": one.breaker.n_opened, "probes": one.breaker.n_probes}
    return shown | {
        "url": f"http://{one.host}:{one.port}",
        "pid": one.process.pid if one.process is not None else None,
        "in_flight": one.n_in_flight,
        "grpc_connections": one.n_channels,
        "answers": {str(status): n for status, n in sorted(one.answers.items())},
        "ready_s": round(one.ready_s, 4),
        "breaker": breaker | {"open_s": round(open_ns / 1e9, 4)},
    }


def merged(pages: dict[str, str]) -> Iterable[str]:
    """One page of metrics from several, each sample labelled with its replica, the samples of a family together."""
    families: dict[str, tuple[dict[str, None], list[str]]] = {}
    for replica, page in pages.items():
        for line in page.splitlines():
            if line.startswith("# HELP "):
                comments, samples = families.setdefault(line.split(" ")[2], ({}, []))
            if line.startswith("#"):
                comments[f"{line}\n"] = None
            elif (sample := _SAMPLE.fullmatch(line)) is not None:
                labels = ",".join(filter(None, (f'replica="{replica}"', sample[2])))
                samples.append(f"{sample[1]}{{{labels}}} {sample[3]}\n")
    for comments, samples in families.values():
        yield from comments
        yield from samples
