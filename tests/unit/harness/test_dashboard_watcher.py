"""``--live`` as given, and what the verdict is read from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.live.live_view import verdict_in
from plimsoll.harness.live.place import Place, where
from plimsoll.reports.documents.live import VerdictPart


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("8089", Place("127.0.0.1", 8089)),
        ("0", Place("127.0.0.1", 0)),
        (":8089", Place("127.0.0.1", 8089)),
        ("0.0.0.0:9000", Place("0.0.0.0", 9000)),
        ("[::1]:9000", Place("::1", 9000)),
        ("localhost:1", Place("localhost", 1)),
    ],
)
def test_a_place_is_a_port_with_or_without_a_host(text: str, place: Place) -> None:
    assert where(text) == place


@pytest.mark.parametrize(
    "text", ["", "http", "70000", "-1", "1.2.3.4", "host:", "a@b:1", "h:1/x", "http://h:1", "[::1:2"]
)
def test_anything_else_is_one_clear_error(text: str) -> None:
    with pytest.raises(HarnessFault) as caught:
        where(text)
    assert caught.value.code == 2
    assert len(caught.value.errors) == 1
    assert caught.value.errors[0].startswith(f"--live {text}: not [HOST:]PORT")


def test_without_the_flag_there_is_no_place() -> None:
    assert where(None) is None


@pytest.mark.parametrize(
    ("place", "url"),
    [
        (Place("127.0.0.1", 0), "http://127.0.0.1:5/"),
        (Place("::1", 0), "http://[::1]:5/"),
        (Place("0.0.0.0", 0), "http://127.0.0.1:5/"),
        (Place("::", 0), "http://[::1]:5/"),
    ],
)
def test_the_address_that_is_said_can_be_opened(place: Place, url: str) -> None:
    assert place.url(5) == url


def sealed(folder: Path, outcome: str, objectives: int, whole: bool = True) -> Path:
    document = {
        "verdict": {"outcome": outcome, "reasons": ["slow"], "objectives": [{}] * objectives},
        "validity": {"reasons": ["late"]},
    }
    (folder / "report.json").write_text(json.dumps(document))
    if whole:
        (folder / "report.html").write_text("<html>")
    return folder


def test_the_verdict_is_that_of_the_sealed_run(tmp_path: Path) -> None:
    page = str(tmp_path / "report.html")
    assert verdict_in(sealed(tmp_path, "FAIL", 1)) == VerdictPart(outcome="FAIL", reasons=["slow"], report=page)
    assert verdict_in(sealed(tmp_path, "INVALID", 1)) == VerdictPart(outcome="INVALID", reasons=["late"], report=page)


def test_a_run_without_objectives_is_measured_and_not_passed(tmp_path: Path) -> None:
    found = verdict_in(sealed(tmp_path, "PASS", 0))
    assert found is not None
    assert found.outcome == "MEASURED"


def test_there_is_no_verdict_before_both_reports_are_written(tmp_path: Path) -> None:
    assert verdict_in(tmp_path) is None
    assert verdict_in(sealed(tmp_path, "PASS", 1, whole=False)) is None
    (tmp_path / "report.html").write_text("<html>")
    (tmp_path / "report.json").write_text('{"verdict": ')
    assert verdict_in(tmp_path) is None
