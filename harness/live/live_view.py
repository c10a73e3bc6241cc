"""The live page as a ``plimsoll.harness.run.watcher.Watcher``: ``watcher(place, prepared)`` after ``prepare``, with the
place that ``plimsoll.harness.live.place.where`` made of the flag before it. Import this one only where there is a
place: it loads a server.

It never ends a run, and never raises once it is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.manifest import package_version, public_url
from plimsoll.harness.live.place import HOST, Place, private
from plimsoll.harness.live.served import Following
from plimsoll.harness.live.server import LiveServer
from plimsoll.harness.live.state import LiveState
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.watcher import Beginning, Watcher
from plimsoll.reports.documents.live import LiveReport, RunPart, VerdictPart

#: After the run: the verdict is waited for while the process lives, at most this long; then it is shown for so long.
_VERDICT_S = 600.0
_SHOWN_S = 0.5


def watcher(place: Place, prepared: Prepared) -> LiveView:
    """The live view of this run, for ``carry_out``."""
    scenario, target = prepared.job.scenario, prepared.job.target
    run = RunPart(
        id=prepared.job.run_id,
        plimsoll=package_version(),
        scenario=scenario.name,
        kind=scenario.kind,
        url="the bundled reference server" if prepared.job.bundled is not None else public_url(target.url),
        protocol=target.protocol,
        workers=scenario.workers,
    )
    promises = prepared.promises
    state = LiveState(run, promises.objectives, [slo.name for slo in promises.slos])
    return LiveView(place, state, prepared.job.directory.path)


class LiveView(Watcher):
    """Serves what it is told, and never ends a run.

    ``directory``: where the verdict will appear; None: nobody judges this run.
    """

    def __init__(
        self,
        place: Place,
        state: LiveState,
        directory: Path | None,
        say: Callable[[str], None] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._place = place
        self._shown = _Shown(state, directory, now_ns)
        self._say = say or _say
        self._now_ns = now_ns
        self._server = LiveServer(self._shown, place)
        self._begun = False
        self.url = ""

    @property
    def serving(self) -> bool:
        """Whether the page can still be had."""
        return self._server.alive

    async def open(self) -> None:
        """Listen, and say where. Raises HarnessFault (exit 2) when that can't be."""
        try:
            port = await asyncio.wrap_future(self._server.start())
        except OSError as error:
            raise HarnessFault(
                f"--live: {self._place.host}:{self._place.port} can't be listened on ({error.strerror or error}). "
                "Nothing was sent. Is something else there? Give another port, or 0 for a free one"
            ) from None
        self.url = self._place.url(port)
        self._say(f"live view: {self.url}")
        if not private(self._place.host):
            self._say(
                f"warning: --live {self._place.host}: whoever reaches this host may look on; there is no password. "
                f"Leave the host out to listen on {HOST} only"
            )

    def begin(self, beginning: Beginning) -> None:
        """t0 is announced."""
        self._begun = True
        self._server.post(self._shown.begin, beginning)

    def heard(self, worker: int, message: Mapping[str, Any]) -> None:
        """One worker's status line, handed to the server's thread."""
        self._server.post(self._shown.state.heard, worker, message, self._now_ns())

    def happened(self, event: Mapping[str, Any]) -> None:
        """An event of the scenario began, or ended."""
        self._server.post(self._shown.state.happened, event)

    def end(self) -> None:
        """The last picture is known."""
        self._server.post(self._shown.state.end, self._now_ns())

    async def close(self) -> None:
        """The run is sealed: the page waits for its verdict and then closes by itself.

        Closes at once if there was no run.
        """
        if self._begun:
            self._server.post(self._shown.sealed)
        else:
            self._server.stop()

    def stop(self) -> None:
        """End the page now, with or without a verdict: for whoever opens the next run's at the same place."""
        self._server.stop()
        self._server.join()


class _Shown:
    """The state with the verdict, on the server's thread."""

    def __init__(self, state: LiveState, directory: Path | None, now_ns: Callable[[], int]) -> None:
        self.state = state
        self._directory = directory
        self._now_ns = now_ns
        self._sealed_s: float | None = None
        self._judged_s: float | None = None
        self._server: Following | None = None

    def begin(self, beginning: Beginning) -> None:
        self.state.begin(beginning, self._now_ns())
        if self._directory is not None:
            self._server = Following(self._directory, beginning.t0_ns)

    def report(self) -> LiveReport:
        if self._server is not None:
            self.state.served(self._server.news())
        return self.state.report(self._now_ns())

    def sealed(self) -> None:
        self._sealed_s = time.monotonic()

    def finished(self) -> bool:
        if self._judged_s is None and self._sealed_s is not None and self._directory is not None:
            self._judge(self._directory)
        now = time.monotonic()
        if self._judged_s is not None:
            return now - self._judged_s > _SHOWN_S
        if not threading.main_thread().is_alive():
            return True  # nobody is left who could judge
        return self._sealed_s is not None and now - self._sealed_s > (_VERDICT_S if self._directory else _SHOWN_S)

    def _judge(self, directory: Path) -> None:
        verdict = verdict_in(directory)
        if verdict is not None:
            self.state.judged(verdict)
            self._judged_s = time.monotonic()


def verdict_in(directory: Path) -> VerdictPart | None:
    """What report.json says, once report.html is there as well."""
    page = directory / "report.html"
    try:
        found = json.loads((directory / "report.json").read_text(encoding="utf-8"))
        if not page.is_file():
            return None
        verdict, validity = found["verdict"], found["validity"]
        outcome = str(verdict["outcome"])
        if outcome == "PASS" and not verdict["objectives"]:
            outcome = "MEASURED"
        reasons = validity["reasons"] if outcome == "INVALID" else verdict["reasons"]
        return VerdictPart(outcome=outcome, reasons=[str(text) for text in reasons], report=str(page.absolute()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads stderr: the run goes on
        print(text, file=sys.stderr, flush=True)
