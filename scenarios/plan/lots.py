"""One load dealt to several arms by lot: the queries of a plan that fall to one of them, at the moments that they had.

Every query goes whole, and one that waits for another goes where that one goes, so sessions stay together. The lot is
drawn from the seed and the query's number: the same on every host, and whatever the other arms are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from plimsoll.scenarios.plan.blocks import cut, joined
from plimsoll.scenarios.plan.plan import Plan, QueryLabels, first_of_session
from plimsoll.scenarios.plan.seeds import child, mixed
from plimsoll.scenarios.text.fields import parse_duration


def shares_of(given: Any) -> dict[int, Fraction]:
    """An arm's share of the queries by the time (ns) from which on it has it: of ``20%``, or ``{0s: 5%, 60s: 25%}``.
    Raises ValueError.
    """
    found = {}
    for time, text in given.items() if isinstance(given, Mapping) else [("0s", given)]:
        share = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", str(text))
        if share is None or (not Fraction(share[1]) and not isinstance(given, Mapping)):
            raise ValueError("is no share above 0 %. Write share: 10%, or {0s: 5%, 60s: 25%}, or copy")
        found[parse_duration(time)] = Fraction(share[1]) / 100
    if 0 not in found:
        raise ValueError("does not say the share from 0s on. Write {0s: 5%, 60s: 25%}")
    return found


def bounds_at(time_ns: int, shares: Mapping[str, Mapping[int, Fraction]]) -> dict[str, tuple[Fraction, Fraction]]:
    """Between which lots each arm's queries are from this time on, in the order of the arms."""
    high, found = Fraction(0), {}
    for name, one in shares.items():
        low, high = high, high + one[max(time for time in one if time <= time_ns)]
        found[name] = low, high
    return found


def by_lot(pieces: Iterable[Plan], arm: str, parts: Sequence[tuple[int, float, float]]) -> Iterator[Plan]:
    """The queries whose lot lies in [low, high) of 0 to 1, numbered again, with the label ``arm``. ``parts``: from
    which due time on (ns, ascending) low and high are which. Raises ValueError for a plan without a list of queries.
    """
    plan = joined(pieces)
    if plan.cyclic or plan.n_queries == 1:
        raise ValueError("arms deal the queries of an open loop, one by one. Use kind server, sessions or replay")
    first, (since, low, high) = first_of_session(plan), (np.array(column) for column in zip(*parts, strict=True))
    drawn = mixed(child(plan.seed, "arms"), plan.query_id[first]) / np.float64(2**64)
    at = np.maximum(np.searchsorted(since, plan.due_ns[first], side="right") - 1, 0)
    rows = np.flatnonzero((drawn >= low[at]) & (drawn < high[at]))
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
