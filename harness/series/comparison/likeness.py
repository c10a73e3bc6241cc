"""Are two runs like for like? What a run was asked to do, reduced to what a comparison must hold equal.

The load must be the same: how queries are issued, what they carry, when to stop. Where it went, and to which model, is what
is being compared. Hosts may differ, at a price that is told (what other schedules cost, `plimsoll.slo.comparison.compare` tells). Nothing is compared here but descriptions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.harness.series.comparison.interleave import differences

#: Keys of a scenario that make the load.
LOAD = ("kind", "params", "source", "stop", "warmup", "timeout", "drain")
#: What of a target changes the answer that is asked for; said, not refused: it may be what is being compared.
_ASKED = ("protocol", "options")
#: Facts of a host that bear on timing. Its name is not one: a container gets a new one each time.
HOST = ("cpu", "cpus_allowed", "machine", "os")


@dataclass(frozen=True, slots=True)
class Likeness:
    """What one run was asked to do, and where. ``load`` and ``asked`` are documents without secrets."""

    load: Mapping[str, Any]
    asked: Mapping[str, Any]
    seed: int | None
    workers: int | None
    host: Mapping[str, Any]
    plimsoll: str
    target: str
    model: str

    def fingerprint(self) -> str:
        """SHA-256 of the load: the same for every run that may be compared with this one."""
        return hashlib.sha256(json.dumps(self.load, sort_keys=True).encode()).hexdigest()


def likeness(scenario: Mapping[str, Any], manifest: Mapping[str, Any]) -> Likeness:
    """From a run directory's ``scenario.yaml`` and ``manifest.json``."""
    host, target = manifest.get("host") or {}, manifest.get("target") or {}
    section = scenario.get("target") or {}
    return Likeness(
        load=json.loads(json.dumps({key: scenario.get(key) for key in LOAD})),
        asked=json.loads(json.dumps({key: section.get(key) for key in _ASKED})),
        seed=scenario.get("seed"),
        workers=manifest.get("workers"),
        host={key: host.get(key) for key in HOST},
        plimsoll=str(manifest.get("plimsoll", "")),
        target=str(target.get("url") or ""),
        model=str(target.get("model") or ""),
    )


@dataclass(frozen=True, slots=True)
class Unlike:
    """What keeps two sets of runs from being compared (``errors``) and what must be told (``warnings``)."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def compare(
    base_name: str, base: Sequence[Likeness], name: str, other: Sequence[Likeness], despite: Sequence[str] = ()
) -> Unlike:
    """Every way in which the runs of one side are unlike those of the other.

    ``despite``: key paths of the load (``params.rate``, or ``params`` for all below) that may differ; told all the same.
    """
    if not base or not other:
        return Unlike((), ())
    errors: list[str] = []
    warnings: list[str] = []
    for path, left, right in differences(base[0].load, other[0].load):
        text = f"{path}: {_show(left)} in {base_name}, {_show(right)} in {name}"
        if allowed(path, despite):
            warnings.append(f"not like for like, as asked: {text}")
        else:
            errors.append(f"{text}. Compare runs of one load, or add --despite {path}")
    for path, left, right in differences(base[0].asked, other[0].asked):
        warnings.append(f"target.{path} differs: {_show(left)} in {base_name}, {_show(right)} in {name}")
    for path, left, right in differences(base[0].host, other[0].host):
        warnings.append(
            f"another host: {path} is {_show(left)} in {base_name}, {_show(right)} in {name}; a difference may be the host's"
        )
    if base[0].plimsoll != other[0].plimsoll:
        warnings.append(f"Plimsoll {base[0].plimsoll} made {base_name}, {other[0].plimsoll} made {name}")
    if {run.workers for run in base} != {run.workers for run in other}:
        warnings.append(f"{base_name} and {name} were made with different numbers of workers")
    return Unlike(tuple(errors), tuple(warnings))


def of_one_side(name: str, runs: Sequence[tuple[str, Likeness]], despite: Sequence[str] = ()) -> list[str]:
    """Errors where the runs of one side are not replications of each other."""
    if not runs:
        return []
    first, reference = runs[0]
    errors = []
    for run, other in runs[1:]:
        # Another address may be another replica; another model or protocol is another thing.
        was = {**reference.load, "target": {**reference.asked, "model": reference.model}}
        now = {**other.load, "target": {**other.asked, "model": other.model}}
        errors += [
            f"{name}: {run} is no replication of {first}: {path}: {_show(right)} v. {_show(left)}. Take one of them out"
            for path, left, right in differences(was, now)
            if not allowed(path, despite)
        ]
    return errors


def allowed(path: str, despite: Sequence[str]) -> bool:
    """A difference at this key path was asked for."""
    return any(path == key or path.startswith((f"{key}.", f"{key}[")) for key in despite)


def _show(value: Any) -> str:
    text = json.dumps(value)
    return "nothing" if value is None else text if len(text) <= 60 else f"{text[:57]}..."
