"""How far a recovery that is observed is from the one that was planted: the table of docs/evidence/statistics.md.

``python -m tests.bench.recovery [RUNS]``: Poisson arrivals, an outage of 10 s, 60 s after it; a quarter of the allowed
share is bad outside it.
"""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np

from plimsoll.slo.statistics.memory import independent
from plimsoll.slo.verdict.recovery import recovery_of, stretches_of

TOOK_S, AFTER_S = 10.0, 60.0
CASES = [(p, share, rate) for p in ("p90", "p95", "p99") for share in (1.0, 0.25) for rate in (5, 20, 100, 400)]


def one(rate: float, allowed: Fraction, share: float, seed: int) -> tuple[float, float, float, int]:
    """(observed, least, most) in s of one run, and how many requests a stretch has."""
    rng = np.random.default_rng(seed)
    n = rng.poisson(rate * (TOOK_S + AFTER_S))
    due = np.sort(rng.random(n) * (TOOK_S + AFTER_S) * 1e9).astype(np.int64)
    bad = rng.random(n) < np.where(due < TOOK_S * 1e9, share, float(allowed) / 4)
    found = stretches_of(bad, independent(n), allowed, "0.95")
    observed, low, high = (at / 1e9 for at in recovery_of(found, due, 0.05))
    return observed, low, high, found.width


def main(runs: int = 200) -> None:
    """Print the table."""
    print("| objective | bad in the outage | requests/s | W | error p50, p95 | least | most | wrong | not shown |")
    print("|---|---|---|---|---|---|---|---|---|")
    for p, share, rate in CASES:
        allowed = 1 - Fraction(p[1:]) / 100
        made = np.array([one(rate, allowed, share, seed) for seed in range(runs)])
        error, low, high = (made[:, i] - TOOK_S for i in range(3))
        width = int(np.median(made[:, 3]))
        off, most = np.sort(np.abs(error)), float(np.median(high))
        ends = [f"{off[len(off) * q // 100]:.2f} s" for q in (50, 95)]
        wrong = f"{np.mean(low > 0):.1%}, {np.mean(high < 0):.1%}"
        cells = [p, f"{share:.0%}", str(rate), f"{width:,}", ", ".join(ends), f"{np.median(low):+.2f} s"]
        cells += [f"{most:+.2f} s" if np.isfinite(most) else "never", wrong, f"{np.mean(np.isinf(high)):.0%}"]
        print(f"| {' | '.join(cells)} |".replace("inf s", "never"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
