"""The part of a report on attempts: of which requests it counts them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from plimsoll.reports.sections.client import client_part
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import Phase, Status


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
