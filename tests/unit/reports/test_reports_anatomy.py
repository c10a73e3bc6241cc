"""The stages of p50 and p99 on every page: the same rows, parts below their whole, and nothing where no server said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from made_reports import records, report

from plimsoll.reports.format import formats
from plimsoll.reports.sections.anatomy import HELD, REST, anatomy_part, rows
from plimsoll.slo.metrics.anatomy import anatomy
from plimsoll.slo.records.records import Records


def staged(text: str = "queue;dur=1.5, preprocess;dur=2, preprocess.resize;dur=1, decode;dur=30") -> Records:
    plain = records(2000)
    columns = dict(plain.columns) | {"server_timing": np.zeros(len(plain), dtype=np.int32)}
    return replace(plain, columns=columns, timings=(text,))


def test_the_rows_are_the_whole_latency_and_parts_stand_below_their_whole() -> None:
    part = anatomy_part(anatomy(staged()))
    assert part is not None
    assert [(row.cells[0], row.class_) for row in rows(part)] == [
        (HELD, ""),
        ("queue", ""),
        ("preprocess", ""),
        ("\u2003resize", "part"),
        ("decode", ""),
        (REST, ""),
    ]
    for band in part.bands:
        whole = sum(stage.ns for stage in band.stages if not stage.part_of)
        assert band.held_ns + whole + band.rest_ns == band.latency_ns


def test_every_page_says_it() -> None:
    made = report(staged())
    for name in ("text", "markdown", "html"):
        page = formats()[name].render(made).decode()
        assert "Where the time goes" in page, name
        for word in ("queue", "decode", REST):
            assert word in page, (name, word)
    assert made.document()["anatomy"]["bands"][1]["percentile"] == 99.0


def test_a_silent_server_has_no_such_part() -> None:
    made = report(records(200))
    assert made.anatomy is None
    assert b"Where the time goes" not in formats()["html"].render(made)


def test_stage_names_are_escaped_and_overlap_is_a_negative_rest() -> None:
    made = report(staged("a|b`*_;dur=99999"))
    assert made.anatomy is not None
    assert made.anatomy.bands[0].rest_ns < 0
    for name in ("text", "markdown", "html"):
        assert formats()[name].render(made)
    assert "\u2212" in formats()["text"].render(made).decode()
