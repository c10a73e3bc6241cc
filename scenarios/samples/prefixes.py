"""Prompts that begin alike: groups with a shared beginning, whole repeats, and what a cache without limit would have.

A source whose prompts share beginnings on purpose has ``chain(index)``: the parts of that prompt from its first token
on, each with a name and its length. Parts of one name begin alike, as far as the shorter one goes; a part without a
name (None) is no other's.
"""

from collections.abc import Hashable, Sequence
from typing import Annotated, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import child, stream, uniforms
from plimsoll.scenarios.text.fields import STRICT, refused_by

MOST_GROUPS = 1_000_000
UNIFORM = "uniform"
Chain = Sequence[tuple[Hashable | None, int]]


def _exponent(text: str) -> float:
    """Of Zipf's law: 0 is uniform. Raises ValueError."""
    name, _, number = text.partition(" ")
    try:
        if text == UNIFORM:
            return 0.0
        if name == "zipf" and 0 < (exponent := float(number)) <= 10:
            return exponent
    except ValueError:
        pass
    raise ValueError(f"{text!r} is no popularity. Write uniform, or zipf and an exponent above 0: zipf 1.1")


Popularity = Annotated[str, refused_by(_exponent)]


class Shared(BaseModel):
    """Each prompt begins with the text of one of ``groups`` groups, which stands in front of its own tokens."""

    model_config = STRICT
    groups: int = Field(default=1, ge=1, le=MOST_GROUPS, description="Different beginnings.")
    tokens: int = Field(ge=1, le=10_000_000, description="Length of each, in front of prompt_tokens, in `unit`.")
    popularity: Popularity = Field(default=UNIFORM, description="Of the groups: uniform, or zipf S.")


def drawn(popularity: str, n_choices: int, seed: int, n: int) -> IntArray:
    """``n`` numbers below ``n_choices``: the k-th from 1 is chosen in proportion to 1 / k^S."""
    weights = np.cumsum(np.arange(1, n_choices + 1, dtype=np.float64) ** -_exponent(popularity))
    found = np.searchsorted(weights, uniforms(stream(seed), n) * weights[-1], side="right")
    chosen: IntArray = np.minimum(found, n_choices - 1).astype(np.int64)
    return chosen


def originals(repeat: float, popularity: str, seed: int, n: int) -> IntArray:
    """int64[n]: the sample whose prompt each one has; itself, but for a share of exactly ``repeat``, rounded."""
    order = np.argsort(stream(child(seed, "repeats")).random_raw(n), kind="stable")
    copies = min(round(repeat * n), n - 1)
    found = np.arange(n)
    found[order[:copies]] = order[copies:][drawn(popularity, n - copies, child(seed, "repeated"), copies)]
    return found


class Prefixed(Protocol):
    """A source that knows how its prompts begin. ``shares``: some begin alike on purpose."""

    def __len__(self) -> int: ...

    @property
    def shares(self) -> bool: ...

    def chain(self, index: int) -> Chain:
        """The parts of that prompt, in order."""
        ...


class Unlimited:
    """A cache that forgets nothing and holds every prompt as soon as it was sent: no real one has more hits.

    It holds a bit a sample and a number a named part, however many requests there are.
    """

    def __init__(self, source: Prefixed) -> None:
        self._source = source
        self._sent = np.zeros(len(source), np.bool_)
        self._longest: dict[Hashable, int] = {}

    def shares(self, payload_ix: IntArray) -> npt.NDArray[np.float64]:
        """The share of each of these prompts, sent in this order, that the cache has; nan: no sample of the source."""
        found = np.ones(len(payload_ix))
        found[(payload_ix < 0) | (payload_ix >= len(self._sent))] = np.nan
        samples, rows = np.unique(payload_ix, return_index=True)
        for row in np.sort(rows[(samples >= 0) & (samples < len(self._sent))]).tolist():
            index = int(payload_ix[row])
            if not self._sent[index]:
                self._sent[index] = True
                found[row] = self._first(self._source.chain(index))
        return found

    def _first(self, chain: Chain) -> float:
        """Of a sample that was not sent before."""
        held, whole = 0, True
        for name, tokens in chain:
            known = 0 if name is None else min(self._longest.get(name, 0), tokens)
            held += known if whole else 0
            whole &= known == tokens
            if name is not None and known < tokens:
                self._longest[name] = tokens
        return held / max(1, sum(tokens for _, tokens in chain))
