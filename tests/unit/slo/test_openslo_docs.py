"""docs/guide/openslo.md and its example files are what the code does; the starter is judged on records."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives import openslo
from plimsoll.slo.objectives.objective import UNITS
from plimsoll.slo.objectives.openslo.counting import Component, Requests, Terms
from plimsoll.slo.objectives.openslo.promise import Slo
from plimsoll.slo.objectives.openslo.reading import EMPTY_SLICES, METHODS, PRODUCTION_RATE
from plimsoll.slo.records.records import Records, Status, from_columns

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "guide/openslo.md").read_text(encoding="utf-8")
MIN = 60_000_000_000


def run(seconds: int, rate: int, failed: int = 0) -> Records:
    """Streams of 20 tokens, constant rate, 100 ms to the first token and 10 ms between them; the first few fail."""
    n = seconds * rate
    due = np.arange(n) * 1_000_000_000 // rate
    first = due + 100_000_000
    status = np.where(np.arange(n) < failed, int(Status.HTTP), int(Status.OK))
    last = first + 190_000_000
    return from_columns(
        n,
        due_ns=due,
        sent_ns=due,
        first_token_ns=first,
        last_token_ns=last,
        done_ns=last,
        n_out=20,
        status=status,
        chunks=[[int(t), int(t) + 190_000_000] for t in first],
    )


@pytest.mark.parametrize("path", sorted((DOCS / "examples").glob("openslo*.yaml")), ids=lambda path: path.name)
def test_the_example_files_are_accepted_and_pass_on_a_good_run(path: Path) -> None:
    loaded = openslo.load(path)
    assert loaded.warnings == ()
    for slo in loaded.to_judge():
        assert slo.judge(run(300, 20))[0].outcome == "PASS", slo.judge(run(300, 20))[0].detail
        assert slo.judge(run(300, 20, failed=3000))[0].outcome == "FAIL"


def test_the_starter_passes_on_a_good_run_and_fails_on_a_bad_one() -> None:
    slos = openslo.parse(openslo.starter()).to_judge()
    assert [slo.judge(run(600, 10))[0].outcome for slo in slos] == ["PASS"] * 3
    assert [slo.judge(run(600, 10, failed=3000))[0].outcome for slo in slos] == ["FAIL"] * 3
    assert [slo.judge(run(10, 10))[0].outcome for slo in slos] == ["INCONCLUSIVE", "PASS", "INCONCLUSIVE"]


def test_every_document_on_the_page_is_one() -> None:
    found = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found
    for text in found:
        openslo.parse(text)


def test_the_worked_example_on_the_page_is_computed() -> None:
    cells = {row[0]: row[1:] for line in PAGE.splitlines() if (row := [c.strip() for c in line.split("|")[1:-1]])}
    total, good = ([int(cell) for cell in cells[name]] for name in ("total", "good"))
    due, status = [], []
    for i, (n, fine) in enumerate(zip(total, good, strict=True)):
        due += [i * MIN + (2 * j + 1) * MIN // (2 * n) for j in range(n)]
        status += [0] * fine + [1] * (n - fine)
    some = from_columns(len(due), due_ns=due, sent_ns=due, done_ns=due, status=status)
    part = Component("a", Requests(()), Fraction("0.98"), Fraction(1), Fraction("0.95"))
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) % \| (met|missed) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert [row[0] for row in rows] == list(METHODS)
    for method, share, answer, burn in rows:
        terms = Terms(method, (part,), 0 if method == "Occurrences" else MIN)
        (found,) = Slo("a", "a", "s", "x", terms, "a week", MIN).judge(some)
        assert found.observed == pytest.approx(float(share) / 100)
        assert f"as counted {answer}: burn {burn} against" in found.detail
        assert found.outcome == "INCONCLUSIVE"


def test_units_annotations_and_methods_are_all_listed() -> None:
    times = [unit for unit, (_, base) in UNITS.items() if base == "ns"]
    assert "`, `".join(times[:-1]) + f"` or `{times[-1]}`" in PAGE
    assert all(f"`{name}`" in PAGE for name in (EMPTY_SLICES, PRODUCTION_RATE, *METHODS))
    assert {one.unit for one in catalogue().values()} <= {"ns", "per_s", "1", "bytes"}
