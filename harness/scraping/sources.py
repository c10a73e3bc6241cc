"""Where a server's own figures come from: pages over HTTP, and what Linux and the driver say of a process and its host.

A source is asked and answers with a ``Sample`` or raises ``Unread`` with the reason; it never blocks for longer than
it was given, and never holds more than ``MOST_BYTES``.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from plimsoll.harness.scraping.gpus import Gpus
from plimsoll.harness.wire.exposition import NotMetrics, Written, declared, quoted, samples
from plimsoll.slo.records.foreign import NAME, one_line

MOST_BYTES = 16 << 20
_ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.9,application/json;q=0.5"
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_RAPL = Path("/sys/class/powercap")


class Unread(Exception):
    """Why a source gave nothing this time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything that a source said at one time: when it was asked, when the first byte came, when the last one.

    ``declared``: counters that it has, of which some may have no series yet.
    """

    sent_ns: int
    first_ns: int
    end_ns: int
    n_bytes: int
    values: Mapping[Written, float]
    declared: frozenset[str] = frozenset()


class Source(Protocol):
    """Whoever can be asked. Its ``where`` may be written down."""

    @property
    def where(self) -> str: ...

    def read(self, timeout_s: float) -> Sample:
        """Raises Unread."""
        ...

    def close(self) -> None: ...


class Page:
    """A page over HTTP/1.1, on one connection that is kept. ``where``: the address without what may be secret."""

    def __init__(self, url: str, where: str, ca_file: str | None = None, verify: bool = True) -> None:
        self._parts, self.where = urlsplit(url), where
        self._tls = (ca_file, verify)
        self._held: http.client.HTTPConnection | None = None
        self._headers = {"Accept": _ACCEPT, "Accept-Encoding": "gzip", "User-Agent": "plimsoll"}
        self._headers |= authorization(self._parts)

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
        self._held = None

    def read(self, timeout_s: float) -> Sample:
        fresh, over = self._held is None, time.monotonic() + timeout_s
        try:
            return self._read(timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if time.monotonic() > over:
                raise Unread(_why(TimeoutError(), timeout_s)) from None
            if not fresh and isinstance(error, ConnectionError | http.client.RemoteDisconnected):
                return self.read(timeout_s)  # a kept connection that the server had closed meanwhile
            raise Unread(_why(error, timeout_s)) from None
        except Unread:
            self.close()
            raise

    def _read(self, timeout_s: float) -> Sample:
        over = time.monotonic() + timeout_s
        held = self._held = self._held or self._connection(timeout_s)
        if held.sock is None:
            held.connect()
        held.sock.settimeout(timeout_s)
        target = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        sent_ns = time.monotonic_ns()
        held.request("GET", target, headers=self._headers)
        if not select.select([held.sock], [], [], max(0.0, over - time.monotonic()))[0]:
            raise TimeoutError
        first_ns = time.monotonic_ns()
        hurry = threading.Timer(over - time.monotonic(), _cut, (held.sock,))  # a head may have no end
        hurry.start()
        try:
            answer = held.getresponse()
            data = b"".join(self._pieces(answer, over))
        finally:
            hurry.cancel()
        end_ns = time.monotonic_ns()
        if time.monotonic() > over:
            raise TimeoutError
        if answer.status != 200:
            raise Unread(one_line(f"it answered {answer.status} {answer.reason}", NAME))
        kind = answer.getheader("Content-Type", "")
        return Sample(sent_ns, first_ns, end_ns, len(data), *_values(data, answer, kind))

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        ca_file, verify = self._tls
        context = ssl.create_default_context()
        if ca_file:
            context.load_verify_locations(ca_file)
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)

    @staticmethod
    def _pieces(answer: http.client.HTTPResponse, over: float) -> Iterator[bytes]:
        n_bytes = 0
        while piece := answer.read1(1 << 16):
            n_bytes += len(piece)
            if n_bytes > MOST_BYTES:
                raise Unread(f"its page has more than {MOST_BYTES >> 20} MiB")
            if time.monotonic() > over:
                raise TimeoutError
            yield piece
        if answer.length:  # read1 tells no cut page
            raise http.client.IncompleteRead(b"", answer.length)
        answer.close()  # else the connection takes no next request


def authorization(parts: SplitResult) -> dict[str, str]:
    """User and password of an address as a header, if it has them."""
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _values(data: bytes, answer: http.client.HTTPResponse, kind: str) -> tuple[dict[Written, float], frozenset[str]]:
    try:
        if answer.getheader("Content-Encoding", "identity").lower() in ("gzip", "deflate"):
            unpacked = zlib.decompressobj(zlib.MAX_WBITS | 32)
            data = unpacked.decompress(data, MOST_BYTES)
            if not unpacked.eof:
                raise Unread(f"its page was cut off, or has more than {MOST_BYTES >> 20} MiB")
        text = data.decode()
        if "json" in kind or text.lstrip()[:1] in ("{", "["):
            return of_json(json.loads(text)), frozenset()
        return samples(text, open_metrics="openmetrics" in kind), frozenset(declared(text))
    except (zlib.error, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        said = one_line(error, NAME) if isinstance(error, NotMetrics) else f"it can't be read ({type(error).__name__})"
        raise Unread(f"its page is no metrics: {said}") from None


def _why(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no whole page within {timeout_s:g} s"
    if isinstance(error, http.client.IncompleteRead):
        return "its page was cut off"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    what = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return f"no answer ({what})"


def of_json(found: Any) -> dict[Written, float]:
    """Triton's statistics, TensorRT-LLM's iterations and the slots of llama.cpp, as series. Raises NotMetrics for any
    other document.
    """
    if isinstance(found, dict) and isinstance(found.get("model_stats"), list):
        values: dict[Written, float] = {}
        for one in found["model_stats"]:
            labels = quoted(model=one.get("name", ""), version=one.get("version", ""))
            for path, value in _numbers(one):
                values[f"triton_statistics_{path}", labels] = value
            for batch in one.get("batch_stats", ()):
                sized = quoted(model=one.get("name", ""), version=one.get("version", ""), size=batch["batch_size"])
                values["triton_statistics_batch_executions", sized] = float(batch["compute_infer"]["count"])
        return values
    if isinstance(found, list) and found and all(isinstance(one, dict) and "n_ctx" in one for one in found):
        values = {}
        silent = any("next_token" in one and "n_prompt_tokens" not in one for one in found)  # an older release
        for one in found:
            labels = quoted(slot=one.get("id", ""))
            values["llamacpp_slot_n_ctx", labels] = float(one["n_ctx"])
            values["llamacpp_slot_is_processing", labels] = float(bool(one.get("is_processing")))
            if not silent:  # what was generated is among them; a slot that was never used says nothing of it
                values["llamacpp_slot_tokens", labels] = float(one.get("n_prompt_tokens", 0))
                values["llamacpp_slot_usage", labels] = one.get("n_prompt_tokens", 0) / one["n_ctx"]
        return values
    if isinstance(found, list) and all(isinstance(one, dict) and "numActiveRequests" in one for one in found):
        return _iterations(found)
    raise NotMetrics("it is JSON, of a kind that is not known")


def _iterations(rows: list[dict[str, Any]]) -> dict[Written, float]:
    """How things stood at TensorRT-LLM's last iteration since it was asked before; nothing if there was none.

    Rank 0 tells of all; of what ranks do alone each has a row. Counters there are of one iteration: whoever else asks
    takes those away, so that they add up to nothing that could be relied on.
    """
    last = [row for row in rows if row.get("iter") == rows[-1].get("iter")]
    first = next((row for row in last if not row.get("attentionDpRank")), None)
    values = {(f"trtllm_iteration_{path}", ""): value for path, value in _numbers(first)}
    for row in last:
        batch = (row.get("inflightBatchingStats") or {}).get("numScheduledRequests")
        if batch is not None:
            labels = quoted(rank=row.get("attentionDpRank", 0))
            values["trtllm_iteration_scheduled", labels] = float(batch)
    return values


def _numbers(found: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a document by its path; an entry of a list is named by what it says it is of."""
    if isinstance(found, bool | int | float):
        yield path, float(found)
    elif isinstance(found, dict):
        for name, value in found.items():
            yield from _numbers(value, f"{path}_{name}" if path else str(name))
    elif isinstance(found, list):
        for one in found:
            if isinstance(one, dict) and "batch_size" in one:
                yield from _numbers(one, f"{path}_{one['batch_size']}")


class Process:
    """Memory and processor time of a process of this host and of what it started, and what the host's meters say."""

    def __init__(self, pid: int) -> None:
        self._pid, self.where = pid, f"process {pid}"
        self._gpus = Gpus()

    def close(self) -> None:
        return

    def read(self, timeout_s: float) -> Sample:
        sent_ns = time.monotonic_ns()
        values: dict[Written, float] = {}
        for pid in _family(self._pid):
            labels = quoted(pid=pid)
            try:
                text = Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            fields = text.rpartition(")")[2].split()
            values["proc_cpu_seconds_total", labels] = (int(fields[11]) + int(fields[12])) / _TICKS
            values["proc_resident_bytes", labels] = int(fields[21]) * _PAGE
            if pid == self._pid:
                values["proc_process_start_time_seconds", labels] = int(fields[19]) / _TICKS
                gone = fields[0] in "ZX"
        if not values or gone:
            raise Unread(f"process {self._pid} is gone")
        values |= _rapl()
        values |= self._gpus.read()
        end_ns = time.monotonic_ns()
        return Sample(sent_ns, sent_ns, end_ns, 0, values)


def _family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    try:
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        below = [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:
        return
    for child in below:
        yield from _family(child)


def _rapl() -> dict[Written, float]:
    """Joules that each processor package has used, where the host has meters that we may read."""
    found: dict[Written, float] = {}
    for one in _RAPL.glob("intel-rapl:?"):
        try:
            found["rapl_energy_joules_total", quoted(package=one.name)] = int((one / "energy_uj").read_text()) / 1e6
        except (OSError, ValueError):
            continue
    return found
