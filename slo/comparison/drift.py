"""Do two answers to one query say the same? And by how much is one endpoint slower than the other, query by query?

The first of a pair is the reference. Nothing gets better by failing: where it answered and the other did not, that one
differs, and is infinitely late. Where it did not answer, nobody knows: the pair is counted apart. Nothing here knows of
files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
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
#: Of ``numbers``: what single precision loses.
_TOLERANCE = 1e-6
HOW = "exact, tokens[:SHARE], json[:FIELD,...], numbers[:TOLERANCE], wer[:SHARE] or top1"


@dataclass(frozen=True, slots=True)
class Comparator:
    """How answers are compared, ``text`` as it is written."""

    text: str
    differs: Differs


def comparator(text: str) -> Comparator:
    """What ``exact``, ``tokens:5%``, ``json:name,items.0.price``, ``numbers:1%``, ``wer:5%`` or ``top1`` means.

    Raises ValueError.
    """
    name, colon, rest = text.strip().partition(":")
    if colon and not rest.strip():
        raise ValueError(f"{text!r} has nothing after its colon. Write {HOW}")
    if name in ("exact", "top1") and not colon:
        return Comparator(text, _exact if name == "exact" else _top1)
    if name in ("tokens", "wer", "numbers"):
        least = _TOLERANCE if name == "numbers" else 0.0
        limit = float(portion(rest)) if colon else least
        made: Callable[..., bool | None] = {"tokens": _tokens, "wer": _wer, "numbers": _numbers}[name]
        return Comparator(text, partial(made, limit))
    if name == "json":
        return Comparator(text, partial(_json, tuple(one.strip() for one in rest.split(",")) if colon else ()))
    raise ValueError(f"{text!r} is no way to compare answers. Write {HOW}")


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
    return not bool(np.isclose(was, now, rtol=tolerance, atol=0, equal_nan=True).all())


def _numbers_in(answer: Answer) -> FloatArray:
    if answer.numbers is not None:
        return answer.numbers.astype(np.float64)
    return np.array([float(text) for text in _NUMBER.findall(answer.text or "")], np.float64)


def _json(fields: Sequence[str], one: Answer, other: Answer) -> bool | None:
    try:
        was = json.loads(one.text or "")
    except ValueError:
        return None
    try:
        now = json.loads(other.text or "")
    except ValueError:
        return True
    return any(_same_json(_at(was, field), _at(now, field)) is False for field in fields or ("",))


def _same_json(was: Any, now: Any) -> bool:
    """As JSON has it: 1 is 1.0, and true is no number."""
    return json.dumps(_floats(was), sort_keys=True) == json.dumps(_floats(now), sort_keys=True)


def _floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _floats(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_floats(one) for one in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else value


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
    """The place of the largest number of the first row, or the text."""
    if answer.numbers is None:
        return None if answer.text is None else answer.text.strip()
    row = answer.numbers[: answer.shape[-1]] if len(answer.shape) > 1 else answer.numbers
    if len(row) == 1:
        return f"{float(row[0]):g}"
    return f"{int(np.argmax(row))}" if len(row) and not np.isnan(row.astype(np.float64)).any() else None


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
    verdicts = [_differs(how, *pair) for pair in pairs]
    told = [place for place, verdict in enumerate(verdicts) if verdict is not None]
    bad = np.array([verdicts[place] for place in told], np.bool_)
    missing = sum(pairs[place][1] is None for place in told)
    test = share.share_test(bad, limit, confidence)
    places = tuple(place for place in told if verdicts[place])
    return Drift(len(told), len(places), missing, len(pairs) - len(told), test, places)


def _differs(how: Comparator, one: Answer | None, other: Answer | None) -> bool | None:
    if one is None:
        return None
    if other is None:
        return None if how.differs(one, one) is None else True
    return how.differs(one, other)


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
    """Row i of both is one query, in order of due time."""
    values = [np.full(len(rows), math.nan) for rows in (first, second)]
    known = measure(catalogue()[indicator], first)
    found = [known, measure_part(catalogue()[indicator], second)] if known.n else []
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
