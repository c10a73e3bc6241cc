"""What servers say about themselves, under one name whoever says it: ``server.queue``, ``gpu.power``.

An engine is one file of ``slo/server/engines`` that exports ``ENGINE``: which of its families mean which name, release
by release, and what exposes those that are not there. What no engine exposes has no value here, and never 0.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

from plimsoll.slo.server import engines as folder

#: How the series of one name become one: ranks, replicas, models, GPUs.
Across = Literal["sum", "max", "mean"]
#: gauge: a value now. counter: what has happened so far. mean: of what happened between two samples, two counters.
Kind = Literal["gauge", "counter", "mean"]
Better = Literal["lower", "higher", ""]


@dataclass(frozen=True, slots=True)
class Name:
    """One name. ``unit`` is what its values have: ``1``, ``ratio`` (0 to 1), ``ns``, ``bytes``, ``W``, ``Hz``; of what
    is ``counted``, ``per_s``, ``J`` or ``s``. ``better``: "" where neither direction is.
    """

    title: str
    unit: str = "1"
    across: Across = "sum"
    better: Better = "lower"

    @property
    def counted(self) -> bool:
        """It only grows: what can be said of it over a run is its rate."""
        return self.unit in ("per_s", "J", "s")


def _time(title: str) -> Name:
    return Name(title, "ns", "mean")


NAMES: Mapping[str, Name] = MappingProxyType(
    {
        "server.queue": Name("Waiting"),
        "server.running": Name("Running", better=""),
        "server.replicas": Name("Replicas", better=""),
        "server.kv_usage": Name("KV cache in use", "ratio", "max"),
        "server.preempted": Name("Preempted", "per_s"),
        "server.prefix_hit": Name("Prefix cache hits", "ratio", "mean", "higher"),
        "server.cached_tokens": Name("Cached tokens", "per_s", better="higher"),
        "server.batch": Name("Batch", better=""),
        "server.busy": Name("Busy", "ratio", "mean", "higher"),
        "server.prompt_tokens": Name("Prompt tokens", "per_s", better="higher"),
        "server.generated_tokens": Name("Generated tokens", "per_s", better="higher"),
        "server.requests": Name("Requests", "per_s", better="higher"),
        "server.failures": Name("Failures", "per_s"),
        "server.queue_time": _time("Queue time"),
        "server.prefill_time": _time("Prefill time"),
        "server.decode_time": _time("Decode time"),
        "server.ttft": _time("Time to first token"),
        "server.itl": _time("Time between tokens"),
        "server.e2e": _time("Time of a request"),
        "host.rss": Name("Memory of the server", "bytes"),
        "host.cpu": Name("Cores of the server", "s"),
        "host.energy": Name("Energy of the processors", "J"),
        "gpu.utilisation": Name("GPU utilisation", "ratio", "mean", "higher"),
        "gpu.sm_active": Name("SM active", "ratio", "mean", "higher"),
        "gpu.memory": Name("GPU memory", "bytes"),
        "gpu.power": Name("GPU power", "W"),
        "gpu.energy": Name("GPU energy", "J"),
        "gpu.clock": Name("GPU clock", "Hz", "mean", "higher"),
        "gpu.throttle": Name("GPU throttled", "ratio", "max"),
    }
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Where an engine has ``name``: in the first of ``families`` that is there, the newest release's first.

    ``over``: in the same order, what it is divided by; of a mean, the counter of its events. ``where``: what labels of
    a series must be for it to count, and after a ``!`` what they must not be; an empty one is one that is not there.
    ``bits``: a mask, of which any bit set counts as 1. ``flag``: what exposes it. ``mute``: its sum may stand still
    because nobody measured, and then says nothing.
    """

    name: str
    kind: Kind
    families: tuple[str, ...]
    over: tuple[str, ...] = ()
    scale: float = 1.0
    where: tuple[tuple[str, str], ...] = ()
    bits: int = 0
    flag: str = ""
    mute: bool = False

    def counts(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is meant."""
        return all((labels.get(key, "") == value.lstrip("!")) != value.startswith("!") for key, value in self.where)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counters of batches by the size in ``label``, or, not ``exact``, of all up to it; ``of``: what is in a batch."""

    families: tuple[str, ...]
    label: str = "size"
    of: str = "requests"
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of server. ``places``: where its pages are, as PORT/PATH; without a port, on the server's own. ``rank``:
    of two engines that have one name at one host the lower counts. ``phases``: what tells how long its start took:
    family, label that names the phase, nanoseconds in its unit.
    """

    name: str
    title: str
    places: tuple[str, ...]
    readings: tuple[Reading, ...]
    rank: int = 50
    sizes: tuple[Sizes, ...] = ()
    phases: tuple[str, str, float] | None = None


def gauge(
    name: str, *families: str, over: tuple[str, ...] = (), scale: float = 1.0, flag: str = "", **where: str
) -> Reading:
    return Reading(name, "gauge", families, over, scale, tuple(where.items()), flag=flag)


def counter(name: str, *families: str, scale: float = 1.0, flag: str = "", **where: str) -> Reading:
    return Reading(name, "counter", families, scale=scale, where=tuple(where.items()), flag=flag)


def mean(name: str, *families: str, scale: float = 1e9, flag: str = "", **where: str) -> Reading:
    """The mean of a histogram or a summary in seconds (``scale`` to our unit)."""
    sums, counts = (tuple(f"{family}{end}" for family in families) for end in ("_sum", "_count"))
    return Reading(name, "mean", sums, counts, scale, tuple(where.items()), flag=flag)


@cache
def engines() -> Mapping[str, Engine]:
    """Every engine by name, in the order in which they count. Raises LookupError where a file offers none."""
    found: list[Engine] = []
    for stem in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        exported = getattr(importlib.import_module(f"{folder.__name__}.{stem}"), "ENGINE", None)
        if not isinstance(exported, Engine):
            raise LookupError(f"slo/server/engines/{stem}.py: exports no ENGINE; name its Engine so")
        found.append(exported)
    return MappingProxyType({one.name: one for one in sorted(found, key=lambda one: (one.rank, one.name))})


@cache
def meanings() -> Mapping[str, tuple[tuple[str, Reading], ...]]:
    """family -> the readings that it is part of, each with its engine."""
    found: dict[str, tuple[tuple[str, Reading], ...]] = {}
    for engine in engines().values():
        for reading in engine.readings:
            for family in (*reading.families, *reading.over):
                found[family] = (*found.get(family, ()), (engine.name, reading))
    return MappingProxyType(found)


@cache
def _sized() -> frozenset[str]:
    return frozenset(family for engine in engines().values() for one in engine.sizes for family in one.families)


def name_of(family: str) -> str:
    """The name that a family is part of, ``server.started`` of what tells a restart; "" for none."""
    if family.endswith("process_start_time_seconds"):
        return STARTED
    if family in _sized():
        return SIZES
    base = family.removesuffix("_created")
    ends = ("", "_total", "_sum") if base != family else ("",)
    meant = next((found for end in ends if (found := meanings().get(base + end))), ())
    return meant[0][1].name if meant else ""


#: Bits of NVIDIA's reasons for a lower clock that say a GPU is held back (power cap, hardware slowdown, both kinds of
#: heat, power brake), and not that it is idle or was set so.
THROTTLED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
#: Not a measurement: when the process of a source began.
STARTED = "server.started"
#: No single number either: batches, counted by their size.
SIZES = "server.batch_sizes"
