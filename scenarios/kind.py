"""Kind: what one scenario kind is. A file in ``scenarios/kinds/`` exports one as ``KIND``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from plimsoll.scenarios.plan.plan import Plan, Stop


@dataclass(frozen=True, slots=True)
class Warmup:
    """What a warm-up plan needs. ``seed`` is already the child seed "warmup"; ``workers`` share the plan."""

    duration_ns: int
    n_samples: int
    seed: int
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Frame:
    """A query every ``interval_ns``, each to be answered ``deadline_ns`` after it was due."""

    interval_ns: int
    deadline_ns: int


def no_frame(params: Any) -> None:
    """What a kind without deadlines says of its frames."""
    return


@dataclass(frozen=True, slots=True)
class Kind:
    """One way of issuing queries.

    ``params`` is the pydantic model of the scenario's ``params`` (every field has a default). In the
    callables the first argument is an instance of it. ``open_loop(params)``: queries do not wait for answers;
    ``build(params, stop, n_samples, seed)`` makes the whole plan; ``warmup(params, warmup)`` the plan before t0,
    or None; ``slots(params)`` is the limit on what may be in flight, or None; ``size(params, stop)`` is about how
    many samples the plan will hold, computed without allocating any; ``frame(params)`` is the time from one query
    to the next and the time each one has, where the kind promises such, else None. ``sample_file`` is the smallest
    useful content of the file that a field ``trace`` names, if any: such a kind needs one. ``headline`` says which number
    the kind is judged by in MLPerf's rules, or in ours.
    """

    name: str
    summary: str
    headline: str
    params: type[BaseModel]
    open_loop: Callable[[Any], bool]
    build: Callable[[Any, Stop, int, int], Plan]
    warmup: Callable[[Any, Warmup], Plan | None]
    slots: Callable[[Any], int | None]
    size: Callable[[Any, Stop], int]
    frame: Callable[[Any], Frame | None] = no_frame
    sample_file: str | None = None
