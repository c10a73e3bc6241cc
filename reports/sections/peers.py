"""The part of a report that says the same run in other tools' words: report key ``peers``.

One entry a variant, by name, with its definition beside the numbers, so that two reports can be reconciled without
either tool at hand. Nothing here is judged.
"""

from collections.abc import Mapping

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Cell, Column, Folded, On, Row, Table
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.parts.charts import number
from plimsoll.reports.parts.parts import Number, part
from plimsoll.reports.wording import units
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


def blocks(peers: dict[str, Peer], _report: object) -> list[Block]:
    """A row for each variant, on the page only."""
    if not peers:
        return []
    columns = [Column("Name", right=False, names=True, code=True), Column("n"), Column("mean or value")]
    columns += [Column("p50"), Column("p99"), Column("Definition", right=False)]
    table = Table(columns, [Row(row(name, peer)) for name, peer in peers.items()], look="peers")
    summary = f"The same run as other tools would print it ({len(peers)} numbers)"
    return [Card([Folded(summary, [table])], on=On.PAGE)]


def row(name: str, peer: Peer) -> list[str | Cell]:
    """Its numbers, and their definition with where it stands."""
    single = peer.percentile == "value"
    rank = "" if peer.percentile in ("", "value") else f"{peer.percentile} percentiles"
    clock = ", ".join(text for text in (f"from {peer.start}" if peer.start else "", rank) if text)
    return [
        name,
        units.count(peer.n),
        _shown(peer.value if single else peer.mean, peer),
        "" if single else _shown(peer.p50, peer),
        "" if single else _shown(peer.p99, peer),
        Cell(peer.definition, aside=" · ".join(text for text in (clock, peer.note, peer.source) if text)),
    ]


def _shown(value: Number, peer: Peer) -> str:
    """A percentile that is null is infinite; a single number that is null is none, and the note says why."""
    if value is None:
        return units.INFINITE if peer.n and peer.percentile != "value" else units.NOTHING
    return units.human(value, peer.unit)


SECTION = ReportSection("peers", 85, lambda run: peers_part(run.judged.peers), blocks)
