"""The process that asks a server how it is, once a period, for as long as a run goes on (``python -m``).

It is no sender: whatever a page costs to read is paid here. Told on stdin what to ask, it asks each source once, says
on stdout what came of it, and then goes on until it is told to stop, or its parent is gone: then it asks each once
more, as it does between two periods when it is told to. Every sample is on disk before the next is asked for. A source
that takes more than 5 % of its period is asked less often.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from plimsoll.harness.scraping.samples_writer import Writer
from plimsoll.harness.scraping.sources import Page, Process, Sample, Source, Unread
from plimsoll.harness.secrecy.redaction import learn
from plimsoll.harness.secrecy.secrets import learn_target, query_values, url_secrets
from plimsoll.harness.wire.exposition import Written
from plimsoll.slo.server.canonical import Reading, engines, meanings

_BEGUN = ("_created", "triton_statistics_last_inference")
#: A scrape takes at most this share of its period.
MOST_SHARE = 0.05
#: Of so many scrapes the median says how long one takes.
_LAST = 5
#: No answer is waited for longer than this; by the last scrape, which the run waits for, than that.
_PATIENCE_S, _LAST_PATIENCE_S = 10.0, 3.0


class Loop:
    """One source, asked once a period by a thread of its own."""

    def __init__(self, number: int, source: Source, period_s: float, writer: Writer) -> None:
        self._number, self._source, self._writer = number, source, writer
        self._wanted_s = self._period_s = period_s
        self._took: deque[float] = deque(maxlen=_LAST)
        self._over, self._now = False, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hurry(self) -> None:
        """Ask now, and then a period later."""
        self._now.set()

    def stop(self) -> None:
        self._over = True
        self._now.set()

    def join(self) -> None:
        self._thread.join(_PATIENCE_S + _LAST_PATIENCE_S)

    def _run(self) -> None:
        due = time.monotonic() + self._period_s
        while True:
            hurried = self._now.wait(max(0.0, due - time.monotonic()))
            self._now.clear()
            if self._over:
                break
            due = time.monotonic() if hurried else due
            self.ask(_PATIENCE_S)
            due = max(due + self._period_s, time.monotonic())
        self.ask(_LAST_PATIENCE_S)
        self._source.close()

    def ask(self, patience_s: float) -> Sample | None:
        """Ask once and write down what came of it."""
        began_ns = time.monotonic_ns()
        try:
            found = self._source.read(patience_s)
        except Unread as reason:
            self._writer.gap(self._number, began_ns, time.monotonic_ns(), str(reason))
            return None
        self._writer.sample(self._number, found, self._period_s)
        self._took.append((found.end_ns - found.sent_ns) / 1e9)
        self._period_s = max(self._wanted_s, statistics.median(self._took) / MOST_SHARE)
        return found


def opened(spec: Mapping[str, Any]) -> list[tuple[str, Source]]:
    """The sources that were asked for by name, and of ``auto`` every place that shows metrics that are known."""
    tls = spec.get("ca_file"), spec.get("verify", True)
    found = [(one["name"], _source(one["url"], one["where"], tls)) for one in spec["pages"]]
    named = [_read(page) for _, page in found] if spec["auto"] else []
    found += [(f"pid-{pid}", Process(pid)) for pid in spec["pids"]]
    return found + _shown(spec["auto"], spec["places"], tls, named)


def _source(url: str, where: str, tls: tuple[str | None, bool]) -> Source:
    if not url.startswith("grpc"):
        return Page(url, where, *tls)
    from plimsoll.harness.scraping.statistics import Statistics  # and protobuf with it

    return Statistics(url, where, *tls)


def _read(source: Source) -> Mapping[Written, float]:
    """What it says, nothing if it says nothing."""
    try:
        return source.read(_LAST_PATIENCE_S).values
    except Unread:
        return {}


def one_process(one: Mapping[Written, float], other: Mapping[Written, float]) -> bool:
    """Whether two pages count the same things of one process: series that were begun at the same microsecond, or models
    that inferred for the last time in the same millisecond.
    """
    ours, theirs = (
        {at for at in values.items() if at[1] and at[0][0].endswith((*_BEGUN, "process_start_time_seconds"))}
        for values in (one, other)
    )
    begun = any(family.endswith(_BEGUN) for (family, _), _ in ours & theirs)
    started = [{at for at in found if not at[0][0].endswith(_BEGUN)} for found in (ours, theirs)]
    return begun and started[0] == started[1]


def _shown(
    urls: Sequence[str],
    places: Sequence[str],
    tls: tuple[str | None, bool],
    named: Sequence[Mapping[Written, float]],
) -> list[tuple[str, Source]]:
    """Every place that shows metrics that are known, and not those of a page that was named. Where the target shows how
    it serves by itself, another server on its host is none of its own, but what tells of the host's GPUs is.
    """
    found: list[tuple[str, Source]] = []
    serving: set[str] = set()
    taken: set[tuple[str, frozenset[str]]] = set()  # some show one page at any path
    for where, own in candidates(urls, places).items():
        page, at = _source(where, where, tls), urlsplit(where)
        values = _read(page)
        families = frozenset(name for name, _ in values)
        known = [meant for family in families for meant in _means(family)]
        serves = {engine for engine, reading in known if reading.name.startswith("server.")}
        if any(one_process(values, one) for one in named):
            serving |= serves
            page.close()
        elif known and (own or not (serves and serving)) and (at.netloc, families) not in taken:
            taken.add((at.netloc, families))
            serving |= serves - {"triton_statistics"}  # Triton's metrics are on another port
            found.append((at.netloc + at.path.removesuffix("/metrics"), page))
        else:
            page.close()
    return found


def _means(family: str) -> list[tuple[str, Reading]]:
    """What an engine means by a family; what any process says of itself makes it no server."""
    return [(engine, reading) for engine, reading in meanings().get(family, ()) if engines()[engine].places]


def candidates(urls: Sequence[str], places: Sequence[str]) -> dict[str, bool]:
    """All addresses at which servers of these URLs may show metrics, their own ports first (True)."""
    found: dict[str, bool] = {}
    for own in (True, False):
        for parts in (urlsplit(url) for url in urls):
            host = parts.hostname or ""
            name = f"[{host}]" if ":" in host else host
            scheme = "https" if parts.scheme in ("https", "wss", "grpcs") else "http"
            if own and host and parts.scheme.startswith("grpc"):
                found.setdefault(urlunsplit((parts.scheme, f"{name}:{parts.port}", "", "", "")), own)
            for port, _, path in (place.partition("/") for place in places):
                at = f"{name}:{port or parts.port}" if port or parts.port else name
                if host and own is not bool(port):
                    found.setdefault(urlunsplit((scheme, at, f"/{path}", "", "")), own)
    return found


def main(stdin: IO[str], stdout: IO[str]) -> None:
    spec = json.loads(stdin.readline())
    for target in spec["targets"]:
        learn_target(**target)
    learn(secret for page in spec["pages"] for secret in url_secrets(page["url"]) | query_values(page["url"]))
    writer = Writer(spec["file"])
    sources = opened(spec)
    loops: list[Loop] = []
    said, twice = [], []
    pages: dict[str, Mapping[Written, float]] = {}
    for number, (name, source) in enumerate(sources):
        writer.source(number, name, source.where, spec["period_s"])
        loops.append(loop := Loop(number, source, spec["period_s"], writer))
        sample = loop.ask(_LAST_PATIENCE_S)
        if sample is None:
            said.append({"name": name, "where": source.where, "reason": writer.last_reason})
            continue
        twice += [[before, name] for before, values in pages.items() if one_process(values, sample.values)]
        pages[name] = sample.values
    print(json.dumps({"sources": len(sources), "failed": said, "twice": twice}), file=stdout, flush=True)
    for loop in loops:
        loop.start()
    while stdin.readline().strip() == "ask":
        for loop in loops:
            loop.hurry()
    for loop in loops:
        loop.stop()
    for loop in loops:
        loop.join()
    writer.close()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
