"""The rows of a run as they are sealed, block by block: those that were recorded, and one for each that nobody did.

What only the whole run can say of itself (how many queries there were, what every worker's account is worth, what is
not as planned) is counted on the way, so that nothing but one block is ever in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np

from plimsoll.harness.sealing import accounts
from plimsoll.harness.sealing.chained import Chain, Listed
from plimsoll.harness.sealing.gathered import Gathered, Taken
from plimsoll.harness.sealing.labelling import Known, together
from plimsoll.harness.sealing.planned import END, Cursor, Differences, Samples, places
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios.plan.blocks import Blocks, goes_on
from plimsoll.scenarios.plan.plan import Dealing, dealt
from plimsoll.slo.records import cancelled
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.records import BoolArray, IntArray, Phase, Records, Status
from plimsoll.slo.records.tables import BLOCK_ROWS
from plimsoll.slo.validity.accounts import DIED, GONE, LOST, digests
from plimsoll.slo.validity.generator import GeneratorFacts

_UNSENT = "not sent before the run ended"
#: Errors of rows that stand for what nobody recorded.
_NOT_RECORDED = (_UNSENT, *LOST)

Chosen = Callable[[IntArray], BoolArray]


class Rows:
    """All rows of a run in order, at least one block; each pass over them counts anew.

    ``chosen(query_ids)`` tells which queries the scenario cancelled on purpose; ``known``: labels that nobody recorded;
    ``interrupted``: the user ended the run. Raises HarnessFault for a segment that can't be read a second time.
    """

    def __init__(
        self,
        gathered: Gathered,
        plan: Blocks,
        members: Sequence[Member],
        missing: Missing,
        chosen: Chosen | None,
        known: Known,
        interrupted: bool = False,
    ) -> None:
        self._gathered, self._plan, self._members, self._shards = gathered, plan, members, missing.shards
        self._missing, self._chosen, self._known = missing, chosen, known
        self._head, self._interrupted = plan.head, interrupted
        self._reset()

    def _reset(self) -> None:
        self._ledger = accounts.Ledger(self._head, self._members, self._shards)
        self._differences = Differences(self._plan, self._gathered.width)
        self._cursor = None if self._head.cyclic else Cursor(self._plan)
        self._chain, self._listed = Chain.of(self._plan), Listed.of(self._plan)
        self._missing.reset()
        self._known.reset()
        self._planned = self._samples = self._queries = self._due_ns = self._done_ns = 0
        self._last_query: int | None = None

    def __iter__(self) -> Iterator[Records]:
        self._reset()
        begin, n = 0, 0
        while begin < END:
            ahead = self._cursor.ahead(BLOCK_ROWS) if self._cursor is not None else END
            end = min(self._gathered.end_of_block(begin), ahead)
            block = self._block(begin, end)
            n += len(block)
            begin = end
            if len(block) or (begin >= END and not n):
                yield block

    def _block(self, begin: int, end: int) -> Records:
        gathered = self._gathered
        rows, _ = gathered.joined(gathered.take(begin, end))
        recorded = ~made_up(rows)
        samples = self._cursor.until(end) if self._cursor is not None else None
        if samples is not None and self._chain is not None:
            samples = self._chain.settled(samples, rows)
        lost, owner = None if samples is None else samples.part(self._lost(rows, samples)), None
        if self._listed is not None and self._interrupted:
            lost, owner = self._listed.cut(rows, end)
        if lost is not None and len(lost):
            more = self._missing.rows(lost, owner)
            rows, order = gathered.joined([Taken.all(part, gathered.width) for part in (rows, more) if len(part)])
            recorded = np.append(recorded, np.zeros(len(more), np.bool_))[order]
        if self._listed is not None:
            self._listed.add(rows)
        self._count(rows, samples)
        self._ledger.add(rows, recorded)
        return self._sealed(rows, recorded, samples)

    def _lost(self, rows: Records, samples: Samples) -> BoolArray:
        """bool[m]: nobody recorded this sample."""
        here = rows.in_measure
        query, sample = rows["query_id"][here], rows["sample_ix"][here]
        if np.array_equal(query, samples.query_id) and np.array_equal(sample, samples.sample_ix):
            return np.zeros(len(samples), np.bool_)
        at, known = places(query, sample, samples, self._gathered.width)
        lost = np.ones(len(samples), np.bool_)
        lost[at[known]] = False
        return lost

    def _count(self, rows: Records, samples: Samples | None) -> None:
        query = rows["query_id"]
        here = rows.in_measure
        mine = query[here]
        if len(mine):
            self._queries += int((np.diff(mine) != 0).sum()) + (int(mine[0]) != self._last_query)
            self._last_query = int(mine[-1])
            self._due_ns = max(self._due_ns, int(rows["due_ns"][here].max()))
            self._done_ns = max(self._done_ns, int(rows["done_ns"][here].max()))
        self._planned += len(mine)
        self._samples += len(samples) if samples is not None else 0
        load = rows.planned
        sample, payload, due = (rows[name][load] for name in ("sample_ix", "payload_ix", "due_ns"))
        self._differences.add((query[load], sample, payload, due), samples)

    def _sealed(self, rows: Records, recorded: BoolArray, samples: Samples | None) -> Records:
        """With the labels that were known before, those set apart that were cancelled on purpose, and entered in the
        books.
        """
        books = self._ledger.books
        marked = rows if self._chosen is None else cancelled.marked(rows, self._chosen(rows["query_id"]))
        apart = cancelled.chosen(marked)
        marked = marked.labelled(together(rows.labels, self._known.of(rows, samples)))
        books.add(marked, recorded & ~apart, self._known.names)
        if bool((apart & recorded).any()):  # their worker knew nothing of that
            books.add_digests(digests(rows.select(apart & recorded)))
        return marked

    @property
    def sums(self) -> dict[str, str]:
        """Of the columns, as ``slo/validity/accounts.py`` has them."""
        return self._ledger.books.texts()

    def facts(self, known: GeneratorFacts) -> GeneratorFacts:
        """The facts with what the last pass has counted."""
        facts = self._ledger.settled(known, self._gathered.names)
        unreached = 0 if self._chain is None else self._chain.unreached
        return replace(
            facts,
            planned=(facts.planned or self._planned) - unreached,
            planned_queries=(facts.planned_queries or self._queries) - unreached,
            unreached=unreached if self._listed is None else self._listed.unreached,
            # What LoadGen compares with min_duration: when the last query was due; of a single one, when it was over.
            elapsed_ns=self._due_ns if self._queries > 1 else self._done_ns,
            plan_samples=self._samples if self._head.open_loop else 0,
            plan_faults=tuple(self._differences.texts()),
            planned_tokens=self._known.planned_tokens,
            told_tokens=self._known.told_tokens,
        )


class Missing:
    """Makes rows for planned samples that no worker recorded.

    ``shards``: of the whole run, of which these members may be some (0: they are all).

    UNFINISHED where a worker that died had come to their due time, so that it may have sent them, and where one says
    that it recorded more than came; UNSENT otherwise.
    """

    def __init__(
        self, plan: Blocks, members: Sequence[Member], gathered: Gathered, t0_ns: int, dealing: Dealing, shards: int = 0
    ) -> None:
        first, shards = list(islice(plan, 2)), shards or max(1, len(members))
        alone = first[0].n_queries == 1 and shards > len(members)  # an agent's only query, not one for all
        self._only = first[0] if len(first) == 1 and not alone else None
        self._one_query = len(first) == 2 and goes_on(*first) and not alone
        self._owners: IntArray | None = None
        self.shards, self._dealing = shards, dealing
        self._dead = np.zeros(shards, dtype=bool)
        self._until = np.zeros(shards, dtype=np.int64)
        for place, member in enumerate(members):
            shard = place if len(members) == shards else member.index  # users' workers have numbers of any kind
            self._dead[shard] = member.done is None
            self._until[shard] = (member.died_ns or t0_ns) - t0_ns
        self._gone = {member.index: accounts.gone(member, gathered.rows[member.index]) for member in members}
        self.reset()

    def reset(self) -> None:
        """Begin at the first sample."""
        self._left = dict(self._gone)

    def rows(self, samples: Samples, owner: IntArray | None = None) -> Records:
        """A row for each of the next samples of which there is none. ``owner``: whose each is, of a closed loop."""
        n, owner = len(samples), self._owner(samples) if owner is None else owner
        shard = np.minimum(owner, self.shards - 1)  # users' workers have numbers of any kind
        lost = self._dead[shard] & (samples.due_ns <= self._until[shard])
        taken = np.zeros(n, dtype=bool)
        for index, left in self._left.items():
            mine = np.flatnonzero(owner == index)[:left]
            taken[mine] = True
            self._left[index] = left - len(mine)
        why = np.where(lost, 0, np.where(taken, 1, 2))
        said = np.unique(why, return_index=True)
        texts = said[0][np.argsort(said[1])]  # in the order in which they come first
        place = np.empty(3, np.int64)
        place[texts] = np.arange(len(texts))
        columns: dict[str, Any] = {
            name: np.broadcast_to(column, n).copy() for name, column in rec.from_columns(1).columns.items()
        }
        columns |= {name: getattr(samples, name) for name in ("query_id", "sample_ix", "payload_ix", "due_ns")}
        columns["status"] = np.where(lost | taken, int(Status.UNFINISHED), int(Status.UNSENT)).astype(np.int8)
        columns |= {"worker": owner.astype(np.int16), "error": place[why].astype(np.int32)}
        errors = tuple((DIED, GONE, _UNSENT)[at] for at in texts.tolist())
        return Records(MappingProxyType(columns), np.empty(0, np.int64), np.zeros(n + 1, np.int64), errors)

    def _owner(self, samples: Samples) -> IntArray:
        """Whose each sample was."""
        if self._one_query:
            return samples.sample_ix % self.shards
        if self._only is None:
            return dealt(samples.query_id, self.shards, self._dealing)
        if self._owners is None:
            self._owners = self._only.owners(self.shards, self._dealing)
        return self._owners[samples.place]


def made_up(records: Records) -> BoolArray:
    """Which rows stand for what nobody recorded."""
    texts = [at for at, text in enumerate(records.errors) if text in _NOT_RECORDED]
    if not texts:
        return np.zeros(len(records), dtype=bool)
    never = np.isin(records["status"], (Status.UNFINISHED, Status.UNSENT)) & (records["phase"] != Phase.WARMUP)
    found: BoolArray = never & np.isin(records["error"], texts)
    return found
