"""The servers' own figures beside runs: in comparisons, bake-offs and sweeps, in every format, and never made up."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pytest

from plimsoll.reports.documents import bakeoff, comparison
from plimsoll.reports.documents import sweep as sweeps
from plimsoll.reports.models.comparison_parts import BakeoffReport, ComparisonReport, LevelPart, build
from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.compare import compare
from tests.unit.reports.made_comparisons import QUANTITIES, arm
from tests.unit.reports.made_sweeps import place, seen, sweep

SAID = {"max(server.queue)": 42.0, "max(host.rss)": 3 * 2.0**30}


def measured(made: Arm, *said: dict[str, float]) -> Arm:
    """The arm, whose runs had servers that said this, one after another."""
    runs = [dataclasses.replace(run, server=said[at % len(said)]) for at, run in enumerate(made.runs)]
    return Arm(made.name, tuple(runs))


def made() -> ComparisonReport:
    """Of one arm all is known, of the other what every second run knows."""
    base = measured(arm("main"), SAID)
    other = measured(arm("pull-42", seed=2), SAID, {"max(server.queue)": 44.0})
    return build(compare(base, [other], QUANTITIES), base, [other])


@pytest.mark.parametrize("form", ["text", "markdown", "html", "csv"])
def test_columns_say_what_was_measured_and_where_nothing_was(form: str) -> None:
    text = comparison.FORMATS[form](made()).decode()
    assert "The servers themselves" in text
    assert "3.00 GiB" in text
    assert "not measured" in text  # the other arm's memory
    assert "42" in text
    assert "gpu.utilisation" in text or form == "csv"  # what no run has is told of


def test_a_program_gets_each_runs_own_and_a_comparison_without_servers_is_as_it_was() -> None:
    document = json.loads(comparison.FORMATS["json"](made()))
    assert [run["server"] for run in document["arms"][0]["runs"]][:2] == [SAID, {"max(server.queue)": 44.0}]
    base, other = arm("main"), arm("pull-42", seed=2)
    bare = build(compare(base, [other], QUANTITIES), base, [other])
    assert b'"server"' not in comparison.FORMATS["json"](bare)
    assert b"servers themselves" not in comparison.FORMATS["text"](bare)


def test_a_bakeoff_has_them_at_every_load() -> None:
    levels = [LevelPart(level=name, sound=True, passed={}, rankings=[], comparison=made()) for name in ("c=4", "c=16")]
    about = {"name": "two", "deciding_level": "c=4", "levels": levels}
    held = {name: value for name, value in made() if name != "schema_"}
    whole = BakeoffReport(**held, **about)
    text = bakeoff.FORMATS["text"](whole).decode()
    assert all(f"{load} {name}" in text for load in ("c=4", "c=16") for name in ("main", "pull-42"))


def test_a_sweep_has_the_median_of_its_runs_at_each_point() -> None:
    runs = [seen(20.0, run=f"r{at}", server={"max(server.queue)": value}) for at, value in enumerate((1.0, 9.0, 3.0))]
    report = sweep(place(20.0, *runs), place(40.0))
    assert report.points[0].server == {"max(server.queue)": 3.0}
    rows = list(csv.DictReader(io.StringIO(sweeps.FORMATS["csv"](report).decode())))
    assert [row["max(server.queue)"] for row in rows] == ["3.0", ""]
    for form in ("text", "markdown", "html"):
        text = sweeps.FORMATS[form](report).decode()
        assert "The servers themselves" in text
        assert "not measured" in text
    assert "server" not in json.loads(sweeps.FORMATS["json"](sweep(place(20.0))))["series"][0]["points"][0]
