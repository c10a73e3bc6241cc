"""A format of an outside package is one file, announced by an entry point: it says a run and any document."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_comparisons import case
from made_reports import case as run
from made_reports import records

import plimsoll.reports.format as plugins
from plimsoll.reports.documents.comparison import FORMATS
from plimsoll.slo.metrics.plugin import PluginError, every

SHOUT = """from plimsoll.reports.format import Format

FORMAT = Format(
    "shout", ".shout", "the outcome, loud",
    lambda report: f"{report.verdict.outcome}!".encode(), lambda document: f"{document.kind}: {document.word}!".encode(),
)
"""  # noqa: E501


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package ``acme_shout`` with one file."""
    information = tmp_path / "acme_shout-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-shout\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[plimsoll.formats]\nshout = acme_shout:FORMAT\n")
    (tmp_path / "acme_shout.py").write_text(SHOUT)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._outside.cache_clear()
    every.cache_clear()
    yield tmp_path
    plugins._outside.cache_clear()
    every.cache_clear()
    sys.modules.pop("acme_shout", None)


def test_an_outside_format_says_a_run_and_a_comparison(installed: Path) -> None:
    assert "shout" in set(plugins.formats())
    assert "acme_shout" not in sys.modules  # until it is asked for
    assert plugins.formats()["shout"].render(run("fail")) == b"FAIL!"
    assert "shout" in set(FORMATS)
    assert FORMATS["shout"](case("regression")) == b"compare: REGRESSION!"


def test_an_outside_format_has_the_rows_and_what_it_raises_is_its_own_error(installed: Path) -> None:
    counted = SHOUT.replace(
        'document.word}!".encode(),',
        "document.word}!\".encode(), lambda report, records, manifest: str(manifest['n'] + len(records)).encode(),",
    )
    (installed / "acme_shout.py").write_text(counted)
    rows = plugins.formats()["shout"].rows
    assert rows is not None
    assert rows(run("fail"), records(30), {"n": 7}) == b"37"
    with pytest.raises(PluginError, match=r"acme.shout.*its rows"):
        rows(run("fail"), records(30), {})
    (installed / "acme_shout.py").write_text(
        SHOUT.replace('document.word}!".encode(),', 'document.word}!".encode(), 3,')
    )
    sys.modules.pop("acme_shout")
    every.cache_clear()
    assert "its rows is 3" in plugins.unusable(["shout=x"])["shout"]


def test_a_name_of_ours_is_refused_where_it_is_asked_for_and_ours_elsewhere(installed: Path) -> None:
    (installed / "acme_shout-1.dist-info" / "entry_points.txt").write_text(
        "[plimsoll.formats]\nhtml = acme_shout:FORMAT\n"
    )
    plugins._outside.cache_clear()
    every.cache_clear()
    assert "acme_shout" in plugins.unusable(["html=page.html", "junit=slo.xml"])["html"]
    assert plugins.formats()["html"].render(run("fail")).startswith(b"<!doctype html>")


def test_a_format_that_only_a_run_has_is_none_of_a_comparison() -> None:
    assert "hdrlog" in plugins.formats()
    assert "hdrlog" not in FORMATS
    assert "openmetrics" not in FORMATS
