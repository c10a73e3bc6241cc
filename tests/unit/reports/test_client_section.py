"""The part of a report on clients with habits: its attempts are those that the metric and the bound count."""

from __future__ import annotations

import numpy as np

from plimsoll.reports.blocks.terminal import plain
from plimsoll.reports.documents.run import render_terminal
from plimsoll.reports.report import build
from plimsoll.slo.judge import judge
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import Phase, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts

MS = 1_000_000
ANSWERED, TRIES = 20, 3
FAILED = 10


def test_an_attempt_that_got_no_connection_is_one() -> None:
    """20 requests answered at once, then 10 of three attempts, of which the last 5 found nobody who listens."""
    n = ANSWERED + FAILED
    query = np.concatenate((np.arange(n), np.repeat(np.arange(ANSWERED, n), TRIES)))
    request = np.arange(len(query)) < n
    due = query * 10 * MS
    refused = query >= n - 5  # the connection is
    late = query >= ANSWERED
    tries = [(TRIES if q >= ANSWERED else 1) if own else None for q, own in zip(query, request, strict=True)]
    records = from_columns(
        len(query), query_id=query, due_ns=due, ready_ns=due, sent_ns=np.where(refused, -1, due), done_ns=due + MS,
        status=np.where(late, np.where(refused, int(Status.CONNECT), int(Status.TIMEOUT)), int(Status.OK)),
        phase=np.where(request, int(Phase.MEASURE), int(Phase.ATTEMPT)),
        labels={"tries": tries},
    )  # fmt: skip
    facts = GeneratorFacts(open_loop=True, planned=n, elapsed_ns=n * 10 * MS)
    report = build({}, {}, records, judge(records, facts, Promises((parse("mean(attempts_per_request) <= 1.3"),))))
    found, mean = report.client, (ANSWERED + FAILED * TRIES) / n
    assert found is not None
    assert (found.requests, found.attempts, found.retried) == (n, ANSWERED + FAILED * TRIES, FAILED)
    assert found.amplification == float(f"{mean:.6g}")
    assert float(f"{report.metrics['attempts_per_request'].mean:.6g}") == found.amplification
    assert sum(found.attempts_per_s) > sum(found.requests_per_s) > 0
    assert f"{mean:.4g} attempts per request" in plain(render_terminal(report)).decode()
