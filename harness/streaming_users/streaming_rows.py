"""The rows of streaming requests under Locust: kept where they were measured, gathered at the master, sealed as a run
and judged.

A Locust worker cuts its rows into pieces (``Kept``); the master writes each piece to disk as it comes (``Gathered``),
so neither holds a whole run in memory. The sealed run is an ordinary run directory of a closed loop: ``plimsoll
report`` and ``plimsoll gate`` open it. Messages are plain mappings; who carries them is not known here, and Locust is
not imported.

Workers' clocks are joined by their wall clocks, uncorrected. Durations are each of one clock, so only the order of rows
of different hosts, and rates over time, carry that error.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.recorder import Columns, ErrorTexts
from plimsoll.harness.generator.segments import dump_segment, load_segment, write_segment
from plimsoll.harness.host import manifest
from plimsoll.harness.process.vitals import Vitals
from plimsoll.harness.run.ahead import Ahead
from plimsoll.harness.run.coordinator import vitals_of
from plimsoll.harness.run.promises import Promises, keep
from plimsoll.harness.run.rundir import RunDirectory, Sealed, seal
from plimsoll.harness.run.workforce import Member
from plimsoll.reports.sections.provenance import public_command
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.slo.records.records import Records, from_arrays
from plimsoll.slo.validity.accounts import digests
from plimsoll.slo.validity.generator import GeneratorFacts

#: A piece is cut at so many rows, or at so many stamps of chunks: at most about 1.5 MB either way.
PIECE_ROWS = 2_000
PIECE_CHUNKS = 100_000
_WIDTH = 1_000


class LaterClock:
    """The clock for vital signs: ``later(seconds, call)`` calls once, in the loop that users run in."""

    def __init__(self, later: Callable[[float, Callable[[], None]], object]) -> None:
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

    def _manifest(self, about: About, promises: Promises, plan: Plan, workers: int) -> dict[str, Any]:
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


def _plan(users: int) -> Plan:
    """A closed loop of so many slots; there is no list of queries to work off."""
    one = np.zeros(1, np.int64)
    nothing = Stop(min_queries=0, min_duration_ns=0)
    return Plan(
        one, one, np.array([0, 1]), one, one, one - 1, nothing, 0, open_loop=False, cyclic=True,
        max_in_flight=max(users, 1),
    )  # fmt: skip


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
