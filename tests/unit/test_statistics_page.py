"""The tables of docs/evidence/statistics.md are what the code computes."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from plimsoll.slo.statistics.confidence import clopper_pearson, max_failures, n_required, order_statistic_bounds, sample
from plimsoll.slo.statistics.warmup import CAP, MATERIAL, Z_FIRST_HALF, Z_LIMIT
from plimsoll.slo.verdict.steadiness import COV_LIMITS, LEAST_WINDOWS, MAX_WINDOWS, PER_WINDOW

PAGE = (Path(__file__).parents[2] / "docs" / "evidence" / "statistics.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str, first: str) -> list[list[str]]:
    """The table whose header begins with ``first``, header included."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return [table[0], *table[2:]]


def share(percentile: str) -> Fraction:
    return Fraction(percentile[1:]) / 100


def number(cell: str) -> int:
    return int(cell.replace(",", ""))


def test_ranks_of_order_statistics() -> None:
    head, *table = rows(section("Percentiles"), "n")
    for cells in table:
        n = number(cells[0])
        for percentile, cell in zip(head[1:], cells[1:], strict=True):
            lower, upper = order_statistic_bounds(n, share(percentile))
            shown = f"{lower}, {'none' if upper > n else upper}"
            assert cell == shown


def test_sizes_from_which_a_bound_exists() -> None:
    head, *table = rows(section("Percentiles"), "confidence")
    for cells in table:
        confidence = Fraction(cells[0].removesuffix(" %")) / 100
        said = [number(cell) for cell in cells[1:]]
        assert said == [sample(1 - share(p), confidence).least for p in head[1:]]


def test_early_stopping() -> None:
    head, *table = rows(section("Early stopping"), "percentile")
    counts = [int(cell.removeprefix("t = ")) for cell in head[1:]]
    for cells in table:
        assert [number(cell) for cell in cells[1:]] == [n_required(t, share(cells[0])) for t in counts]
    assert max_failures(10_000, "0.99") == 77
    assert "77 by early stopping" in section("Early stopping")


def test_the_interval_of_a_share() -> None:
    low, high = clopper_pearson(480, 240_000)
    assert f"{low:.4%} to {high:.4%}".replace("%", " %") in section("Shares").replace("\n", " ")


@pytest.mark.parametrize(
    "text",
    [
        f"above the {CAP * 100:.0f}th percentile", f"more than {Z_LIMIT} standard errors", f"differs by {Z_FIRST_HALF}",
        f"differ by more than {MATERIAL * 100:.0f} %",
    ],
)  # fmt: skip
def test_the_guards_of_the_warm_up(text: str) -> None:
    assert text in section("Warm-up")


def test_the_windows_of_the_steady_state() -> None:
    text = section("Steady state")
    assert f"{LEAST_WINDOWS} to {MAX_WINDOWS} windows" in text
    assert f"(at least {PER_WINDOW})" in text
    assert f"{COV_LIMITS['p50']} (p50) and {COV_LIMITS['p90']} (p90)" in text


def test_the_planning_example() -> None:
    found = sample(Fraction(1, 100))
    assert found.with_bad is not None
    text = re.sub(r"\s+", " ", section("Before a run"))
    assert f"A p99 at 20 requests/s takes {found.least} requests, 15 s; {found.with_bad:,}, about 3 min" in text
    assert f"{sample(Fraction(1, 10)).least} of them" in text
