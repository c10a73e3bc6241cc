"""What can be said: 49 characters, and how text is brought down to them. Pure.

It refuses what has no spelling here (other scripts, emoji, control characters) by naming the character: a synthesiser that skips silently
would make every word error rate a lie.
"""

from __future__ import annotations

import unicodedata

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ALPHABET = LETTERS + "0123456789" + " " + "'-.,?!:;%&/@"
"""A character's symbol is its place in here."""
SPACE = ALPHABET.index(" ")

_SPELT = {
    "ß": "ss",
    "æ": "ae",
    "œ": "oe",
    "ø": "o",
    "ł": "l",
    "đ": "d",
    "ð": "d",
    "þ": "th",
    "ı": "i",
    "‘": "'",
    "’": "'",
    "‚": ",",
    "`": "'",
    "´": "'",
    "–": "-",
    "—": "-",
    "‐": "-",
    "‑": "-",
    "−": "-",
    "⁄": "/",
    "+": " plus ",
    "=": " equals ",
    "$": " dollars ",
    "€": " euros ",
    "£": " pounds ",
    "°": " degrees ",
}
_PAUSES = '\t\n\r\v\f"“”„«»()[]{}<>*_#|~^\\•…'
"""Said as nothing but the gap between two words."""


class Unsayable(ValueError):
    """Text with a character that has no spelling; the message names it and where it is."""


def normalise(text: str) -> str:
    """Lower case without accents, in characters of ALPHABET, words separated by single spaces; ligatures and some signs spelt out.

    It is idempotent. Raises Unsayable.
    """
    spelt = []
    for at, given in enumerate(text):
        for character in unicodedata.normalize("NFKD", given).lower():
            if character in ALPHABET:
                spelt.append(character)
            elif character in _SPELT:
                spelt.append(_SPELT[character])
            elif character in _PAUSES or character.isspace():
                spelt.append(" ")
            elif not unicodedata.combining(character):
                raise Unsayable(_refusal(given, at))
    return " ".join("".join(spelt).split())


def symbols(text: str) -> list[int]:
    """The symbols of normalised text."""
    return [ALPHABET.index(character) for character in text]


def _refusal(character: str, at: int) -> str:
    name = unicodedata.name(character, "a character without a name")
    shown = f"{character!r} " if character.isprintable() else ""
    return (
        f"character {shown}(U+{ord(character):04X}, {name}) at position {at} can't be said. "
        "Use Latin letters, digits and common punctuation"
    )
