"""begun.json: what a run has on disk before its first query, so that it can be sealed and judged after a kill.

``plan.npz``, ``scenario.yaml`` and ``promises.json`` lie beside it, and it goes when the run is sealed. It holds no
secret: it says what ``manifest.json`` and ``generator.json`` would say. ``seen`` in it is its writer's last sign of
life; the file's own time would be that of the last copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.segments import hold
from plimsoll.harness.process.writing import over, settle, write_json
from plimsoll.harness.run.rundir import BEGUN, RunDirectory, write_scenario
from plimsoll.harness.sealing import plan_file
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.plan import Dealing
from plimsoll.slo.records.records import MOST_WORKERS
from plimsoll.slo.validity.generator import GeneratorFacts

SCHEMA = "plimsoll.begun/1"
#: Between two signs of life.
_SIGN_S = 0.2
#: How ``seen`` stands in the file, always as wide.
_SEEN = b'"seen": "'
#: A manifest without these can't be sealed.
_NEEDED = {"run_id": str, "t0_wall_ns": int, "t0_monotonic_ns": int, "workers": int, "plan_fingerprint": str}


@dataclass(frozen=True, slots=True)
class Process:
    """Who wrote it: ``who`` in words, ``pid`` on ``host``, and what tells it from a later process of that number."""

    who: str
    pid: int
    host: str
    started: str

    @staticmethod
    def of_ours(who: str) -> Process:
        """This process."""
        return Process(who, os.getpid(), os.uname().nodename, _started(os.getpid()))

    def lives(self) -> bool:
        """It is still there, as far as can be told on this host."""
        return bool(self.started) and self.host == os.uname().nodename and _started(self.pid) == self.started


def _started(pid: int) -> str:
    """When a process that is no zombie began, and in which boot; "" where it is not there."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else f"{words[19]} {boot}"


@dataclass(frozen=True, slots=True)
class Begun:
    """As begun.json holds it.

    ``manifest``: as far as it is known; ``facts``: what was planned; ``announced``: its t0 is known, so something may
    have been sent; ``agent``: the name of the agent whose part this is, and ``mine`` its shards (none: a whole run);
    ``seen_ns``: wall clock of the last sign of life.
    """

    manifest: Mapping[str, Any]
    facts: GeneratorFacts
    dealing: Dealing
    process: Process
    announced: bool
    agent: str = ""
    mine: tuple[int, ...] = ()
    seen_ns: int = 0


@dataclass(slots=True)
class Ahead:
    """Writes begun.json of one run, and holds its segments. A disk that takes nothing costs only a warning."""

    directory: RunDirectory
    who: str
    notice: Callable[[str], None]
    _document: dict[str, Any] = field(default_factory=dict)
    _held: int | None = None
    _said_s: float = 0.0
    _at: int = 0

    def prepare(
        self,
        manifest: Mapping[str, Any],
        scenario: Mapping[str, Any],
        plan: Blocks,
        facts: GeneratorFacts,
        dealing: Dealing,
        agent: str = "",
        mine: tuple[int, ...] = (),
    ) -> None:
        """Everything but t0. ``scenario`` and ``manifest`` must be free of secrets already."""
        process = Process.of_ours(self.who)
        self._document = {
            "schema": SCHEMA,
            "process": {"who": process.who, "pid": process.pid, "host": process.host, "started": process.started},
            "announced": False,
            "dealing": dealing,
            "agent": agent,
            "mine": list(mine),
            "manifest": dict(manifest),
            "facts": facts.to_json(),
        }
        try:
            if self._held is None:
                self._held = hold(self.directory.segments)
            plan_file.save(self.directory.path, plan)
            write_scenario(self.directory, scenario)
            self._write()
            settle(self.directory.path)
        except OSError as error:
            self._warn(error)

    def announce(self, known: Mapping[str, Any], facts: GeneratorFacts | None = None) -> None:
        """t0 is ``known``, with whatever else belongs into the manifest: from now on something may be sent.

        It is on the disk itself a moment later: whoever waits for t0 does not wait for that.
        """
        self._document |= {"announced": True, "manifest": {**self._document["manifest"], **known}}
        if facts is not None:
            self._document["facts"] = facts.to_json()
        try:
            self._write()
        except OSError as error:
            self._warn(error)
        threading.Thread(target=self._settle, name="begun", daemon=True).start()

    def _settle(self) -> None:
        with contextlib.suppress(OSError):  # the run may be over, or the disk full, which was said
            settle(self.directory.path)

    def alive(self) -> None:
        """A sign of life, at most five times a second."""
        now_s = time.monotonic()
        if now_s - self._said_s > _SIGN_S:
            self._said_s = now_s
            with contextlib.suppress(OSError):
                over(self.directory.file(BEGUN), self._at, _now().encode())

    def close(self) -> None:
        """The run is sealed, or nothing of it was sent."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _write(self) -> None:
        self._document["seen"] = _now()
        write_json(self.directory.file(BEGUN), self._document)
        self._at = self.directory.file(BEGUN).read_bytes().rindex(_SEEN) + len(_SEEN)

    def _warn(self, error: OSError) -> None:
        self.notice(
            f"warning: {self.directory.path} takes no files before the run ({error.strerror}): were it killed, it "
            "could not be sealed afterwards. Make room there"
        )


def _now() -> str:
    return f"{time.time_ns():020d}"


def read(path: Path) -> Begun | None:
    """begun.json of a run directory; None where there is none. Raises HarnessFault for one that can't be read."""
    file = path / BEGUN
    try:
        document = json.loads(files.read_bytes(file))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, error) from None
    try:
        return _checked(document)
    except (ArithmeticError, ValueError, KeyError, TypeError) as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> HarnessFault:
    return HarnessFault(f"{file}: damaged or from another version ({' '.join(str(error).split())[:200]})")


def _checked(document: Any) -> Begun:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"it is no {SCHEMA}")
    manifest, process = document["manifest"], document["process"]
    if not isinstance(manifest, dict) or not isinstance(process, dict):
        raise ValueError("manifest or process is no mapping")
    for name, kind in _NEEDED.items():
        if not isinstance(manifest.get(name), kind) or isinstance(manifest[name], bool):
            raise ValueError(f"manifest.{name} is missing or of another type")
    if not 1 <= manifest["workers"] <= MOST_WORKERS or any(
        abs(manifest[name]) >= 1 << 63 for name in ("t0_wall_ns", "t0_monotonic_ns")
    ):
        raise ValueError("a number in the manifest is out of range")
    if document["dealing"] not in get_args(Dealing) or not isinstance(document["announced"], bool):
        raise ValueError("dealing or announced has a value that this version does not know")
    mine = document["mine"]
    if not isinstance(document["agent"], str) or any(not isinstance(shard, int) for shard in mine):
        raise ValueError("agent or mine is of another type")
    who = Process(str(process["who"]), int(process["pid"]), str(process["host"]), str(process["started"]))
    seen_ns = int(document["seen"])
    if not 0 <= seen_ns < 1 << 63:
        raise ValueError("seen is out of range")
    facts = GeneratorFacts.from_json(document["facts"])
    return Begun(
        manifest, facts, document["dealing"], who, document["announced"], document["agent"], tuple(mine), seen_ns
    )
