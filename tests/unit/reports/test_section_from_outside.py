"""A section of an outside package, installed beside us, is in report.json and wherever people read: nothing here names
it but its file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from html import unescape
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from made_reports import case, records, report

from plimsoll.reports.blocks import section
from plimsoll.reports.format import formats
from plimsoll.reports.report import Report
from plimsoll.slo.metrics.plugin import PluginError, every
from tests.page_reader import without_columns

FOLDER = Path(__file__).parents[2] / "outside" / "section"


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(FOLDER)
    importlib.invalidate_caches()
    section.sections.cache_clear()
    every.cache_clear()
    yield
    section.sections.cache_clear()
    every.cache_clear()


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("kind", ["html", "markdown", "text"])
def test_an_outside_section_is_on_the_page_in_markdown_and_in_the_terminal(kind: str) -> None:
    shown = unescape(formats()[kind].render(report(records(300))).decode())
    assert "Retries" in shown
    assert shown.index("Attempts") < shown.index("Most of one request")
    assert "300" in shown[shown.index("Attempts") :]


@pytest.mark.usefixtures("_installed")
def test_an_outside_section_is_in_the_json_under_its_name_and_reads_back() -> None:
    made = report(records(300))
    assert made.document()["sections"] == {"retries": {"attempts": 300, "most": 1}}
    again = Report.model_validate_json(formats()["json"].render(made))
    for kind in ("html", "markdown", "text"):
        first, second = formats()[kind].render(made), formats()[kind].render(again)
        assert second == without_columns(first)
    assert "sections" not in report(records(10, warmup=10)).document(), "of a run of which it has nothing to say"


def test_without_outside_packages_the_json_has_no_such_key() -> None:
    assert "sections" not in case("pass").document()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("outside_section:MISSING", r"plug-in mine = outside_section:MISSING of group .*Mend or uninstall"),
        ("outside_section:Retries", "no SECTION"),
        ("plimsoll.reports.sections.speech:SECTION", "has no model"),
        ("outside_section:SECTION", "retries exists already"),
    ],
)
@pytest.mark.usefixtures("_installed")
def test_a_broken_section_of_an_outside_package_is_named(
    value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = EntryPoint("known", "outside_section:SECTION", "plimsoll.sections")
    monkeypatch.setattr(section, "announced", lambda group: [known, EntryPoint("mine", value, group)] if group else [])
    with pytest.raises(PluginError, match=said):
        section.sections()
