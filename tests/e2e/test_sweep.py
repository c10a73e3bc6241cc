"""``plimsoll sweep`` as a user runs it: three loads on a bundled server that answers one request at a time.

Real time, no more than 100 requests. Of the loads one is less than half of what the server can do and the others ten
times it, so that no time needs to be exact; the curves themselves are judged in the unit tests.
"""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.plimsoll import plimsoll_here

pytestmark = pytest.mark.e2e

#: One slot and 50 ms of service: 20/s at most.
SWEEP = (
    *("sweep", "--model", "scripted", "--vary", "rate=8,200,400,800"),
    *("--vary", "server.slots=1", "--vary", "server.ttft=50ms", "--vary", "server.itl=0ms"),
    *("--output-tokens", "2", "--queries", "24", "--arrival", "constant", "--timeout", "300ms", "--workers", "1"),
    *("--slo", "p50(latency) <= 250ms", "--cooldown", "0s", "--out", "s"),
)
Swept = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    folder = tmp_path_factory.mktemp("sweep")
    return folder, plimsoll_here(*SWEEP, "--json", "--format", "csv=points.csv", cwd=folder)


def test_the_line_lies_between_a_load_that_is_carried_and_one_that_is_not(swept: Swept) -> None:
    folder, done = swept
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["schema"] == "plimsoll.sweep/1"
    assert result["outcome"] == "FOUND"
    (series,) = result["series"]
    assert (series["line"]["low"], series["line"]["high"]) == (8, 200)
    assert series["knee"]["x"] == 8
    first = series["points"][0]
    assert first["metrics"]["ttft"]["p50"] == pytest.approx(50e6, rel=0.5)
    assert (folder / "s" / first["runs"][0] / "report.html").is_file()
    assert json.loads((folder / "s/sweep.json").read_text()) == result


def test_loads_above_two_hopeless_ones_are_not_run(swept: Swept) -> None:
    folder, done = swept
    last = json.loads(done.stdout)["series"][0]["points"][-1]
    assert last["outcome"] == "SKIPPED"
    assert last["reasons"] == ["already saturated at 200/s"]
    assert len(list((folder / "s/runs").iterdir())) == 3


def test_every_format_has_every_point(swept: Swept) -> None:
    folder, _ = swept
    with (folder / "points.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [row["rate"] for row in found] == ["8", "200", "400", "800"]
    # Each run has a server of its own, which is ours and so watched, once a second: the first one lasts for three, the
    # others for less than half of one, and the last was not run.
    assert float(found[0]["max(host.rss)"]) > 10e6
    assert found[-1]["max(host.rss)"] == ""
    page = (folder / "s/sweep.html").read_text()
    assert "The servers themselves" in page
    assert "knee 8/s" in page
    assert "not run" in page


def test_the_folder_is_judged_again_without_a_load(swept: Swept) -> None:
    folder, _ = swept
    again = plimsoll_here("sweep", "--again", "--out", "s", "--slo", "p50(latency) <= 1ms", "--json", cwd=folder)
    assert again.returncode == 1, again.stderr
    assert json.loads(again.stdout)["outcome"] == "FAIL"
    assert len(list((folder / "s/runs").iterdir())) == 3
