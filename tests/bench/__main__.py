"""``make bench``: Plimsoll beside its peers, then the CPU cost of the hot path per unit of work, beside its baseline.

Figures of the cases are scaled by a calibration loop, so that a slower or busier machine does not look like slower
code. A case fails when it is more than 10 % and more than three standard errors above its baseline. ``--save`` writes a
new baseline, ``--save-doc`` the table of the peers into docs/evidence/performance.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path

from tests.bench import peers
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


def cases(save: bool) -> int:
    """The hot path beside its baseline; 1 if it became slower."""
    machine = f"{platform.machine()}-py{sys.version_info.major}.{sys.version_info.minor}"
    saved = json.loads(BASELINE.read_text()) if BASELINE.is_file() else {}
    found = measure()
    if save or machine not in saved:
        saved[machine] = found
        BASELINE.write_text(json.dumps(saved, indent=1) + "\n")
        print(f"baseline for {machine} written to {BASELINE.relative_to(Path.cwd())}")
        return 0
    slower = []
    for name, now in found.items():
        before = saved[machine].get(name)
        if before is None:
            print(f"{name:20} no baseline yet: python -m tests.bench --cases --save")
            continue
        change = now["units"] / before["units"]
        noise = (now["error"] ** 2 + before["error"] ** 2) ** 0.5
        print(f"{name:20} {change:6.2f} x baseline")
        if change > 1.10 and now["units"] - before["units"] > 3 * noise:
            slower.append(name)
    if slower:
        print(f"slower than the baseline: {', '.join(slower)}. If it is meant, run `python -m tests.bench --save`")
    return 1 if slower else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Benchmarks; without a choice, all of them."
    )
    parser.add_argument("--peers", action="store_true", help="only the comparisons with the peers")
    parser.add_argument("--cases", action="store_true", help="only the cases of the hot path")
    parser.add_argument("--save", action="store_true", help="write a new baseline of the cases")
    parser.add_argument(
        "--save-doc", action="store_true", help="write the peers' table into docs/evidence/performance.md"
    )
    parser.add_argument("--rounds", type=int, default=peers.ROUNDS, help="of each contestant (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=peers.SECONDS, help="of load in a round (default %(default)s)")
    parser.add_argument("--raw", type=Path, help="write every round's figures here, as JSON")
    given = parser.parse_args()
    everything = not given.peers and not given.cases
    if given.peers or everything:
        try:
            peers.run(given.rounds, given.seconds, given.save_doc, given.raw)
        except RuntimeError as error:
            print(f"the peers could not be compared: {error}", file=sys.stderr)
            if not everything:
                return 1
    return cases(given.save) if given.cases or everything else 0


if __name__ == "__main__":
    sys.exit(main())
