"""Who looks on while a run goes on: progress on the terminal, the live page, a search that knows a hopeless probe when
it sees one.

Watchers are told what the workers' status lines say, in the coordinator's process; no worker knows of them and nothing
that is timed waits for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from plimsoll.scenarios.plan.blocks import Survey
    from plimsoll.scenarios.plan.plan import Dealing
    from plimsoll.scenarios.spec import Scenario


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is known when t0 is announced. ``t0_ns``: on this process's monotonic clock; warm-up comes before it.

    ``shards``, ``dealing``: how many workers there are, and how the plan's queries are dealt to them.
    """

    run_id: str
    scenario: Scenario
    plan: Survey
    t0_ns: int
    shards: int = 1
    dealing: Dealing = "turns"


class Watcher(Protocol):
    """Told of one run from before its first query to its end, always from the event loop's thread.

    Who is a subclass leaves out what does not concern it.
    """

    async def open(self) -> None:
        """Before anything is sent or started. Raises HarnessFault for what can't work (a port that is taken)."""
        return

    async def ready(self, urls: Sequence[str], pid: int | None = None) -> None:
        """The endpoints at these addresses can be reached; no load was sent. Raises HarnessFault as ``open`` does.

        ``pid``: of the bundled server, where we started it.
        """
        return

    def begin(self, beginning: Beginning) -> None:
        """t0 is announced."""
        return

    def heard(self, worker: int, message: Mapping[str, Any]) -> None:
        """One worker's ``status`` line: cumulative ``sent``, ``done``, ``failed``, of the measured part ``measured``
        and ``bad`` (failed), ``in_flight`` now, and, for each name in ``plimsoll.harness.generator.recorder.FRESH``, a
        coarse histogram ``{bin: count}`` of what was measured since its line before; ``others`` holds those of outside
        packages' metrics, where there are some.
        """
        return

    def happened(self, event: Mapping[str, Any]) -> None:
        """An event of the scenario began, or ended: as ``plimsoll.harness.run.happenings.Done``."""
        return

    def enough(self) -> str | None:
        """Why the run need not go on, if so. Asked after each status line; queries in flight are waited for."""
        return None

    def end(self) -> None:
        """The last worker is done or dead."""
        return

    async def close(self) -> None:
        """After the run is sealed, or has failed. Never raises."""
        return
