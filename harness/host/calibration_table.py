"""The table that ``plimsoll calibrate`` writes: what this machine can do honestly, and what of a run is beyond it.

A table belongs to one host, kernel, version and engine. Any other table is refused with the reason, and so is an old
one: a wrong calibration is worse than none. ``harness/calibration/probes.py`` measures.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.manifest import host_facts, package_version
from plimsoll.harness.process.writing import write_json
from plimsoll.harness.protocols._discovery import protocol
from plimsoll.harness.transport.client import Target

SCHEMA = "plimsoll.calibration/1"
#: After this a calibration has to be made again.
STALE = timedelta(days=30)
#: A worker is the limit of a closed loop when it uses this much of a core; below it the server was.
SATURATED = 0.85
#: A machine keeps a load when the generator's lag, and its error in arrival times, have a p99 of at most this.
HONEST_NS = 1_000_000
_AGAIN = "run `plimsoll calibrate`"


class Spread(BaseModel, frozen=True, extra="forbid"):
    """Nearest-rank percentiles in ns; null when nothing was measured."""

    p50: int | None = None
    p99: int | None = None


class Host(BaseModel, frozen=True, extra="forbid"):
    """What a calibration is good for: it is another machine when any of these differs."""

    hostname: str
    cpu: str
    cores: int = Field(description="that this process may use")
    kernel: str
    plimsoll: str
    engine: str = Field(description="native or python: what sends and stamps")


class Probe(BaseModel, frozen=True, extra="forbid"):
    """One short run of one worker. ``asked``: a rate, or a number of streams."""

    asked: float
    kept: bool = Field(description="VALID, and no lag or error above the bound")
    why: str = Field(default="", description="why not")
    requests_per_s: float = 0.0
    token_events_per_s: float = 0.0
    lag_ns: Spread = Field(default=Spread(), description="ready - due")
    ttft_error_ns: Spread = Field(
        default=Spread(), description="|arrival of the first token - the server's write of it|"
    )
    itl_error_ns: Spread = Field(default=Spread(), description="|gap between arrivals - gap between writes|")
    server_late_ns: Spread = Field(default=Spread(), description="the server's writes, later than they were due")
    kernel_share: float = 0.0
    cpu: float = Field(default=0.0, description="share of a core that the worker used")
    server_limited: bool = False

    @property
    def reason(self) -> str:
        """The first reason why the load was not kept."""
        return self.why.partition("; ")[0]


class Table(BaseModel, frozen=True, extra="forbid"):
    """One calibration. Every figure is of one worker."""

    measured_at: datetime
    took_s: float
    host: Host
    server: Literal["oracle", "scripted"]
    pinned: bool = Field(description="server and worker had a core each")
    open_files: int
    ports: int
    timer_late_ns: Spread
    closed_loop: Probe = Field(description="small answers, 64 connections")
    open_loop: list[Probe] = Field(description="small answers, Poisson arrivals at rising rates")
    tokens: list[Probe] = Field(description="streams of a token a millisecond, at rising rates")
    streams: list[Probe] = Field(description="rising numbers of streams at once, a token in 50 ms each")
    added: Probe | None = Field(description="streams at half of the token events per second that were kept")

    @property
    def requests_per_s(self) -> float | None:
        """The highest open-loop rate that was kept."""
        return best(self.open_loop, lambda probe: probe.requests_per_s)

    @property
    def token_events_per_s(self) -> float | None:
        """The highest rate of token events that was kept."""
        return best(self.tokens, lambda probe: probe.token_events_per_s)

    @property
    def concurrency(self) -> float | None:
        """The largest number of streams at once that was kept."""
        return best(self.streams, lambda probe: probe.asked)

    @property
    def day(self) -> str:
        """The date of the calibration, for people."""
        return f"{self.measured_at:%Y-%m-%d}"

    def server_limited(self, probes: list[Probe]) -> bool:
        """The next step up failed because the calibration's own server did not keep up: the figure is a lower bound."""
        top = max((probe.asked for probe in probes if probe.kept), default=0.0)
        above = [probe for probe in probes if probe.asked > top]
        return bool(above) and min(above, key=lambda probe: probe.asked).server_limited


def best(probes: list[Probe], figure: Any) -> float | None:
    """The largest figure among the probes that were kept."""
    return max((float(figure(probe)) for probe in probes if probe.kept), default=None)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run asks of the generator, all workers together; None: it can't be known beforehand."""

    workers: int
    rate_per_s: float | None = None
    streams: int | None = None
    token_events_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The table that fits this host, or why there is none (in words that end with the next step)."""

    table: Table | None
    note: str = ""


def engine_of(target: Target, hurried: bool = False, habitual: bool = False) -> str:
    """What will send to this target: the C extension speaks plain HTTP/1.1, Python everything else, sessions in which
    nobody thinks (``hurried``), and what a client with habits sends again or drops.
    """
    if target.engine != "auto":
        return target.engine
    alone = not (hurried or habitual or target.fresh or target.impair is not None)
    plain = alone and target.url.startswith("http:") and protocol(target.protocol).needs_url
    return "native" if plain and find_spec("plimsoll.harness.generator._engine") is not None else "python"


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may use: by its affinity, and by the CPU quota of its container."""
    allowed = len(os.sched_getaffinity(0))
    try:
        most, period = quota.read_text().split()
        return max(1, min(allowed, math.ceil(int(most) / int(period))))
    except (OSError, ValueError):  # no cgroup v2, or "max"
        return allowed


def this_host(engine: str) -> Host:
    """The host that this process runs on."""
    facts = host_facts()
    return Host(
        hostname=facts["hostname"],
        cpu=facts["cpu"],
        cores=usable_cores(),
        kernel=facts["os"],
        plimsoll=package_version(),
        engine=engine,
    )


def table_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the table lies: PLIMSOLL_CALIBRATION, else in the user's cache folder."""
    if environ.get("PLIMSOLL_CALIBRATION"):
        return Path(environ["PLIMSOLL_CALIBRATION"])
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "plimsoll" / "calibration.json"


def save(table: Table, path: Path) -> None:
    """Write the table beside those of other hosts and engines in that file. Raises HarnessFault if it can't."""
    try:
        others = [one for one in _load(path) if (one.host.hostname, one.host.engine) != _place(table)]
    except (OSError, ValueError):
        others = []  # nothing there, or nothing that can be read: it is replaced
    document = {"schema": SCHEMA, "tables": [one.model_dump(mode="json") for one in (*others, table)]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, document)
    except OSError as error:
        raise HarnessFault(
            f"--out: the calibration can't be written to {path} ({error.strerror}). Name another file with --out"
        ) from None


def find(host: Host, now: datetime, path: Path) -> Found:
    """The table for this host in that file, if it is there and still good. Never raises."""
    try:
        tables = _load(path)
    except FileNotFoundError:
        return Found(None, f"not calibrated on this machine: {_AGAIN}")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is damaged or from another version"
        return Found(None, f"the calibration in {path} can't be used ({reason}): {_AGAIN}")
    same = [one for one in tables if (one.host.hostname, one.host.engine) == (host.hostname, host.engine)]
    if not same:
        here = [one for one in tables if one.host.hostname == host.hostname]
        if here:
            return Found(
                None,
                f"calibrated with the {here[0].host.engine} engine, and this run uses the {host.engine} one: its error "
                "is not known",
            )
        known = ", ".join(sorted({one.host.hostname for one in tables})) or "none"
        return Found(None, f"the calibration in {path} is of another machine ({known}): {_AGAIN}")
    table = same[-1]
    changed = [name for name in Host.model_fields if getattr(table.host, name) != getattr(host, name)]
    if changed:
        was = ", ".join(f"{name} was {getattr(table.host, name)}, is {getattr(host, name)}" for name in changed)
        return Found(None, f"the calibration of {table.day} no longer fits this machine ({was}): {_AGAIN}")
    if now - table.measured_at > STALE:
        return Found(None, f"the calibration of {table.day} is older than {STALE.days} days: {_AGAIN}")
    return Found(table)


def _place(table: Table) -> tuple[str, str]:
    return table.host.hostname, table.host.engine


def _load(path: Path) -> list[Table]:
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError("another schema")
    try:
        return [Table.model_validate_json(json.dumps(one)) for one in document["tables"]]
    except (ValidationError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


def workers_for(table: Table, demand: Demand) -> int:
    """How many workers the demand takes by this calibration, one core left free; 1 where it can't be told."""
    asked = [(wanted, limit) for wanted, limit, _, _ in _asked(table, demand) if wanted is not None and limit]
    needed = max((math.ceil(wanted / limit) for wanted, limit in asked), default=1)
    return max(1, min(needed, table.host.cores - 1))


def _asked(table: Table, demand: Demand) -> tuple[tuple[float | None, float | None, list[Probe], str], ...]:
    """(what is wanted, what one worker keeps, the probes behind that, its unit)."""
    return (
        (demand.rate_per_s, table.requests_per_s, table.open_loop, "requests/s"),
        (demand.streams, table.concurrency, table.streams, "streams at once"),
        (demand.token_events_per_s, table.token_events_per_s, table.tokens, "token events/s"),
    )


def beyond(table: Table, demand: Demand) -> list[str]:
    """What this demand asks that the calibration did not find honest: number, limit, and what to do."""
    asked = _asked(table, demand)
    unkept = [unit for wanted, limit, _, unit in asked if wanted is not None and limit is None]
    found = [
        _beyond(table, demand.workers, wanted, limit, unit, table.server_limited(probes))
        for wanted, limit, probes, unit in asked
        if wanted is not None and limit is not None and wanted > limit * demand.workers
    ]
    if unkept:
        found.append(
            f"this machine was too busy when it was calibrated ({table.day}): no measured load ({', '.join(unkept)}) "
            f"was kept within {HONEST_NS / 1e6:g} ms, so this run may be INVALID. Free the machine and {_AGAIN} again"
        )
    return found


def _beyond(table: Table, workers: int, wanted: float, limit: float, unit: str, at_least: bool) -> str:
    who = "one worker" if workers == 1 else f"{workers} workers"
    needed = math.ceil(wanted / limit)
    if needed <= table.host.cores:
        step = f"Use --workers {needed}"
    else:
        most = _round_down(limit * table.host.cores)
        step = (
            f"That takes {needed} workers and this machine has {table.host.cores} cores: stay below {most:,}, "
            "or use more machines"
        )
    bound = ", which was all that its test server gave" if at_least else ""
    return (
        f"{wanted:,.0f} {unit} from {who} is beyond what this machine does honestly: {_round_down(limit):,} a worker "
        f"(calibrated {table.day}{bound}). {step}"
    )


def _round_down(value: float) -> int:
    """Three digits: more would claim a precision that a short measurement doesn't have."""
    step = 10 ** max(0, math.floor(math.log10(max(value, 1))) - 2)
    return int(value // step * step)
