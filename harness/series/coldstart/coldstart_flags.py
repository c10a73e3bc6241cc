"""The flags of a cold start, checked: everything that can be wrong is told at once, before anything is started."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.manifest import public_url
from plimsoll.harness.run.job import Prepared, find_scenario, prepare
from plimsoll.harness.run.promises import Asked as Promised
from plimsoll.harness.secrecy.secrets import public_shell
from plimsoll.reports.documents.coldstart import QUANTITIES
from plimsoll.scenarios.spec import Document, ScenarioError
from plimsoll.scenarios.text.fields import parse_duration

_GOAL = re.compile(r"\s*([a-z_]+)\s*(<=|<)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class Goal:
    """``--slo 'ready <= 60s'``: what every repeat must keep."""

    quantity: str
    strict: bool
    limit_ns: int
    text: str

    def kept(self, value: float | None) -> bool:
        """A quantity that a repeat does not have keeps nothing."""
        return value is not None and (value < self.limit_ns if self.strict else value <= self.limit_ns)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One measurement, checked.

    ``curve``: flags of the run that follows the first request; ``retries`` None: as the scenario says.
    """

    start: str
    stop: str
    between: str
    scenario: str | Document | None
    flags: Mapping[str, Any]
    curve: Mapping[str, Any]
    repeats: int
    ready_timeout_ns: int
    path: str | None
    cooldown_ns: int
    stop_timeout_ns: int
    goals: tuple[Goal, ...]
    command: tuple[str, ...]
    retries: int | None = None

    @property
    def url(self) -> str:
        """Where it is to answer, without secrets."""
        return public_url(str(self.flags["url"]))

    def settings(self) -> dict[str, str]:
        """What must be the same for repeats to be repeats of one thing."""
        load = {key: value for key, value in self.flags.items() if value is not None and key not in ("headers", "url")}
        return {
            "start": public_shell(self.start),
            "between": public_shell(self.between),
            "url": self.url,
            "scenario": _as_it_is(self.scenario),
            "load": repr(sorted((key, str(value)) for key, value in {**load, **self.curve}.items())),
        }

    def first(self, folder: Path) -> Prepared:
        """The run of the very first request. Raises HarnessFault."""
        return self._prepared({"kind": "single_stream", "queries": 1}, folder)

    def rest(self, folder: Path) -> Prepared:
        """The run that the curve is made of. Raises HarnessFault."""
        return self._prepared(self.curve, folder)

    def _prepared(self, load: Mapping[str, Any], folder: Path) -> Prepared:
        flags: dict[str, Any] = {**self.flags, **load, "warmup": "0s", "objectives": (), "retries": self.retries}
        return prepare(self.scenario, flags, Promised(), (), folder, command=self.command)


def _as_it_is(scenario: str | Document | None) -> str:
    """The name of a scenario, and of one that was read a digest of what it says."""
    if not isinstance(scenario, Document):
        return scenario or ""
    said = json.dumps(scenario, sort_keys=True, default=str).encode()
    return f"{scenario.where} (sha256 {hashlib.sha256(said).hexdigest()[:12]})"


def curve_flags(requests: int | None, duration: str | None, rate: float | None) -> dict[str, Any]:
    """Flags of the run after the first request: one at a time, or in an open loop at ``rate``."""
    load: dict[str, Any] = {"kind": "single_stream"} if rate is None else {"kind": "server", "rate": rate}
    if duration is not None:
        load["duration"] = duration
    if requests is not None or duration is None:
        load["queries"] = 120 if requests is None else requests
    return load


def goals(texts: Sequence[str]) -> tuple[tuple[Goal, ...], list[str]]:
    """Objectives such as ``ready <= 60s``, and every error in them."""
    found, errors = [], []
    for text in texts:
        match = _GOAL.fullmatch(text)
        if match is None or match[1] not in QUANTITIES:
            errors.append(
                f"--slo {text}: write QUANTITY <= DURATION, such as 'ready <= 60s', with one of {', '.join(QUANTITIES)}"
            )
            continue
        try:
            found.append(Goal(match[1], match[2] == "<", parse_duration(match[3]), text.strip()))
        except ValueError as error:
            errors.append(f"--slo {text}: {error}")
    return tuple(found), errors


def check(wanted: Wanted, errors: Sequence[str]) -> None:
    """Both runs can be made. Raises HarnessFault with ``errors`` and all that is wrong besides."""
    said = list(errors)
    if not wanted.start.strip():
        said.append("--start: no command. Give the one that starts the server")
    if wanted.repeats < 1:
        said.append(f"--repeats {wanted.repeats}: give 1 or more (6 for an interval at 95 %)")
    if wanted.path is not None and not wanted.path.startswith("/"):
        said.append(f"--path {wanted.path}: a route begins with /. Write --path /{wanted.path}")
    if any(limit == 0 for limit in (wanted.ready_timeout_ns, wanted.stop_timeout_ns)):
        said.append("--ready-timeout and --stop-timeout: give more than 0")
    try:
        find_scenario(wanted.scenario, {**wanted.flags, **wanted.curve})
        for make in (wanted.first, wanted.rest):
            with tempfile.TemporaryDirectory() as scratch:
                make(Path(scratch) / "run")
    except ScenarioError as error:
        said += error.errors
    except HarnessFault as fault:
        said += fault.errors
    if said:
        raise HarnessFault(list(dict.fromkeys(text.replace("--queries", "--requests") for text in said)))
