"""A plan of any length as consecutive pieces, made one at a time and forgotten.

Iterating makes the pieces anew, the same ones each time. A run of 600 million queries needs the memory of one piece,
and of what a shard keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from plimsoll.scenarios.plan.plan import ARRAYS, BLOCK, Dealing, Fingerprint, IntArray, Plan, dealt, shared


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a plan holds. ``first_ns`` and ``last_ns``: its first and last due time, ns from t0 (0, 0 if empty)."""

    n_queries: int
    n_samples: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """The pieces of one plan, or of one shard of it: each a ``Plan`` of consecutive rows with the whole's scalars.

    There is at least one piece. The ids of a whole plan are the numbers of its rows.
    """

    make: Callable[[], Iterator[Plan]]

    def __iter__(self) -> Iterator[Plan]:
        return self.make()

    @property
    def head(self) -> Plan:
        """The first piece: what it says of the whole plan is the whole's."""
        return next(self.make())

    def shard(self, i: int, n: int, dealing: Dealing = "turns") -> Blocks:
        """The pieces of ``Plan.shard``; a piece of which nothing is left is left out. Raises ValueError as it does."""
        if n < 1 or not 0 <= i < n:
            raise ValueError(f"there is no shard {i} of {n}. Give 0 <= i < n.")
        return self if n == 1 else Blocks(partial(_sharded, self.make, i, n, dealing))

    def held(self, most: int = 1 << 18) -> Blocks:
        """The same, made once and kept where it is one piece or has no more rows than this."""
        kept: list[Plan] = []
        n = 0
        for piece in self:
            kept.append(piece)
            n += piece.n_queries
            if n > most and len(kept) > 1:
                return self
        return Blocks(partial(iter, kept))

    def whole(self) -> Plan:
        """All of it in memory."""
        return joined(self)

    def extent(self) -> Extent:
        """One pass over the pieces."""
        queries = samples = first_ns = last_ns = 0
        for piece in self:
            if piece.n_queries:
                first_ns = first_ns if queries else int(piece.due_ns[0])
                last_ns = int(piece.due_ns[-1])
            queries, samples = queries + piece.n_queries, samples + piece.n_samples
        return Extent(queries, samples, first_ns, last_ns)

    def fingerprint(self) -> str:
        """``Plan.fingerprint`` of the whole."""
        made = Fingerprint()
        for piece in self:
            made.add(piece)
        return made.hex()


def cut(plan: Plan) -> Blocks:
    """A plan that is in memory, in pieces; one whose queries wait for others stays in one."""
    return Blocks(partial(_cut, plan))


def _cut(plan: Plan) -> Iterator[Plan]:
    if plan.n_queries <= BLOCK or bool((plan.after >= 0).any()):
        yield plan
        return
    for row in range(0, plan.n_queries, BLOCK):
        rows = slice(row, min(row + BLOCK, plan.n_queries))
        bounds = plan.offsets[row : rows.stop + 1]
        samples = slice(int(bounds[0]), int(bounds[-1]))
        yield replace(
            plan,
            due_ns=plan.due_ns[rows],
            query_id=plan.query_id[rows],
            after=plan.after[rows],
            offsets=bounds - bounds[0],
            sample_ix=plan.sample_ix[samples],
            payload_ix=plan.payload_ix[samples],
            check=False,
        )


def joined(pieces: Iterable[Plan]) -> Plan:
    """The plan of which these are the pieces, in order. One piece is the plan. Raises ValueError for none.

    Beside the whole there is never more than one column in pieces.
    """
    first, n = None, 0
    columns: dict[str, list[IntArray]] = {name: [] for name in ARRAYS}
    for piece in pieces:
        first, n = first or piece, n + 1
        for name, parts in columns.items():
            parts.append(np.diff(piece.offsets) if name == "offsets" else getattr(piece, name))
    if first is None:
        raise ValueError("no pieces of a plan: give at least one")
    if n == 1:
        return first
    arrays: dict[str, Any] = {name: np.concatenate(columns.pop(name)) for name in ARRAYS}
    arrays["offsets"] = np.concatenate(([0], np.cumsum(arrays["offsets"])))
    return replace(first, **arrays, check=False)


def _sharded(make: Callable[[], Iterator[Plan]], i: int, n: int, dealing: Dealing) -> Iterator[Plan]:
    pieces = make()
    begun = [*islice(pieces, 2)]
    whole = len(begun) == 1 or begun[0].cyclic  # one piece knows all there is, and a closed loop keeps all its rows
    kept = False
    for piece in chain(begun, pieces):
        if whole:
            yield piece.shard(i, n, dealing)
            continue
        rows = np.flatnonzero(dealt(piece.query_id, n, dealing) == i)
        if len(rows):
            kept = True
            yield piece.select(rows, shared(piece.max_in_flight, i, n))
    if not (whole or kept):
        yield begun[0].select(np.empty(0, np.int64), shared(begun[0].max_in_flight, i, n))
