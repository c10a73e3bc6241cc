"""Arms made of plain numbers, for tests of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from plimsoll.slo.comparison.arms import Arm, Reading, RunSample, Within
from plimsoll.slo.comparison.quantity import parse


def arm(name: str, values: Mapping[str, Sequence[float]], paired: bool = False, n: int = 10_000) -> Arm:
    """One run per value; ``paired`` numbers them."""
    runs = max(len(v) for v in values.values())
    return Arm(
        name,
        tuple(
            RunSample(
                run=f"{name}{i}",
                readings={str(parse(key)): Reading(v[i], 0 if v[i] != v[i] else n) for key, v in values.items()},
                pair=i if paired else None,
                requests=n,
            )
            for i in range(runs)
        ),
    )


def lone(name: str, key: str, values: np.ndarray) -> Arm:  # type: ignore[type-arg]
    """One run that kept its values."""
    ordered = np.sort(values)
    quantity = parse(key)
    assert quantity.quantile is not None
    value = float(ordered[int(np.ceil(float(quantity.quantile) * len(ordered))) - 1])
    run = RunSample(name, {str(quantity): Reading(value, len(ordered), 0, Within(ordered, 1.0))}, requests=len(ordered))
    return Arm(name, (run,))
