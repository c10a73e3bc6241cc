"""The part of a report that says the same run in other tools' words: report key ``peers``.

One entry a variant, by name, with its definition beside the numbers, so that two reports can be reconciled without either
tool at hand. Nothing here is judged.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Number, part
from plimsoll.reports.sections.chart_data import number
from plimsoll.slo.peers.figures import Figures


class Peer(BaseModel, frozen=True, extra="forbid"):
    """One number, or one distribution, as another tool would print it from the same requests."""

    unit: str
    n: int = 0
    mean: Number = None
    p50: Number = None
    p90: Number = None
    p95: Number = None
    p99: Number = None
    value: Number = Field(default=None, description="of a variant that is one number; null: it has none, see note")
    start: str = Field(default="", description="where its clock starts")
    percentile: str = Field(default="", description="linear, lower, loadgen, nearest, weighted; value: one number")
    definition: str = ""
    source: str = Field(default="", description="where that tool says so")
    note: str = Field(default="", description="parameters, and why there is no value")


def peers_part(found: Mapping[str, Figures]) -> dict[str, Peer]:
    """Every variant whose stamps the run has."""
    return {name: _part(figures) for name, figures in found.items()}


def _part(figures: Figures) -> Peer:
    peer = figures.peer
    values = (figures.mean, figures.value, *(figures.percentiles or (None,) * 4))
    mean, value, p50, p90, p95, p99 = (None if one is None else number(one, peer.unit) for one in values)
    return part(Peer, figures, peer, mean=mean, value=value, p50=p50, p90=p90, p95=p95, p99=p99)
