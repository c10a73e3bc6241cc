"""A run told apart by labels: the same figures as of its rows alone, on every page and in every file."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from rich.console import Console

from plimsoll.reports.blocks.terminal import plain
from plimsoll.reports.documents.run import render_terminal
from plimsoll.reports.format import formats
from plimsoll.reports.report import Report, build
from plimsoll.slo.judge import judge
from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.objectives.selector import selected
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts

MS = 1_000_000


def run(n: int = 1200, **labels: list[str | int | None]) -> Records:
    """Batch is slow, and one in ten of it is turned away."""
    batch = np.arange(n) % 3 == 0
    due = np.arange(n) * MS
    took = np.where(batch, 500 + np.arange(n) % 7, 20 + np.arange(n) % 5) * MS
    given: dict[str, list[str | int | None]] = {"class": ["batch" if one else "chat" for one in batch]}
    return from_columns(
        n,
        due_ns=due,
        ready_ns=due,
        sent_ns=due,
        first_byte_ns=due + took,
        done_ns=due + took,
        status=np.where(np.arange(n) % 30 == 0, int(Status.REFUSED), 0),
        n_in=np.arange(n) * 10,
        labels=given | labels,
    )


def report(records: Records, *by: str, slo: str = "p90(latency{class=chat}) <= 1s") -> Report:
    facts = GeneratorFacts(open_loop=True, planned=len(records), elapsed_ns=10**10)
    return build({}, {}, records, judge(records, facts, Promises((parse(slo),))), by=by)


def test_each_value_has_the_figures_of_its_rows_alone() -> None:
    records = run()
    found = report(records)
    assert found.by is not None
    assert {label: [*groups] for label, groups in found.by.items()} == {"class": ["batch", "chat"]}
    for name in ("batch", "chat"):
        group = found.by["class"][name]
        alone = report(selected(records, selector.parse(f"class={name}")).labelled(None), slo="p90(latency) <= 1s")
        assert alone.by is None
        assert group.requests == alone.metrics["latency"].n
        whole, mine = alone.metrics["latency"], group.metrics["latency"]
        assert (mine.p50, mine.p99, mine.mean, mine.n, mine.failed) == (
            whole.p50, whole.p99, whole.mean, whole.n, whole.failed,
        )  # fmt: skip
    assert (found.by["class"]["batch"].failed, found.by["class"]["batch"].refused) == (40, 40)
    assert found.document()["by"]["class"]["chat"]["metrics"]["latency"]["p50"] == 22 * MS
    assert found.document()["verdict"]["objectives"][0]["where"] == "{class=chat}"


def test_rows_are_told_apart_by_what_is_asked_for() -> None:
    found = report(run(), "prompt_tokens")
    assert found.by is not None
    assert [*found.by] == ["prompt_tokens", "class"]
    assert {value: group.requests for value, group in found.by["prompt_tokens"].items()} == {
        "0 to 255": 26, "256 to 1,023": 77, "1,024 to 4,095": 307, "4,096 to 16,383": 790,
    }  # fmt: skip


def test_a_label_of_too_many_values_is_refused_with_the_reason() -> None:
    users: list[str | int | None] = [f"u{i}" for i in range(1200)]
    found = report(run(user=users), "user")
    assert found.by is not None
    assert [*found.by] == ["class"]
    assert any("not told apart by user: label user has 1,200 values" in text for text in found.warnings)
    assert "user" not in (report(run(user=users)).by or {})


def test_every_format_shows_them() -> None:
    found = report(run())
    text = plain(render_terminal(found)).decode()
    line = next(line for line in text.splitlines() if line.startswith("batch"))
    assert line.split() == ["batch", "400", "10", "%", "10", "%", "90", "%", "212", "503", "ms", "∞"]
    assert "| class |" in formats()["markdown"].render(found).decode()
    rows = list(csv.DictReader(io.StringIO(formats()["csv"].render(found).decode())))
    chat = next(row for row in rows if (row["metric"], row["rows"]) == ("latency", "class=chat"))
    assert (chat["n"], chat["p50"]) == ("800", str(22 * MS))
    page = formats()["html"].render(found).decode()
    assert "Latency: class chat" in page
    assert "Latency: class batch" in page


def test_a_run_without_labels_has_no_such_section() -> None:
    found = report(run().labelled(None), slo="p90(latency) <= 1s")
    assert "by" not in found.document()
    assert "By class" not in plain(render_terminal(found)).decode()


@pytest.mark.parametrize("width", [72, 80, 100, 120, 140])
def test_a_terminal_cuts_no_figure_of_the_table(width: int) -> None:
    records = run(12_000)
    first = np.where(records.ok, records["due_ns"] + 15 * MS, -1)
    records = records.with_columns(first_token_ns=first, last_token_ns=first, n_out=np.full(len(records), 120))
    shown = io.StringIO()
    console = Console(file=shown, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(render_terminal(report(records), {}, width))
    table = shown.getvalue().split("By class\n")[1].split("\n\n")[0]
    assert "turned away" in table
    assert "TTFT p99" in table
    assert all(line.rstrip().endswith("15.0 ms") == (width < 134) for line in table.splitlines()[3:]), table
    assert not any(line.rstrip().endswith("…") for line in table.splitlines())


def test_hardly_any_rows() -> None:
    none = report(from_columns(0, labels={"class": []}), "class")
    assert none.by is None
    assert any("not told apart by class: no row has the label class" in text for text in none.warnings)
    one = report(run(1), "class").by
    assert one is not None
    assert {value: (group.requests, group.failed) for value, group in one["class"].items()} == {"batch": (1, 1)}
