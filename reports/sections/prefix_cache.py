"""What a prefix cache had of the prompts, by the endpoint's word, beside what one without limit would have had.

The ideal is of the plan's order: a token counts when the same beginning was sent before, however long ago. No cache can
have more, and one that has much less forgets, or hashes blocks that the prompts do not fill.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Cell, Column, Row, Section, Sentence, Table
from plimsoll.reports.blocks.section import JudgedRun, ReportSection
from plimsoll.reports.sections.by import labels_of
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.stages import cached_tokens
from plimsoll.slo.objectives.selector import rows_of
from plimsoll.slo.records.labels import CACHED, IDEAL
from plimsoll.slo.records.records import BoolArray, Records

_NOTE = (
    "Ideal: tokens of beginnings that an earlier request of the plan had, the warm-up's too, as a cache without limit "
    "would. Shares are of all prompt tokens of successes."
)
_NONE = (
    "Ideal: not computed. It is known of prompts that are made here (sources synthetic_text and trace) and repeat no "
    "live answers of their session; shares are of all prompt tokens of successes."
)


class Hits(BaseModel, frozen=True, extra="forbid"):
    """Of successful requests whose prompt was counted; tokens are the endpoint's."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_share: float | None = Field(default=None, description="of their tokens, had by the cache; null: none said")
    ideal_share: float | None = Field(default=None, description="that a cache without limit would have; null: unknown")


class PrefixCache(BaseModel, frozen=True, extra="forbid"):
    """All requests, and those of each value of a label."""

    whole: Hits = Hits()
    by: dict[str, dict[str, Hits]] = Field(default_factory=dict)


def prefix_part(run: JudgedRun) -> PrefixCache | None:
    """None: nothing was cached, and nobody knows what could have been."""
    records = run.records.measured()
    columns = {} if records.labels is None else records.labels.columns
    if IDEAL not in columns and not (CACHED in columns and len(records) and bool((columns[CACHED] > 0).any())):
        return None
    everyone = np.ones(len(records), np.bool_)
    by = {
        label: {
            value: _hits(records, rows_of(where, records))
            for value, where in zip(found.values, found.conditions, strict=True)
        }
        for label, found in labels_of(run.records, run.by).items()
    }
    return PrefixCache(whole=_hits(records, everyone), by={label: groups for label, groups in by.items() if groups})


def _hits(records: Records, here: BoolArray) -> Hits:
    """Where some said what was cached, both shares are of those."""
    assert records.labels is not None
    n_in, columns = records["n_in"], {**records.labels.columns}
    columns |= {CACHED: cached_tokens(records)} if CACHED in columns else {}
    here = here & records.ok & (n_in > 0)
    said = {name: columns[name] >= 0 for name in (CACHED, IDEAL) if name in columns}
    for told in said.values():
        here = here & told if bool((here & told).any()) else here
    tokens = int(n_in[here].sum())
    shares = {
        name: round(int(columns[name][here].sum()) / tokens, 6) if tokens and bool(told[here].all()) else None
        for name, told in said.items()
    }
    return Hits(
        requests=int(here.sum()),
        prompt_tokens=tokens,
        cached_share=shares.get(CACHED),
        ideal_share=shares.get(IDEAL),
    )


def blocks(found: PrefixCache, _report: object) -> list[Block]:
    """One table: the whole run, and below it each value of each label."""
    rows, known = [_row("all requests", found.whole)], found.whole.ideal_share is not None
    for label, groups in found.by.items():
        rows += [_row(f"{label} {value}", hits) for value, hits in groups.items()]
    columns = [Column("", right=False, names=True), Column("requests"), Column("prompt tokens"), Column("cached")]
    columns += [Column("ideal"), Column("of the ideal")]
    shown: Sequence[Block] = [
        Table(columns, rows, title="Prefix cache"),
        Sentence(_NOTE if known else _NONE, fine=True),
    ]
    return [Section("Prefix cache", [Card([*shown])])]


def _row(name: str, hits: Hits) -> Row:
    cached, ideal = hits.cached_share, hits.ideal_share
    of_ideal = cached / ideal if cached is not None and ideal else None
    cells: list[str | Cell] = [name, units.count(hits.requests), units.count(hits.prompt_tokens)]
    return Row([*cells, *(_share(value) for value in (cached, ideal, of_ideal))])


def _share(value: float | None) -> str:
    return units.NOTHING if value is None else units.percent(value, 3)


SECTION = ReportSection("prefix_cache", 86, prefix_part, blocks)
