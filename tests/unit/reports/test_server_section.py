"""What the report says of the server: figures in their units, and what keeps them from being relied on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from plimsoll.reports.blocks.document import Card, Notes, Section, Table
from plimsoll.reports.blocks.section import JudgedRun
from plimsoll.reports.documents.pictures import timeline_charts
from plimsoll.reports.sections.server import (
    BatchesPart,
    BookPart,
    GapPart,
    NamePart,
    RestartPart,
    ServerPart,
    SlopePart,
    SourcePart,
    blocks,
    by_bucket,
    server_part,
    server_warnings,
)
from plimsoll.slo.server.courses import Course, Kind
from plimsoll.slo.server.served import Asked, Origin, Served, Track
from plimsoll.slo.server.server_side import ServerSide
from tests.unit.reports.made_reports import records, report

S = 1_000_000_000


def named(kind: str, unit: str, **figures: Any) -> NamePart:
    base = {"engine": "vllm", "families": ["x"], "sources": ["a"], "series": 1, "samples": 9}
    return NamePart.model_validate({"title": f"a {unit}", "unit": unit, "kind": kind, **base, **figures})


PART = ServerPart(
    sources={
        "a": SourcePart(
            where="http://a/metrics", period_ns=S, slowed_ns=2 * S, samples=9, bytes=900, took_p50_ns=100_000_000,
            took_max_ns=200_000_000, failed=3,
            gaps=[GapPart(start_ns=4 * S, end_ns=6 * S, count=3, reason="it answered 503 Busy")],
        )
    },
    names={
        "server.kv_usage": named("gauge", "ratio", mean=0.5, min=0.1, max=0.9),
        "host.rss": named("gauge", "bytes", mean=2.0**30, min=1, max=2.0**31),
        "server.requests": named("counter", "per_s", total=1234.0, per_s=41.0),
        "host.cpu": named("counter", "s", total=60.0, per_s=1.5),
        "gpu.energy": named("counter", "J", total=9000.0, per_s=300.0),
        "server.ttft": named("mean", "ns", mean=5e7, min=1, max=9e7),
        "server.batch": named("mean", "1", samples=0),
    },
    absent={"server.failures": "not exposed by vLLM", "server.decode_time": "not exposed by vLLM"},
    restarts=[RestartPart(source="a", after_ns=4 * S, before_ns=6 * S)],
    books=[
        BookPart(what="requests", theirs=1300, ours=1234, difference=66),
        BookPart(what="prompt tokens", theirs=None, ours=5, why="it restarted"),
        BookPart(what="generated tokens", theirs=7, ours=7, difference=0),
        BookPart(what="cancelled", theirs=2, ours=3, difference=-1, why="1 of ours had no whole answer"),
    ],
)  # fmt: skip


def test_it_stands_below_the_latencies_on_their_axis_and_what_is_unknown_is_a_gap() -> None:
    plain = report(records(fail_every=40))
    assert plain.charts.timeline is not None
    n = len(plain.charts.timeline.due)
    queue = named("gauge", "1", by_bucket=[None, *[3.0] * (n - 1)])
    names = {"server.queue": queue, "server.running": named("gauge", "1", by_bucket=[0.0] * n)}
    found = timeline_charts(plain.model_copy(update={"server": ServerPart(sources={}, names=names)}))
    before = [one.title for one in timeline_charts(plain)]
    assert [one.title for one in found] == [*before, "Waiting at the server"]
    assert found[-1].wide.hover["x"] == found[2].wide.hover["x"]  # of the time to the first token
    assert found[-1].wide.hover["series"][0]["text"][:2] == ["–", "3"]
    assert found[-1].narrow.hover["x"] == found[2].narrow.hover["x"]


def test_figures_have_their_units_and_what_has_no_value_no_row() -> None:
    (section,) = blocks(PART, SimpleNamespace(charts=SimpleNamespace(timeline=None)))
    assert isinstance(section, Section)
    cards = [card for card in section.blocks if isinstance(card, Card)]
    table, notes = cards[0].blocks[0], cards[-1].blocks[0]
    assert isinstance(table, Table)
    assert [[getattr(cell, "text", cell) for cell in row.cells][1:] for row in table.rows] == [
        ["50 %", "90 %", "9"],
        ["1.00 GiB", "2.00 GiB", "9"],
        ["1,234", "41.0/s", "9"],
        ["60 s", "1.50", "9"],
        ["9,000 J", "300 W", "9"],
        ["50.0 ms", "90.0 ms", "9"],
    ]
    assert isinstance(notes, Notes)
    assert list(notes.texts) == [
        "a: 9 samples every 1.00 s, slowed down to 2.00 s, each in 100 ms (at most 200 ms)",
        "a: nothing 3 times from 4 s: it answered 503 Busy",
        "a restarted between 4 s and 6 s: what it counted then is unknown",
        "requests: the server counts 1,300, we count 1,234: 66 more (others use it, or it counts what we do not)",
        "prompt tokens: the server counts –, we count 5 (it restarted)",
        "generated tokens: the server and we count the same, 7",
        "cancelled: the server counts 2, we count 3: 1 fewer (1 of ours had no whole answer)",
        "Failures, Decode time: not exposed by vLLM",
    ]


def test_a_restart_and_books_that_differ_are_warnings() -> None:
    warned = [text.split(":")[0] for text in server_warnings(PART)]
    assert warned == ["a restarted between 4 s and 6 s", "requests", "cancelled"]
    assert server_warnings(None) == []


def test_a_page_on_which_nothing_is_known_says_so_instead_of_an_empty_table() -> None:
    found = Served(
        {name: Asked(Origin(name, f"http://{name}", S, S, 0), *[np.array([S])] * 3, np.array([9.0])) for name in "ab"},
        (Track("b", "vllm:num_requests_waiting", {}, "server.queue", np.array([0]), np.array([3.0])),),
    )
    side = ServerSide(found, {}, {}, (), ())
    made = server_part(cast(JudgedRun, SimpleNamespace(judged=SimpleNamespace(server=side), records=records())))
    assert made is not None
    assert [name for name, one in made.sources.items() if one.strange] == ["a"]
    (warned,) = server_warnings(made)
    assert warned.startswith("a: no name on its page is one of an engine that is known")
    (section,) = blocks(made, None)
    assert isinstance(section, Section)
    (card,) = section.blocks
    assert isinstance(card, Card)
    assert [type(one) for one in card.blocks] == [Notes]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("gauge", [2, 3, 3, None, 5]), ("counter", [2, 3, None, None, 5]), ("mean", [2, 3, None, None, 5])],
)
def test_a_bucket_holds_what_was_read_in_it_and_nothing_that_is_unknown(
    kind: Kind, expected: list[float | None]
) -> None:
    """Samples at 1, 2, (3: unknown) and 4 s in buckets of half a second to two seconds."""
    ends = np.array([1.0, 2.0, 3.0, 4.0]) * S
    begins = ends - S if kind != "gauge" else ends - 1000
    values = np.array([2.0, 3.0, np.nan, 5.0])
    course = Course("x", kind, begins, ends, values, np.where(np.isnan(values), np.nan, 1.0), "e", (), (), 1, ends - S)
    edges = np.array([0.9, 1.5, 2.2, 2.8, 3.5, 4.5]) * S
    assert by_bucket(course, edges) == expected


def told(**changed: Any) -> list[Any]:
    """The tables of the section, then its notes."""
    (section,) = blocks(PART.model_copy(update=changed), SimpleNamespace(charts=SimpleNamespace(timeline=None)))
    assert isinstance(section, Section)
    return [block for card in section.blocks if isinstance(card, Card) for block in card.blocks]


def test_a_single_gap_is_one_time() -> None:
    gap = GapPart(start_ns=8 * S, end_ns=9 * S, count=1, reason="no answer")
    source = PART.sources["a"].model_copy(update={"gaps": [gap]})
    assert "a: nothing 1 time from 8 s: no answer" in told(sources={"a": source})[-1].texts


def batches(exact: bool, *sizes: tuple[float, float | None, int], **more: Any) -> BatchesPart:
    return BatchesPart(source="a", of="requests", exact=exact, since_ns=0, until_ns=S, sizes=[*sizes], **more)


def test_batches_stand_by_size_with_their_widths_and_many_sizes_in_powers_of_two() -> None:
    exact = batches(True, (0, 1, 10), (3, 4, 30), mean=3.25)
    buckets = batches(False, (0, 1, 6), (8, 64, 3), (64, None, 1))
    many = batches(True, *((size - 1, size, 1) for size in range(1, 31)), mean=15.5)
    unknown = batches(True, why="it restarted during the run")
    tables = [one for one in told(batches=[exact, buckets, many, unknown]) if isinstance(one, Table)][1:]
    assert [[list(row.cells) for row in table.rows] for table in tables] == [
        [["1", "10", "25 %"], ["4", "30", "75 %"]],
        [["1", "6", "60 %"], ["9 to 64", "3", "30 %"], ["more than 64", "1", "10 %"]],
        [
            ["1", "1", "3.33 %"],
            ["2", "1", "3.33 %"],
            ["3 to 4", "2", "6.67 %"],
            ["5 to 8", "4", "13.3 %"],
            ["9 to 16", "8", "26.7 %"],
            ["17 to 32", "14", "46.7 %"],
        ],
        [],
    ]
    assert [table.notes for table in tables] == [
        ["a: 40 in all; mean 3.25"],
        ["a: 10 in all"],
        ["a: 30 in all; mean 15.5"],
        ["a: it restarted during the run"],
    ]


def test_memory_and_cores_are_told_at_idle_at_most_and_growing() -> None:
    grown = SlopePart(per_h=2.0**20, low=-(2.0**20), high=3 * 2.0**20)
    vague = SlopePart(per_h=2.0**20, low=-(2.0**40), high=2.0**40)
    memory = named("gauge", "bytes", idle=2.0**29, max=2.0**30, mean=1, min=1)
    cores = named("counter", "s", idle=0.0, max=1.5, total=1.0, per_s=1.0)
    names = {"host.rss": memory.model_copy(update={"slope": grown}), "host.cpu": cores}
    notes = told(names=names)[-1].texts
    assert "a bytes: 512 MiB before the first request, at most 1.00 GiB, growing by 1.00 MiB an hour " in notes[3]
    assert notes[4] == "a s: 0 before the first request, at most 1.50"
    wide = told(names={"host.rss": memory.model_copy(update={"slope": vague})})[-1].texts
    assert wide[3].endswith("at most 1.00 GiB")  # an interval wider than all of it says nothing
