"""The part of a report that says where the time of a typical and of a slow request went: report key ``anatomy``.

The server's own word on its stages, beside what the generator saw; nothing is judged. Its rows are the same on every
page.
"""

from functools import partial

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, Figures, On, Row, Section, Sentence, Table
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.parts.parts import Text, part
from plimsoll.reports.parts.provenance import public_text
from plimsoll.reports.svg.bars import Bar, staged
from plimsoll.reports.svg.plot import Chart, Key
from plimsoll.reports.wording import units
from plimsoll.slo.metrics import anatomy as stages
from plimsoll.slo.metrics.stages import parent

HELD = "before it was sent"
REST = "outside the stages"
TITLE = "Where the time goes"
_TEXT = 60
_CHART = "Where the time of p50 and of p99 goes"
#: Colours there are for stages; the last one is for all that follow.
_COLOURS = 7


class Stage(BaseModel, frozen=True, extra="forbid"):
    """One stage; ``part_of`` another where its name says so."""

    name: Text
    ns: int
    part_of: Text = ""


class LatencyBand(BaseModel, frozen=True, extra="forbid"):
    """The requests nearest in rank to one percentile of latency; means over these ``n``."""

    percentile: float
    n: int
    latency_ns: int
    held_ns: int = Field(description="from when they were due until they were sent")
    stages: list[Stage] = Field(description="as the server said, in its order; parts after their whole")
    rest_ns: int = Field(description="explained by no stage; negative where stages overlap")


class Anatomy(BaseModel, frozen=True, extra="forbid"):
    """``n`` of ``n_ok`` successful requests came with the server's word on its stages."""

    n: int
    n_ok: int
    bands: list[LatencyBand]


def anatomy_part(found: stages.Anatomy | None) -> Anatomy | None:
    """None when no server said how long its stages took."""
    return None if found is None else part(Anatomy, found, bands=[_band(band) for band in found.bands])


def blocks(part: Anatomy, _report: object) -> list[Block]:
    """The bars of both bands, and every stage; a terminal goes without the parts of a stage."""
    columns = [Column("stage", right=False, titled="Stage", names=True)]
    for band in part.bands:
        head = f"p{band.percentile:g}, {units.duration(band.latency_ns)}"
        columns += [Column(head), Column("", titled="share")]
    every = rows(part)
    brief = [row for row in every if not row.class_]
    shown: list[Block] = [
        Figures(partial(_charts, part), bare=True),
        Table(columns, brief, title=TITLE, on=On.TERMINAL),
        Table(columns, every, look="anatomy", on=On.MARKDOWN | On.PAGE),
        Sentence(note(part), fine=True, on=On.MARKDOWN | On.PAGE),
    ]
    return [Section(TITLE, [Card(shown)], folded=TITLE)]


def rows(part: Anatomy) -> list[Row]:
    """Held back, each stage, the rest: nothing is left out. A value and a share of the latency for each band."""
    names = list(dict.fromkeys(stage.name for band in part.bands for stage in band.stages))
    owners = {stage.name: stage.part_of for band in part.bands for stage in band.stages}
    by_band = [{stage.name: stage.ns for stage in band.stages} for band in part.bands]
    lines = [(HELD, [band.held_ns for band in part.bands])]
    lines += [(name, [band.get(name, 0) for band in by_band]) for name in names]
    lines.append((REST, [band.rest_ns for band in part.bands]))
    found = []
    for name, values in lines:
        owner = owners.get(name, "")
        cells = [f"\u2003{name.removeprefix(f'{owner}.')}" if owner else name]
        for ns, band in zip(values, part.bands, strict=True):
            cells += [_span(ns), _share(ns, band.latency_ns)]
        found.append(Row(cells, "part" if owner else ""))
    return found


def note(part: Anatomy) -> str:
    """Which requests these are."""
    taken = " and ".join(f"{units.count(band.n)} at p{band.percentile:g}" for band in part.bands)
    missing = part.n_ok - part.n
    silent = f" {units.many(missing, 'success')} came without." if missing else ""
    return (
        f"Means over the requests nearest in rank to each percentile of latency ({taken}), by what the server says of "
        f"its stages.{silent}"
    )


def _band(band: stages.Band) -> LatencyBand:
    named = {name: public_text(name)[:_TEXT] for name in band.stages_ns}
    told = [Stage(name=named[name], ns=ns, part_of=named.get(parent(name), "")) for name, ns in band.stages_ns.items()]
    return part(LatencyBand, band, stages=told)


def _span(ns: int) -> str:
    return f"\u2212{units.duration(-ns)}" if ns < 0 else units.duration(ns)


def _share(ns: int, of_ns: int) -> str:
    return units.NOTHING if of_ns <= 0 or ns < 0 else units.percent(ns / of_ns, 2)


def _charts(part: Anatomy) -> list[Chart]:
    names = [stage.name for band in part.bands for stage in band.stages if not stage.part_of]
    colours = {name: f"stage-{min(i, _COLOURS - 1)}" for i, name in enumerate(dict.fromkeys(names))}
    bars = [Bar(_band_label(band), _band_stages(band, colours)) for band in part.bands]
    used = {class_ for bar in bars for class_, begin, end in bar.stages if end > begin}
    known = [(HELD, "stage-held"), *colours.items(), (REST, "stage-rest")]
    legend = [Key(name, class_, "bar") for name, class_ in known if class_ in used]
    return [staged(_CHART, legend, bars, bars)]


def _band_label(band: LatencyBand) -> str:
    return f"p{band.percentile:g}  ·  {units.duration(band.latency_ns)}  ·  {units.many(band.n, 'request')}"


def _band_stages(band: LatencyBand, colours: dict[str, str]) -> list[tuple[str, int, int]]:
    """One after the other as they were named; the rest at the end, though the network has its share at both."""
    drawn: list[tuple[str, int, int]] = []
    at = 0
    whole = [(colours[stage.name], stage.ns) for stage in band.stages if not stage.part_of]
    for class_, ns in [("stage-held", band.held_ns), *whole, ("stage-rest", band.rest_ns)]:
        if ns > 0:
            drawn.append((class_, at, at + ns))
            at += ns
    return drawn


SECTION = ReportSection("anatomy", 100, lambda run: anatomy_part(run.judged.anatomy), blocks)
