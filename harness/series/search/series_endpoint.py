"""The endpoint of many runs: reached once before the first, and where it is the bundled server, started once and stopped at the end.

Each run has an event loop of its own, and a server's process belongs to the loop that started it: so the server gets a loop that
lives as long as it does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run import bundled
from plimsoll.harness.run.bundled import Bundled
from plimsoll.harness.run.coordinator import Job, preflight
from plimsoll.harness.run.job import Prepared

Aim = Callable[[Prepared], Prepared]


@contextmanager
def standing(job: Job, log: Path, notice: Callable[[str], None]) -> Iterator[Aim]:
    """Gives what aims a run at the endpoint. Raises HarnessFault where there is none, or the server does not start."""
    if job.bundled is None:
        reach(job)
        yield lambda prepared: prepared
        return
    notice("starting the bundled reference server, once for all probes ...")
    log.parent.mkdir(parents=True, exist_ok=True)
    with asyncio.Runner() as runner:
        server = runner.run(bundled.start(job.bundled, log))
        try:
            yield lambda prepared: _aimed(prepared, server)
        finally:
            runner.run(bundled.stop(server.process))
            with contextlib.suppress(OSError):
                if not log.stat().st_size:
                    log.unlink()


def reach(job: Job) -> None:
    """One connection, opened and closed. Raises HarnessFault (exit 5) if there is none."""
    if protocols()[job.target.protocol].needs_url:
        asyncio.run(preflight(job.target))


def answers(prepared: Prepared) -> HarnessFault | None:
    """Whether the endpoint still accepts a connection; else why not."""
    try:
        reach(prepared.job)
    except HarnessFault as fault:
        return fault
    return None


def _aimed(prepared: Prepared, server: Bundled) -> Prepared:
    """The run sent to the server that is there, instead of one of its own."""
    job = prepared.job
    url = f"grpc://{server.facts['grpc']}" if protocols()[job.target.protocol].grpc else server.url
    target = replace(job.target, url=url, model=job.target.model or server.models[0])
    return replace(prepared, job=replace(job, bundled=None, target=target))
