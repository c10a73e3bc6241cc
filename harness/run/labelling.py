"""What rows of a run are told apart by and was known before it: labels of their queries and of their payloads.

The plan has the first, the payload source the second; rows come in blocks and get theirs as they are sealed. What an
answer said is in the rows already.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from plimsoll.harness.run.planned import Samples, places
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import IntArray, Phase, Records


class Known:
    """``of`` gives the labels of rows. ``payloads``: those of each payload, by its index; ``width``: see
    ``planned.keys``.
    """

    def __init__(self, plan: Blocks, payloads: LabelTable | None, width: int) -> None:
        head = plan.head
        self._payloads, self._width = payloads, width
        self._texts = dict(head.labels.texts) if head.labels is not None else {}
        self._of_plan = tuple(head.labels.columns) if head.labels is not None else ()
        # A closed loop repeats its list for as long as it runs: all of the list's labels are at hand.
        listed = plan.whole().labels if head.cyclic and head.labels is not None else None
        self._listed: Mapping[str, IntArray] = {} if listed is None else listed.columns
        self.names = frozenset((*self._of_plan, *(payloads.columns if payloads is not None else ())))

    def of(self, rows: Records, samples: Samples | None) -> LabelTable | None:
        """The labels of these rows, of a block whose planned samples are these; None: there are none."""
        if not self.names:
            return None
        columns: dict[str, IntArray] = {}
        texts = dict(self._texts)
        if self._of_plan:
            columns |= self._planned(rows, samples)
        if self._payloads is not None:
            payload = rows["payload_ix"]
            known = (payload >= 0) & (payload < len(self._payloads))  # users of Locust make their own: -1
            for label, column in self._payloads.columns.items():
                columns[label] = np.where(known, np.append(column, -1)[np.where(known, payload, -1)], -1)
            texts |= self._payloads.texts
        return LabelTable(MappingProxyType(columns), MappingProxyType(texts), len(rows))

    def _planned(self, rows: Records, samples: Samples | None) -> dict[str, IntArray]:
        """Those of the queries; the warm-up is another plan's."""
        query, measured = rows["query_id"], rows["phase"] != Phase.WARMUP
        if samples is None:
            n = len(next(iter(self._listed.values())))
            return {label: np.where(measured, column[query % n], -1) for label, column in self._listed.items()}
        at, known = places(query, rows["sample_ix"], samples, self._width)
        known &= measured
        if not len(samples):
            return dict.fromkeys(self._of_plan, np.full(len(rows), -1))
        return {label: np.where(known, column[at], -1) for label, column in samples.labels.items()}


def together(said: LabelTable | None, known: LabelTable | None) -> LabelTable | None:
    """What answers said and what was known before, of the same rows."""
    if said is None or known is None:
        return known if said is None else said
    columns, texts = {**said.columns, **known.columns}, {**said.texts, **known.texts}
    return LabelTable(MappingProxyType(columns), MappingProxyType(texts), len(said))
