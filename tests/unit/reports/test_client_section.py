"""The part of a report on clients with habits: its attempts are those that the metric and the bound count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from plimsoll.reports.blocks.terminal import plain
from plimsoll.reports.documents.run import render_terminal
from plimsoll.reports.report import build
from plimsoll.reports.sections.client import client_part
from plimsoll.slo.judge import judge
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.promises import Promises
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.labels import LabelTable
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


def test_attempts_are_those_of_measured_requests() -> None:
    """A request that was cancelled on purpose is none of them, nor are its attempts."""
    rows = [  # query, phase, status, tries
        (0, Phase.MEASURE, Status.OK, 1),
        (1, Phase.ATTEMPT, Status.REFUSED, None), (1, Phase.ATTEMPT, Status.OK, None), (1, Phase.MEASURE, Status.OK, 2),
        (2, Phase.ATTEMPT, Status.REFUSED, None), (2, Phase.ATTEMPT, Status.CANCELLED, None),
        (2, Phase.CANCEL, Status.CANCELLED, 2),
    ]  # fmt: skip
    query, phase, status, _ = zip(*rows, strict=True)
    at = np.arange(len(rows)) * 1_000_000
    columns: dict[str, Any] = {"query_id": query, "phase": phase, "status": status}
    columns |= {"due_ns": at, "ready_ns": at, "sent_ns": at, "done_ns": at + 500_000}
    records = rec.from_columns(len(rows), **{name: np.array(column) for name, column in columns.items()})
    run: Any = SimpleNamespace(records=records.labelled(LabelTable.of({"tries": [row[3] for row in rows]})))
    part = client_part(run)
    assert part is not None
    assert part.refusals is not None
    assert (part.requests, part.attempts, part.amplification, part.refusals.count) == (2, 3, 1.5, 1)
