"""Rows by due time, query and sample stand as a plain sort has them, whichever shortcut their order allows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.records.queries import _order
from plimsoll.slo.records.records import from_columns

rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=60)


@given(rows, st.booleans(), st.sampled_from(["each its own", "several a query", "any"]))
def test_rows_stand_as_a_plain_sort_has_them(given: list[tuple[int, int, int]], warm: bool, queries: str) -> None:
    phase, due, sample = (np.array(column) for column in zip(*given, strict=True))
    n = len(given)
    if queries == "each its own":  # as a closed loop: in order of query, due at any time
        query, sample = np.arange(n), np.zeros(n, np.int64)
    elif queries == "several a query":
        query, sample = np.arange(n) // 3, np.arange(n) % 3
    else:
        query = due[::-1].copy()
    made = from_columns(n, query_id=query, due_ns=due, sample_ix=sample, phase=np.sort(phase)[::-1] if warm else 0)
    columns = [made[name] for name in ("sample_ix", "query_id", "due_ns", "phase")]
    order = _order(made)
    found = np.arange(n) if order is None else order
    wanted = np.lexsort(columns)
    assert sorted(found.tolist()) == list(range(n))
    assert [c[found].tolist() for c in columns] == [c[wanted].tolist() for c in columns]
