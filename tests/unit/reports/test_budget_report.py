"""Error budgets in a report and on a terminal: nothing is lost, nothing is claimed that was not seen."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from made_reports import records
from rich.console import Console

from plimsoll.reports.blocks.document import Document
from plimsoll.reports.blocks.terminal import draw
from plimsoll.reports.sections.budgets import BudgetPart, blocks, budgets_part, further, written
from plimsoll.slo.objectives.budget import budgeted, run_span_ns
from plimsoll.slo.objectives.ledger import Account, AlertRule, Ledger, ledger_of
from plimsoll.slo.objectives.objective import parse

S = 1_000_000_000
MINUTE, HOUR, DAY = 60 * S, 3600 * S, 86_400 * S
E = Fraction(1, 1000)


def part(
    bad: np.ndarray,
    name: str = "chat",
    step_ns: int = S,
    rules: tuple[AlertRule, ...] = (),
    period_ns: int = 30 * DAY,
    production_per_s: float | None = None,
) -> BudgetPart:
    at = np.arange(len(bad), dtype=np.int64) * step_ns
    account = Account(at, bad.astype(float), E)
    ledger = Ledger(name, name, 1 - E, period_ns, "request", (account,), rules, production_per_s)
    return budgets_part([budgeted(ledger, len(bad) * step_ns)])[0]


def vector() -> BudgetPart:
    bad = np.zeros(240_000)
    bad[::500] = 1
    return part(bad, "ratio(good) >= 99.9%", 2_500_000, production_per_s=100.0)


def shown(*parts: BudgetPart, width: int = 100) -> str:
    """The budgets on a terminal, without the three lines of the document's card and the blank one behind it."""
    out = io.StringIO()
    doc = Document(kind="run", word="INCONCLUSIVE", name="", headline="", blocks=written(parts))
    Console(file=out, width=width, color_system=None, highlight=False).print(draw(doc, width))
    return "".join(out.getvalue().splitlines(keepends=True)[3:])


def test_the_vector_of_a_ten_minute_run_in_the_report() -> None:
    found = vector()
    assert (found.burn, found.sli, found.exhausted_in_ns) == (2.0, 0.998, 15 * DAY)
    assert (found.target, found.allowed, found.budget_ns) == (0.999, 0.001, 43.2 * MINUTE)
    assert (found.n, found.bad, found.span_ns, found.policy) == (240_000, 480, 600 * S, "sre-workbook")
    assert [alert.fired for alert in found.alerts] == [None] * 4
    assert [window.observable for window in found.windows] == [True] + [False] * 6
    assert len(found.timeline.end_ns) == 300
    assert BudgetPart.model_validate_json(found.model_dump_json()) == found


def test_no_data_is_null_with_a_reason() -> None:
    found = part(np.empty(0))
    assert (found.n, found.sli, found.burn, found.sli_interval) == (0, None, None, (None, None))
    assert found.reason == "no request was counted"
    assert "no request was counted" in shown(found)
    assert "fire" not in shown(found)


def test_the_budgets_of_a_run_are_those_of_its_objectives() -> None:
    run = records(2000, fail_every=100)
    asked = [parse(text) for text in ("p99(ttft) <= 200ms", "mean(ttft) <= 1s", "ratio(error) <= 5%", "p90(itl) <= 1s")]
    ledgers = [ledger for one in asked if (ledger := ledger_of(one, run)) is not None]
    found = budgets_part([budgeted(ledger, run_span_ns(run)) for ledger in ledgers])
    assert [one.name for one in found] == ["p99(ttft) <= 200ms", "ratio(error) <= 5%", "p90(itl) <= 1s"]
    assert [one.entry for one in found] == ["request", "request", "gap"]
    assert found[1].bad == 20
    assert found[1].burn == pytest.approx(0.2)
    assert found[0].span_ns >= found[0].covered_ns > 39 * S


def test_an_slo_with_its_own_alerts_gets_no_others() -> None:
    own = AlertRule("mine", "page", 10 * MINUTE, MINUTE, 2.0)
    found = part(np.zeros(1200), rules=(own,))
    assert [alert.name for alert in found.alerts] == ["mine"]
    assert found.policy == "the SLO's own"


def test_the_terminal_shows_the_vector_on_a_few_lines_of_100_columns() -> None:
    text = shown(vector())
    assert max(len(line) for line in text.splitlines()) <= 100
    assert len(text.splitlines()) == 7
    for expected in ("99.8 %", "1.85 to 2.16", "43.2 min", "0.0463 % by time", "0.185 % by events", "15 d"):
        assert expected in text
    assert "page quick held back by its 5 min window; its 1 h window is not observable" in text
    assert "not observable in 10 min: page slow needs 30 min" in text


def test_the_worked_examples_of_the_manual_are_what_the_code_prints() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guide" / "error-budgets.md").read_text(encoding="utf-8")
    outage = np.zeros(4 * 3600 + 1)
    outage[7200:7800] = 1
    for example in (vector(), part(outage, "ratio(error) <= 0.1%")):
        printed = "\n".join(line.rstrip() for line in shown(example).splitlines())
        assert printed in page, printed


def test_an_alert_that_fired_says_when_and_how_long() -> None:
    bad = np.zeros(4 * 3600 + 1)
    bad[7200:7800] = 1
    text = " ".join(shown(part(bad)).split())
    assert "✕ page quick (burn > 14.4 over 1 h and 5 min) would have fired at 2 h 00 min, until 2 h 14 min" in text
    assert "not observable in 4 h: ticket slow needs 6 h" in text


def test_silence_is_claimed_only_of_windows_that_were_seen() -> None:
    assert "did not fire: page quick" in shown(part(np.zeros(3700)))
    assert "did not fire" not in shown(part(np.zeros(3000)))


def test_what_can_not_be_told_is_not_told() -> None:
    bad = np.zeros(601)
    bad[::50] = 1
    text = " ".join(shown(part(bad)).split())
    assert "? page quick (burn > 14.4 over 1 h and 5 min): not observable; fires at 300 s on a service" in text


def test_a_period_too_short_for_alerts_says_so() -> None:
    assert "no usual alert fits a period of 1 h" in shown(part(np.zeros(700), period_ns=HOUR))


def test_what_is_true_of_some_slos_names_them() -> None:
    text = " ".join(
        shown(part(np.zeros(3700), "one"), part(np.zeros(3700), "other"), part(np.ones(3700), "bad")).split()
    )
    assert "✓ one, other: did not fire: page quick" in text
    assert "✕ bad: page quick" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in shown(vector(), part(np.ones(900)), width=width).splitlines()) <= width


def test_no_budgets_show_nothing() -> None:
    assert blocks([], None) == further([]) == []
