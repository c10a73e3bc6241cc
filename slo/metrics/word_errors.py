"""Word errors of a transcript against its reference, under a normaliser with a name and a version.

Word error rates under two normalisers are two different numbers, so every rate is reported with the text of its normaliser:

- ``none``: words as they stand between white space.
- ``basic``: Unicode NFKC, no case, punctuation and symbols as white space; an apostrophe inside a word stays. Any language.
- ``whisper-english``: the English one of the Whisper paper, which most published English rates are under: spelt-out numbers,
  contractions, British spellings. Needs ``pip install plimsoll-slo[speech]``.

The only importer of ``whisper_normalizer``, on first use. It refuses to guess a language, and it judges nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

from plimsoll.slo.metrics import edits

NAMES = ("none", "basic", "whisper-english")
#: Changes whenever ``basic`` gives other words for any text.
_BASIC_VERSION = 1
#: Texts whose words are kept: references come again with every lap through a data set.
_KEPT = 4096


class NormaliserError(ValueError):
    """A normaliser that is not known or not installed. The message ends with what to do."""


@dataclass(frozen=True, slots=True)
class Normaliser:
    """``text`` names it with its version, as reports print it; ``apply`` gives a text whose words stand between white space."""

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


def words(text: str, name: str = "basic") -> tuple[str, ...]:
    """The normalised words of a text, kept for the next time it is asked about."""
    return _words(text, name)


@lru_cache(maxsize=_KEPT)
def _words(text: str, name: str) -> tuple[str, ...]:
    return tuple(normaliser(name).apply(text).split())


def word_errors(reference: str, hypothesis: str, name: str = "basic") -> tuple[int, int]:
    """(errors, words): the fewest words to be substituted, left out or added, and the words of the reference.

    Both texts are normalised; a reference without words has 0 of them, and every word heard in it is an error. Raises
    ``NormaliserError``.
    """
    wanted = _words(reference, name)
    return edits.word_errors(wanted, _words(hypothesis, name)), len(wanted)


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
