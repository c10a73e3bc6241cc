"""Preset: limits that others have set, as objectives in the short grammar, with where they stand. A value; it judges nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from plimsoll.slo.objectives.objective import show

#: What a scenario is called in the words of MLPerf.
TITLES = {"server": "Server", "single_stream": "SingleStream", "multi_stream": "MultiStream", "offline": "Offline"}


@dataclass(frozen=True, slots=True)
class Preset:
    """One benchmark in one scenario, or one published target for anybody's run.

    ``objectives``: texts that ``plimsoll.slo.objectives.objective.parse`` reads; none where the benchmark has no latency limit. ``scenario``: the
    scenario kind that the limits are for, "" for any. ``min_duration_ns`` and ``min_queries`` (of an offline run: samples): less than that
    is no result of this benchmark; 0 where there is no such rule. ``confidence`` is the one that its own rules judge with. ``source`` says where the numbers
    stand, ``notes`` where the sources disagree.
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
        """A JSON object with the fields' names."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def shortfalls(self, kind: str, min_duration_ns: int, min_queries: int) -> tuple[str, ...]:
        """Why a run of this kind, duration and number of queries (or samples) is no result of the benchmark; none: it may be.

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
