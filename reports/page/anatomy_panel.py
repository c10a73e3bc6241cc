"""The page's anatomy of a typical and of a slow request: two bars cut into stages, and the same as a table."""

from __future__ import annotations

from typing import Any

from plimsoll.reports.sections.anatomy import HELD, REST, Anatomy, LatencyBand, heads, note, rows
from plimsoll.reports.svg.plot import Chart, Key, Picture
from plimsoll.reports.svg.waterfall import Bar, canvas_for, describe, waterfall
from plimsoll.reports.wording import units

_TITLE = "Where the time of p50 and of p99 goes"
_WIDE, _NARROW = 1080.0, 420.0
#: Colours there are for stages; the last one is for all that follow.
_COLOURS = 7


def anatomy_panel(part: Anatomy | None) -> dict[str, Any] | None:
    """The chart, the table and its note; None where no server named a stage."""
    if part is None:
        return None
    names = [stage.name for band in part.bands for stage in band.stages if not stage.part_of]
    colours = {name: f"stage-{min(i, _COLOURS - 1)}" for i, name in enumerate(dict.fromkeys(names))}
    bars = [Bar(_label(band), _stages(band, colours)) for band in part.bands]
    words = describe(bars, _TITLE)
    used = {class_ for bar in bars for class_, begin, end in bar.stages if end > begin}
    legend = [Key(HELD, "stage-held", "bar")] if "stage-held" in used else []
    legend += [Key(name, class_, "bar") for name, class_ in colours.items() if class_ in used]
    legend += [Key(REST, "stage-rest", "bar")] if "stage-rest" in used else []
    pictures = [Picture(waterfall(bars, words, canvas_for(width, len(bars)))) for width in (_WIDE, _NARROW)]
    return {
        "chart": Chart(_TITLE, "", legend, pictures[0], pictures[1]),
        "heads": heads(part),
        "rows": [
            {"name": row.name, "part": row.part, "cells": list(zip(row.values, row.shares, strict=True))}
            for row in rows(part)
        ],
        "note": note(part),
    }


def _label(band: LatencyBand) -> str:
    return f"p{band.percentile:g}  ·  {units.duration(band.latency_ns)}  ·  {units.many(band.n, 'request')}"


def _stages(band: LatencyBand, colours: dict[str, str]) -> list[tuple[str, int, int]]:
    """One after the other as they were named; the rest at the end, though the network has its share at both."""
    drawn: list[tuple[str, int, int]] = []
    at = 0
    whole = [(colours[stage.name], stage.ns) for stage in band.stages if not stage.part_of]
    for class_, ns in [("stage-held", band.held_ns), *whole, ("stage-rest", band.rest_ns)]:
        if ns > 0:
            drawn.append((class_, at, at + ns))
            at += ns
    return drawn
