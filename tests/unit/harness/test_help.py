"""What the help says of flags."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from plimsoll.harness.verbs.cli import app
from plimsoll.harness.verbs.flags import REPORT_FORMATS
from plimsoll.reports.comparison.comparison_formats import FORMATS as OF_A_COMPARISON
from plimsoll.reports.format import formats
from plimsoll.reports.search.search_formats import FORMATS as OF_A_SEARCH
from plimsoll.reports.sweep.sweep_formats import FORMATS as OF_A_SWEEP

VERBS = ((), ("run",), ("compare",), ("serve",), ("scenarios",), ("scenarios", "list"), ("slo", "presets"))


def said(*words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "250", "TERMINAL_WIDTH": "250"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize("words", VERBS)
def test_flags_that_take_no_value_show_none(words: tuple[str, ...]) -> None:
    assert "bool" not in said(*words).lower()
    assert "--help" in said(*words)


def test_format_lists_the_formats() -> None:
    assert tuple(sorted(formats())) == REPORT_FORMATS
    assert ", ".join(REPORT_FORMATS) in said("run")
    for verb, known in (("compare", OF_A_COMPARISON), ("search", OF_A_SEARCH), ("sweep", OF_A_SWEEP)):
        *names, last = sorted(known)
        assert f"{', '.join(names)} or {last}" in said(verb)
