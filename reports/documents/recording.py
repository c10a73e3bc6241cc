"""A recording described, before anything is sent: the parts of its JSON, schema ``plimsoll.recording/1``, and what it
says to people.

Times are nanoseconds, rates per second, lengths tokens. Null is what nobody knows.
"""

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, Document, Facts, Notes, Row, Section, Table
from plimsoll.reports.format import Renderers
from plimsoll.reports.parts.parts import Result, Text
from plimsoll.reports.wording import units

SCHEMA: Final = "plimsoll.recording/1"


class LengthsPart(BaseModel, frozen=True, extra="forbid"):
    """Nearest rank, in tokens. ``unknown``: requests that don't say theirs."""

    p50: int
    p90: int
    p99: int
    max: int
    total: int
    unknown: int = 0


class CensusPart(BaseModel, frozen=True, extra="forbid"):
    """Requests at some times."""

    rows: int = Field(description="requests")
    duration_ns: int = Field(description="from the first request to the last")
    rate_per_s: float | None = None
    dispersion: dict[str, float | None] = Field(
        default_factory=dict, description="variance over mean of the requests in windows of 1, 30 and 300 s; 1: Poisson"
    )
    peak: int = Field(default=0, description="requests in the busiest second")
    input_tokens: LengthsPart | None = None
    output_tokens: LengthsPart | None = None
    sessions: int | None = None
    prefix_hit_share: float | None = Field(
        default=None, description="of the prompts' tokens a cache without limits had known; null: no ids of blocks"
    )


class RecordingReport(Result, CensusPart, frozen=True):
    """The whole description."""

    schema_: Literal["plimsoll.recording/1"] = Field(default=SCHEMA, alias="schema")
    path: Text
    format: Text = ""
    instants: int = Field(default=0, description="different times")
    grain_ns: int = Field(default=0, description="times are multiples of it, or come in ticks of about so much")
    ticks: bool = Field(default=False, description="requests come several at a time, at regular times")
    missing: list[Text] = Field(default_factory=list)
    notes: list[Text] = Field(default_factory=list)
    replayed: CensusPart | None = Field(
        default=None, description="as the flags would have it; null: as it was recorded"
    )
    limits: Text = Field(default="", description="its busiest second beside what this machine was calibrated for")
    plimsoll: Text = ""


def document(report: RecordingReport) -> Document:
    rate = (
        ""
        if report.rate_per_s is None
        else f" in {units.duration(report.duration_ns)}, {units.rate(report.rate_per_s)}"
    )
    said = f"{units.many(report.rows, 'request')}{rate}"
    table = _table(report)
    return Document(
        kind="recording",
        word="MEASURED",
        name=report.path,
        title=f"Recording: {report.path}",
        heading="Recording",
        headline=said,
        meta=[f"format {report.format}"],
        lines=[(said, "bold"), (f"{report.path} (format {report.format}); nothing was sent", "")],
        blocks=_blocks(report, table),
        plimsoll=report.plimsoll,
        sheet=[[column.head for column in table.columns], *(row.cells for row in table.rows)],
        footer=f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
    )


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document, indent=1)


def _table(report: RecordingReport) -> Table:
    columns = [Column("quantity", right=False, titled="Quantity", names=True), Column("recorded")]
    sides: list[CensusPart] = [report]
    if report.replayed is not None:
        columns.append(Column("as replayed"))
        sides.append(report.replayed)
    told = [dict(_quantities(side)) for side in sides]
    return Table(columns, [Row([name, *(side.get(name, units.NOTHING) for side in told)]) for name in told[0]])


def _blocks(report: RecordingReport, table: Table) -> list[Block]:
    facts = [("clock", _clock(report)), *([("limits", report.limits)] if report.limits else [])]
    facts += [("missing", "; ".join(report.missing) or "nothing")]
    blocks: list[Block] = [Card([table]), Card([Facts(facts)])]
    if report.notes:
        blocks.append(Card([Notes(report.notes)]))
    return [Section("What is in it", blocks)]


def _clock(report: RecordingReport) -> str:
    if report.ticks:
        return (
            f"ticks of {units.seconds(report.grain_ns)}: {units.count(report.rows)} requests on "
            f"{units.count(report.instants)} instants, about {report.rows / report.instants:.0f} at once: not the "
            "traffic's own bursts. --spread puts them at random times within a tick"
        )
    if not report.grain_ns:
        return "no time differs from another"
    several = report.rows / max(report.instants, 1)
    at_once = f", {several:.2g} requests an instant, at irregular times: the traffic's own" if several >= 2 else ""
    return f"times in steps of {units.duration(report.grain_ns).replace('.00 ', ' ').replace('.0 ', ' ')}{at_once}"


def _quantities(side: CensusPart) -> Sequence[tuple[str, str]]:
    def known(value: float | None, digits: int = 3) -> str:
        return units.NOTHING if value is None else units.significant(value, digits)

    return [
        ("requests", units.count(side.rows)),
        ("duration", units.duration(side.duration_ns) if side.duration_ns else units.NOTHING),
        ("mean rate", units.rate(side.rate_per_s)),
        ("busiest second", units.many(side.peak, "request") if side.duration_ns else units.NOTHING),
        *((f"dispersion at {name[:-1]} s", known(value)) for name, value in side.dispersion.items()),
        *_lengths("prompt", side.input_tokens),
        *_lengths("answer", side.output_tokens),
        ("sessions", units.NOTHING if side.sessions is None else units.count(side.sessions)),
        ("ideal prefix hits", units.NOTHING if side.prefix_hit_share is None else units.percent(side.prefix_hit_share)),
    ]


def _lengths(what: str, found: LengthsPart | None) -> list[tuple[str, str]]:
    name = f"{what} tokens, p50 / p90 / p99 / max"
    if found is None:
        return [(name, units.NOTHING)]
    return [(name, " / ".join(map(units.count, (found.p50, found.p90, found.p99, found.max))))]
