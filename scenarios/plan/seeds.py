"""One root seed becomes named child seeds, and child seeds become streams of numbers that never change.

Separate names for separate uses (arrivals, sample choice, prompts, ...) mean that changing one does not
disturb the others. Only the raw 64-bit streams of PCG64 are used for plans: numpy guarantees those for ever,
while it reserves the right to change what its distributions make of them.
"""

import hashlib
from functools import cache

import numpy as np
import numpy.typing as npt

SEED_MAX = (1 << 64) - 1


def child(root: int, *path: str) -> int:
    """The 64-bit seed at ``path`` below ``root``: the first 8 bytes, little-endian, of a SHA-256.

    Each name is preceded by its length, so ("ab", "c") and ("a", "bc") differ. Seed 0 is a seed like any
    other. Raises ``ValueError`` for a root that is not a 64-bit unsigned number.
    """
    if not 0 <= root <= SEED_MAX:
        raise ValueError(f"seed is {root}. Give a number from 0 to 2^64 - 1.")
    digest = hashlib.sha256(root.to_bytes(8, "little"))
    for name in path:
        data = name.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return int.from_bytes(digest.digest()[:8], "little")


def stream(seed: int) -> np.random.PCG64:
    """The raw number stream of a (child) seed. Stateful: the caller owns it."""
    return np.random.PCG64(seed)


def uniforms(bits: np.random.PCG64, n: int) -> npt.NDArray[np.float64]:
    """The next ``n`` numbers of the stream as multiples of 2^-53 in [0, 1)."""
    return np.random.Generator(bits).random(n) if _drawn_alike() else _from_raw(bits, n)


def _from_raw(bits: np.random.PCG64, n: int) -> npt.NDArray[np.float64]:
    return (bits.random_raw(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@cache
def _drawn_alike() -> bool:
    """This numpy's own uniforms are those of the raw stream: made in one pass instead of four."""
    return np.array_equal(np.random.Generator(stream(1)).random(64), _from_raw(stream(1), 64))


def mixed(key: int, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """uint64[n]: for each number k >= 0 output k (from 0) of SplitMix64 (Steele, Lea and Flood 2014) started at
    ``key``.

    A number of its own for each k, whatever is asked beside it and on whatever machine.
    """
    z = numbers.astype(np.uint64)
    z += np.uint64(1)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(key)
    shifted = np.empty_like(z)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        z ^= np.right_shift(z, np.uint64(shift), out=shifted)
        if factor > 1:
            z *= np.uint64(factor)
    return z
