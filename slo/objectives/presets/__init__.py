"""Named sets of limits that others have published: ``preset("mlperf/llama3.1-8b/server")``.

Each ``*.yaml`` beside this file is one family, as data with its sources; this module reads and finds them. It judges
nothing, and it holds no limit that has no source.
"""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from plimsoll.slo.objectives.objective import show

#: What a scenario is called in the words of MLPerf.
TITLES = {"server": "Server", "single_stream": "SingleStream", "multi_stream": "MultiStream", "offline": "Offline"}


@dataclass(frozen=True, slots=True)
class Preset:
    """One benchmark in one scenario, or one published target for anybody's run.

    ``objectives``: texts that ``plimsoll.slo.objectives.objective.parse`` reads; none where the benchmark has no
    latency limit. ``scenario``: the scenario kind that the limits are for, "" for any. ``min_duration_ns`` and
    ``min_queries`` (of an offline run: samples): less than that is no result of this benchmark; 0 where there is no
    such rule. ``confidence`` is the one that its own rules judge with. ``source`` says where the numbers stand,
    ``notes`` where the sources disagree.
    """

    name: str
    objectives: tuple[str, ...]
    scenario: str
    min_duration_ns: int
    min_queries: int
    confidence: str
    source: str
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def shortfalls(self, kind: str, min_duration_ns: int, min_queries: int) -> tuple[str, ...]:
        """Why a run of this kind, duration and number of queries (or samples) is no result of the benchmark; none: it
        may be.

        What was planned can be asked about before a run, what was done after it.
        """
        found = []
        what = "samples" if self.scenario == "offline" else "queries"
        if self.scenario and kind != self.scenario:
            found.append(
                f"it is a {self.scenario} benchmark, and the run is {kind or 'of no kind'}: use kind {self.scenario}"
            )
        if min_duration_ns < self.min_duration_ns:
            least, given = show(self.min_duration_ns, "ns"), show(min_duration_ns, "ns")
            found.append(f"a run takes at least {least}, not {given}: give --duration {self.min_duration_ns // 10**9}s")
        if min_queries < self.min_queries:
            found.append(
                f"a run has at least {self.min_queries} {what}, not {min_queries}: give --queries {self.min_queries}"
            )
        return tuple(f"preset {self.name}: {text}. The limits hold; an MLPerf result it is not" for text in found)


_SECONDS = 1_000_000_000


class UnknownPresetError(ValueError):
    """No preset has this name; the message names near ones."""


def preset(name: str) -> Preset:
    """The preset of this name.

    Raises ``UnknownPresetError``, whose message names near matches and the way to list all.
    """
    known = presets()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 3, 0.5) or [other for other in known if name and name in other][:3]
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise UnknownPresetError(f"preset {name!r} is not known. {hint}`plimsoll slo presets` lists all of them")


@cache
def presets() -> Mapping[str, Preset]:
    """Every preset by name, in the order of the files."""
    found: dict[str, Preset] = {}
    for path in sorted(Path(__file__).parent.glob("*.yaml")):
        found |= {one.name: one for one in _family(path)}
    return MappingProxyType(found)


def _family(path: Path) -> list[Preset]:
    import yaml

    document: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [_one(document, name, entry) for name, entry in document["presets"].items()]


def _one(document: Mapping[str, Any], name: str, entry: Mapping[str, Any]) -> Preset:
    rules: Mapping[str, Any]
    if "objectives" in entry:  # a published target, for a run of any kind and length
        scenario, rules, objectives = "", {"min_duration": "0s", "min_queries": 0}, entry["objectives"]
    else:
        last = name.rsplit("/", 1)[-1]
        scenario = "server" if last == "interactive" else last
        rules = {**document["scenarios"][scenario], **entry}
        objectives = [f"p99({indicator}) <= {limit}" for indicator, limit in entry.get("limits", {}).items()]
    return Preset(
        name=f"{document['family']}/{name}",
        objectives=tuple(objectives),
        scenario=scenario,
        min_duration_ns=int(rules["min_duration"].removesuffix("s")) * _SECONDS,
        min_queries=int(rules["min_queries"]),
        confidence=document["confidence"],
        source=entry["source"],
        notes=tuple(entry.get("notes", ())),
    )


def listing() -> list[dict[str, Any]]:
    """All presets as JSON objects, for ``plimsoll slo presets --json``."""
    return [one.to_json() for one in presets().values()]


def table() -> str:
    """All presets as text, a line each and its notes below it, for ``plimsoll slo presets``."""
    width = max(map(len, presets()))
    lines = []
    for one in presets().values():
        limits = ", ".join(one.objectives) or "no latency limit"
        least = f"; at least {one.min_duration_ns // _SECONDS} s and {one.min_queries} "
        least += "samples" if one.scenario == "offline" else "queries"
        lines.append(f"{one.name:<{width}}  {limits}{least if one.scenario else ''}")
        if not one.scenario:
            lines.append(f"{'':<{width}}    source: {one.source}")
        lines += [f"{'':<{width}}    {note}" for note in one.notes]
    return "\n".join(lines) + "\n"
