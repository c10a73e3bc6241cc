"""Which sample each query carries: indices into the payload source, drawn before the run."""

from __future__ import annotations

from typing import Literal

import numpy as np

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import child, stream, uniforms

#: ``random``: uniform with replacement, LoadGen's performance mode. ``permutation``: fresh permutations one
#: after another: every sample is used equally often (LoadGen's sample_concatenate_permutation).
Order = Literal["random", "permutation"]

_BLOCK = 1 << 20


def choose(order: Order, seed: int, n: int, n_samples: int) -> IntArray:
    """``n`` indices below ``n_samples`` from the root seed's child "samples". Raises ``ValueError`` if there
    are none.

    LoadGen's own sequence, which depends on the query count and the set size even with equal seeds, is in
    ``plimsoll.scenarios.plan.loadgen_samples``.
    """
    require_samples(n_samples)
    bits = stream(child(seed, "samples"))
    if order == "random":
        return np.floor(uniforms(bits, n) * n_samples).astype(np.int64)
    # A row of random keys, sorted, is a uniform permutation; whole blocks of rows at a time.
    chosen, rows = np.empty(0, dtype=np.int64), max(1, _BLOCK // n_samples)
    parts = []
    for passes in range(0, -(-n // n_samples), rows):
        now = min(rows, -(-n // n_samples) - passes)
        keys = bits.random_raw(now * n_samples).reshape(now, n_samples)
        parts.append(np.argsort(keys, axis=1, kind="stable").ravel())
    return np.concatenate([chosen, *parts])[:n]


def require_samples(n_samples: int) -> None:
    """Raise ``ValueError`` when the payload source is empty."""
    if n_samples < 1:
        raise ValueError("the payload source has no samples. Give a source with at least one")
