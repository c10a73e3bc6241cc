"""Rows whose timeline is known, and their file."""

from __future__ import annotations

from typing import Any

import numpy as np

from plimsoll.reports.formats.perfetto import timeline
from plimsoll.reports.report import Report
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import Phase, Records, Status, from_columns

MS = 1_000_000
TRACED = {"run_id": "run7", "traceparent": 0.5}


def rendered(rows: Records, manifest: dict[str, Any] = TRACED, **more: Any) -> bytes:
    """``more``: parts of the report."""
    report = Report.model_validate({"schema": "plimsoll.report/1", "run": {"id": "run7"}})
    return timeline(report.model_copy(update=more), rows, manifest)


def streams(due_ms: list[float], took_ms: list[float], **columns: Any) -> Records:
    """Streams whose first token comes after a quarter of their time; every stamp has odd nanoseconds."""
    due = np.array([int(at * MS) for at in due_ms])
    took = np.array([int(one * MS) for one in took_ms])
    stamps = {
        "due_ns": due, "ready_ns": due + 101, "sent_ns": due + 5_003, "first_byte_ns": due + took // 8,
        "first_token_ns": due + took // 4, "first_answer_ns": due + took // 4, "last_token_ns": due + took - 77,
        "done_ns": due + took, "n_out": 3, "n_in": 2, "code": 200, "worker": 0, "query_id": np.arange(len(due)),
    }  # fmt: skip
    return from_columns(len(due), **(stamps | columns))


def attempts() -> Records:
    """A request of one try and a retry, and one whose hedge overlaps its first try."""
    begin = np.array([0, 0, 6, 20, 20, 23]) * MS
    end = np.array([10, 4, 10, 30, 30, 28]) * MS
    rows = from_columns(
        6, query_id=[0, 0, 0, 1, 1, 1], due_ns=begin, ready_ns=begin, sent_ns=begin, done_ns=end,
        phase=[0, 3, 3, 0, 3, 3], status=[0, 1, 0, 0, 0, 7],
    )  # fmt: skip
    labels = {"attempt": [1, 0, 1, 0, 0, 1], "hedge": [0, 0, 0, 0, 0, 1]}
    return rows.labelled(LabelTable.of(labels))


def failed() -> Records:
    """One that succeeded, one that timed out with a hostile text, one that the client cancelled, one refused."""
    hostile = 'slow: http://u:secret@h/x?key=1 \x1b[31m\u2028\n"\\'
    return streams(
        [0, 1, 2, 3], [9, 9, 9, 9], code=[200, -1, 200, 500], phase=[0, 0, Phase.CANCEL, 0],
        errors=[None, hostile, None, "no"],
    ).with_columns(status=np.array([Status.OK, Status.TIMEOUT, Status.CANCELLED, Status.HTTP]))  # fmt: skip


def sessions() -> Records:
    """Three turns of session 7; of session 8, whose turn 1 is not there, two."""
    labels = {"session": [7, 8, 7, 8, 7], "turn": [0, 0, 1, 2, 2]}
    return streams([0, 1, 20, 30, 50], [5, 5, 5, 5, 5]).labelled(LabelTable.of(labels))
