"""Slices: named conditions that shares of the clips are heard under, so that errors can be told apart by condition. Pure and seeded."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import stream
from plimsoll.scenarios.text.strict import STRICT


class Slice(BaseModel):
    """One condition. Speed comes first, then noise, then gain: gain changes the level and leaves the ratio of speech to noise alone."""

    model_config = STRICT
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]*$", max_length=60, description="As reports call it.")
    noise_db: float | None = Field(
        default=None, ge=-30, le=100, description="White noise so far below the mean power of the speech (SNR in dB)."
    )
    gain_db: float = Field(default=0.0, ge=-90, le=60, description="Louder or softer; 16 bits clip and round.")
    speed: float = Field(
        default=1.0, ge=0.25, le=4, description="Synthetic: said faster. Recordings: played faster, and so higher."
    )
    share: Annotated[float, Field(gt=0, le=1e6)] = Field(default=1.0, description="Of the clips, relative to others.")


#: What a clip without a slice goes through.
AS_IT_IS = Slice(name="as it is")


def assigned(shares: list[float], n: int, seed: int) -> IntArray:
    """Which slice each of ``n`` clips belongs to: counts are exact within one (largest remainder), places are shuffled.

    Raises ValueError when there are fewer clips than slices, because a slice without clips can't be reported.
    """
    if n < len(shares):
        raise ValueError(f"{n} clips can't be spread over {len(shares)} slices. Give more clips, or paired: true")
    # One clip for each slice first: a share of a hundredth among fifty clips still has one.
    ideal = np.array(shares) / sum(shares) * (n - len(shares))
    counts = np.floor(ideal).astype(np.int64)
    rest = n - len(shares) - int(counts.sum())
    counts[np.argsort(counts - ideal, kind="stable")[:rest]] += 1
    order = np.argsort(stream(seed).random_raw(n), kind="stable")
    return np.repeat(np.arange(len(shares), dtype=np.int64), counts + 1)[order]
