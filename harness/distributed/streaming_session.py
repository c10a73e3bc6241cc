"""One test of streaming users in one Locust process: when rows are kept, sent and gathered, and the verdict at the end.

Each process has one ``Session``: a worker keeps rows and sends them, the master gathers and judges, a process without
workers does both. Locust's environment and runner are handed over and used by their public names; Locust itself is not
imported.

Locust's master waits half a second for its workers when a headless run ends, however long their users take. So here the
master asks the workers to stop, and waits for the last message of each, before it lets Locust go on.
"""

from __future__ import annotations

import gc
import inspect
import logging
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from plimsoll.harness.distributed.fleet_messages import ROWS
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run import rundir
from plimsoll.harness.run.promises import Asked, Promises, read_promises
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.series.one_run import judge, publish
from plimsoll.harness.streaming_users.streaming_rows import About, Gathered, Kept, LaterClock
from plimsoll.harness.streaming_users.streaming_user import Answer, entries

Role = Literal["local", "master", "worker"]
Later = Callable[[float, Callable[[], None]], object]

#: Locust's name for the master's wish that a worker stops its users.
STOP = "plimsoll-stop"
#: The attribute of Locust's environment that holds our session.
SESSION = "plimsoll"
#: Locust kills users in the middle of a request unless told otherwise; those requests would count as failures of the
#: endpoint.
DRAIN_S = 30.0
#: How long after the drain a worker may take to send its last rows.
GRACE_S = 15.0
#: How often rows are sent to the master; the rest of a second is for their way.
FLUSH_S = 0.7
_log = logging.getLogger("plimsoll")


def add_arguments(parser: Any) -> None:
    """Our command-line arguments, each with an environment variable."""
    parser.add_argument(
        "--slo",
        action="append",
        metavar="EXPR_OR_FILE",
        env_var="PLIMSOLL_SLO",
        include_in_web_ui=False,
        help='an objective such as "p99(ttft) <= 200ms", or a file of them; may be given again. '
        "They replace those of the user class",
    )
    parser.add_argument(
        "--plimsoll-out",
        metavar="DIR",
        env_var="PLIMSOLL_OUT",
        include_in_web_ui=False,
        help="keep every request in this folder, for `plimsoll report` and `plimsoll gate`",
    )
    # The master names the run, and Locust hands its workers what was not given here.
    parser.add_argument(
        "--plimsoll-run",
        default="",
        include_in_web_ui=False,
        help="the name of the run in request ids (Plimsoll's; default: a random one)",
    )


def prepare(environment: Any, role: Role, own: Sequence[str], later: Later) -> Session:
    """The session of this process. ``own``: the objectives of the user classes.

    Raises HarnessFault with every wrong objective, and for an output folder that can't be used.
    """
    options = environment.parsed_options
    texts = getattr(options, "slo", None) or list(dict.fromkeys(own))
    promises, errors = read_promises(Asked(slo=texts))
    if errors:
        raise HarnessFault(errors)
    given = getattr(options, "plimsoll_out", None)
    out = Path(given) if given else None
    if role != "worker":
        if out is not None and out.is_dir() and any(out.iterdir()):
            raise HarnessFault(f"--plimsoll-out: {out} is not empty. Name a new folder, or delete that one")
        if not environment.stop_timeout:
            environment.stop_timeout = DRAIN_S
        if options is not None and not getattr(options, "plimsoll_run", ""):
            options.plimsoll_run = secrets.token_hex(5)
    session = Session(environment, role, promises, out, later)
    events = environment.events
    events.test_start.add_listener(session.on_start)
    events.test_stopping.add_listener(session.on_stopping)
    events.test_stop.add_listener(session.on_stop)
    events.quitting.add_listener(session.on_quitting)
    if role == "master":
        environment.runner.register_message(ROWS, session.on_rows)
    elif role == "worker":
        environment.runner.register_message(STOP, session.on_asked_to_stop, concurrent=True)
    return session


class Session:
    """See the module. ``later(seconds, call)`` calls once in Locust's loop."""

    def __init__(self, environment: Any, role: Role, promises: Promises, out: Path | None, later: Later) -> None:
        self._environment = environment
        self._role = role
        self._promises = promises
        self._out = out
        self._later = later
        self._wanted = bool(promises.objectives or promises.slos or out or role == "worker")
        self._kept: Kept | None = None
        self._gathered: Gathered | None = None
        self._number = 0
        self._tests = 0
        self._verdict: int | None = None

    # Of users.

    def next_id(self) -> tuple[int, str]:
        """The query id of the next request, and what it sends as ``x-request-id``."""
        self._number += 1
        number = self._kept.next_id(self._number) if self._kept is not None else self._number
        return number, f"{getattr(self._environment.parsed_options, 'plimsoll_run', '')}-{number}-0"

    def report(self, exchange: Exchange, name: str, method: str = "POST", **meta: Any) -> None:
        """A request is over: into Locust's statistics, and kept as a row.

        TTFT, TPOT and ITL get lines of their own, which Locust's total leaves out: it goes on counting requests.
        """
        answer = Answer(exchange, lambda _: None)
        failed = None if answer.ok else RequestFailed(answer.error or "failed")
        self._environment.events.request.fire(
            request_type=method,
            name=name,
            response_time=answer.ttlb_ms,
            response_length=exchange.bytes_in,
            exception=failed,
            **meta,
        )
        stats = self._environment.stats
        for kind, value in entries(answer):
            stats.get(name, kind).log(value, 0)
        self.keep(exchange)

    def keep(self, exchange: Exchange) -> None:
        """Keep the row alone: of a request that Locust itself does not count."""
        if self._kept is not None:
            self._kept.keep(exchange)

    # Of Locust: listeners.

    def on_start(self, **_: Any) -> None:
        """A test begins."""
        if not self._wanted:
            return
        self._tests += 1
        if self._role != "worker":
            self._gathered = Gathered(
                self._directory(), expected=self._workers() if self._role == "master" else frozenset()
            )
            users = int(getattr(self._environment.runner, "target_user_count", 0) or 0)
            self._gathered.begin(self._about(users), self._promises)
        if self._role != "master":
            _settle_down()
            index = getattr(self._environment.runner, "worker_index", 0) if self._role == "worker" else 0
            self._kept = Kept(index, LaterClock(self._later), self._post)
            self._later(FLUSH_S, partial(self._flush, self._kept))

    def _flush(self, kept: Kept) -> None:
        """Rows are with who gathers them a second after they ended, whoever is killed then."""
        if self._kept is kept:
            kept.flush()
            self._later(FLUSH_S, partial(self._flush, kept))

    def on_asked_to_stop(self, **_: Any) -> None:
        """The master's wish: stop the users, answers in flight included, and send the last rows (``on_stop`` does)."""
        self._environment.runner.stop()

    def on_rows(self, msg: Any, **_: Any) -> None:
        """A message of a worker's."""
        self._take(msg.node_id, msg.data)

    def on_stopping(self, **_: Any) -> None:
        """The master's test ends: wait for every worker's last rows."""
        gathered, runner = self._gathered, self._environment.runner
        if self._role != "master" or gathered is None:
            return
        runner.send_message(STOP)
        until = time.monotonic() + self._environment.stop_timeout + GRACE_S
        while time.monotonic() < until:
            if not gathered.awaited & self._workers():
                return
            time.sleep(0.05)  # Locust has patched it: other greenlets run

    def _workers(self) -> frozenset[str]:
        """Those that are not missing."""
        return frozenset(node.id for node in self._environment.runner.clients.all if node.state != "missing")

    def on_stop(self, **_: Any) -> None:
        """All users have stopped: the last rows, and the verdict where the rows are gathered."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            self._judge(gathered)

    def on_quitting(self, **_: Any) -> None:
        """Locust ends, and nobody stopped the test: stop it now, so that what was measured is judged."""
        if self._kept is not None or self._gathered is not None:
            self._environment.runner.stop()
            self.on_stop()  # a runner that had stopped already fires nothing

    def _post(self, message: dict[str, Any]) -> None:
        if self._role != "worker":
            self._take("local", message)
            return
        try:
            self._environment.runner.send_message(ROWS, message)
        except Exception as error:  # noqa: BLE001 - the master misses the piece and says so; a user must go on
            _log.error("rows could not be sent to the master: %s", error)

    def _take(self, sender: str, message: dict[str, Any]) -> None:
        if self._gathered is None:
            return  # of a test that is judged already
        try:
            self._gathered.take(sender, message)
        except (OSError, ValueError) as error:
            self._gathered.faults.append(f"rows of worker {message.get('index')} could not be kept ({error})")

    def _directory(self) -> rundir.RunDirectory:
        if self._out is None:
            return rundir.create(Path(tempfile.mkdtemp(prefix="plimsoll-locust-")))
        path = self._out if self._tests == 1 else self._out.with_name(f"{self._out.name}-{self._tests}")
        return rundir.create(path)

    def _about(self, users: int) -> About:
        environment = self._environment
        kinds = environment.user_classes
        return About(
            run_id=getattr(environment.parsed_options, "plimsoll_run", "") or "locust",
            name=", ".join(kind.__name__ for kind in kinds),
            url=environment.host or next((kind.host for kind in kinds if kind.host), "") or "",
            model=next((kind.model for kind in kinds if getattr(kind, "model", "")), ""),
            users=users,
            command=list(map(redact, sys.argv)),
        )

    def _judge(self, gathered: Gathered) -> None:
        environment = self._environment
        users = sum((environment.runner.final_user_classes_count or {}).values())
        about = self._about(users)
        try:
            sealed = gathered.seal(about, self._promises)
            result = judge(sealed, self._promises)
            publish(result, None if self._out is None else sealed.directory, (), as_json=False)
            code = result.exit_code or 0
        except (OSError, HarnessFault) as error:
            print(f"error: the run could not be judged: {error}", file=sys.stderr)
            code = int(ExitCode.INVALID)
        finally:
            if self._out is None:
                shutil.rmtree(gathered.directory.path, ignore_errors=True)
        # A pass hides no failure that the locustfile's own code has found; a verdict of ours gives way to the next.
        if code or environment.process_exit_code in (None, self._verdict):
            environment.process_exit_code = code
        self._verdict = code


def _settle_down() -> None:
    """Before the first request, what would stall Locust's loop later, with answers in flight.

    Locust asks for the stack as it stops: 20 ms the first time. A full collection walks every module of Locust and of
    ours: 40 ms, unless they are set aside (measured with 100 users).
    """
    inspect.stack()
    gc.collect()
    gc.freeze()


class RequestFailed(Exception):
    """What Locust shows in its table of failures: the text."""
