"""The part of a report that says where the time of a typical and of a slow request went: report key ``anatomy``.

The server's own word on its stages, beside what the generator saw; nothing is judged. Its rows are the same on every page.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Text, part
from plimsoll.reports.sections.provenance import public_text
from plimsoll.reports.wording import units
from plimsoll.slo.metrics import anatomy as stages

HELD = "before it was sent"
REST = "outside the stages"
_TEXT = 60


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


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a value and a share of the latency by band; ``part``: it is within the line above it."""

    name: str
    part: bool
    values: tuple[str, ...]
    shares: tuple[str, ...]


def anatomy_part(found: stages.Anatomy | None) -> Anatomy | None:
    """None when no server said how long its stages took."""
    return None if found is None else part(Anatomy, found, bands=[_band(band) for band in found.bands])


def rows(part: Anatomy) -> list[Row]:
    """Held back, each stage, the rest: nothing is left out."""
    names = list(dict.fromkeys(stage.name for band in part.bands for stage in band.stages))
    owners = {stage.name: stage.part_of for band in part.bands for stage in band.stages}
    by_band = [{stage.name: stage.ns for stage in band.stages} for band in part.bands]
    lines = [(HELD, False, [band.held_ns for band in part.bands])]
    lines += [(name, bool(owners[name]), [band.get(name, 0) for band in by_band]) for name in names]
    lines.append((REST, False, [band.rest_ns for band in part.bands]))
    return [
        Row(
            name.removeprefix(f"{owners.get(name, '')}.") if inside else name,
            inside,
            tuple(_span(ns) for ns in values),
            tuple(_share(ns, band.latency_ns) for ns, band in zip(values, part.bands, strict=True)),
        )
        for name, inside, values in lines
    ]


def heads(part: Anatomy) -> list[str]:
    """The column of each band: ``p50, 121 ms``."""
    return [f"p{band.percentile:g}, {units.duration(band.latency_ns)}" for band in part.bands]


def note(part: Anatomy) -> str:
    """Which requests these are."""
    taken = " and ".join(f"{units.count(band.n)} at p{band.percentile:g}" for band in part.bands)
    missing = part.n_ok - part.n
    silent = f" {units.many(missing, 'success')} came without." if missing else ""
    return (
        f"Means over the requests nearest in rank to each percentile of latency ({taken}), by what the server says of its stages."
        f"{silent}"
    )


def _band(band: stages.Band) -> LatencyBand:
    named = {name: public_text(name)[:_TEXT] for name in band.stages_ns}
    told = [
        Stage(name=named[name], ns=ns, part_of=named.get(stages.parent(name), ""))
        for name, ns in band.stages_ns.items()
    ]
    return part(LatencyBand, band, stages=told)


def _span(ns: int) -> str:
    return f"\u2212{units.duration(-ns)}" if ns < 0 else units.duration(ns)


def _share(ns: int, of_ns: int) -> str:
    return units.NOTHING if of_ns <= 0 or ns < 0 else units.percent(ns / of_ns, 2)
