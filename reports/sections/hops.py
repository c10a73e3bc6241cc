"""The part of a report on its latency budget: what each hop may take, what it took, which one overspent, and what
nobody measures. Report key ``hops``; its numbers are ``plimsoll.slo.verdict.hops``'s.
"""

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, On, Row, Section, Sentence, Table
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.parts.parts import Text, part
from plimsoll.reports.parts.provenance import public_text
from plimsoll.reports.wording import units
from plimsoll.slo.verdict import hops as found

TITLE = "Latency budget"
REST, APART = "measured by nobody", "taken by no hop"


class HopSpent(BaseModel, frozen=True, extra="forbid"):
    """One hop, what no hop takes, or what is left beside all that is measured, for ``hops`` together."""

    hops: list[Text] = Field(description="empty: no hop takes it")
    sources: list[Text] = Field(description="stages of the server and times of the client; empty: what is left")
    limit_ns: int = Field(description="of a request, or of a token if per_token")
    per_token: bool = False
    n: int = Field(description="successful requests that tell")
    over: int = Field(description="of them, those in which it took longer")
    p50_ns: int
    p99_ns: int
    slow_ns: float = Field(description="mean of the requests around the p99 of latency")
    slow_limit_ns: float = Field(description="what it might have taken in them")


class Hops(BaseModel, frozen=True, extra="forbid"):
    """``n`` successful requests; ``slow_n`` around the p99 of latency, which they make ``latency_ns`` in the mean."""

    n: int
    slow_n: int
    latency_ns: float
    spent: list[HopSpent]
    overspent: list[Text] = Field(default_factory=list, description="the hop that overspent most in them; empty: none")
    overspent_share: float = Field(default=0, description="of all that was overspent there")


def hops_part(budget: found.Budget | None) -> Hops | None:
    """The part, or None for a run without a budget."""
    if budget is None:
        return None
    spent = [part(HopSpent, one, hops=[*map(public_text, one.hops)], sources=[*one.sources]) for one in budget.spent]
    worst = [] if budget.worst is None else spent[budget.worst].hops
    return part(Hops, budget, spent=spent, overspent=worst, overspent_share=budget.worst_share)


def blocks(part: Hops, _report: object) -> list[Block]:
    """Who overspent, and a row for each hop."""
    columns = [Column("hop", right=False, titled="Hop", names=True)]
    columns += [Column(head) for head in ("limit", "p50", "p99", "over", "slow ones")]
    rows = [_row(one, part.n) for one in part.spent]
    note = (
        f"Slow ones: the {units.many(part.slow_n, 'request')} nearest in rank to the p99 of latency, "
        f"{units.duration(part.latency_ns)} in the mean."
    )
    shown: list[Block] = [
        Sentence(sentence(part)), Table(columns, rows, title=TITLE, on=On.TERMINAL),
        Table(columns, rows, on=On.MARKDOWN | On.PAGE), Sentence(note, fine=True),
    ]  # fmt: skip
    return [Section(TITLE, [Card(shown)])]


def sentence(part: Hops) -> str:
    """Which hop overspent most, or that none did; and what no hop takes, most of all first."""
    apart = max((one for one in part.spent if one.sources and not one.hops), key=lambda one: one.slow_ns, default=None)
    other = "" if apart is None else f" {apart.sources[0]} took {units.duration(apart.slow_ns)}, which no hop takes."
    if not part.overspent:
        return f"No hop overspent in the slow requests.{other}"
    one = next(one for one in part.spent if one.hops == part.overspent)
    unmeasured = "" if one.sources else ", which nothing measures,"
    return (
        f"{' and '.join(part.overspent)}{unmeasured} took {units.duration(one.slow_ns)} of "
        f"{units.duration(one.slow_limit_ns)} in the slow requests: {units.percent(part.overspent_share, 2)} of all "
        f"that was overspent there.{other}"
    )


def _row(one: HopSpent, n: int) -> Row:
    kind = "" if one.hops and one.sources else APART if one.sources else REST
    name = ": ".join(filter(None, (kind, ", ".join(one.hops or one.sources))))
    over = units.percent(one.over / one.n, 2) if one.hops else units.NOTHING
    silent = f" of {units.count(one.n)}" if one.n < n else ""
    limit = units.duration(one.limit_ns) + ("/token" if one.per_token else "") if one.hops else units.NOTHING
    return Row([name, limit, _time(one.p50_ns), _time(one.p99_ns), over + silent, _time(one.slow_ns)])


def _time(ns: float) -> str:
    return f"\u2212{units.duration(-ns)}" if ns < 0 else units.duration(ns)


SECTION = ReportSection("hops", 98, lambda run: hops_part(run.judged.hops), blocks)
