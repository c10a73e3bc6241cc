"""Do two answers to one query say the same? And by how much is one endpoint slower than the other, query by query?

The first of a pair is the reference. Nothing gets better by failing: where it answered and the other did not, that one
differs, and is infinitely late. Where it did not answer, nobody knows: the pair is counted apart. Nothing here knows of
files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, measure, measure_part
from plimsoll.slo.metrics.word_errors import word_errors
from plimsoll.slo.records.records import FloatArray, Records
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distribution import exact, quantile
from plimsoll.slo.verdict.accuracy import Answer

#: Whether the second differs from the first; None: the first is nothing that this way of comparing can read.
Differs = Callable[[Answer, Answer], bool | None]

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_QUANTILES = ("0.5", "0.9", "0.99")
#: Of numbers what single precision loses; of words none.
_TOLERANCE = 1e-6
_HOW = "exact, tokens[:SHARE], json[:FIELD,...], numbers[:TOLERANCE], wer[:SHARE] or top1"


@dataclass(frozen=True, slots=True)
class Comparator:
    """How answers are compared, ``text`` as it is written."""

    text: str
    differs: Differs

    def of(self, one: Answer | None, other: Answer | None) -> bool | None:
        """The same of answers that may be missing."""
        if one is None or other is None:
            return None if one is None or self.differs(one, one) is None else True
        return self.differs(one, other)


def comparator(text: str) -> Comparator:
    """What ``exact``, ``tokens:5%``, ``json:name,items.0.price``, ``numbers:1%``, ``wer:5%`` or ``top1`` means.

    Raises ValueError.
    """
    name, colon, rest = text.strip().partition(":")
    plain: Mapping[str, Differs] = {"exact": _exact, "top1": _top1}
    bounded: Mapping[str, Callable[..., bool | None]] = {"tokens": _tokens, "wer": _wer, "numbers": _numbers}
    if name in plain and not colon:
        return Comparator(text, plain[name])
    if name in bounded:
        if name == "tokens" and colon and portion(rest) >= 1:
            raise ValueError(f"{text!r} lets every word be another: nothing would differ. Give a share below 100%")
        return Comparator(text, partial(bounded[name], float(portion(rest)) if colon else _TOLERANCE))
    fields = [one.strip() for one in rest.split(",")]
    if name == "json" and (all(fields) if colon else not rest):
        return Comparator(text, partial(_json, fields))
    raise ValueError(f"{text!r} is no way to compare answers. Write {_HOW}")


def portion(text: str) -> Fraction:
    """``1%`` or ``0.01``. Raises ValueError."""
    number = text.strip().removesuffix("%").strip()
    if not re.fullmatch(r"\d+(\.\d+)?([eE]-?\d{1,2})?", number):
        raise ValueError(f"{text!r} is no share. Write it like 1% or 0.01")
    return Fraction(number) / (100 if "%" in text else 1)


def _exact(one: Answer, other: Answer) -> bool:
    if one.numbers is None or other.numbers is None:
        return one.text is None or other.text is None or one.text.strip() != other.text.strip()
    return one.shape != other.shape or not np.array_equal(one.numbers, other.numbers, equal_nan=True)


def _tokens(allowed: float, one: Answer, other: Answer) -> bool | None:
    if one.text is None:
        return None
    was, now = one.text.split(), (other.text or "").split()
    places = max(len(was), len(now))
    return places - sum(a == b for a, b in zip(was, now, strict=False)) > allowed * places


def _wer(allowed: float, one: Answer, other: Answer) -> bool | None:
    if one.text is None:
        return None
    errors, words = word_errors(one.text, other.text or "")
    return errors > allowed * words


def _numbers(tolerance: float, one: Answer, other: Answer) -> bool | None:
    was, now = _numbers_in(one), _numbers_in(other)
    if not len(was):
        return None
    if len(was) != len(now):
        return True
    return not bool(np.isclose(now, was, rtol=tolerance, atol=0, equal_nan=True).all())


def _numbers_in(answer: Answer) -> FloatArray:
    if answer.numbers is not None:
        return answer.numbers.astype(np.float64)
    return np.array([float(text) for text in _NUMBER.findall(answer.text or "")], np.float64)


def _json(fields: Sequence[str], one: Answer, other: Answer) -> bool | None:
    was, now = _parsed(one.text), _parsed(other.text)
    if was is None or now is None:
        return None if was is None else True
    pairs = [(_at(was[0], field), _at(now[0], field)) for field in fields]
    if not any(one or other for one, other in pairs):
        return None  # none of the fields is there: their names may be wrong, and nothing was compared
    return any(json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True) for one, other in pairs)


def _parsed(text: str | None) -> list[Any] | None:
    """What it says, in a list; 1 is 1.0 there, and true is no number."""
    try:
        return [json.loads(text or "", parse_int=_whole, parse_float=lambda digits: float(digits) + 0.0)]
    except (ValueError, RecursionError):
        return None


def _whole(digits: str) -> float | int:
    """As a fraction where that is the same number: 10000000000000000 is 1e16, and -0 is 0."""
    whole = int(digits)
    return float(whole) if abs(whole) < 1 << 1023 and int(float(whole)) == whole else whole


def _at(value: Any, path: str) -> Any:
    """What stands at ``items.0.price``, in a list, so that nothing there is no null; "" is all of it."""
    for key in path.split(".") if path else ():
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return []
    return [value]


def _top1(one: Answer, other: Answer) -> bool | None:
    was, now = _label(one), _label(other)
    return None if was is None else was != now


def _label(answer: Answer) -> str | None:
    """The place of the largest number of the first row, the one number, or the text."""
    if answer.numbers is None:
        return None if answer.text is None else answer.text.strip()
    row = (answer.numbers[: answer.shape[-1]] if len(answer.shape) > 1 else answer.numbers).astype(np.float64)
    if not len(row) or np.isnan(row).any():
        return None
    return str(row[0] if len(row) == 1 else int(np.argmax(row)))


# -- how many differ --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drift:
    """``differing`` of ``n`` pairs, ``missing`` of them because only the reference has an answer; ``unpaired``: queries
    without one that can be compared. ``places``: which pairs differ.
    """

    n: int
    differing: int
    missing: int
    unpaired: int
    test: share.ShareTest
    places: tuple[int, ...]


def drift(
    pairs: Sequence[tuple[Answer | None, Answer | None]], how: Comparator, limit: Probability, confidence: Probability
) -> Drift:
    """Test the share of pairs that differ, which are in order of due time, against ``limit``, strictly between 0 and 1:
    as ``ratio(error)`` is tested where only good and bad are known. Raises ValueError.
    """
    verdicts = [how.of(*pair) for pair in pairs]
    told = [place for place, verdict in enumerate(verdicts) if verdict is not None]
    bad = np.array([verdicts[place] for place in told], np.bool_)
    missing = sum(pairs[place][1] is None for place in told)
    test = share.share_test(bad, limit, confidence)
    places = tuple(place for place in told if verdicts[place])
    return Drift(len(told), len(places), missing, len(pairs) - len(told), test, places)


# -- how much later ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Later:
    """How much later than the first the second was, in ns, of ``n`` queries that the first answered; ``failed`` of them
    the second did not, and is +inf late. ``unpaired``: those that the first did not answer. ``quantiles``: (value, low,
    high) of p50, p90 and p99, each bound alone at the confidence; none without pairs. ``slower``: the share, with
    bounds.
    """

    indicator: str
    n: int
    failed: int
    unpaired: int
    quantiles: tuple[tuple[float, float, float], ...]
    slower: tuple[float, float, float]


def later(indicator: str, first: Records, second: Records, confidence: Probability) -> Later:
    """Row i of both is one query, in order of due time. Without pairs where one of them has none of it at all: who
    answers whole brings no first token, and fails nothing by that.
    """
    values = [np.full(len(rows), math.nan) for rows in (first, second)]
    known, theirs = (measure(catalogue()[indicator], rows) for rows in (first, second))
    found = [known, measure_part(catalogue()[indicator], second)] if known.n and theirs.n else []
    for column, one in zip(values, found, strict=False):
        column[one.row] = one.values
    answered = np.isfinite(values[0])
    both = np.flatnonzero(answered & ~np.isnan(values[1]))
    late = values[1][both] - values[0][both]
    laid = share.series(late, both, share.course(first))
    ordered = np.sort(late)

    def told(p: str) -> tuple[float, float, float]:
        low, high = share.bounds(laid, exact(p), confidence, floor=-math.inf)
        return quantile(ordered, p), low, high

    slow = late > 0
    bounds = share.interval(share.counted(slow), confidence)
    return Later(
        indicator=indicator,
        n=len(both),
        failed=int(np.isinf(late).sum()),
        unpaired=len(first) - len(both),
        quantiles=tuple(told(p) for p in _QUANTILES) if len(both) else (),
        slower=(float(slow.mean()), *bounds) if len(both) else (math.nan, 0.0, 1.0),
    )
