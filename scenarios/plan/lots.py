"""One load dealt to several arms by lot: the queries of a plan that fall to one of them, at the moments that they had.

Every query goes whole, and one that waits for another goes where that one goes, so sessions stay together. The lot is
drawn from the seed and the query's number: the same on every host, and whatever the other arms are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from plimsoll.scenarios.plan.blocks import cut, joined
from plimsoll.scenarios.plan.plan import Plan, QueryLabels, first_of_session
from plimsoll.scenarios.plan.seeds import child, mixed


def by_lot(pieces: Iterable[Plan], arm: str, low: float, high: float) -> Iterator[Plan]:
    """The queries whose lot lies in [low, high) of 0 to 1, numbered again, with the label ``arm``. Raises ValueError
    for a plan without a list of queries.
    """
    plan = joined(pieces)
    if plan.cyclic or plan.n_queries == 1:
        raise ValueError("arms deal the queries of an open loop, one by one. Use kind server, sessions or replay")
    drawn = mixed(child(plan.seed, "arms"), plan.query_id[first_of_session(plan)]) / np.float64(2**64)
    rows = np.flatnonzero((drawn >= low) & (drawn < high))
    if not len(rows):
        raise ValueError(f"arm {arm} gets none of {plan.n_queries} queries. Give it a larger share, or send more")
    mine = plan.select(rows, plan.max_in_flight)
    number = np.full(int(plan.query_id[-1]) + 2, -1)  # the last entry is that of no query
    number[mine.query_id] = np.arange(len(rows))
    columns = {**(mine.labels.columns if mine.labels else {}), "arm": np.zeros(len(rows), np.int64)}
    if "session" in columns:
        columns["session"] = number[columns["session"]]
    texts = {**(mine.labels.texts if mine.labels else {}), "arm": (arm,)}
    least = min(plan.stop.min_queries, len(rows)), min(plan.stop.min_duration_ns, int(mine.due_ns[-1]))
    stop = replace(plan.stop, min_queries=least[0], min_duration_ns=least[1], max_queries=None)
    labels, after = QueryLabels(columns, texts), number[mine.after]
    yield from cut(replace(mine, query_id=np.arange(len(rows)), after=after, labels=labels, stop=stop, check=False))
