"""``plimsoll calibrate``: real workers against a server of known times show what this machine can measure honestly.

Every probe is a short run through the coordinator, in a temporary folder. It is kept when the run is VALID and neither
the lag nor the error in arrival times has a p99 above 1 ms; loads climb until one is not kept. The server has a core of
its own and is the exact one (``plimsoll.reference_server.oracle``) where that was built, else the slower one in Python;
the table says which, and ``harness/host/calibration_table.py`` judges later runs by it.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import json
import math
import os
import signal
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host import calibration_table, limits
from plimsoll.harness.host.calibration_table import HONEST_NS, SATURATED, Host, Probe, Spread, Table
from plimsoll.harness.process import child, interrupts, writing
from plimsoll.harness.run import bundled, rundir
from plimsoll.harness.run.coordinator import Coordinator, Job, lateness
from plimsoll.harness.run.progress import human_ns
from plimsoll.harness.transport.client import MAX_OUTSTANDING, Target
from plimsoll.harness.transport.held import RESERVED_FILES
from plimsoll.scenarios.spec import parse
from plimsoll.scenarios.text.fields import parse_duration
from plimsoll.slo.records.records import IntArray, Records
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict import verdict

READY_S = 20.0
_PR_SET_PDEATHSIG = 1
#: A write that took the server longer (it lost its core in it) says too little about when the bytes left.
SURE_NS = 100_000
#: Requests whose stamps are compared, spread over the run: enough for a p99, and the server's answer stays short.
COMPARED = 2000


@dataclass(frozen=True, slots=True)
class Standard:
    """A running server to measure against."""

    kind: Literal["oracle", "scripted"]
    url: str


@dataclass(frozen=True, slots=True)
class Errors:
    """What the harness recorded against what the server wrote, ns: sorted absolute differences, and the server's
    lateness.

    Counted from the stamp just before the write, so what is shown is at least the harness's error. ``unsure``: the
    share of tokens left out because the server's own two stamps are too far apart.
    """

    ttft: IntArray
    itl: IntArray
    server_late: IntArray
    unsure: float = 0.0


@contextmanager
def own_cores() -> Iterator[tuple[set[int], bool]]:
    """This process and its workers leave the last core to the server in here: (the server's cores, two apart)."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        yield cores, False
        return
    server = {max(cores)}
    os.sched_setaffinity(0, cores - server)
    try:
        yield server, True
    finally:
        os.sched_setaffinity(0, cores)


@asynccontextmanager
async def standard(
    ttft: str, itl: str, cores: set[int], log: Path, kind: Literal["oracle", "scripted"]
) -> AsyncIterator[Standard]:
    """A server with these times on these cores, stopped at the end. Raises HarnessFault if it doesn't start."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # inherited: a server that moved itself later might have threads already
    try:
        process, url = await (_oracle if kind == "oracle" else _scripted)(["--ttft", ttft, "--itl", itl], log)
    finally:
        os.sched_setaffinity(0, mine)
    try:
        yield Standard(kind, url)
    finally:
        await bundled.stop(process)


async def _scripted(arguments: list[str], log: Path) -> tuple[asyncio.subprocess.Process, str]:
    server = await bundled.start(["--model", "scripted", *arguments], log)
    return server.process, server.url


def _end_with_us() -> None:
    """In the new process: the kernel ends it when its parent dies, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _oracle(arguments: list[str], log: Path) -> tuple[asyncio.subprocess.Process, str]:
    with writing.log(log) as stderr:
        process = await child.begin(
            child.command("plimsoll.reference_server.oracle", *arguments),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=stderr, start_new_session=True,
            preexec_fn=_end_with_us,
        )  # fmt: skip
    try:
        if process.stdout is None:
            raise RuntimeError("the oracle was started without a pipe")
        line = await asyncio.wait_for(process.stdout.readline(), READY_S)
        return process, str(json.loads(line)["url"])
    except (TimeoutError, ValueError, KeyError):
        await bundled.stop(process)
        tail = writing.tail(log)
        raise HarnessFault(f"the calibration's server did not start ({tail or 'it said nothing'})") from None
    except asyncio.CancelledError:
        await bundled.stop(process)
        raise


async def clear(server: Standard) -> None:
    """Make the server forget earlier requests."""
    request = {
        "oracle": urllib.request.Request(f"{server.url}/truth/clear", data=b"", method="POST"),
        "scripted": urllib.request.Request(f"{server.url}/truth", method="DELETE"),
    }[server.kind]
    await asyncio.to_thread(_fetch, request)


def _fetch(request: urllib.request.Request) -> bytes:
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())
    except (OSError, urllib.error.URLError) as error:
        raise HarnessFault(f"the calibration's server does not answer ({error}). Calibrate again") from None


async def compare(server: Standard, records: Records, ids: list[str], t0_ns: int) -> Errors:
    """Set the records against the server's own stamps, for at most COMPARED requests that succeeded."""
    lines = (await asyncio.to_thread(_fetch, urllib.request.Request(f"{server.url}/truth"))).splitlines()
    step = max(1, len(lines) // COMPARED)
    truth = {row["request_id"]: row for row in map(orjson.loads, filter(None, lines[::step]))}
    return differences(truth, records, ids, t0_ns)


def differences(truth: Mapping[str, Mapping[str, Any]], records: Records, ids: list[str], t0_ns: int) -> Errors:
    """The errors of every successful request that the truth knows with as many tokens as were recorded."""
    none = np.zeros(0, np.int64)
    first, gaps, late, sure = [none], [none], [none], [none]
    offsets = records.chunk_offsets
    for row in np.flatnonzero(records.ok & records.in_measure).tolist():
        known = truth.get(ids[row])
        wrote = np.array(known["tokens"] if known is not None else (), dtype=np.int64).reshape(-1, 2)
        arrived = records.chunk_ns[offsets[row] : offsets[row + 1]] + t0_ns
        if known is None or len(wrote) != len(arrived) or not len(wrote):
            continue
        good = wrote[:, 1] - wrote[:, 0] <= SURE_NS
        first.append(np.abs(arrived[:1] - wrote[:1, 0])[good[:1]])
        gaps.append(np.abs(np.diff(arrived) - np.diff(wrote[:, 0]))[good[1:] & good[:-1]])
        sure.append(good.astype(np.int64))
        due = np.array(known.get("due_ns", ()), dtype=np.int64)
        if len(due) == len(wrote):
            late.append(wrote[:, 0] - due)
    told = np.concatenate(sure)
    unsure = 1.0 - float(told.mean()) if len(told) else 0.0
    return Errors(_sorted(first), _sorted(gaps), _sorted(late), unsure)


def _sorted(parts: list[IntArray]) -> IntArray:
    return np.sort(np.concatenate(parts))


def percentile(ordered: IntArray, q: str) -> int | None:
    """Nearest rank of sorted values; None of none."""
    return int(quantile(ordered.astype(np.float64), q)) if len(ordered) else None


def available() -> Literal["oracle", "scripted"]:
    """The best server that is installed: the exact one has a part in C, missing where there was no compiler."""
    return "oracle" if importlib.util.find_spec("plimsoll.reference_server._oracle") is not None else "scripted"


SHORTEST_S, LONGEST_S = 5.0, 600.0
CONNECTIONS = 64
#: Tokens an answer of the fast server (one a millisecond) and of the slow one (one in 50 ms) has.
FAST_TOKENS, SLOW_TOKENS = 128, 16
#: Where the climbs begin: any machine keeps this.
FIRST_TOKEN_RATE, FIRST_STREAMS = 50.0, 32.0
#: The open loop's climb begins at this part of what the closed loop reached: it has to leave room for the rest.
OPEN_FROM = 40
#: A climb goes on at this many times a load that was kept.
GROWTH = 3.0
MOST_STREAMS = 50_000.0
#: What is known finely enough: the next step up is less than this far above.
CLOSE = 1.15
#: Parts of the time: by when (as a share of it) each climb must be over.
OPEN_UNTIL, TOKENS_UNTIL, STREAMS_UNTIL = 0.36, 0.63, 0.92
#: With more writes than this of unknown time the server can't tell.
UNSURE = 0.05
_TIMER_N = 300


@dataclass(frozen=True, slots=True)
class Load:
    """One probe's load: what makes it a scenario, and whether the server's stamps are compared."""

    what: str
    asked: float
    protocol: str
    kind: str
    params: Mapping[str, Any]
    tokens: int = 0
    check_lag: bool = True


def parse_budget(text: str) -> float:
    """Seconds to spend. Raises HarnessFault."""
    try:
        seconds = parse_duration(text) / 1e9
    except ValueError as error:
        raise HarnessFault(f"--budget: {error}") from None
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise HarnessFault(f"--budget: {text} is not from {SHORTEST_S:g} s to {LONGEST_S / 60:g} min. 30s is usual")
    return seconds


def calibrate(budget_s: float, path: Path, say: Callable[[str], None]) -> Table:
    """Measure for about ``budget_s`` seconds, write the table and return it. Raises HarnessFault."""
    host = calibration_table.this_host(calibration_table.engine_of(Target("http://127.0.0.1:1", "openai-chat")))
    with (
        tempfile.TemporaryDirectory(prefix="plimsoll-calibrate-") as folder,
        own_cores() as (cores, apart),
    ):
        session = Session(Path(folder), budget_s, say, cores, apart)
        table = interrupts.run(session.run(host))
    calibration_table.save(table, path)
    return table


class Session:
    """One calibration: servers, probes, climbs."""

    def __init__(self, folder: Path, budget_s: float, say: Callable[[str], None], cores: set[int], apart: bool) -> None:
        self._folder = folder
        self._budget_s = budget_s
        self._probe_s = budget_s / 20
        self._say = say
        self._cores = cores
        self._apart = apart
        self._begun_s = time.monotonic()
        self._longest_s = 0.0
        self._count = 0
        self._engine = "python"

    async def run(self, host: Host) -> Table:
        """Measure everything. ``host`` was looked at before the cores were shared out."""
        busy = os.getloadavg()[0]
        if busy > host.cores / 2:
            self._say(
                f"this machine is busy (load average {busy:.1f}, {host.cores} cores): its figures will be too low"
            )
        where = "on another core" if self._apart else "on the only core, which makes every figure lower"
        timer = _spread(await lateness(_TIMER_N))
        async with AsyncExitStack() as stack:
            fast = await self._standard(stack, "1ms", available())
            slow = await self._standard(stack, "50ms", fast.kind)
            self._say(f"calibrating for about {self._budget_s:.0f} s against the {fast.kind} server {where}")
            closed = await self._probe(fast, _small("closed loop", CONNECTIONS, "concurrency"))
            if closed.requests_per_s < 1:
                raise HarnessFault(f"nothing could be measured: {closed.why}. Free the machine and calibrate again")
            rates = await self._climb(
                fast, lambda rate: _small("open loop", rate, "server"), closed.requests_per_s / OPEN_FROM,
                closed.requests_per_s, OPEN_UNTIL,
            )  # fmt: skip
            tokens = await self._climb(fast, _fast_streams, FIRST_TOKEN_RATE, math.inf, TOKENS_UNTIL)
            kept = [probe.asked for probe in tokens if probe.kept]
            # A quarter of what the token events allow: each slow stream has 20 of them a second.
            first = max(FIRST_STREAMS, max(kept, default=0.0) * FAST_TOKENS / 20 / 4)
            streams = await self._climb(slow, _slow_streams, first, self._most_streams(), STREAMS_UNTIL)
            added = await self._probe(fast, _fast_streams(max(kept) / 2)) if kept else None
            if added is not None and not added.kept:
                added = await self._probe(fast, _fast_streams(max(kept) / 2))
        room = limits.read()
        return Table(
            measured_at=datetime.now(UTC),
            took_s=round(time.monotonic() - self._begun_s, 1),
            host=host.model_copy(update={"engine": self._engine}),
            server=fast.kind,
            pinned=self._apart,
            open_files=min(room.open_files, room.all_files),
            ports=room.n_ports,
            timer_late_ns=timer,
            closed_loop=closed,
            open_loop=rates,
            tokens=tokens,
            streams=streams,
            added=added,
        )

    def _most_streams(self) -> float:
        host = limits.read()
        return min(MOST_STREAMS, host.open_files - RESERVED_FILES, host.n_ports)

    async def _standard(self, stack: AsyncExitStack, itl: str, kind: Literal["oracle", "scripted"]) -> Standard:
        log = self._folder / f"server-{itl}.log"
        try:
            return await stack.enter_async_context(standard("5ms", itl, self._cores, log, kind))
        except HarnessFault as fault:
            if kind == "scripted":
                raise
            self._say(f"{fault}: going on with the scripted one")
            return await stack.enter_async_context(standard("5ms", itl, self._cores, log, "scripted"))

    async def _climb(
        self, server: Standard, load: Callable[[float], Load], first: float, top: float, until: float
    ) -> list[Probe]:
        """Probes at rising loads: GROWTH times until one is not kept, then in between, as long as the time lasts.

        A load that is not kept gets a second try, since a hiccup of the host says little; at least one is measured.
        """
        probes: list[Probe] = []
        low, high, asked = 0.0, math.inf, min(first, top)
        again = False
        while not probes or self._time_for_one(until):
            probe = await self._probe(server, load(asked))
            if not probe.kept and not again and self._time_for_one(until):
                again = True
                continue
            again = False
            probes.append(probe)
            if probe.kept:
                low = asked
            else:
                high = asked
            if low >= top or high / max(low, 1e-9) < CLOSE:
                break
            asked = min(low * GROWTH, top) if high == math.inf else math.sqrt(low * high) if low else high / 4
            asked = float(round(asked)) if asked >= 10 else asked
        return probes

    def _time_for_one(self, until: float) -> bool:
        return time.monotonic() - self._begun_s + self._longest_s < until * self._budget_s

    async def _probe(self, server: Standard, load: Load) -> Probe:
        """One short run, and what it shows."""
        begun = time.monotonic()
        if load.tokens:
            await clear(server)
        probe = await self._measure(server, load)
        self._longest_s = max(self._longest_s, time.monotonic() - begun)
        self._say(f"[{time.monotonic() - self._begun_s:4.1f} s] {_line(load, probe)}")
        return probe

    async def _measure(self, server: Standard, load: Load) -> Probe:
        self._count += 1
        duration = f"{self._probe_s * 1000:.0f}ms"
        scenario = parse(
            {
                "name": "calibrate", "kind": load.kind, "params": dict(load.params), "timeout": "5s",
                "stop": {"min_queries": 1, "min_duration": duration},
                "source": {
                    "kind": "synthetic_text", "prompt_tokens": 8, "output_tokens": load.tokens or None, "count": 16,
                },
            },
            "calibrate",
        )  # fmt: skip
        options = {} if load.tokens else {"method": "GET", "path": "/health"}
        model = "scripted" if load.tokens else ""
        target = Target(
            server.url,
            load.protocol,
            model,
            options=options,
            timeout_ns=scenario.timeout_ns,
            max_outstanding=_enough_to_see(load),
        )
        directory = rundir.create(self._folder / f"probe-{self._count}")
        job = Job(scenario, scenario.to_mapping(), target, directory, ["plimsoll", "calibrate"])
        sealed = await _finished(job)
        if sealed.facts.engine_cpu:
            self._engine = "native"
        errors = None
        if load.tokens:
            ids = rundir.request_ids(str(sealed.manifest["run_id"]), sealed.records)
            t0_ns = int(sealed.manifest["t0_monotonic_ns"])
            errors = await compare(server, sealed.records, ids, t0_ns)
        return judge(load, sealed.records, sealed.facts, errors)


async def _finished(job: Job) -> rundir.Sealed:
    """The job's sealed run. Raises HarnessFault, also when the user interrupts it."""
    try:
        outcome = await Coordinator(job, lambda text: None).run()
    except HarnessFault as fault:
        if fault.code != ExitCode.INTERRUPTED:
            raise
        outcome = None
    if outcome is None or outcome.interrupted:
        raise HarnessFault("interrupted: no calibration was written", ExitCode.INTERRUPTED)
    return outcome.sealed


def _enough_to_see(load: Load) -> int:
    """The requests of a quarter of a second beyond those that a stream takes: a lost open loop then stops."""
    if load.kind != "server":
        return MAX_OUTSTANDING
    return int(max(256, load.asked * (0.25 + load.tokens / 1000)))


def judge(load: Load, records: Records, facts: GeneratorFacts, errors: Errors | None) -> Probe:
    """What one probe shows: figures, and whether the load was kept."""
    seen = assess(records, facts, strict=True)
    judged = verdict.judge(records, (), seen)
    rows = records.select(records.in_measure & records.ok)
    span_s = max(1e-9, (int(rows["done_ns"].max(initial=1)) - int(rows["due_ns"].min(initial=0))) / 1e9)
    lag = seen.generator_lag_ns
    ttft, itl, late = (
        _spread(part) for part in ((errors.ttft, errors.itl, errors.server_late) if errors else (_NONE, _NONE, _NONE))
    )
    cpu = max(facts.worker_cpu, default=0.0)
    probe = Probe(
        asked=load.asked,
        kept=True,
        requests_per_s=len(rows) / span_s,
        token_events_per_s=int(np.maximum(rows["n_chunks"], 0).sum()) / span_s,
        lag_ns=Spread(p50=lag.p50, p99=lag.p99),
        ttft_error_ns=ttft,
        itl_error_ns=itl,
        server_late_ns=late,
        kernel_share=seen.kernel_share,
        cpu=cpu,
        server_limited=(late.p99 or 0) > HONEST_NS or (errors is not None and errors.unsure > UNSURE),
    )
    failed = int((records.in_measure & ~records.ok).sum())
    reasons = [
        *(judged.reasons if judged.outcome == "INVALID" else ()),
        *([f"{failed} requests failed"] if failed else []),
        *([_above("lag", lag.p99)] if load.check_lag and (lag.p99 or 0) > HONEST_NS else []),
        *([_above("the error of arrival times", ttft.p99)] if (ttft.p99 or 0) > HONEST_NS else []),
        *(["nothing to compare with the server's stamps"] if errors is not None and ttft.p99 is None else []),
    ]
    why = "; ".join(reason.partition(". ")[0] for reason in dict.fromkeys(reasons))
    return probe.model_copy(update={"kept": not why, "why": why, "server_limited": bool(why) and probe.server_limited})


_NONE = np.zeros(0, np.int64)


def _spread(ordered: Any) -> Spread:
    return Spread(p50=percentile(ordered, "0.5"), p99=percentile(ordered, "0.99"))


def _above(what: str, value: int | None) -> str:
    return f"{what} p99 {(value or 0) / 1e6:.2f} ms, above {HONEST_NS / 1e6:g} ms"


def _small(what: str, asked: float, kind: str) -> Load:
    params = {"concurrency": int(asked)} if kind == "concurrency" else {"rate": asked}
    return Load(what, asked, "http", kind, params, check_lag=kind == "server")


def _fast_streams(rate: float) -> Load:
    return Load("tokens", rate, "openai-chat", "server", {"rate": rate}, tokens=FAST_TOKENS)


def _slow_streams(streams: float) -> Load:
    # A closed loop starts all its streams at once: whether that lateness is allowed is the run's own verdict.
    n = max(1, int(streams))
    return Load("streams", n, "openai-chat", "concurrency", {"concurrency": n}, tokens=SLOW_TOKENS, check_lag=False)


def _line(load: Load, probe: Probe) -> str:
    unit = {"closed loop": "connections", "streams": "at once"}.get(load.what, "requests/s")
    events = f", {probe.token_events_per_s:,.0f} token events/s" if load.tokens else ""
    limited = " (the server did not keep up)" if probe.server_limited else ""
    kept = "kept" if probe.kept else f"not kept{limited}: {probe.reason}"
    if load.what == "closed loop":
        kept = f"{probe.cpu:.0%} of a core"
    return f"{load.what}, {probe.asked:,.0f} {unit}: {probe.requests_per_s:,.0f} requests/s{events}, {kept}"


def tables(table: Table) -> list[RenderableType]:
    """The parts of the page, in order."""
    return [_summary(table), *(_probe_table(title, unit, found) for title, unit, found in _climbs(table) if found)]


def _climbs(table: Table) -> tuple[tuple[str, str, list[Probe]], ...]:
    return (
        ("Small answers, Poisson arrivals", "requests/s", table.open_loop),
        ("Streams, a token a millisecond", "requests/s", table.tokens),
        ("Streams at once, a token in 50 ms", "streams", table.streams),
    )


def _summary(table: Table) -> Grid:
    grid = _grid(f"One worker on this machine ({table.day}, {table.host.engine} engine, {table.took_s:.0f} s)")
    grid.add_column("")
    grid.add_column("", justify="right")
    grid.add_column("", overflow="fold")
    closed = table.closed_loop
    slow = " (the server was the limit)" if closed.cpu < SATURATED else ""
    grid.add_row("open loop", _number(table.requests_per_s, "requests/s"), _kept(table, table.open_loop))
    grid.add_row("closed loop", _number(closed.requests_per_s, "requests/s"), f"64 connections{slow}")
    grid.add_row("token events", _number(table.token_events_per_s, "events/s"), _kept(table, table.tokens))
    grid.add_row("streams at once", _number(table.concurrency, "streams"), _kept(table, table.streams))
    if table.added is not None:
        share = f"{table.added.kernel_share:.0%} kernel stamps"
        half = f"at {table.added.token_events_per_s:,.0f} token events/s, {share}"
        grid.add_row("error of TTFT", _shown_spread(table.added.ttft_error_ns), half)
        grid.add_row("error of ITL", _shown_spread(table.added.itl_error_ns), half)
        grid.add_row("lag", _shown_spread(table.added.lag_ns), "the same run")
    grid.add_row("bare timer", _shown_spread(table.timer_late_ns), "late, with nothing else to do")
    grid.add_row("cores", str(table.host.cores), table.host.cpu)
    grid.add_row("open files", f"{table.open_files:,}", "per process, hard limit")
    grid.add_row("local ports", f"{table.ports:,}", "connections to one address")
    where = "on a core of its own" if table.pinned else "on the same core: every figure is lower than it could be"
    grid.add_row("server", table.server, where)
    return grid


def _kept(table: Table, probes: list[Probe]) -> str:
    if not any(probe.kept for probe in probes):
        return "none was kept: is the machine busy?"
    return "at least: the server was the limit" if table.server_limited(probes) else "with lag and error p99 <= 1 ms"


def _probe_table(title: str, unit: str, probes: list[Probe]) -> Grid:
    grid = _grid(title)
    for name in (unit, "token events/s", "lag p99", "TTFT error p99", "CPU"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("kept", overflow="fold")
    for probe in sorted(probes, key=lambda one: one.asked):
        limited = "the server did not keep up; " if probe.server_limited else ""
        grid.add_row(
            f"{probe.asked:,.0f}",
            f"{probe.token_events_per_s:,.0f}" if probe.token_events_per_s else "",
            _p99(probe.lag_ns),
            _p99(probe.ttft_error_ns),
            f"{probe.cpu:.0%}",
            Text("yes" if probe.kept else f"no: {limited}{probe.reason}"),
        )
    return grid


def _grid(title: str) -> Grid:
    return Grid(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2))


def _number(value: float | None, unit: str) -> str:
    return f"no {unit}" if value is None else f"{value:,.0f} {unit}"


def _shown_spread(spread: Spread) -> str:
    if spread.p50 is None or spread.p99 is None:
        return "-"
    return f"{human_ns(spread.p50)} / {human_ns(spread.p99)}"


def _p99(spread: Spread) -> str:
    return "-" if spread.p99 is None else human_ns(spread.p99)
