"""Failures that differ only in numbers are one failure in every format that names them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np

from plimsoll.reports.format import formats
from plimsoll.reports.report import Report
from tests.unit.reports.made_reports import records, report


def many_texts() -> Report:
    """200 refusals, each with a port, a time and an id of its own, and before them two with another text."""
    made = records(606, fail_every=3)
    failed = np.flatnonzero(~made.ok)
    texts = [f"refused by 127.0.0.1:{40_000 + i} after {i * 1.37:.2f} ms ({i * 7919:08x}-{i:04x})" for i in range(200)]
    error = np.full(len(made), -1)
    error[failed] = [200, 200, *range(200)]
    status = made.columns["status"].copy()
    status[failed] = status[failed[0]]
    columns = {**made.columns, "error": error, "status": status}
    return report(replace(made, errors=(*texts, "the queue is full"), columns=columns))


def test_failures_that_differ_only_in_numbers_are_one_in_every_format() -> None:
    made = many_texts()
    for name in ("text", "markdown", "html", "json", "annotations", "junit"):
        shown = formats()[name].render(made).decode()
        assert len(set(re.findall(r"127\.0\.0\.1:4\d{4}", shown))) <= 1, name
        if name in ("text", "markdown", "html"):
            assert "200" in shown
            assert re.search(r"200\s+texts", re.sub(r"[\s│]+", " ", shown)), name


def test_the_json_says_how_many_texts_a_failure_stands_for() -> None:
    counts = json.loads(formats()["json"].render(many_texts()))["counts"]
    found = [(one["text"][:8], one["count"], one["texts"]) for one in counts["errors"]]
    assert found == [("refused ", 200, 200), ("the queu", 2, 1)]
    assert counts["other_errors"] == 0
