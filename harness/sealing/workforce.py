"""Who sends the load of a run, as the coordinator sees it: members, each with one shard of the plan, wherever they run.

``harness/run/crew.py`` starts them as processes on this host, ``harness/distributed/fleet.py`` has agents on other
hosts start them. The coordinator does not know which. Nothing is started and nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from plimsoll.scenarios.plan.blocks import Blocks, Survey
from plimsoll.scenarios.plan.plan import Dealing
from plimsoll.slo.records.records import Records
from plimsoll.slo.validity.generator import GeneratorFacts


@dataclass(slots=True)
class Member:
    """One worker and what it has said so far.

    ``done``: its last message, None while it has not ended by itself; ``death``: in words, why it never will;
    ``died_ns``: when that was noticed, on the coordinator's monotonic clock; ``segments``: rows that no disk would
    take.
    """

    index: int
    fingerprint: str = ""
    status: dict[str, Any] = field(default_factory=dict)
    done: dict[str, Any] | None = None
    death: str | None = None
    faults: list[str] = field(default_factory=list)
    fault_code: int = 0
    segments: list[Records] = field(default_factory=list)
    died_ns: int | None = None


#: Hears each status line of each member.
OnStatus = Callable[[Member, dict[str, Any]], None]


class Workforce(Protocol):
    """All workers of one run."""

    @property
    def members(self) -> Sequence[Member]:
        """In the order of their shards."""

    @property
    def dealing(self) -> Dealing:
        """How the plan's queries are dealt to the members."""

    @property
    def lead_ns(self) -> int:
        """From the last "ready" to t0 (or to the first warm-up query): time for the message to reach every worker."""

    async def gather(self, plan: Survey, wanted: int, notice: Callable[[str], None]) -> int:
        """Be there: how many shards there will be. Called once, before ``start``. Raises HarnessFault."""

    async def start(self, specs: Sequence[Mapping[str, Any]], stderr: Any, heard: OnStatus) -> None:
        """One worker per spec; returns when each has prepared its shard and all have the same plan.

        Raises HarnessFault with everything that went wrong; no worker is left then.
        """

    def go(self, t0_ns: int) -> None:
        """t0, on the coordinator's monotonic clock."""

    def tell(self, message: Mapping[str, Any]) -> None:
        """The same message (``stop``, ``drop``) to everybody."""

    async def finished(self) -> None:
        """Wait until every worker is done or dead."""

    def kill_unfinished(self) -> None:
        """End every worker that has not handed its records over: the user won't wait any longer."""

    async def kill(self) -> None:
        """End every worker now."""

    def faults(self) -> Sequence[str]:
        """What makes the run INVALID besides what the members said, in words with the number and the limit."""

    async def concluded(
        self, folder: Path, manifest: Mapping[str, Any], public: Mapping[str, Any], plan: Blocks, facts: GeneratorFacts
    ) -> bool:
        """Judge rows that stay with the members, and write the run directory; False: the rows are here."""

    def facts(self) -> Mapping[str, Any]:
        """What the manifest keeps of it: empty for workers of this host."""


def unready(members: Sequence[Member]) -> tuple[list[str], int]:
    """Why members can't begin together ([]: they can), and the exit code of the first that has one (0: none)."""
    faults = [text for member in members for text in member.faults]
    codes = [member.fault_code for member in members if member.fault_code]
    faults += [f"nothing was sent: {text}" for text in deaths([member for member in members if not member.faults])]
    prints = {member.fingerprint for member in members}
    if not faults and len(prints) > 1:
        faults.append("the workers computed different plans: is every process running the same version and files?")
    return list(dict.fromkeys(faults)), codes[0] if codes else 0


def deaths(members: Sequence[Member]) -> list[str]:
    """A sentence for each way to die: an agent takes all its workers with it."""
    died: dict[str, list[str]] = {}
    for member in members:
        if member.death:
            died.setdefault(member.death, []).append(str(member.index))
    return [f"worker{'s' * (len(who) > 1)} {', '.join(who)} {death}" for death, who in died.items()]
