"""``make bench``: CPU cost of the hot path per unit of work, beside its baseline.

Figures are scaled by a calibration loop, so that a slower or busier machine does not look like slower code. A case fails
when it is more than 10 % and more than three standard errors above its baseline. ``--save`` writes a new baseline.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
from pathlib import Path

from tests.bench.cases import CASES, calibration

BASELINE = Path(__file__).parent / "baseline.json"
ROUNDS = 7


def measure() -> dict[str, dict[str, float]]:
    """Median and standard error of each case, in microseconds and in units of the calibration loop."""
    found: dict[str, dict[str, float]] = {}
    for name, case in CASES.items():
        micros, ratios = [], []
        for _ in range(ROUNDS):
            unit = calibration()
            micros.append(case())
            ratios.append(micros[-1] / unit)
        error = statistics.stdev(ratios) / ROUNDS**0.5
        found[name] = {"us": statistics.median(micros), "units": statistics.median(ratios), "error": error}
        print(f"{name:20} {found[name]['us']:9.3f} us   {found[name]['units']:9.1f} ± {error:.1f} units", flush=True)
    return found


def main() -> int:
    machine = f"{platform.machine()}-py{sys.version_info.major}.{sys.version_info.minor}"
    saved = json.loads(BASELINE.read_text()) if BASELINE.is_file() else {}
    found = measure()
    if "--save" in sys.argv or machine not in saved:
        saved[machine] = found
        BASELINE.write_text(json.dumps(saved, indent=1) + "\n")
        print(f"baseline for {machine} written to {BASELINE.relative_to(Path.cwd())}")
        return 0
    slower = []
    for name, now in found.items():
        before = saved[machine].get(name)
        if before is None:
            continue
        change = now["units"] / before["units"]
        noise = (now["error"] ** 2 + before["error"] ** 2) ** 0.5
        print(f"{name:20} {change:6.2f} x baseline")
        if change > 1.10 and now["units"] - before["units"] > 3 * noise:
            slower.append(name)
    if slower:
        print(f"slower than the baseline: {', '.join(slower)}. If it is meant, run `python -m tests.bench --save`")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
