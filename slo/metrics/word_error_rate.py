"""The word error rate of a run: errors of all sessions over words of all their references, whole and by slice, and how sure it is.

A session that failed got no word across: all words of its reference count as errors (more, if more were counted). Where a failed
session never got so far that its words were counted, it counts as many as the others have on average. A rate over the sessions
that went well would be better the more of the hard ones fail.

Words of one session share a voice and a room, so a word is no independent trial. The bounds are Wilson's for a share, on the
number of words divided by the design effect: the variance of the rate between sessions (linearised, as for any ratio of two
sums) over what independent words would have. They take Student's t with a degree of freedom less than sessions in place of the
normal. With no error at all, or one session, nothing is known of how errors cluster: then words count as independent, or the
session as one. By simulation (5 to 300 sessions of 13 words, rates of 1 to 30 %, strong clustering) each bound holds 90 % or more
of the time at 95 %, but for errors in a handful of sessions: 1 % in clusters over 30 sessions holds 74 %. So a verdict on it is as observed, and
the bounds are for the reader. Pure; it judges nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distribution import exact

#: The name of sessions without a slice.
NO_SLICE = ""


@dataclass(frozen=True, slots=True)
class WordErrorRate:
    """``errors`` over ``words`` of ``sessions``, ``failed`` of which failed; ``guessed`` of those had no words counted.

    ``rate`` is NaN without words; ``interval`` a lower and an upper bound, each at the confidence; ``mean`` the mean of the sessions'
    own rates, ``design_effect`` how many words count as one.
    """

    sessions: int
    failed: int
    guessed: int
    words: int
    errors: int
    rate: float
    interval: tuple[float, float]
    mean: float
    design_effect: float


def word_error_rate(records: Records, confidence: Probability = "0.95") -> WordErrorRate | None:
    """Over the measured sessions whose reference is known; None where no session has one."""
    found = _counts(records)
    return None if found is None else _rate(found, np.ones(len(found.row), np.bool_), confidence)


def by_slice(records: Records, confidence: Probability = "0.95") -> Mapping[str, WordErrorRate]:
    """The same of each slice, by name; a session without one belongs to ``NO_SLICE``. Empty where there are no references."""
    found = _counts(records)
    if found is None:
        return {}
    slices, table = records["slice"][found.row], records.table("slice")
    named = {(table[ix] if ix >= 0 else NO_SLICE): ix for ix in np.unique(slices).tolist()}
    return {name: _rate(found, slices == named[name], confidence) for name in sorted(named)}


@dataclass(frozen=True, slots=True)
class _Counts:
    """One entry a session that counts, all int64; ``row`` is its place in the records."""

    errors: IntArray
    words: IntArray
    failed: IntArray
    guessed: IntArray
    row: IntArray


def _counts(records: Records) -> _Counts | None:
    errors, words = records["word_errors"], records["words"]
    known = (words >= 0) & (errors >= 0)
    measured, failed = records.in_measure, ~records.ok
    heard = measured & known
    if not heard.any():
        return None
    # A failed request that was to speak, not to listen, has no words to lose.
    guessed = measured & failed & ~known & (records["media_out_ns"] == -1)
    row = np.flatnonzero(heard | guessed)
    n_words = np.where(known, words, round(float(words[heard].mean())))[row]
    n_errors = np.where(known, errors, 0)[row]
    n_errors = np.where(failed[row], np.maximum(n_errors, n_words), n_errors)
    return _Counts(n_errors, n_words, failed[row].astype(np.int64), guessed[row].astype(np.int64), row)


def _rate(counts: _Counts, inside: BoolArray, confidence: Probability) -> WordErrorRate:
    errors, words = counts.errors[inside], counts.words[inside]
    n, total, wrong = len(words), int(words.sum()), int(errors.sum())
    own = errors[words > 0] / words[words > 0]
    nan = float("nan")
    rate = wrong / total if total else nan
    effect = _design_effect(errors.astype(np.float64), words.astype(np.float64), rate) if total else 1.0
    return WordErrorRate(
        sessions=n,
        failed=int(counts.failed[inside].sum()),
        guessed=int(counts.guessed[inside].sum()),
        words=total,
        errors=wrong,
        rate=rate,
        interval=_bounds(rate, total, n, effect, confidence) if total else (nan, nan),
        mean=float(own.mean()) if len(own) else nan,
        design_effect=effect,
    )


def _design_effect(errors: FloatArray, words: FloatArray, rate: float) -> float:
    n, total = len(words), float(words.sum())
    if n < 2:
        return total
    variance = n / (n - 1) * float(((errors - rate * words) ** 2).sum()) / total**2
    # Above one word added for each that was said a rate is no share; an even chance is the most variance that one can have.
    share = min(rate, 0.5)
    return max(1.0, variance * total / (share * (1 - share))) if rate > 0 else 1.0


def _bounds(rate: float, words: int, sessions: int, effect: float, confidence: Probability) -> tuple[float, float]:
    from scipy.special import stdtrit

    t = float(stdtrit(max(sessions - 1, 1), float(exact(confidence))))
    n = words / effect
    share = min(rate, 1.0)
    middle = (share + t * t / (2 * n)) / (1 + t * t / n)
    half = t / (1 + t * t / n) * math.sqrt(share * (1 - share) / n + t * t / (4 * n * n))
    if rate <= 1.0:
        return max(0.0, min(middle - half, rate)), max(middle + half, rate)
    # No share any more: the linearised interval, whose variance the design effect holds.
    spread = t * math.sqrt(effect * 0.25 / words)
    return max(0.0, rate - spread), rate + spread
