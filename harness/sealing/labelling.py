"""What rows of a run are told apart by and was known before it: labels of their queries and of their payloads.

The plan has the first, the payload source the second; rows come in blocks and get theirs as they are sealed. What an
answer said is in the rows already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from plimsoll.harness.generator.labels import LONGEST
from plimsoll.harness.sealing.planned import Samples, places
from plimsoll.harness.transport.outcome import shown
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.samples.payload import PayloadSource, Said
from plimsoll.scenarios.samples.prefixes import Prefixed, Unlimited
from plimsoll.scenarios.spec import Scenario, ScenarioError, parse
from plimsoll.scenarios.text.labels import of_source
from plimsoll.slo.records.labels import IDEAL, LabelTable, number_of
from plimsoll.slo.records.records import BoolArray, IntArray, Phase, Records, TokensFrom


class Known:
    """``of`` gives the labels of rows, block after block in the plan's order. ``payloads``: those of each payload, by
    its index; ``width``: see ``planned.keys``; ``source``: whose prompts may begin alike and have planned lengths;
    ``phases``: (name, begin in ns from t0) of each phase in order, "" for none.
    """

    def __init__(
        self,
        plan: Blocks,
        payloads: LabelTable | None,
        width: int,
        source: PayloadSource | None = None,
        phases: Sequence[tuple[str, int]] = (),
    ) -> None:
        head = plan.head
        self._payloads, self._width, self._source = payloads, width, source
        # The extra last entry is that of a payload that no data set has: users of Locust make their own, of index -1.
        held = payloads.columns if payloads is not None else {}
        self._of_payload = {label: np.append(column, -1) for label, column in held.items()}
        self._texts = dict(head.labels.texts) if head.labels is not None else {}
        self._of_plan = tuple(head.labels.columns) if head.labels is not None else ()
        # A turn begins with what its session said before, of which only a source of whole prompts knows.
        whole = "turn" not in self._of_plan or getattr(source, "whole", False)
        shares = getattr(source, "shares", False) and whole
        self._shares = cast(Prefixed, source) if shares else None
        # A closed loop repeats its list for as long as it runs: all of the list's labels are at hand.
        listed = plan.whole().labels if head.cyclic and head.labels is not None else None
        self._listed: Mapping[str, IntArray] = {} if listed is None else listed.columns
        self.names = frozenset((*self._of_plan, *self._of_payload))
        self.names |= {IDEAL} if self._shares is not None else set()
        self._phases = tuple(dict.fromkeys(str(name) for name, _ in phases if name))
        self._begins = np.array([begin for _, begin in phases], np.int64)
        # The last entry is that of queries before the first phase.
        self._phase_at = np.array([*(self._phases.index(name) if name else -1 for name, _ in phases), -1])
        self.names |= {"phase"} if self._phases else set()
        self.reset()

    def reset(self) -> None:
        """Begin at the first row: no prompt was sent, no token counted."""
        self._cache = None if self._shares is None else Unlimited(self._shares)
        #: Tokens of prompts that the endpoint counted: by its count, and as the plan had them.
        self.told_tokens = self.planned_tokens = 0

    def of(self, rows: Records, samples: Samples | None) -> LabelTable | None:
        """The labels of these rows, of a block whose planned samples are these; None: there are none."""
        found = self._labels(rows, samples)
        turn = None if found is None else found.columns.get("turn")
        self._count(rows, None if turn is None else turn <= 1)
        return found

    def _labels(self, rows: Records, samples: Samples | None) -> LabelTable | None:
        if not self.names:
            return None
        columns: dict[str, IntArray] = {}
        texts = dict(self._texts)
        if self._of_plan:
            columns |= self._planned(rows, samples)
        if self._payloads is not None:
            payload = rows["payload_ix"]
            payload = np.where((payload >= 0) & (payload < len(self._payloads)), payload, -1)
            columns |= {label: column[payload] for label, column in self._of_payload.items()}
            texts |= self._payloads.texts
        if self._cache is not None:
            tokens = np.rint(self._cache.shares(rows["payload_ix"]) * rows["n_in"])
            columns[IDEAL] = np.where((rows["n_in"] >= 0) & (tokens >= 0), tokens, -1).astype(np.int64)
        if self._phases:
            phase = self._phase_at[np.searchsorted(self._begins, rows["due_ns"], "right") - 1]
            columns["phase"] = np.where(rows["phase"] != Phase.WARMUP, phase, -1)
            texts["phase"] = self._phases
        return LabelTable(MappingProxyType(columns), MappingProxyType(texts), len(rows))

    def _count(self, rows: Records, first: BoolArray | None) -> None:
        """Rows whose prompt the endpoint counted, where the plan has its length too: not that of a later turn, which
        repeats what was said before.
        """
        lengths: Callable[[IntArray], IntArray] | None = getattr(self._source, "lengths", None)
        payload = rows["payload_ix"]
        told = rows.in_measure & (rows["n_in_from"] == TokensFrom.USAGE) & (payload >= 0)
        if first is not None:
            told = told & first
        if lengths is None or not bool(told.any()):
            return
        planned, counted = lengths(payload[told]), rows["n_in"][told]
        known = planned > 0
        self.planned_tokens += int(planned[known].sum())
        self.told_tokens += int(counted[known].sum())

    def _planned(self, rows: Records, samples: Samples | None) -> dict[str, IntArray]:
        """Those of the queries; the warm-up is another plan's."""
        query, measured = rows["query_id"], rows["phase"] != Phase.WARMUP
        if samples is None:
            n = len(next(iter(self._listed.values())))
            found = {label: np.where(measured, column[query % n], -1) for label, column in self._listed.items()}
            if "session" in found:  # another one each time that the list begins again
                found["session"] = np.where(measured, found["session"] + query // n * n, -1)
            return found
        at, known = places(query, rows["sample_ix"], samples, self._width)
        known &= measured
        if not len(samples):
            return dict.fromkeys(self._of_plan, np.full(len(rows), -1))
        return {label: np.where(known, column[at], -1) for label, column in samples.labels.items()}


def of_payloads(scenario: Scenario, source: PayloadSource) -> LabelTable | None:
    """The labels of each payload that the scenario takes from its data set; None: it takes none there."""
    keys = of_source(scenario.labels or {})
    if not keys:
        return None
    said: Said = getattr(source, "labels", {})
    none: Sequence[None] = (None,) * len(source)
    return LabelTable.of({label: _told(said.get(key, none)) for label, key in keys.items()})


def read_again(scenario: Mapping[str, Any]) -> tuple[LabelTable | None, PayloadSource | None, tuple[str, ...]]:
    """The same by scenario.yaml, for whoever seals what another left; its source; and what went wrong."""
    try:
        known = parse(dict(scenario), str(scenario.get("name", "")))
        source = None if known.mix else known.source_object()
        return None if source is None else of_payloads(known, source), source, ()
    except (ScenarioError, OSError) as error:
        told = f"labels of the data set are missing: it can't be read again ({error})"
        return None, None, (told,) * bool(scenario.get("labels"))


def _told(values: Sequence[str | float | None]) -> list[str | int | None]:
    """Whole numbers where all are such, else texts as rows may hold them."""
    texts = [None if value in (None, "") else shown(str(value), LONGEST) for value in values]
    numbers = [-1 if text is None else number_of(text) for text in texts]
    if any(text is not None and number < 0 for text, number in zip(texts, numbers, strict=True)):
        return [*texts]
    return [None if number < 0 else number for number in numbers]


def together(said: LabelTable | None, known: LabelTable | None) -> LabelTable | None:
    """What answers said and what was known before, of the same rows."""
    if said is None or known is None:
        return known if said is None else said
    columns, texts = {**said.columns, **known.columns}, {**said.texts, **known.texts}
    return LabelTable(MappingProxyType(columns), MappingProxyType(texts), len(said))
