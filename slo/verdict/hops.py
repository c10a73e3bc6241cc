"""A latency budget by hop: what each hop of a request's way may take, what it took, and what nobody measures. Pure.

    hop    = limit ["/token"] ["of" source {"+" source}]     queue: 20ms, decode: 50ms/token of client.stream
    source = a stage that the server names | client.held | client.connect | client.first_token | client.stream

Without ``of`` a hop is the stage of its own name. What no source says is unmeasured, never 0; what is left of the
latency beside all that is measured stands against the limits of those that are not. Measured are the hops, the stages
that the server names and no hop takes, and what earlier attempts and the waits between them took. The requests nearest
in rank to the p99 of latency are taken whole (``anatomy.py``), so that what they overspent is of requests that were. A
budget explains and promises nothing: promises are ``p99(stage.queue) <= 20ms``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from plimsoll.slo.metrics.anatomy import around, wholes
from plimsoll.slo.metrics.stages import NAME, durations
from plimsoll.slo.objectives.objective import UNITS, ObjectiveError
from plimsoll.slo.records.records import BoolArray, IntArray, Phase, Records
from plimsoll.slo.statistics.distribution import ascending, nearest

#: What the client measures itself, by name: from one column to another.
CLIENT: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "client.held": ("due_ns", "sent_ns"),
        "client.connect": ("", "connect_ns"),
        "client.first_token": ("sent_ns", "first_token_ns"),
        "client.stream": ("first_token_ns", "last_token_ns"),
    }
)
#: From the first sending of a request to that of the attempt that was answered: no hop of its way.
RETRIES = "client.retries"
PERCENTILE = 99.0
_LIMIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|ms|s|m)\s*(/\s*token)?\s*(?:of\s+(\S.*))?")


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop: ``limit_ns`` a request, or a token of its answer if ``per_token``; ``sources`` are added up."""

    name: str
    text: str
    limit_ns: int
    per_token: bool
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a hop took, in the ``n`` successful requests that tell; without ``hops`` what no hop takes.

    ``over``: those in which it took more than its limit. ``slow_ns`` and ``slow_limit_ns``: means of the slow requests.
    Without ``sources`` it is what is left beside all that is measured, for the unmeasured ``hops`` together.
    """

    hops: tuple[str, ...]
    sources: tuple[str, ...]
    limit_ns: int
    per_token: bool
    n: int
    over: int
    p50_ns: int
    p99_ns: int
    slow_ns: float
    slow_limit_ns: float


@dataclass(frozen=True, slots=True)
class Budget:
    """``spent``: hops in order, then what no hop takes, then what nobody measures; ``slow_n`` requests around the p99
    of latency and their mean ``latency_ns``; ``worst``: the place of what overspent most in them, and ``worst_share``,
    of all that was overspent.
    """

    n: int
    slow_n: int
    latency_ns: float
    spent: tuple[Spent, ...]
    worst: int | None
    worst_share: float


def parse_hops(budget: Mapping[str, Any]) -> tuple[Hop, ...]:
    """The hops of a budget, in order. Raises ``ObjectiveError`` with every mistake."""
    found, errors = list[Hop](), list[str]()
    for name, value in budget.items():
        text = "" if value is None else str(value)  # a file may give a plain number
        match = _LIMIT.fullmatch(text)
        if match is None or float(match[1]) == 0:
            errors.append(f"budget.{name}: {text!r} is no limit. Write 20ms, 50ms/token, or 20ms of STAGE")
            continue
        sources = tuple(one.strip() for one in (match[4] or name).split("+"))
        for one in sources:
            if one not in CLIENT and (one.startswith("client.") or not NAME.fullmatch(one)):
                errors.append(f"budget.{name}: {one!r} is no stage. Name one of the server's, or {', '.join(CLIENT)}")
        factor = float(UNITS[match[2].replace("µ", "u")][0])
        found.append(Hop(name, text, round(float(match[1]) * factor), bool(match[3]), sources))
    owner: dict[str, str] = {}
    for hop in found:
        for one in hop.sources:
            if (other := next((known for known in owner if _overlap(known, one)), None)) is not None:
                errors.append(
                    f"budget.{hop.name}: {one} is counted in budget.{owner[other]} already ({other}). Name the "
                    "whole or its parts, once"
                )
            owner.setdefault(one, hop.name)
    if errors:
        raise ObjectiveError(errors)
    return tuple(found)


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def spent_of(records: Records, hops: Sequence[Hop]) -> Budget | None:
    """What the measured requests that succeeded spent; None without a budget or such a request."""
    ok = np.flatnonzero(records.in_measure & records.ok & (records["done_ns"] >= 0))
    if not hops or not len(ok):
        return None
    rows, tokens = records.select(ok), np.maximum(records["n_out"][ok], 1)
    latency = rows["done_ns"] - rows["due_ns"]
    slow = around(latency, PERCENTILE)
    stages = [one for hop in hops for one in hop.sources if one not in CLIENT]
    used = {one for hop in hops for one in hop.sources}
    others = [one for one in wholes(rows) if not any(_overlap(one, other) for other in used)]
    if not used.isdisjoint(("client.first_token", "client.stream")):  # those hold what the server does
        others.clear()
    took = dict(durations(rows, [*stages, *others])) | {name: _client(rows, name) for name in CLIENT}
    took |= {} if "client.first_token" in used else {RETRIES: _retried(records, ok)}
    spent, left, silent = list[Spent](), latency.copy(), list[Hop]()
    for hop in hops:
        each = np.stack([took[one] for one in hop.sources])
        ns, told = np.where(each >= 0, each, 0).sum(axis=0), np.asarray((each >= 0).any(axis=0))
        if told.any():
            left -= ns
            spent.append(_spent([hop], hop.sources, tokens, ns, told, slow))
        else:
            silent.append(hop)
    for one, ns in took.items():
        if one in (*others, RETRIES) and (ns >= 0).any():
            left -= np.maximum(ns, 0)
            spent.append(_spent([], (one,), tokens, np.maximum(ns, 0), ns >= 0, slow))
    spent.append(_spent(silent, (), tokens, left, np.ones(len(ok), np.bool_), slow))
    excess = [max(0.0, one.slow_ns - one.slow_limit_ns) if one.hops else 0.0 for one in spent]
    worst = int(np.argmax(excess)) if any(excess) else None
    share = max(excess) / sum(excess) if worst is not None else 0.0
    return Budget(len(ok), len(slow), float(latency[slow].mean()), tuple(spent), worst, share)


def _client(rows: Records, name: str) -> IntArray:
    begin, end = CLIENT[name]
    if not begin:
        return rows[end]
    known = (rows[begin] >= 0) & (rows[end] >= 0)
    return np.where(known, rows[end] - rows[begin], -1)


def _retried(records: Records, ok: IntArray) -> IntArray:
    """How long each of these rows waited for the attempt that was answered, from its first sending; -1: it had one."""
    answered = np.flatnonzero(records.ok & (records["phase"] == Phase.ATTEMPT))
    key = np.zeros(len(records), np.int64)
    for name in ("worker", "query_id", "sample_ix"):
        key = key * (int(records[name].max(initial=0)) + 1) + records[name]
    answered = answered[np.argsort(key[answered], kind="stable")]
    if not len(answered):
        return np.full(len(ok), -1)
    at = answered[np.minimum(np.searchsorted(key[answered], key[ok]), len(answered) - 1)]
    return np.where(key[at] == key[ok], records["sent_ns"][at] - records["sent_ns"][ok], -1)


def _spent(
    hops: Sequence[Hop], sources: tuple[str, ...], tokens: IntArray, ns: IntArray, told: BoolArray, slow: IntArray
) -> Spent:
    limit = np.zeros_like(tokens)
    for hop in hops:
        limit += hop.limit_ns * tokens if hop.per_token else hop.limit_ns
    ordered = ascending(ns[told])
    p50, p99 = (int(ordered[place]) for place in nearest(len(ordered), ("0.5", "0.99")))
    return Spent(
        hops=tuple(hop.name for hop in hops),
        sources=sources,
        limit_ns=sum(hop.limit_ns for hop in hops),
        per_token=any(hop.per_token for hop in hops),
        n=len(ordered),
        over=int(np.count_nonzero(told & (ns > limit))) if hops else 0,
        p50_ns=p50,
        p99_ns=p99,
        slow_ns=float(ns[slow].mean()),
        slow_limit_ns=float(limit[slow].mean()),
    )
