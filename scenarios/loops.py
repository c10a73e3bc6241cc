"""Plans of both loops, and the plan of an accuracy run.

Open: each query has a due time and waits for no answer. Closed: slots and an endless list of rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import BaseModel

from plimsoll.scenarios.plan.blocks import joined
from plimsoll.scenarios.plan.plan import BLOCK, IntArray, Plan, QueryLabels, Stop
from plimsoll.scenarios.plan.sampling import ROWS, OneSample, Take, as_loadgen, choose, drawn, require_samples
from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.plugins import Kind, Warmup

#: Rows before a closed loop's list repeats, at least.
MIN_ROWS = 1024


def rows_for(stop: Stop, n_samples: int, order: OneSample = "random") -> int:
    """Rows of the list: enough for the minimum, for every sample once, and for ``MIN_ROWS`` (``ROWS`` of LoadGen's)."""
    return max(stop.min_queries, n_samples, MIN_ROWS if as_loadgen(order) is None else ROWS)


def open_blocks(due: Iterable[IntArray], take: Take, stop: Stop, seed: int, *, per_query: int = 1) -> Iterator[Plan]:
    """``open_plan`` in pieces, one for each of these stretches of due times; ``take`` gives the samples."""
    begun = 0
    for due_ns in due:
        yield open_plan(due_ns, take(len(due_ns) * per_query), stop, seed, per_query=per_query, begun=begun)
        begun += len(due_ns)


def open_plan(
    due_ns: IntArray, payload_ix: IntArray, stop: Stop, seed: int, *, per_query: int = 1, begun: int = 0
) -> Plan:
    """A query of ``per_query`` of these samples at each due time; ``begun``: queries before the first of these."""
    rows = len(due_ns)
    offsets, sample_ix, after = _alike(rows, per_query)
    return Plan(
        due_ns=due_ns,
        query_id=np.arange(begun, begun + rows),
        offsets=offsets,
        sample_ix=sample_ix,
        payload_ix=payload_ix,
        after=after,
        stop=stop,
        seed=seed,
        open_loop=True,
        check=False,
    )


def _alike(rows: int, per_query: int) -> tuple[IntArray, IntArray, IntArray]:
    """``offsets``, ``sample_ix`` and ``after`` of so many queries: those of a piece are every piece's."""
    return _of_piece(per_query) if rows == BLOCK and per_query <= 8 else _made(rows, per_query)


@lru_cache(maxsize=8)
def _of_piece(per_query: int) -> tuple[IntArray, IntArray, IntArray]:
    made = _made(BLOCK, per_query)
    for column in made:
        column.setflags(write=False)
    return made


def _made(rows: int, per_query: int) -> tuple[IntArray, IntArray, IntArray]:
    offsets = np.arange(0, rows * per_query + 1, per_query)
    sample_ix = np.zeros(rows, np.int64) if per_query == 1 else np.tile(np.arange(per_query), rows)
    return offsets, sample_ix, np.full(rows, -1)


def sessions_plan(
    begins: IntArray,
    turns: IntArray,
    payload: IntArray,
    think: IntArray,
    stop: Stop,
    seed: int,
    more: Mapping[str, IntArray] = MappingProxyType({}),
) -> Plan:
    """Sessions that begin then and have so many turns; of all turns, session by session, the payload, what they wait
    for and ``more`` labels. Rows in the order in which they would be due if answers took no time.
    """
    most = len(payload) if stop.max_queries is None else min(stop.max_queries, len(payload))
    first = np.cumsum(turns) - turns
    waits = think.copy()
    waits[first] = 0
    total = np.cumsum(waits)
    due = np.repeat(begins - total[first], turns) + total
    order = np.argsort(due, kind="stable")[:most]  # a turn never comes before the one it waits for
    place = np.full(len(payload) + 1, -1)
    place[order] = np.arange(most)
    before = order - 1
    before[np.isin(order, first)] = len(payload)
    after = place[before]
    sessions = int((after < 0).sum())
    made = replace(stop, min_queries=min(stop.min_queries, sessions))  # what a failure cuts short is no fault of ours
    session = np.repeat(place[first], turns)[order]  # the query id of its first turn
    turn = (np.arange(len(payload)) - np.repeat(first, turns))[order] + 1
    labels = QueryLabels({"session": session, "turn": turn, **{name: one[order] for name, one in more.items()}}, {})
    return replace(open_plan(due[order], payload[order], made, seed), after=after, labels=labels)


def closed_plan(payload_ix: IntArray, stop: Stop, seed: int, *, slots: int, per_query: int = 1) -> Plan:
    """A cyclic plan over these samples, ``per_query`` to a row; due means that a slot is free."""
    due = np.zeros(len(payload_ix) // per_query, dtype=np.int64)
    plan = open_plan(due, payload_ix, stop, seed, per_query=per_query)
    return replace(plan, open_loop=False, cyclic=True, max_in_flight=slots)


def closed_blocks(rows: int, take: Take, stop: Stop, seed: int, *, slots: int, per_query: int = 1) -> Iterator[Plan]:
    """``closed_plan`` of so many rows, in pieces."""
    due = (np.zeros(min(BLOCK, rows - row), np.int64) for row in range(0, rows, BLOCK))
    for piece in open_blocks(due, take, stop, seed, per_query=per_query):
        yield replace(piece, open_loop=False, cyclic=True, max_in_flight=slots, check=False)


def single_sample_blocks(order: OneSample, stop: Stop, n_samples: int, seed: int, *, slots: int) -> Iterator[Plan]:
    """A cyclic plan of one-sample queries. A permutation order gets whole passes: the repeat is equal too."""
    rows = rows_for(stop, n_samples, order)
    if order == "permutation":
        rows = -(-rows // max(n_samples, 1)) * n_samples
    take = drawn(order, seed, n_samples, min_queries=stop.min_queries)
    return closed_blocks(rows, take, stop, seed, slots=slots)


def before_t0(plan: Plan, warmup: Warmup) -> Plan:
    """The same plan, to begin at -duration instead of t0."""
    return replace(plan, due_ns=plan.due_ns - warmup.duration_ns)


def closed_warmup(blocks: Callable[[Any, Stop, int, int], Iterator[Plan]]) -> Callable[[Any, Warmup], Plan]:
    """The warm-up of a closed loop: its own plan until t0; one query is enough."""

    def plan(params: Any, warmup: Warmup) -> Plan:
        stop = Stop(min_queries=1, min_duration_ns=warmup.duration_ns)
        return before_t0(joined(blocks(params, stop, warmup.n_samples, warmup.seed)), warmup)

    return plan


def accuracy_plan(kind: Kind, params: BaseModel, stop: Stop, n_samples: int, seed: int) -> Plan:
    """The kind's own plan, cut to one pass over the source. Raises ``ValueError`` for a source without samples.

    A multi-stream's last query has what is left. Of the stop rule only ``max_duration`` stays: a run that takes longer
    than it is cut short, and says so.
    """
    require_samples(n_samples)
    once = Stop(n_samples, 0, stop.max_duration_ns, n_samples)
    plan = kind.build(_one_pass(params, n_samples), once, n_samples, seed)
    chosen = choose("permutation", child(seed, "accuracy"), n_samples, n_samples)
    if plan.open_loop and plan.n_samples == n_samples:
        stop = once if plan.n_queries > 1 else replace(once, min_queries=1)
        return replace(plan, payload_ix=chosen, stop=stop, after=np.full(plan.n_queries, -1), labels=_alone(plan))
    return _cut(plan, chosen, once)


def _alone(plan: Plan) -> QueryLabels | None:
    """The labels of queries that wait for none: they are no turns of sessions."""
    return None if bool((plan.after >= 0).any()) else plan.labels


def _one_pass(params: BaseModel, n_samples: int) -> BaseModel:
    """Params that make no more samples than there are, and whose order is ours."""
    own: dict[str, Any] = {"samples": n_samples} if "samples" in type(params).model_fields else {}
    fields = type(params).model_fields
    if "order" in fields:
        own["order"] = fields["order"].default
    return params.model_copy(update=own)


def _cut(plan: Plan, chosen: IntArray, once: Stop) -> Plan:
    """As many rows, of as many samples each, as it takes."""
    per_query = int(plan.offsets[1])
    rows = -(-len(chosen) // per_query)
    offsets, labels = np.minimum(np.arange(rows + 1) * per_query, len(chosen)), _alone(plan)
    return replace(
        plan,
        due_ns=plan.due_ns[:rows],
        query_id=np.arange(rows),
        offsets=offsets,
        sample_ix=np.arange(len(chosen)) % per_query,
        payload_ix=chosen,
        after=np.full(rows, -1),
        labels=labels and labels.select(slice(0, rows)),
        stop=replace(once, min_queries=rows, max_queries=rows),
    )
