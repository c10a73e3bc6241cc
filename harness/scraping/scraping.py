"""``--server-metrics`` and ``--server-pid``: what is asked of a server while a run goes on, and the watcher that has it
asked, by a process of its own (``harness/scraping/scraper.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.manifest import public_url
from plimsoll.harness.process import child
from plimsoll.harness.run.coordinator import Job
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.watcher import Beginning, Watcher
from plimsoll.harness.scraping.scraper import candidates
from plimsoll.harness.scraping.sources import Page, Unread
from plimsoll.harness.sealing.samples_file import SAMPLES
from plimsoll.harness.secrecy.redaction import learn, redact
from plimsoll.harness.secrecy.secrets import url_secrets
from plimsoll.harness.transport.client import Target
from plimsoll.harness.wire.exposition import labels_of
from plimsoll.slo.server.canonical import engines

PERIOD_S = 1.0
AUTO = "auto"
#: What the first scrape of all sources, and the last one, may take together.
_READY_S, _LAST_S = 60.0, 15.0
#: A page that tells of a start is not waited for longer.
_PHASES_S = 3.0
#: Nothing that starts takes longer: what does is no length.
_LONGEST_NS = 1e18
_NAMED = re.compile(r"(?:([A-Za-z0-9_.-]+)=)?((?:https?|grpcs?)://.+)")


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked: pages by name, processes of this host, and, if ``auto``, what the target shows by itself."""

    pages: tuple[tuple[str, str], ...] = ()
    pids: tuple[int, ...] = ()
    auto: bool = False

    def __bool__(self) -> bool:
        return bool(self.pages or self.pids or self.auto)


def asking(texts: Sequence[str], pids: Sequence[int]) -> tuple[Asking, list[str]]:
    """What the flags ask for, and every error in them. Secrets of the addresses are known from now on."""
    errors: list[str] = []
    pages: dict[str, str] = {}
    for place, text in enumerate(texts, 1):
        if text == AUTO:
            continue
        found = _NAMED.fullmatch(text)
        url = found[2] if found else ""
        try:
            good = found is not None and bool(urlsplit(url).hostname) and urlsplit(url).port != 0
        except ValueError:
            good = False
        if found is None or not good:
            errors.append(
                f"--server-metrics, number {place}: not an address. Write http://HOST:PORT/metrics, "
                "grpc://HOST:PORT for Triton's statistics, NAME=URL, or auto"
            )
            continue
        learn(url_secrets(url))
        parts = urlsplit(url)
        url = (
            url
            if parts.path.strip("/") or parts.scheme.startswith("grpc")
            else parts._replace(path="/metrics").geturl()
        )
        name = found[1] or redact(f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname))
        if name in pages:
            errors.append(f"--server-metrics: two sources are called {name}. Give each a name: NAME=http://...")
        pages[name] = url
    errors += [
        f"--server-pid {pid}: there is no such process on this host. Give the server's own"
        for pid in pids
        if not Path(f"/proc/{pid}").is_dir()
    ]
    return Asking(tuple(pages.items()), tuple(dict.fromkeys(pids)), AUTO in texts), errors


def watch(asked: Asking, prepared: Prepared) -> tuple[Watcher, ...]:
    """Who has it asked during one run."""
    job = prepared.job
    tls = {"ca_file": job.target.ca_file, "verify": job.target.tls_verify}
    return (Scraping(asked, job.directory.path, tls, _private(job)),)


def _private(job: Job) -> list[dict[str, Any]]:
    """What ``learn_target`` takes of everywhere that a run sends to."""
    found = []
    for one in (job, *job.classes.values()):
        client, target = one.scenario.client, one.target
        hedge = client.hedge.to if client is not None and client.hedge is not None else None
        found += [
            {
                "headers": target.headers,
                "options": dict(target.options),
                "url": url,
                "secrets": target.secrets,
                "public": (target.model, target.protocol),
            }
            for url in (target.url, hedge)
            if url
        ]
    return found


def startup(target: Target) -> dict[str, int]:
    """What a server that has started says of its start: nanoseconds by phase, nothing where it says nothing."""
    telling = {engine.phases[0]: engine.phases for engine in engines().values() if engine.phases is not None}
    places = sorted({place for engine in engines().values() if engine.phases for place in engine.places})
    told = dict[str, int]()
    pages = [where for where in candidates([target.url], places) if where.startswith("http")]
    for page in (Page(where, where, target.ca_file, target.tls_verify) for where in pages):
        with contextlib.suppress(Unread):
            for (family, labels), value in page.read(_PHASES_S).values.items():
                _, label, scale = telling.get(family, ("", "", math.nan))
                if 0 <= value * scale < _LONGEST_NS:
                    told[redact(labels_of(labels).get(label, ""))] = round(value * scale)
        page.close()
    return told


class Scraping(Watcher):
    """Has a server asked from before the first query until after the last answer."""

    def __init__(self, asked: Asking, directory: Path, tls: dict[str, Any], private: list[dict[str, Any]]) -> None:
        self._asked, self._directory, self._tls, self._private = asked, directory, tls, private
        self._process: asyncio.subprocess.Process | None = None

    async def ready(self, urls: Sequence[str], pid: int | None = None) -> None:
        """Ask everything once. Raises HarnessFault for what gives no metrics, before anything is sent."""
        asked = self._asked
        if pid is not None and Path(f"/proc/{pid}").is_dir():
            asked = replace(asked, pids=tuple(dict.fromkeys((*asked.pids, pid))))
        if not asked:
            return
        spec = {
            "file": str(self._directory / SAMPLES),
            "period_s": PERIOD_S,
            "pages": [{"name": name, "url": url, "where": public_url(url)} for name, url in asked.pages],
            "pids": asked.pids,
            "auto": [public_url(url) for url in dict.fromkeys(urls)] if asked.auto else [],
            "places": sorted({place for engine in engines().values() for place in engine.places}),
            "targets": self._private,
            **self._tls,
        }
        pipe = asyncio.subprocess.PIPE
        words = child.command("plimsoll.harness.scraping.scraper")
        self._process = await child.begin(words, stdin=pipe, stdout=pipe, start_new_session=True)
        self._tell(json.dumps(spec))
        assert self._process.stdout is not None
        try:
            said = json.loads(await asyncio.wait_for(self._process.stdout.readline(), _READY_S))
        except (TimeoutError, ValueError):
            await self.close()
            raise HarnessFault("--server-metrics: the process that asks did not begin. Nothing was sent") from None
        if errors := self._problems(said):
            await self.close()
            raise HarnessFault(errors)

    def _problems(self, said: dict[str, Any]) -> list[str]:
        errors = [
            f"--server-metrics {one['name']}: {one['where']} gave no metrics: {one['reason']}. Nothing was sent. "
            "Give the address of the page, or leave it out"
            for one in said["failed"]
        ]
        errors += [
            f"--server-metrics: {one} and {other} are pages of one process: all that it counts would count twice. "
            "Nothing was sent. Leave one of them out"
            for one, other in said["twice"]
        ]
        if self._asked.auto and not said["sources"]:
            errors.append(
                "--server-metrics auto: the target shows no metrics at any place that is known. Nothing was sent. "
                "Start the server with its metrics on, give their address, or leave this out"
            )
        return errors

    def _tell(self, line: str) -> None:
        stdin = self._process.stdin if self._process is not None else None
        if stdin is not None and not stdin.is_closing():
            stdin.write(f"{line}\n".encode())

    def begin(self, beginning: Beginning) -> None:
        """Ask everything once more before the first query: that is the server at idle."""
        self._tell("ask")

    def end(self) -> None:
        """Ask everything once more, and be done."""
        self._tell("stop")

    async def close(self) -> None:
        """Wait for the last samples."""
        process = self._process
        if process is None:
            return
        self.end()
        try:
            await asyncio.wait_for(process.wait(), _LAST_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        self._process = None
