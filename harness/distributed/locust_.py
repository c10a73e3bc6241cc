"""Locust as transport and membership, and nothing else: no user of Locust's sends a request of ours, and none of its
figures judges one.

The only file that imports Locust, which patches the interpreter as it is imported: so this is a process of its own
(``python -m plimsoll.harness.distributed.locust_ master|agent``, started by ``bridge.py``) or Locust's
own (``locustfile.py``). What sends and measures is always a clean subprocess: the coordinator on the master, the site
on an agent (``relay.py``).

Locust swallows what a listener raises: every listener here says its failures itself.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import gevent
import locust.runners
import zmq.green as zmq
from gevent.event import AsyncResult, Event
from gevent.fileobject import FileObject
from gevent.server import StreamServer
from locust import User, constant, events, task
from locust.env import Environment
from locust.exception import RPCError
from locust.rpc import Message, rpc
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner, Runner, WorkerRunner
from locust.stats import RequestStats, StatsEntry, StatsError, bucket_response_time

from plimsoll.harness.distributed import page
from plimsoll.harness.distributed.port import LONGEST, MESSAGE, WAITING, Guard
from plimsoll.harness.distributed.relay import REQUESTS, Lines, Office, Relay, Row, StartButton
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host import limits
from plimsoll.harness.live.visitors import VARIABLE
from plimsoll.harness.process import child, outlet

#: The master's heartbeat comes once a second; without one for so long the master is gone.
MASTER_S = 10.0
#: How often an agent of ours tells Locust's page: Locust's own 3 s would leave a short run without a line.
SHOWN_S = 1.0
#: Without an answer for so long the user is told that nobody answers.
PATIENCE_S = 5.0
#: While messages wait nobody else has a turn but after so many.
TURNS = 32
SITE = tuple(child.command("plimsoll.harness.distributed.site"))


class Port(rpc.Server):
    """The port of Locust's master, with a guard before it. Locust makes a new one when it breaks."""

    guard = Guard(Message.unserialize)
    turns = 0

    def __init__(self, host: str, port: int) -> None:
        rpc.BaseSocket.__init__(self, zmq.ROUTER, self.ipv4_only(host, port))
        self.socket.setsockopt(zmq.MAXMSGSIZE, LONGEST)
        self.socket.setsockopt(zmq.RCVHWM, WAITING)
        try:
            if port:
                self.socket.bind(f"tcp://{host}:{port}")
            self.port = port or self.socket.bind_to_random_port(f"tcp://{host}")
        except zmq.ZMQError as error:
            self.close(linger=0)
            raise RPCError(f"Socket bind failure: {error}") from error

    def recv_from_client(self) -> tuple[str, Any]:
        """The next message of an agent's."""
        while True:
            try:
                found = self.guard.take(self.socket.recv_multipart())
            except zmq.ZMQError as error:
                raise RPCError("ZMQ network broken") from error
            self.turns = (self.turns + 1) % TURNS
            if found is None or not self.turns:
                gevent.sleep(0)  # a crowd, or a flood, must not keep everybody else from their turn
            if found is not None:
                return found


def _guarded(environment: Environment, runner: Runner | None, **_: Any) -> None:
    if isinstance(runner, MasterRunner):
        Port.guard.runner = runner


rpc.Server = Port  # type: ignore[misc]
events.init.add_listener(_guarded)


class PlimsollAgent(User):
    """Locust wants a user; this one sends nothing. The scenario has the load: how many users there are says nothing."""

    wait_time = constant(3600)

    @task
    def sleep(self) -> None:
        """Be there until Locust stops."""
        gevent.sleep(3600)


def record(stats: RequestStats, rows: Mapping[str, Row]) -> None:
    """Add counts to Locust's table. Only requests count in its total; it rounds times to two digits."""
    now = time.time()
    for name, row in rows.items():
        entry: Any = StatsEntry(stats, name, MESSAGE)
        entry.num_requests, entry.num_failures, entry.num_none_requests = row.n, row.failed, row.untimed
        entry.last_request_timestamp = now
        entry.num_reqs_per_sec[int(now)] = row.n
        entry.num_fail_per_sec[int(now)] = row.failed
        for ms, count in row.times.items():
            entry.response_times[bucket_response_time(ms)] += count
            entry.total_response_time += ms * count
        if row.times:
            entry.min_response_time, entry.max_response_time = min(row.times), max(row.times)
        stats.entries[(name, MESSAGE)].extend(entry)
        if name == REQUESTS:
            stats.total.extend(entry)
        if row.failed:
            text = "failed: the run's report has the text of each error"
            error = stats.errors.setdefault(StatsError.create_key(MESSAGE, name, text), StatsError(MESSAGE, name, text))
            error.occurred()
            error.occurrences += row.failed - 1


def office_of(runner: MasterRunner) -> Office:
    """An office on Locust's master."""

    def misses(agent: str) -> bool:
        return agent not in runner.clients or runner.clients[agent].state == STATE_MISSING

    office = Office(lambda agent, message: runner.send_message(MESSAGE, message, agent), misses)
    runner.register_message(MESSAGE, lambda environment, msg: office.heard(msg.node_id, msg.data))
    return office


def relay_of(runner: WorkerRunner, site: list[str], cut_off: Callable[[Relay, str], None] = Relay.end_site) -> Relay:
    """A relay on Locust's worker. ``cut_off`` is called, with the reason, when the master has said nothing for
    ``MASTER_S``, and when the connection breaks: ZeroMQ makes another one, but what was on its way is lost, neither end
    knows what, and a run whose last word is lost would never end.
    """
    stats = runner.environment.stats
    relay = Relay(lambda message: runner.send_message(MESSAGE, message), lambda rows: record(stats, rows), site)
    runner.register_message(MESSAGE, lambda environment, msg: relay.heard(msg.data))

    def watch() -> None:
        looked = time.time()
        while not relay.closed:
            gevent.sleep(1.0)
            before, looked = looked, time.time()
            heard = runner.last_heartbeat_timestamp
            if heard and looked - heard > MASTER_S and looked - before < 3.0:  # else it is we who were stopped
                cut_off(relay, "its heartbeat stopped")

    def broken() -> None:
        monitor = runner.client.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        while monitor.recv_multipart():
            cut_off(relay, "the connection broke")

    gevent.spawn(watch)
    gevent.spawn(broken)
    relay.open()
    return relay


def attach() -> None:
    """Make plain ``locust -f`` a master, an agent, or both in one process. For the shipped locustfile and for yours."""

    @events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator,unused-ignore]
    def add_arguments(parser: Any) -> None:
        for one in page.ARGUMENTS:  # not in a group: Locust's page does not show those
            name = f"{page.PREFIX}{one.name}"
            spelt, variable = f"--{name.replace('_', '-')}", name.upper()
            parser.add_argument(spelt, default="", env_var=variable, include_in_web_ui=one.form, help=one.help)
        text = "More names of Locust's page, separated by commas: of a proxy or a service in front of it."
        parser.add_argument("--plimsoll-web-hosts", default="", env_var=VARIABLE, include_in_web_ui=False, help=text)

    @events.init.add_listener  # type: ignore[untyped-decorator,unused-ignore]
    def begin(environment: Environment, runner: Runner, web_ui: Any = None, **_: Any) -> None:
        options: Any = environment.parsed_options
        page.close(web_ui, options.plimsoll_web_hosts, vars(options), environment.host)
        if isinstance(runner, MasterRunner):
            StartButton(environment, runner, office_of(runner), lambda: runner.worker_count)
            return
        if isinstance(runner, WorkerRunner):
            relay = relay_of(runner, [*SITE])
        else:
            office = Office(lambda agent, message: relay.heard(message), lambda agent: False)
            stats = environment.stats
            relay = Relay(lambda message: office.heard("local", message), lambda rows: record(stats, rows), [*SITE])
            relay.open()
        # Locust asks the last listener first: the coordinator ends before its agent leaves.
        environment.events.quitting.add_listener(lambda **_: relay.close("Locust ended"))
        if isinstance(runner, LocalRunner):
            StartButton(environment, runner, office, lambda: 1)


def _stdio(heard: Callable[[dict[str, Any] | None], None]) -> Lines:
    """Our lines on the original stdin and stdout; a stray print goes to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    return Lines(FileObject(0, "rb", closefd=False), FileObject(out, "wb"), heard)


def master(bind: str, web: str | None) -> int:
    """Locust's master between the coordinator on our stdin and the agents. Ends when the coordinator does."""
    over, begun = Event(), Event()

    def told(line: dict[str, Any] | None) -> None:
        if line is None:
            over.set()
            return
        office.told(line)
        if web and line["message"]["type"] == "go" and not begun.is_set():
            begun.set()
            gevent.spawn(runner.start, len(runner.clients), len(runner.clients))

    lines = _stdio(told)
    environment = Environment(user_classes=[PlimsollAgent])
    host, _, port = bind.rpartition(":")
    logging.disable()  # we say it ourselves
    try:
        runner = environment.create_master_runner(host, int(port))
    except (SystemExit, RPCError) as error:
        said = str(error).removeprefix("Socket bind failure: ").partition(" (addr=")[0]
        reason = said if isinstance(error, RPCError) and "in use" not in said else "the port is taken"
        return _fault(lines, f"--locust-master: Locust cannot listen at {bind} ({reason}). Give another HOST:PORT")
    finally:
        logging.disable(logging.NOTSET)
    office = office_of(runner)
    Port.guard.runner = runner
    if web is not None:
        at, _, number = web.rpartition(":")
        place = ("" if at == "*" else at, int(number))
        try:
            probe = StreamServer(place, lambda connection, _: connection.close())
            probe.start()  # what serves the page dies of a port that is taken with a traceback, and unseen
            probe.stop()
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            return _fault(lines, f"--locust-web: nothing can be served at {web} ({reason}). Give another HOST:PORT")
        ui = environment.create_web_ui(*place, delayed_start=True)
        page.close(ui, "")
        ui.start()
    environment.events.test_stop.add_listener(
        lambda **_: None if over.is_set() else lines.say({"event": "stop", "reason": "Stop in Locust's page"})
    )
    office.attach(lines, at=f"{host}:{runner.server.port}", web=web and f"http://{web}")
    over.wait()
    office.attach(None)
    runner.quit()
    return 0


def _fault(lines: Lines, text: str) -> int:
    lines.say({"event": "fault", "errors": [text]})
    lines.close()
    return int(ExitCode.USAGE)


class Stay:
    """One stay with one master, from its first answer on; ``result`` is why it ended.

    It ends with the site, with the master, when it refuses us, or by whoever sets ``result``.
    """

    def __init__(self, at: str, site: list[str], say: Callable[[dict[str, Any]], None]) -> None:
        self._at, self._site, self._say = at, site, say
        self._heard: dict[str, Mapping[str, Any]] = {}
        self.connected = False
        self.result: AsyncResult[dict[str, Any]] = AsyncResult()

    def run(self) -> None:
        """Connect, relay, and leave nothing behind."""
        host, _, port = self._at.rpartition(":")
        waiting = gevent.spawn_later(PATIENCE_S, self._say, {"event": "waiting"})
        try:
            runner = Environment(user_classes=[PlimsollAgent]).create_worker_runner(host, int(port))
        except (ConnectionError, RPCError) as error:
            self.result.set({"event": "gone", "reason": str(error) or "nobody answers", "ran": False})
            return
        waiting.kill()
        self.connected = True
        self._say({"event": "connected"})
        relay = relay_of(runner, self._site, lambda relay, reason: self._gone(reason))
        relay.on_master = self._of_master
        relay.on_ended = lambda code: self._ended(code, relay.greeted)
        gevent.spawn(runner.greenlet.join).link(lambda _: self._gone("the master ended"))
        last = self.result.get()
        relay.close(last.get("reason", "its part is over"))
        runner.quit()

    def _of_master(self, message: Mapping[str, Any]) -> None:
        self._heard[message["type"]] = message
        if message["type"] == "go":
            self._say({"event": "go"})

    def _gone(self, reason: str) -> None:
        if "bye" not in self._heard:  # else the site is about to end, and that is the news
            self.result.set({"event": "gone", "reason": reason, "ran": "go" in self._heard})

    def _ended(self, code: int, greeted: bool) -> None:
        if "refused" in self._heard:
            self.result.set({"event": "refused", "late": self._heard["refused"]["late"]})
        else:
            whole, ran = "bye" in self._heard, "go" in self._heard
            self.result.set({"event": "ended", "code": code, "whole": whole, "greeted": greeted, "ran": ran})


def agent(at: str, site: list[str]) -> int:
    """A stay, until it ends or our stdin is closed; what happens is said on stdout, for ``bridge.py``."""
    locust.runners.WORKER_REPORT_INTERVAL = SHOWN_S

    def told(line: dict[str, Any] | None) -> None:
        if not stay.result.ready():  # it says why, and then closes our stdin
            reason = "the process that began it is gone (was it killed?)" if line is None else str(line["reason"])
            stay.result.set({"event": "left", "reason": reason})

    lines = _stdio(told)
    stay = Stay(at, site, lines.say)
    staying = gevent.spawn(stay.run)
    staying.link_exception(lambda _: stay.result.set({"event": "broken"}))  # gevent has printed why
    last = stay.result.get()
    if stay.connected:  # else it may try for minutes yet
        staying.join()
    lines.say(last)
    lines.close()
    return 0


def main(arguments: list[str]) -> int:
    """``master --bind HOST:PORT [--web HOST:PORT]``, or ``agent HOST:PORT SITE_ARGUMENT ...``."""
    outlet.install()
    limits.raise_file_limit()  # a master has a connection to every agent
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    del sys.argv[1:]  # Locust's page reads them as Locust's own
    if arguments[0] == "master":
        parser = argparse.ArgumentParser()
        parser.add_argument("--bind", required=True)
        parser.add_argument("--web")
        options = parser.parse_args(arguments[1:])
        return master(options.bind, options.web)
    return agent(arguments[1], [*SITE, *arguments[2:]])


if __name__ == "__main__":
    sys.exit(main([*sys.argv[1:]]))


# -- for existing Locust users --

from collections.abc import Sequence  # noqa: E402
from functools import cache  # noqa: E402

from locust.contrib.fasthttp import FastHttpUser  # noqa: E402
from locust.user.task import LOCUST_STATE_WAITING  # noqa: E402

from plimsoll.harness.distributed import streaming_user as streaming  # noqa: E402
from plimsoll.harness.distributed.streaming_session import SESSION, Role, Session, add_arguments, prepare  # noqa: E402
from plimsoll.harness.distributed.streaming_user import Answer  # noqa: E402
from plimsoll.harness.errors import HarnessFault  # noqa: E402


class StreamingUser(FastHttpUser):
    """A user that streams: ``chat`` and ``stream`` send a request, and its TTFT, TPOT and ITL are in Locust's
    statistics. docs/guide/locust.md.

    ``model`` goes into chat requests. ``slo``: objectives of the whole run, which ``--slo`` replaces; they decide the
    exit code. ``default_headers`` go with every request.
    """

    abstract = True
    model: str = ""
    slo: Sequence[str] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _listen()  # only a locustfile with such users gets our arguments

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._session: Session = getattr(environment, SESSION)
        self._chat = streaming.chat_reader(self.client.base_url or "", self.default_headers or {})
        self._readers: dict[str, streaming.Reader] = {}
        self._sent: Sequence[tuple[str, str]] = ()
        self._called_off = False

    def stop(self, force: bool = False) -> bool:
        """Locust kills a user that waits between two tasks. One whose wait has just ended would send first and be
        killed with its request on the wire: it sends nothing any more.
        """
        self._called_off = not force and self._state in (None, LOCUST_STATE_WAITING)
        return bool(super().stop(force))

    def chat(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        name: str | None = None,
        catch_response: bool = False,
        **fields: Any,
    ) -> Answer:
        """A chat completion, streamed. ``messages``: a prompt or a conversation; ``fields`` of the body:
        ``max_tokens=64``.
        """
        url = streaming.endpoint(self.client.base_url or "", streaming.CHAT)
        return self._ask(
            url, name or streaming.CHAT, streaming.chat_body(self.model, messages, fields), self._chat, catch_response
        )

    def stream(
        self, path: str, body: Any, *, name: str | None = None, catch_response: bool = False, **reading: Any
    ) -> Answer:
        """POST ``body`` as JSON and read any stream. ``reading``: ``framing`` (sse, ndjson, lines, none), ``text_path``
        (where output is, such as ``token.text``) and the other options of the ``http`` protocol that say how an answer
        is read (docs/reference/protocols.md).
        """
        reader = self._readers.get(key := repr(reading))
        if reader is None:
            reader = streaming.stream_reader(self.client.base_url or "", self.default_headers or {}, reading)
            self._readers[key] = reader
        url = path if "://" in path else f"{self.client.base_url}{path}"
        return self._ask(url, name or path, streaming.json_body(body), reader, catch_response)

    def _ask(self, url: str, name: str, body: bytes, reader: streaming.Reader, catch_response: bool) -> Answer:
        if self._called_off:
            raise gevent.GreenletExit
        number, request_id = self._session.next_id()
        headers = {
            "content-type": "application/json",
            "accept": reader.accept,
            "accept-encoding": "identity",
            "x-request-id": request_id,
        }
        data: Any = body
        own = self.client.client.default_headers.items()  # they may have come since, by a login in on_start
        self._sent = streaming.known(
            self._sent, self.host or "", [("authorization", self.client.auth_header or ""), *own]
        )
        started, context = time.time(), self.context()
        exchange = streaming.begin(number, body, time.monotonic_ns())
        try:
            # Locust's client reports nothing of a response that nobody enters: the entries are made below.
            streaming.ask(
                exchange,
                reader,
                lambda: self.client.post(
                    url, data=data, headers=headers, stream=True, catch_response=True, allow_redirects=False
                ),
                time.monotonic_ns,
            )
        except BaseException:
            self._session.keep(exchange)
            raise
        answer = Answer(
            exchange,
            lambda done: self._session.report(
                done, name, context=context, response=answer, start_time=started, url=url
            ),
        )
        if not catch_response:
            answer.report()
        return answer


@cache
def _listen() -> None:
    events.init_command_line_parser.add_listener(lambda parser, **_: add_arguments(parser))
    events.init.add_listener(_open_session)


def _open_session(environment: Environment, **_: Any) -> None:
    gevent.get_hub().loop.update_now()  # it stood still for a second of imports, by which a --run-time would end early
    own = [kind for kind in environment.user_classes if issubclass(kind, StreamingUser)]
    if not own:
        return
    runner = environment.runner
    role: Role = (
        "worker" if isinstance(runner, WorkerRunner) else "master" if isinstance(runner, MasterRunner) else "local"
    )
    try:
        slo = [text for kind in own for text in kind.slo]
        setattr(environment, SESSION, prepare(environment, role, slo, gevent.spawn_later))
    except HarnessFault as fault:
        for text in fault.errors:
            print(f"error: {text}", file=sys.stderr)
        sys.exit(int(ExitCode.USAGE))
