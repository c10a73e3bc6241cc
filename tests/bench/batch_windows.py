"""What waiting for a batch costs: the table of docs/guide/fleet.md, in virtual time.

``python -m tests.bench.batch_windows``. A device of 5 ms + 0.6 ms a sample, at most 32 of them, a window of 10 ms,
20,000 Poisson arrivals.
"""

from __future__ import annotations

from tests.unit.reference_server.test_server_batch_times import simulate

RATES = (50, 200, 500, 1_000)
WINDOWS = ("none", "static", "dynamic", "adaptive")


def row(rate: int) -> str:
    """Of each window: mean batch, mean and p99 latency in ms."""
    seen = [simulate(rate, window, n=20_000) for window in WINDOWS]
    digits = [0 if one.mean_ms > 30 else 1 for one in seen]
    cells = [
        f"{one.batch:.{0 if one.batch == 32 else 1}f}; {one.mean_ms:.{n}f}; {one.p99_ms:.{n}f}"
        for one, n in zip(seen, digits, strict=True)
    ]
    return f"| {rate:,}/s | {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join([f"| rate | {' | '.join(WINDOWS)} |", f"|{'---|' * (len(WINDOWS) + 1)}", *map(row, RATES)]))
