"""Labels: what rows of records are told apart by. A column a label, with few values.

A label is a text (``class``, ``backend``, ``tenant``) or a whole number from 0 up (``session``, ``turn``, ``attempt``,
``cached_tokens``). In ``requests.parquet`` those that Plimsoll names have their own column (``COLUMNS_OF``), others
stand in ``label_NAME``. A row may have none. Some are not stored, for every run has them: they are made of the row
itself (``DERIVED``).

Nothing is selected here by a text of a user; ``plimsoll.slo.objectives.selector`` does that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.columns import Columns, Rows, constant, own

IntArray = npt.NDArray[np.int64]

#: Labels that Plimsoll itself gives, and their columns.
COLUMNS_OF: Mapping[str, str] = MappingProxyType(
    {"class": "class", "session": "session", "turn": "turn", "attempt": "attempt", "arm": "arm", "phase": "phase_name"}
)
#: Queries that are one frame together, by the id of the first.
SET = "frame_set"
#: Those that are numbers, whatever their values look like.
NUMBERS = ("session", "turn", "attempt", SET)
#: Prompt tokens that the endpoint had in a cache, and those that a cache without limit would have had; of every row
#: in the endpoint's own tokens.
CACHED, IDEAL = "cached_tokens", "ideal_cached_tokens"
#: Who sent a row, of a run of several agents, and where from: known by the row's worker, and not stored.
AGENT, REGION = "agent", "region"
#: A column of any other label is called so.
PREFIX = "label_"
#: More values than these are refused where rows are split by them.
MOST_VALUES = 1_000

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


def number_of(text: str) -> int:
    """The whole number that a text is, written as we write one; -1: it is none. A label of such texts only is stored as
    numbers.
    """
    return int(text) if _NUMBER.fullmatch(text) else -1


def column_of(label: str) -> str:
    """The column of a label in ``requests.parquet``."""
    return COLUMNS_OF.get(label, PREFIX + label)


def label_of(column: str) -> str | None:
    """The label that a column of ``requests.parquet`` holds; None: none."""
    for label, name in COLUMNS_OF.items():
        if column == name:
            return label
    return column.removeprefix(PREFIX) if column.startswith(PREFIX) else None


@dataclass(frozen=True, slots=True)
class LabelTable:
    """Labels of n rows. ``columns[label]`` int64[n]: a place in ``texts[label]``, or the number itself of a label that
    has no texts; -1: the row has none. Texts may be there that no row has: the plan knew of them.
    """

    columns: Mapping[str, npt.NDArray[np.integer[Any]]]
    texts: Mapping[str, tuple[str, ...]]
    rows: int

    def __len__(self) -> int:
        return self.rows

    @classmethod
    def of(cls, given: Mapping[str, Sequence[str | int | None]]) -> LabelTable:
        """Labels of one value per row: all texts, or all whole numbers from 0 up, or None. Raises ValueError for
        anything else and for columns of unequal lengths.
        """
        columns, texts = {}, {}
        for label, values in given.items():
            kinds = {type(value) for value in values} - {type(None)}
            if kinds <= {int} and (kinds or label in NUMBERS):
                columns[label] = own([-1 if value is None else value for value in values])
            elif kinds <= {str}:
                table: dict[str, int] = {}
                columns[label] = own(
                    [-1 if value is None else table.setdefault(str(value), len(table)) for value in values]
                )
                texts[label] = tuple(table)
            else:
                raise ValueError(f"label {label} mixes {', '.join(sorted(kind.__name__ for kind in kinds))}")
        sizes = {len(column) for column in columns.values()}
        if len(sizes) > 1:
            raise ValueError(f"labels of unequal lengths {sorted(sizes)}; give every row a value or None")
        return cls(MappingProxyType(columns), MappingProxyType(texts), sizes.pop() if sizes else 0)

    def select(self, rows: Rows) -> LabelTable:
        """These rows, picked when they are asked for."""
        return LabelTable(
            Columns(tuple(self.columns), lambda label: rows.select(self.columns[label])), self.texts, rows.count
        )

    def contradiction(self) -> str | None:
        """What no table of ours can hold; None: nothing."""
        for label, column in self.columns.items():
            if not len(column):
                continue
            low, high = (int(end(column[:1] if constant(column) else column)) for end in (np.min, np.max))
            if low < -1 or (label in self.texts and high >= len(self.texts[label])):
                return f"{column_of(label)} points at a text that is not there, or holds a number below 0"
        return None


def sent_by(
    held: LabelTable | None, workers: npt.NDArray[np.integer[Any]], agents: Sequence[tuple[str, str, Sequence[int]]]
) -> LabelTable:
    """The labels of rows and beside them, unless they have such of their own, who sent them. ``workers`` int[n]: the
    worker of each row; ``agents``: name, region ("": none) and workers of each.
    """
    held = LabelTable(MappingProxyType({}), MappingProxyType({}), len(workers)) if held is None else held
    most = max(worker for *_, mine in agents for worker in mine)
    names = tuple(name for name, *_ in agents)
    regions = tuple(sorted({region for _, region, _ in agents} - {""}))
    known = {AGENT: names} | ({REGION: regions} if regions else {})
    texts = {label: given for label, given in known.items() if label not in held.columns}

    def column(label: str) -> npt.NDArray[np.integer[Any]]:
        if label not in texts:
            return held.columns[label]
        of_worker = np.full(most + 2, -1)  # the last entry is everybody else's
        for place, (_, region, mine) in enumerate(agents):
            of_worker[list(mine)] = place if label == AGENT else regions.index(region) if region else -1
        return np.asarray(of_worker[np.clip(workers, -1, most + 1)])

    columns = Columns((*held.columns, *texts), column)
    return LabelTable(columns, MappingProxyType({**held.texts, **texts}), len(workers))


#: Of rows that have none.
NO_LABELS = LabelTable(MappingProxyType({}), MappingProxyType({}), 0)


def join_labels(parts: Sequence[LabelTable | None], lengths: Sequence[int]) -> LabelTable | None:
    """The rows of all parts in order, None standing for ``lengths[i]`` rows without labels; None if no part has any."""
    held = [part for part in parts if part is not None]
    if not held:
        return None
    columns: dict[str, IntArray] = {}
    texts: dict[str, tuple[str, ...]] = {}
    for label in dict.fromkeys(label for part in held for label in part.columns):
        worded = any(label in part.texts for part in held)
        table: dict[str, int] = {}
        pieces = []
        for part, n in zip(parts, lengths, strict=True):
            if part is None or label not in part.columns:
                pieces.append(np.full(n, -1))
            elif worded:
                # The extra last entry maps -1 (no text) to itself.
                places = [table.setdefault(text, len(table)) for text in part.texts.get(label, ())]
                pieces.append(np.array([*places, -1], np.int64)[part.columns[label]])
            else:
                pieces.append(np.asarray(part.columns[label], np.int64))
        columns[label] = own(np.concatenate(pieces))
        if worded:
            texts[label] = tuple(table)
    return LabelTable(MappingProxyType(columns), MappingProxyType(texts), sum(lengths))
