"""One test of streaming users under Locust: their rows are kept where they are measured, gathered, sealed and judged.

A worker keeps rows and sends them in pieces (``Kept``), the master writes each piece to disk as it comes (``Gathered``)
and judges, a process without workers does both. The sealed run is an ordinary run directory of a closed loop. Workers'
clocks are joined by their wall clocks, uncorrected: only the order of rows of different hosts, and rates over time,
carry that error. Locust's environment and runner are used by their public names; Locust is not imported.
"""

from __future__ import annotations

import gc
import inspect
import io
import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from plimsoll.harness.distributed.fleet_messages import ROWS
from plimsoll.harness.distributed.streaming_user import Answer, entries
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.recorder import Columns, ErrorTexts
from plimsoll.harness.generator.segments import dump_segment, load_segment, write_segment
from plimsoll.harness.host import manifest
from plimsoll.harness.process.vitals import Vitals
from plimsoll.harness.run import rundir
from plimsoll.harness.run.ahead import Ahead
from plimsoll.harness.run.judged import judge, publish
from plimsoll.harness.run.promises import Asked, Promises, keep, read_promises
from plimsoll.harness.run.rundir import RunDirectory, Sealed, seal
from plimsoll.harness.sealing.accounts import vitals_of
from plimsoll.harness.sealing.workforce import Member
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.reports.parts.provenance import public_command
from plimsoll.scenarios.loops import closed_plan
from plimsoll.scenarios.plan.blocks import Blocks, cut
from plimsoll.scenarios.plan.plan import Stop
from plimsoll.slo.records.records import Records, from_arrays
from plimsoll.slo.validity.accounts import digests
from plimsoll.slo.validity.generator import GeneratorFacts

# -- rows ----------------------------------------------------------------------------------------------------------

Later = Callable[[float, Callable[[], None]], object]

#: A piece is cut at so many rows, or at so many stamps of chunks: at most about 1.5 MB either way.
PIECE_ROWS = 2_000
PIECE_CHUNKS = 100_000
_WIDTH = 1_000


class LaterClock:
    """The clock for vital signs: ``later(seconds, call)`` calls once, in the loop that users run in."""

    def __init__(self, later: Later) -> None:
        self._later = later

    now_ns = staticmethod(time.monotonic_ns)

    def wake_at(self, due_ns: int, call: Callable[[], None]) -> None:
        """Call once after ``due_ns``."""
        self._later(max(0, due_ns - time.monotonic_ns()) / 1e9, call)


class Kept:
    """The rows of one Locust process, from the start of a test to its end. ``post`` sends one message to the master.

    ``index`` is the worker's number (0 without workers).
    """

    def __init__(self, index: int, clock: LaterClock, post: Callable[[dict[str, Any]], None]) -> None:
        self._index = index
        self._post = post
        self._said = ErrorTexts()
        self._columns = Columns(self._said)
        self._pieces = 0
        self._rows = 0
        self._begun = 0
        self._last = False
        self._t0_ns = time.monotonic_ns()
        self._t0_wall_ns = time.time_ns()
        self._vitals = Vitals(clock)
        self._vitals.begin()
        post(self._message())  # so that the master waits for the last message too

    def next_id(self, number: int) -> int:
        """The id, which no other worker gives, of this process's ``number``-th request, which begins now."""
        self._begun += 1
        return number * _WIDTH + self._index % _WIDTH

    def keep(self, exchange: Exchange) -> None:
        """One finished request."""
        self._columns.append(exchange)
        if len(self._columns) >= PIECE_ROWS or len(self._columns.chunks) >= PIECE_CHUNKS:
            self.flush()

    def flush(self) -> None:
        """Send what there is."""
        if not len(self._columns):
            return
        records = self._columns.to_records(self._t0_ns, self._index)
        self._columns = Columns(self._said)
        file = io.BytesIO()
        dump_segment(file, records)
        self._rows += len(records)
        self._post(self._message(number=self._pieces, piece=file.getvalue()))
        self._pieces += 1

    def close(self) -> None:
        """Send what is left, the vital signs, and how much there was in all. Only the first call does anything."""
        if self._last:
            return
        self._last = True
        self.flush()
        self._post(
            self._message(sent=self._begun, rows=self._rows, vitals=self._vitals.end(), host=os.uname().nodename)
        )

    def _message(self, **fields: Any) -> dict[str, Any]:
        return {"index": self._index, "t0_wall_ns": self._t0_wall_ns, **fields}


@dataclass(slots=True)
class _Source:
    """What has come from one worker."""

    index: int
    pieces: int = 0
    rows: int = 0
    digest: int = 0  # of its rows as they were written here
    told: Mapping[str, Any] | None = None  # its last message


@dataclass(frozen=True, slots=True)
class About:
    """What the master knows of a test: for the manifest and the scenario of its run directory."""

    run_id: str
    name: str
    url: str
    model: str
    users: int
    command: Sequence[str]


@dataclass(slots=True)
class Gathered:
    """The rows of all workers, on their way into one run directory.

    ``directory`` is empty but for its segments folder. Raises OSError where the disk doesn't take a piece.
    """

    directory: RunDirectory
    t0_wall_ns: int = field(default_factory=time.time_ns)
    t0_monotonic_ns: int = field(default_factory=time.monotonic_ns)
    _sources: dict[str, _Source] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    #: Who is there as the test begins: each says what it has, if only that it has begun.
    expected: frozenset[str] = frozenset()
    _ahead: Ahead | None = None

    def begin(self, about: About, promises: Promises) -> None:
        """Write down what a killed master's rows are sealed from (``harness/run/salvage.py``)."""
        self._ahead = Ahead(self.directory, "Locust's master", lambda text: print(text, file=sys.stderr))
        with suppress(OSError):
            keep(promises, self.directory)
        plan, facts = _plan(about.users), GeneratorFacts(open_loop=False, planned=0)
        self._ahead.prepare(self._manifest(about, promises, plan, 1), _scenario(about, promises), plan, facts, "turns")
        self._ahead.announce({})

    def take(self, sender: str, message: Mapping[str, Any]) -> None:
        """One message of ``Kept``. Pieces of one sender come in order."""
        source = self._sources.setdefault(sender, _Source(message["index"]))
        if "vitals" in message:
            source.told = message
        if "piece" not in message:
            return
        if message["number"] != source.pieces:
            self.faults.append(
                f"worker {message['index']}: piece {source.pieces} of its rows never came ({message['number']} did)"
            )
        if self._ahead is not None:
            self._ahead.alive()
        source.pieces = message["number"] + 1
        records = later(load_segment(message["piece"]), message["t0_wall_ns"] - self.t0_wall_ns)
        source.rows += len(records)
        source.digest = (source.digest + sum(digests(records).values())) % (1 << 64)
        name = f"w{message['index']:03d}-{message['number']:06d}-{len(self._sources):03d}.seg"
        write_segment(self.directory.segments / name, records)

    @property
    def awaited(self) -> frozenset[str]:
        """Senders whose last message has not come."""
        over = {sender for sender, source in self._sources.items() if source.told is not None}
        return (self.expected | self._sources.keys()) - over

    def seal(self, about: About, promises: Promises, interrupted: bool = False) -> Sealed:
        """Write the run directory. Raises OSError."""
        keep(promises, self.directory)
        facts = self._facts(interrupted)
        plan = _plan(about.users)
        document = self._manifest(about, promises, plan, facts.n_workers)
        try:
            return seal(self.directory, document, _scenario(about, promises), plan, self._members(), facts)
        finally:
            if self._ahead is not None:
                self._ahead.close()

    def _manifest(self, about: About, promises: Promises, plan: Blocks, workers: int) -> dict[str, Any]:
        return manifest.build(
            run_id=about.run_id,
            started_at=datetime.fromtimestamp(self.t0_wall_ns / 1e9, UTC).isoformat(timespec="milliseconds"),
            t0_wall_ns=self.t0_wall_ns,
            t0_monotonic_ns=self.t0_monotonic_ns,
            command=public_command(about.command).split(),
            scenario=_scenario(about, promises),
            target_url=about.url,
            model=about.model,
            bundled=None,
            fingerprint=plan.fingerprint(),
            workers=workers,
        )

    def _members(self) -> list[Member]:
        """The workers, each with its own account and the digest of what was written here."""
        found: list[Member] = []
        for index in sorted({source.index for source in self._sources.values()}):
            mine = [source for source in self._sources.values() if source.index == index]
            told = [source.told for source in mine if source.told is not None]
            sums = {name: sum(int(one.get(name, one["rows"])) for one in told) for name in ("sent", "rows")}
            account = {**sums, "digest": sum(source.digest for source in mine) % (1 << 64)}
            found.append(Member(index, done={"account": account} if len(told) == len(mine) else None))
        return found

    def _facts(self, interrupted: bool) -> GeneratorFacts:
        done = [source.told for source in self._sources.values() if source.told is not None]
        faults = list(self.faults)
        faults += [
            f"Locust worker {sender} sent nothing: its rows are missing"
            for sender in sorted(self.expected - self._sources.keys())
        ]
        for sender, source in self._sources.items():
            if source.told is None:
                faults.append(f"Locust worker {sender} went away: its rows since piece {source.pieces} are missing")
            elif source.told["rows"] != source.rows:
                faults.append(f"Locust worker {sender} sent {source.told['rows']} rows, of which {source.rows} came")
        return GeneratorFacts(
            open_loop=False,
            planned=0,
            **vitals_of([told["vitals"] for told in done]),
            worker_faults=tuple(faults),
            interrupted=interrupted,
            n_workers=max(1, len(self._sources)),
        )


def later(records: Records, shift_ns: int) -> Records:
    """The same rows with every time ``shift_ns`` later; a negative shift (a worker's clock is behind) counts as 0."""
    if shift_ns <= 0:
        return records
    columns = dict(records.columns)
    for name, column in columns.items():
        if name.endswith("_ns") and name not in ("connect_ns", "media_ns"):
            times = column.astype(np.int64)
            columns[name] = np.where(times >= 0, times + shift_ns, times)
    return from_arrays(columns, records.chunk_ns + shift_ns, records.chunk_offsets, records.errors, records.timings)


def _plan(users: int) -> Blocks:
    """A closed loop of so many slots; there is no list of queries to work off."""
    return cut(closed_plan(np.zeros(1, np.int64), Stop(min_queries=0, min_duration_ns=0), 0, slots=max(users, 1)))


def _scenario(about: About, promises: Promises) -> dict[str, Any]:
    """What takes the place of a scenario: it says what was done, and can't be run."""
    return {
        "name": about.name,
        "kind": "locust",
        "description": f"users of Locust, up to {about.users}, each waiting for its answer; "
        "latency counts from the send",
        "target": {"url": manifest.public_url(about.url), "protocol": "openai-chat", "model": about.model},
        "objectives": promises.texts,
    }


# -- the session of a process --------------------------------------------------------------------------------------

Role = Literal["local", "master", "worker"]

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
    """What one process does in a test. ``later(seconds, call)`` calls once in Locust's loop."""

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
        """The master's test ends: wait for every worker's last rows. Locust alone would wait half a second for them."""
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
