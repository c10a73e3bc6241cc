"""Bytes on the wire as indicators: of what went over a connection, promised and compared like any other."""

from __future__ import annotations

import numpy as np

from plimsoll.slo.comparison.arms import sample
from plimsoll.slo.comparison.quantity import parse_all
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.objectives.objective_verdict import judge_objective
from plimsoll.slo.records.records import Status, from_columns

MS = 1_000_000


def rows(bytes_in: list[int], status: list[Status]):  # type: ignore[no-untyped-def]
    n = len(bytes_in)
    due = np.arange(n) * MS
    return from_columns(
        n, query_id=np.arange(n), due_ns=due, ready_ns=due, sent_ns=due, headers_ns=due + 1, done_ns=due + 5,
        bytes_out=np.full(n, 300), bytes_in=np.array(bytes_in), status=np.array(status),
    )  # fmt: skip


def test_what_failed_is_never_the_cheapest() -> None:
    """40 bytes of a refusal count as the most, and a row that touched no connection as none."""
    found = measure(catalogue()["bytes_in"], rows([900, 1100, 40, 0], [Status.OK, Status.OK, Status.HTTP, Status.OK]))
    assert found.values.tolist() == [900, 1100, float("inf")]
    assert (found.failed, found.missing) == (1, 1)


def test_they_are_promised_and_compared() -> None:
    made = rows([900] * 300, [Status.OK] * 300)
    verdict = judge_objective(parse("p50(bytes_in) <= 1KiB"), made, goodput(made, []), "0.95")
    assert (verdict.outcome, verdict.observed) == ("PASS", 900)
    quantities = parse_all(["mean(bytes_out)", "p99(bytes_in)"])
    readings = sample(made, quantities).readings
    assert [readings[str(one)].value for one in quantities] == [300, 900]
    assert [one.unit for one in quantities] == ["bytes", "bytes"]
