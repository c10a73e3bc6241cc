"""Which sample each query carries: indices into the payload source, drawn before the run.

``choose`` is ours: one seed is one sequence. LoadGen's order (6.0.17, built with libstdc++, observed by running it)
serves runs that are compared with one of LoadGen's, index for index. It shuffles the data set with one ``std::mt19937``
and draws from another, after shuffles for modes that it does not use: so the sequence depends on the set's size and on
min_query_count, too. Only its performance mode with the whole data set loaded is known here; accuracy mode, equal
issue, unique and same samples are refused.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Discriminator, Field, Tag

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import SEED_MAX, child, stream, uniforms
from plimsoll.scenarios.text.fields import STRICT

#: ``random``: uniform with replacement, LoadGen's performance mode. ``permutation``: fresh permutations one
#: after another: every sample is used equally often (LoadGen's sample_concatenate_permutation).
Order = Literal["random", "permutation"]

#: Keys of permutations are drawn so many at a time.
_KEYS = 1 << 20
#: Hands out the next n indices; asked for one number in pieces, it gives what it gives at once.
Take = Callable[[int], IntArray]


def choose(order: Order, seed: int, n: int, n_samples: int) -> IntArray:
    """``n`` indices below ``n_samples`` from the root seed's child "samples".

    Raises ``ValueError`` if there are none.
    """
    return chosen(order, seed, n_samples)(n)


def chosen(order: Order, seed: int, n_samples: int) -> Take:
    """``choose``, as many as are taken."""
    require_samples(n_samples)
    bits = stream(child(seed, "samples"))
    if order == "random":

        def random(n: int) -> IntArray:
            places = uniforms(bits, n)
            places *= n_samples
            return places.astype(np.int64)  # they are not negative: what is cut off is rounded down

        return random
    left = np.empty(0, np.int64)

    def permuted(n: int) -> IntArray:
        nonlocal left
        parts, have = [left], len(left)
        while have < n:  # a row of random keys, sorted, is a uniform permutation
            rows = max(1, min(_KEYS // n_samples, -(-(n - have) // n_samples)))
            keys = bits.random_raw(rows * n_samples).reshape(rows, n_samples)
            parts.append(np.argsort(keys, axis=1, kind="stable").ravel())
            have += rows * n_samples
        made = np.concatenate(parts)
        left = made[n:]
        return made[:n]

    return permuted


def require_samples(n_samples: int) -> None:
    """Raise ``ValueError`` when the payload source is empty."""
    if n_samples < 1:
        raise ValueError("the payload source has no samples. Give a source with at least one")


_BITS = 32
_MASK = (1 << _BITS) - 1
#: Numbers that are drawn at a time.
_STEP = 1 << 12
#: Up to this many items libstdc++ takes two places of a shuffle from one draw.
_PAIRED = 65_535
#: Rows of a closed loop's list in this order: LoadGen's list has no end that we could know.
ROWS = 1 << 16


class LoadgenOrder(BaseModel):
    """``{process: loadgen, sample_index_seed: ..., qsl_seed: ...}``: LoadGen's own samples, from its own seeds.

    The seeds are LoadGen's ``sample_index_rng_seed`` and ``qsl_rng_seed``; its ``schedule_rng_seed`` is the
    scenario's ``seed``. The defaults are LoadGen's.
    """

    model_config = STRICT
    process: Literal["loadgen"]
    sample_index_seed: int = Field(default=0, ge=0, le=SEED_MAX, description="LoadGen's sample_index_rng_seed.")
    qsl_seed: int = Field(default=0, ge=0, le=SEED_MAX, description="LoadGen's qsl_rng_seed.")


def _tag(value: Any) -> str:
    return "<loadgen>" if isinstance(value, (LoadgenOrder, dict)) else "<name>"


_Own = Annotated[LoadgenOrder, Tag("<loadgen>")]
_OneSample = Literal["random", "permutation", "loadgen"]
OneSample = _OneSample | LoadgenOrder
#: How one-sample queries choose: a name, or LoadGen's own order with its seeds.
SampleOrder = Annotated[Annotated[_OneSample, Tag("<name>")] | _Own, Discriminator(_tag)]
#: How multi-stream queries choose where to begin.
StartOrder = Annotated[Annotated[Literal["random", "loadgen"], Tag("<name>")] | _Own, Discriminator(_tag)]
#: How the one query of an offline run is filled.
FillOrder = Annotated[Annotated[Literal["in_turn", "loadgen"], Tag("<name>")] | _Own, Discriminator(_tag)]


def as_loadgen(order: OneSample | Literal["in_turn"]) -> LoadgenOrder | None:
    """LoadGen's order, with its default seeds where only its name is given; None for any other."""
    if order == "loadgen":
        return LoadgenOrder(process="loadgen")
    return order if isinstance(order, LoadgenOrder) else None


def drawn(order: OneSample, seed: int, n_samples: int, *, min_queries: int) -> Take:
    """Sample indices for one-sample queries, as many as are taken. Raises ``ValueError`` when there are no samples."""
    require_samples(n_samples)
    if order == "random" or order == "permutation":
        return chosen(order, seed, n_samples)
    own = as_loadgen(order)
    assert own is not None
    samples, begin = loaded_set(own, n_samples), places(own, n_samples, min_queries=min_queries)
    return lambda n: samples[begin(n)]


def draw(order: OneSample, seed: int, n: int, n_samples: int, *, min_queries: int) -> IntArray:
    """``n`` sample indices for one-sample queries. Raises ``ValueError`` when there are no samples."""
    return drawn(order, seed, n_samples, min_queries=min_queries)(n)


def loaded_set(order: LoadgenOrder, n_samples: int) -> IntArray:
    """The data set in the order in which LoadGen loads it."""
    samples = list(range(n_samples))
    _Twister(order.qsl_seed).shuffle(samples)
    return np.array(samples, dtype=np.int64)


def places(order: LoadgenOrder, n_samples: int, *, min_queries: int, per_query: int = 1) -> Take:
    """Where in the loaded set queries begin: uniform with replacement."""
    twister = _Twister(order.sample_index_seed)
    twister.swaps(-(-n_samples // per_query))  # of shuffles whose outcome nobody uses
    # LoadGen pads a multi-stream set by what a query at its end runs over; these passes shuffle that too.
    padded = n_samples + per_query - 1
    for _ in range(0, min_queries, padded):
        twister.swaps(padded)
    return lambda n: twister.below(np.full(n, n_samples, np.uint64))


class _Twister:
    """``std::mt19937`` and what libstdc++ makes of its numbers."""

    __slots__ = ("_bits", "_left")

    def __init__(self, seed: int) -> None:
        self._bits = np.random.MT19937()
        self._bits._legacy_seeding(seed & _MASK)
        self._left = np.empty(0, np.uint64)  # drawn, and not used yet

    def _draws(self, n: int) -> npt.NDArray[np.uint64]:
        held, self._left = self._left[:n], self._left[n:]
        return np.concatenate((held, self._bits.random_raw(n - len(held)))) if len(held) < n else held

    def below(self, bounds: npt.NDArray[np.uint64]) -> IntArray:
        """A number below each of these, by ``uniform_int_distribution(0, bound - 1)``: Lemire's multiplication.

        The high half of draw * bound is the number, unless the low half lies in the first 2^32 mod bound, which
        would make some numbers likelier: then the next draw takes its place.
        """
        found = np.empty(len(bounds), np.int64)
        at, step = 0, _STEP
        while at < len(bounds):
            some = bounds[at : at + step]
            draws = self._draws(len(some))
            products = draws * some
            uneven = products & np.uint64(_MASK) < np.uint64(1 << _BITS) % some
            n = int(uneven.argmax()) if uneven.any() else len(some)
            found[at : at + n] = products[:n] >> np.uint64(_BITS)
            self._left = np.concatenate((draws[n + 1 :], self._left))
            at, step = at + n, min(2 * step, _STEP) if n == len(some) else 16
        return found

    def swaps(self, n: int) -> IntArray:
        """What ``std::shuffle`` draws for so many items: the place at or before it that each but the first swaps with.

        Of up to ``_PAIRED`` items a draw below (at + 1) * (at + 2) is a pair of them, for this item and the next.
        """
        if n > _PAIRED:
            return self.below(np.arange(2, n + 1, dtype=np.uint64))
        first = self.below(np.full(int(n > 0 and n % 2 == 0), 2, np.uint64))
        at = np.arange(1 + len(first), n, 2)
        pairs = divmod(self.below(((at + 1) * (at + 2)).astype(np.uint64)), at + 2)
        return np.concatenate((first, np.stack(pairs, axis=1).ravel()))

    def shuffle(self, items: list[int]) -> None:
        """``std::shuffle``."""
        for at, place in enumerate(self.swaps(len(items)).tolist(), 1):
            items[at], items[place] = items[place], items[at]
