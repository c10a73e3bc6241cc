"""Kinds and sources: what one is, and how it is found: one file each in ``kinds/`` and ``sources/``, by its own name.

A folder scan, not a registry: a new file is found without an edit elsewhere, and one that nobody asks for is not
imported.
"""

import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from pydantic import BaseModel

from plimsoll.scenarios.plan.blocks import Blocks, joined
from plimsoll.scenarios.plan.plan import IntArray, Plan, Stop
from plimsoll.scenarios.samples.payload import PayloadSource


@dataclass(frozen=True, slots=True)
class Warmup:
    """What a warm-up plan needs. ``seed``: the child seed "warmup" of ``root``; ``workers`` share the plan."""

    duration_ns: int
    n_samples: int
    seed: int
    workers: int = 1
    root: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """A query every ``interval_ns``, each to be answered ``deadline_ns`` after it was due; not ``even``: a set of them,
    each due when its sensor looked.
    """

    interval_ns: int
    deadline_ns: int
    even: bool = True


#: What plans with sessions tell rows apart by.
OF_SESSIONS = ("session", "turn")


def no_give_ups(params: Any, seed: int) -> Callable[[IntArray], IntArray]:
    """What a kind says that repeats no recording."""
    raise ValueError("cancel: recorded is of kind replay, which knows what was recorded. Give a share and a delay")


@dataclass(frozen=True, slots=True)
class Kind:
    """One way of issuing queries.

    ``params`` is the pydantic model of the scenario's ``params`` (every field has a default). In the callables the
    first argument is an instance of it. ``open_loop(params)``: queries do not wait for answers; ``blocks(params, stop,
    n_samples, seed)`` makes the plan piece by piece; ``warmup(params, warmup)`` the plan before t0, or None;
    ``slots(params)`` is the limit on what may be in flight, or None; ``size(params, stop)`` is about how many samples
    the plan will hold, computed without allocating any; ``frame(params)`` is the time from one query to the next and
    the time each one has, where the kind promises such, else None; ``lead(params)``: ns that the warm-up lasts, where
    they say it, else 0; ``notes(params, seed)``: what a reader of its report should know; ``originals(params, stop,
    seed)``: of each sample of the plan, piece by piece, when it was sent when it was recorded, how it ended and how
    long it took, or None; ``gave_up(params, seed)``: of query ids, after how many ns each was given up then, or -1.
    ``labels(params)``: what its plans tell rows apart by. ``sample_file`` is the smallest useful content of the file
    that a field ``trace`` names, if any: such a kind needs one. ``one_query``: all samples are one query, so that its
    samples are counted and not its queries. ``aliases``: a flag's name -> the param that it sets, where they differ.
    ``sourced(params, source)`` is the source as the kind sends it, and ``settled(params, source)`` are the params with
    what the plan needs of that. ``again(params)``: a failed query is tried again, by the client's retry policy or, for
    want of one, ``plan.habits.AGAIN``. ``headline`` says which number the kind is judged by in MLPerf's rules or ours.
    """

    name: str
    summary: str
    headline: str
    params: type[BaseModel]
    open_loop: Callable[[Any], bool]
    blocks: Callable[[Any, Stop, int, int], Iterator[Plan]]
    warmup: Callable[[Any, Warmup], Plan | Blocks | None]
    slots: Callable[[Any], int | None]
    size: Callable[[Any, Stop], int]
    frame: Callable[[Any], Frame | None] = lambda params: None
    lead: Callable[[Any], int] = lambda params: 0
    notes: Callable[[Any, int], Sequence[str]] = lambda params, seed: ()
    originals: Callable[[Any, Stop, int], Iterator[Mapping[str, IntArray]] | None] = lambda params, stop, seed: None
    gave_up: Callable[[Any, int], Callable[[IntArray], IntArray]] = no_give_ups
    labels: Callable[[Any], tuple[str, ...]] = lambda params: ()
    sample_file: str | None = None
    one_query: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    sourced: Callable[[Any, PayloadSource], PayloadSource] = lambda params, source: source
    settled: Callable[[Any, Callable[[], PayloadSource]], Any] = lambda params, source: params
    again: Callable[[Any], bool] = lambda params: False

    def build(self, params: Any, stop: Stop, n_samples: int, seed: int) -> Plan:
        """The whole plan. Raises ``ValueError``."""
        return joined(self.blocks(params, stop, n_samples, seed))


@dataclass(frozen=True, slots=True)
class Source:
    """One way of making payloads.

    ``params`` is the pydantic model of the scenario's ``source`` mapping, with a field ``kind`` that holds
    ``name``. ``build(params, seed)`` makes the source from the scenario's root seed; it raises
    ``ScenarioError`` with every problem of its input files. ``labelled(params, seed, keys)`` does the same where the
    scenario's labels name keys of its data: what it makes has ``labels`` (see ``PayloadSource``); None: there are no
    keys. ``sample_file`` is the smallest valid content of the file a field ``path`` names, if any.
    """

    name: str
    summary: str
    params: type[BaseModel]
    build: Callable[[Any, int], PayloadSource]
    sample_file: str | None = None
    labelled: Callable[[Any, int, Collection[str]], PayloadSource] | None = None


T = TypeVar("T", bound=Kind | Source)


def kinds() -> Mapping[str, Kind]:
    """Every scenario kind by name."""
    return _Found("plimsoll.scenarios.kinds", "KIND", Kind)


def sources() -> Mapping[str, Source]:
    """Every payload source by name."""
    return _Found("plimsoll.scenarios.sources", "SOURCE", Source)


class _Found(Mapping[str, T]):
    """By file name, sorted. Raises TypeError where a file does not hold what it is named after."""

    def __init__(self, package: str, attribute: str, wanted: type[T]) -> None:
        self._package, self._attribute, self._wanted = package, attribute, wanted
        self._names = sorted(info.name for info in pkgutil.iter_modules(import_module(package).__path__))

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        module = f"{self._package}.{name}"
        plugin = getattr(import_module(module), self._attribute, None)
        if not isinstance(plugin, self._wanted):
            raise TypeError(f"{module} does not export {self._attribute}, a {self._wanted.__name__}. Add it.")
        if plugin.name != name:
            raise TypeError(f"{module} exports {plugin.name!r}. Give the file and the plugin one name.")
        return plugin

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
