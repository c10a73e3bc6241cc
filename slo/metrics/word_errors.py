"""Word errors of a transcript against its reference, under a normaliser with a name and a version.

Word error rates under two normalisers are two different numbers, so every rate is reported with the text of its
normaliser:

- ``none``: words as they stand between white space.
- ``basic``: Unicode NFKC, no case, punctuation and symbols as white space; an apostrophe inside a word stays. Any
  language.
- ``whisper-english``: the English one of the Whisper paper, which most published English rates are under: spelt-out
  numbers, contractions, British spellings. Needs ``pip install plimsoll-slo[speech]``.

The only importer of ``whisper_normalizer``, on first use. It refuses to guess a language, and it judges nothing.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distribution import exact

NAMES = ("none", "basic", "whisper-english")
#: Changes whenever ``basic`` gives other words for any text.
_BASIC_VERSION = 1
#: Texts whose words are kept: references come again with every lap through a data set.
_KEPT = 4096


class NormaliserError(ValueError):
    """A normaliser that is not known or not installed. The message ends with what to do."""


@dataclass(frozen=True, slots=True)
class Normaliser:
    """``text`` names it with its version, for reports; ``apply`` puts white space between the words of a text."""

    name: str
    text: str
    apply: Callable[[str], str]


@cache
def normaliser(name: str) -> Normaliser:
    """The normaliser of this name, made once. Raises ``NormaliserError``; call it before the load, not after it."""
    if name == "none":
        return Normaliser(name, "none: words as they stand", str)
    if name == "basic":
        return Normaliser(name, f"basic {_BASIC_VERSION}: no case, no punctuation", _basic)
    if name != "whisper-english":
        raise NormaliserError(f"normaliser {name!r} is not known. Write one of {', '.join(NAMES)}")
    try:
        made = _english()
    except ImportError as error:
        raise NormaliserError(
            f"normaliser whisper-english needs a library that is not installed ({error.name}). Run `pip install "
            "plimsoll-slo[speech]`, or write basic"
        ) from error
    from importlib.metadata import version

    return Normaliser(name, f"whisper-english: whisper-normalizer {version('whisper-normalizer')}", made)


def _english() -> Callable[[str], str]:
    import warnings

    with warnings.catch_warnings():
        # An escape in a docstring of the library that newer Pythons warn of when they compile it.
        warnings.simplefilter("ignore")
        from whisper_normalizer.english import EnglishTextNormalizer  # type: ignore[import-untyped]

    made: Callable[[str], str] = EnglishTextNormalizer()
    return made


@lru_cache(maxsize=_KEPT)
def words(text: str, name: str = "basic") -> tuple[str, ...]:
    """The normalised words of a text, kept for the next time it is asked about."""
    return tuple(normaliser(name).apply(text).split())


def word_errors(reference: str, hypothesis: str, name: str = "basic") -> tuple[int, int]:
    """(errors, words): the fewest words to be substituted, left out or added, and the words of the reference.

    Both texts are normalised; a reference without words has 0 of them, and every word heard in it is an error. Raises
    ``NormaliserError``.
    """
    wanted = words(reference, name)
    return fewest_edits(wanted, words(hypothesis, name)), len(wanted)


def _basic(text: str) -> str:
    # Compatibility forms of one sign may hold capitals, so case goes after them; and folding case may undo the form.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    plain = "".join(map(_plain, folded)).split()
    return " ".join(bare for word in plain if (bare := word.strip("'")))


@cache
def _plain(character: str) -> str:
    """The character, a space for punctuation and symbols, one form of apostrophe."""
    if character in "'\u2019\u02bc":
        return "'"
    return " " if unicodedata.category(character)[0] in "PSZC" else character


# -- edit distance -----------------------------------------------------------------------------------------------------

# Levenshtein's distance between two lists of words, and which words it takes for the same, fast enough for every answer
# of a run. Pure; it folds no case and knows no text.


def fewest_edits(reference: Sequence[str], output: Sequence[str]) -> int:
    """Levenshtein's distance in words: the fewest that must be substituted, left out or added.

    Myers' bit vectors as Hyyrö (2003) gives them for the whole distance: a column of the table is two whole numbers,
    its steps up and its steps down, so a word of the output costs a handful of operations whatever the length of the
    reference.
    """
    first, last_a, last_b = _unlike(reference, output)
    return _distance(reference[first:last_a], output[first:last_b], None)


def aligned(reference: Sequence[str], output: Sequence[str]) -> list[tuple[int, int]]:
    """(place in ``reference``, place in ``output``) of the words that are the same in one alignment of the fewest
    edits, ascending.

    Where several have as few, a word that comes again is taken for its first place.
    """
    first, last_a, last_b = _unlike(reference, output)
    left, right = reference[first:last_a], output[first:last_b]
    columns: list[tuple[int, int]] = []
    _distance(left, right, columns)
    i, j, found = len(left), len(right), []
    while columns and i and j:
        bit = 1 << (i - 1)
        if columns[j - 1][0] & bit:  # left out
            i -= 1
        elif j > 1 and columns[j - 2][1] & bit:  # added
            j -= 1
        else:
            i, j = i - 1, j - 1
            if left[i] == right[j]:
                found.append((first + i, first + j))
    behind = [(last_a + k, last_b + k) for k in range(len(reference) - last_a)]
    return [*((k, k) for k in range(first)), *reversed(found), *behind]


def cells(reference: Sequence[str], output: Sequence[str]) -> int:
    """The size of the table of ``aligned``: up to a quarter of a byte a cell, and about a nanosecond."""
    first, last_a, last_b = _unlike(reference, output)
    return (last_a - first) * (last_b - first)


def _unlike(reference: Sequence[str], output: Sequence[str]) -> tuple[int, int, int]:
    """(first, end in ``reference``, end in ``output``) of what lies between the words that both begin and end with."""
    first, last_a, last_b = 0, len(reference), len(output)
    while first < min(last_a, last_b) and reference[first] == output[first]:
        first += 1
    while last_a > first and last_b > first and reference[last_a - 1] == output[last_b - 1]:
        last_a, last_b = last_a - 1, last_b - 1
    return first, last_a, last_b


def _distance(left: Sequence[str], right: Sequence[str], columns: list[tuple[int, int]] | None) -> int:
    """The distance; ``columns`` takes each column's steps up and down, of as many bits as ``left`` has words."""
    if not left or not right:
        return max(len(left), len(right))
    at: dict[str, int] = {}
    for i, word in enumerate(left):
        at[word] = at.get(word, 0) | 1 << i
    every, top = (1 << len(left)) - 1, 1 << (len(left) - 1)
    up, down, distance = every, 0, len(left)
    for word in right:
        same = at.get(word, 0)
        diagonal = (((same & up) + up) ^ up) | same | down
        across_up = down | (every & ~(diagonal | up))
        across_down = up & diagonal
        distance += bool(across_up & top) - bool(across_down & top)
        across_up = (across_up << 1 | 1) & every
        up = (across_down << 1 | (every & ~(diagonal | across_up))) & every
        down = across_up & diagonal
        if columns is not None:
            columns.append((up, down))
    return distance


# -- word error rate ---------------------------------------------------------------------------------------------------

# The word error rate of a run: errors of all sessions over words of all their references, whole and by slice, and how
# sure it is. A session that failed got no word across: all words of its reference count as errors (more, if more were
# counted). Where a failed session never got so far that its words were counted, it counts as many as the others have on
# average. A rate over the sessions that went well would be better the more of the hard ones fail.
#
# Words of one session share a voice and a room, so a word is no independent trial. The bounds are Wilson's for a share,
# on the number of words divided by the design effect: the variance of the rate between sessions (linearised, as for any
# ratio of two sums) over what independent words would have. They take Student's t with a degree of freedom less than
# sessions in place of the normal. With no error at all, or one session, nothing is known of how errors cluster: then
# words count as independent, or the session as one. By simulation (5 to 300 sessions of 13 words, rates of 1 to 30 %,
# strong clustering) each bound holds 90 % or more of the time at 95 %, but for errors in a handful of sessions: 1 % in
# clusters over 30 sessions holds 74 %. So a verdict on it is as observed, and the bounds are for the reader. Pure; it
# judges nothing.

#: The name of sessions without a slice.
NO_SLICE = ""
#: So many slices are told apart.
MOST_SLICES = 1000


@dataclass(frozen=True, slots=True)
class WordErrorRate:
    """``errors`` over ``words`` of ``sessions``, ``failed`` of which failed; ``guessed`` of those had no words counted.

    ``rate`` is NaN without words; ``interval`` a lower and an upper bound, each at the confidence; ``mean`` the mean of
    the sessions' own rates, ``design_effect`` how many words count as one.
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
    """The same of each slice, by name; a session without one belongs to ``NO_SLICE``.

    Of more than ``MOST_SLICES`` those with fewest words are taken together, under a name that says how many they are.

    Empty where there are no references.
    """
    found = _counts(records)
    if found is None:
        return {}
    slices, table = records["slice"][found.row], records.table("slice")
    order = np.argsort(slices, kind="stable")
    starts = np.append(0, np.flatnonzero(np.diff(slices[order])) + 1)
    sessions = np.split(order, starts[1:])
    words = np.add.reduceat(found.words[order], starts)
    kept = np.argsort(-words, kind="stable")
    kept, others = (kept, kept[:0]) if len(kept) <= MOST_SLICES else (kept[: MOST_SLICES - 1], kept[MOST_SLICES - 1 :])
    places = [int(slices[sessions[place][0]]) for place in kept.tolist()]
    named = {(table[ix] if ix >= 0 else NO_SLICE): sessions[place] for ix, place in zip(places, kept, strict=True)}
    rates = {name: _rate(found, named[name], confidence) for name in sorted(named)}
    if len(others):
        together = np.sort(np.concatenate([sessions[place] for place in others.tolist()]))
        rates[f"{len(others):,} more slices"] = _rate(found, together, confidence)
    return rates


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


def _rate(counts: _Counts, inside: BoolArray | IntArray, confidence: Probability) -> WordErrorRate:
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
    # Above one word added for each that was said a rate is no share; an even chance is the most variance that one can
    # have.
    share = min(rate, 0.5)
    return max(1.0, variance * total / (share * (1 - share))) if rate > 0 else 1.0


def _bounds(rate: float, words: int, sessions: int, effect: float, confidence: Probability) -> tuple[float, float]:
    from plimsoll.slo.statistics.special import stdtrit

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
