"""The server that a calibration measures against: scripted, on a core of its own, and saying what it wrote when.

It is the exact one (``plimsoll.reference_server.oracle``) where that was built, else the slower one in Python, and the
table says which. Both share a wire contract with us, never code.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process import child, writing
from plimsoll.harness.run import bundled
from plimsoll.slo.records.records import IntArray, Records
from plimsoll.slo.statistics.distribution import quantile

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
