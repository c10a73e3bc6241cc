"""Selectors: which rows an objective, a table or a comparison is about, ``{class=chat,turn>1}``.

    selector  = condition {"," condition}
    condition = label ("=" | "!=") value {"|" value}     one of these; a row without the label has the value ""
              | label (">" | ">=" | "<" | "<=") number   a row without the label, or whose value is no number, is out
              | "admitted" | "refused"                   not turned away by the endpoint, or turned away
    value     = letters, digits and any of _ . : / + @ * - as they are; anything else in double quotes

Of labels see ``plimsoll.slo.records.labels``. ``prompt_tokens``, ``output_tokens``, ``slice`` and ``worker`` are of the
row itself. All conditions must hold; their order means nothing. ``refused`` selects the refusals as answers: how long
the endpoint took to turn them away is their latency.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.slo.metrics.sessions import carry_sessions
from plimsoll.slo.records.labels import MOST_VALUES, NUMBERS
from plimsoll.slo.records.records import BoolArray, IntArray, Records, Status

#: Labels of the row itself, and their columns.
OF_ROWS: Mapping[str, str] = MappingProxyType(
    {"prompt_tokens": "n_in", "output_tokens": "n_out", "slice": "slice", "worker": "worker"}
)
#: Rows are split by numbers of tokens in bands that begin at these.
BANDS = (0, 256, 1_024, 4_096, 16_384, 65_536)
_BANDED = ("prompt_tokens", "output_tokens")
#: The label of the part of the run that a query was due in, and where the rows of one keep when that began, in ns.
PHASE, SINCE = "phase", "since_ns"
#: Conditions that are one word.
WORDS = ("admitted", "refused")

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_BARE = re.compile(r"[\w.:/+@*-]+")
_VALUE = r'(?:"(?:[^"\\]|\\.)*"|[\w.:/+@*-]+)'
_CONDITION = re.compile(rf"\s*(?:(\w+)\s*(!=|>=|<=|=|>|<)\s*({_VALUE}(?:\s*\|\s*{_VALUE})*)|(\w+))\s*(,|$)")
_COMPARE = MappingProxyType({">": gt, ">=": ge, "<": lt, "<=": le})


class SelectorError(ValueError):
    """A selector that can't be used; the text names the part and what to write."""


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """``operator`` is "" for a word; several ``values`` only of ``=`` and ``!=``."""

    label: str
    operator: str = ""
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{'|'.join(map(_quoted, self.values))}"


#: Conditions in order, each once: two selectors that say the same in another order are equal.
Selector = tuple[Condition, ...]


def text(selector: Selector) -> str:
    """``{class=chat,turn>1}``, "" for none. Reading it gives the selector back."""
    return "{" + ",".join(map(str, selector)) + "}" if selector else ""


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(written: str) -> str:
    return re.sub(r"\\(.)", r"\1", written[1:-1]) if written.startswith('"') else written


def parse(written: str) -> Selector:
    """What stands between the braces. Raises ``SelectorError``."""
    found: set[Condition] = set()
    at = 0
    while at < len(written) or not found:
        match = _CONDITION.match(written, at)
        if match is None:
            raise SelectorError(
                f"{{{written}}}: {written[at:].strip() or 'nothing'!r} is no condition; write class=chat, turn>1, "
                'tenant=a|b, phase="during x" (other characters in quotes), admitted or refused, separated by commas'
            )
        label, operator, values, word, comma = match.groups()
        found.add(_condition(label, operator, values, word))
        at = match.end()
        if comma and at == len(written):
            raise SelectorError(f"{{{written}}}: ends with a comma; leave it out, or add a condition")
    return tuple(sorted(found))


def _condition(label: str | None, operator: str, values: str, word: str | None) -> Condition:
    if word is not None:
        if word not in WORDS:
            raise SelectorError(f"{word} is no condition; write {word}=VALUE, or one of {', '.join(WORDS)}")
        return Condition(word)
    assert label is not None
    if NAME.fullmatch(label) is None:
        raise SelectorError(f"label {label!r}: write lower-case letters, digits and _, a letter first")
    given = sorted({_plain(value) for value in re.findall(_VALUE, values)})
    if operator in _COMPARE:
        if len(given) != 1 or _number(given[0]) is None:
            raise SelectorError(f"{label}{operator}{values}: {operator} takes one number; write {label}{operator}8000")
        return Condition(label, operator, (_shortest(given[0]),))
    return Condition(label, operator, tuple(given))


def _number(value: str) -> Decimal | None:
    try:
        found = Decimal(value)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _shortest(number: str) -> str:
    written = format(Decimal(number), "f")
    return (written.rstrip("0").rstrip(".") if "." in written else written) or "0"


# -- which rows ------------------------------------------------------------------------------------------------------


def rows_of(selector: Selector, records: Records) -> BoolArray:
    """bool[n]: every condition holds for the row; for all rows where there is none."""
    found = np.ones(len(records), np.bool_)
    for one in selector:
        found &= _rows(one, records)
    return found


def selected(records: Records, selector: Selector) -> Records:
    """The rows that a selector is about; made once."""
    if not selector:
        return records
    if selector not in records.kept:
        rows = rows_of(selector, records)
        part = records.select(rows)
        if Condition("refused") in selector:  # to turn a request away is what the endpoint was to do with it
            turned = part["status"] == Status.REFUSED
            part = part.with_columns(status=np.where(turned, int(Status.OK), part["status"]))
        elif part is records:
            part = records.over(records.columns)  # rows may not keep themselves
        carry_sessions(records, rows, part)
        if any(one.label == PHASE for one in selector) and part.in_measure.any():
            part.kept[SINCE] = int(part["due_ns"][part.in_measure].min())
        records.kept[selector] = part
    found: Records = records.kept[selector]
    return found


def _rows(one: Condition, records: Records) -> BoolArray:
    if one.label in WORDS:
        return np.asarray((records["status"] == Status.REFUSED) == (one.label == "refused"))
    places, texts = _values(one.label, records)
    if one.operator in _COMPARE:
        limit, compare = Decimal(one.values[0]), _COMPARE[one.operator]
        if texts is None:
            edge = float(limit)
            return np.asarray((places >= 0) & compare(places, edge))
        fits = [(number := _number(value)) is not None and compare(number, limit) for value in texts]
        return _picked([*fits, False], places)
    if texts is None:
        numbers = [int(value) for value in one.values if re.fullmatch("0|[1-9][0-9]{0,17}", value)]
        among = np.isin(places, [*numbers, *([-1] if "" in one.values else [])])
    else:
        among = _picked([*(value in one.values for value in texts), "" in one.values], places)
    return among if one.operator == "=" else ~among


def _picked(marks: Sequence[bool], places: IntArray) -> BoolArray:
    """The mark of each place; the last one is that of rows without a text, whose place is -1."""
    found: BoolArray = np.array(marks, np.bool_)[places]
    return found


def _values(label: str, records: Records) -> tuple[IntArray, Sequence[str] | None]:
    """(places int64[n], texts), or numbers and None; rows without one have -1. A label that no row has: all -1."""
    if label in OF_ROWS:
        return records[OF_ROWS[label]], records.table("slice") if label == "slice" else None
    table = records.labels
    if table is None or label not in table.columns:
        return np.broadcast_to(np.int64(-1), (len(records),)), None if label in NUMBERS else ()
    return np.asarray(table.columns[label], np.int64), table.texts.get(label)


def has(label: str, records: Records) -> bool:
    """Some row has the label, or the plan gave it values."""
    places, texts = _values(label, records)
    return bool(texts) or bool((places >= 0).any())


@dataclass(frozen=True, slots=True)
class Split:
    """Measured rows by a label. ``values[i]`` is shown for a value, ``conditions[i]`` select its rows; ``problem``: why
    they can't be told apart, "" if they can.
    """

    values: tuple[str, ...] = ()
    conditions: tuple[Selector, ...] = ()
    problem: str = ""


#: What rows without the label are called.
NONE = "(none)"


def split(label: str, records: Records) -> Split:
    """The values of a label among the measured rows, numbers ascending, texts by the alphabet (phases in their order);
    those that only the plan knows are there too. Rows without the label come last, as ``NONE``. Numbers of tokens are
    in ``BANDS``.
    """
    places, texts = _values(label, records)
    places = places[records.in_measure]
    if label in _BANDED:
        return _banded(label, places)
    if texts is None:
        numbers = np.unique(places[places >= 0])
        shown = [str(number) for number in numbers[: MOST_VALUES + 1].tolist()]
        many = len(numbers)
    else:
        shown, many = list(texts) if label == PHASE else sorted(texts), len(texts)
    if many > MOST_VALUES:
        return Split(problem=f"label {label} has {many:,} values, and at most {MOST_VALUES:,} are told apart")
    if not many:
        return Split(problem=f"no row has the label {label}")
    lacking = bool((places < 0).any())
    conditions = [(Condition(label, "=", (value,)),) for value in [*shown, *([""] if lacking else [])]]
    return Split((*shown, *((NONE,) if lacking else ())), tuple(conditions))


def _banded(label: str, places: IntArray) -> Split:
    values: list[str] = []
    conditions: list[Selector] = []
    held: npt.NDArray[Any] = np.searchsorted(BANDS, places, side="right")
    for band in np.unique(held[held > 0]).tolist():
        low, high = BANDS[band - 1], BANDS[band] if band < len(BANDS) else None
        floor = Condition(label, ">=", (str(low),))
        values.append(f"{low:,} and more" if high is None else f"{low:,} to {high - 1:,}")
        conditions.append(tuple(sorted((floor, *(() if high is None else (Condition(label, "<", (str(high),)),))))))
    if bool((places < 0).any()):
        values.append(NONE)
        conditions.append((Condition(label, "=", ("",)),))
    return Split(tuple(values), tuple(conditions), "" if values else f"no row has the label {label}")
