"""A run without chunk times: what reads them has no value there, so nobody computes it."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.records.records import Status, from_columns
from plimsoll.slo.validity import lateness

MS = 1_000_000
READS_CHUNKS = [one for one in catalogue().values() if one.scope == "request" and "chunk_ns" in one.needs]


def test_some_indicators_read_chunk_times() -> None:
    assert {"fluidity", "reader_idle"} <= {one.name for one in READS_CHUNKS}


@pytest.mark.parametrize("indicator", READS_CHUNKS, ids=lambda one: one.name)
def test_an_indicator_of_chunk_times_has_no_value_without_them(indicator) -> None:  # type: ignore[no-untyped-def]
    n = 40
    due = np.arange(n) * MS
    status = np.where(np.arange(n) % 7, int(Status.OK), int(Status.TIMEOUT))
    rows = from_columns(
        n, due_ns=due, ready_ns=due, sent_ns=due, headers_ns=due + MS, first_byte_ns=due + MS, status=status,
        first_token_ns=due + MS, first_answer_ns=due + MS, last_token_ns=due + 3 * MS, done_ns=due + 4 * MS, n_out=5,
    )  # fmt: skip
    assert not indicator.compute(rows)[1].any()


def test_lateness_is_the_same_in_parts_and_as_a_whole() -> None:
    n = 500
    rng = np.random.default_rng(3)
    due = np.sort(rng.integers(0, 1000 * MS, n))
    ready = np.where(rng.random(n) < 0.1, -1, due + rng.integers(-MS, 3 * MS, n))
    sent = np.where((ready == -1) | (rng.random(n) < 0.1), -1, ready + rng.integers(-MS, 3 * MS, n))
    columns = {"due_ns": due, "ready_ns": ready, "sent_ns": sent, "connect_ns": rng.integers(-1, MS, n)}
    alone = from_columns(n, **columns)
    # A sample beside them of a query of its own, due last: the whole is computed at once.
    more = {name: np.append(column, 2000 * MS) for name, column in columns.items()}
    beside = from_columns(n + 1, **more, sample_ix=np.append(np.zeros(n, np.int64), 1))
    assert lateness.own(alone, False).tolist() == lateness.own(beside, False)[:n].tolist()
    assert lateness.own(alone, False).any()
