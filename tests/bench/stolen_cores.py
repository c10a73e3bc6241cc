"""``python -m tests.bench.stolen_cores``: what do runs say on a machine whose cores others use as well?

``interactive-chat`` against the scripted server, both on the first two cores, where a small process on each of the two
burns in bursts of random length (exponential, 10 ms on average) for ``--stolen`` of the time, at ordinary niceness.
First ``--runs`` against a server that keeps the objectives easily, then as many against one that certainly breaks them.
Printed are the counts of outcomes and, per run, its lag and its reason. Exit code 0 if at most 1 in 40 of the former is
INVALID, and each of the latter a FAIL.

A run of the scenario takes 125 s. With ``--rate 24 --duration 20s`` it has the same 480 requests in a sixth of the time
(six times as many a second, so the generator has less room), and 40 runs take 20 minutes: the default. ``--rate 4
--duration 120s`` is the scenario as it stands. Every run is an ordinary ``plimsoll run``; nothing is repeated unless
``--retries`` says so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.e2e.plimsoll import PLIMSOLL, ROOT, server

#: Time to the first token of a server that keeps 200 ms easily, and of one that can't.
CALM, SLOWED = "30ms", "400ms"
BURST_S = 0.01
#: A run that takes longer is stuck.
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run said. ``lag_ms``: p99 and maximum of the generator's own lateness; ``ttft_ms``: its p99 (None:
    infinite).
    """

    server: str
    outcome: str
    exit_code: int
    attempts: int
    lag_ms: tuple[float, float]
    ttft_ms: float | None
    reasons: tuple[str, ...]


def thief(core: int, share: float, seconds: float, seed: int) -> None:
    """Burn ``share`` of a core in random bursts, for so long at most, and no longer than our parent lives."""
    os.sched_setaffinity(0, {core})
    draw, parent, end = random.Random(seed), os.getppid(), time.monotonic() + seconds
    while time.monotonic() < end and os.getppid() == parent:
        until = time.monotonic() + draw.expovariate(1 / BURST_S)
        while time.monotonic() < until:
            pass
        time.sleep(draw.expovariate(share / (1 - share) / BURST_S))


@contextmanager
def stolen(cores: Sequence[int], share: float, seconds: float) -> Iterator[None]:
    """That share of these cores is somebody else's."""
    me = [sys.executable, "-m", "tests.bench.stolen_cores", "--thief"]
    thieves = [
        subprocess.Popen([*me, str(core), str(share), str(seconds), str(number)], cwd=ROOT)
        for number, core in enumerate(cores if share else ())
    ]
    try:
        yield
    finally:
        for process in thieves:
            process.kill()
            process.wait()


def one(url: str, name: str, extra: Sequence[str], folder: Path) -> Seen:
    """One run, and what it said. Raises RuntimeError where it said nothing."""
    command = [*PLIMSOLL, "run", "interactive-chat", "--url", url, "--out", str(folder), "--json", *extra]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=ROOT)
    if not done.stdout:
        raise RuntimeError(f"no verdict (exit code {done.returncode}): {done.stderr[-2000:]}")
    report = json.loads(done.stdout)
    lag, ttft = report["validity"]["generator_lag_ns"], report["metrics"]["ttft"]["p99"]
    return Seen(
        server=name,
        outcome=report["verdict"]["outcome"],
        exit_code=done.returncode,
        attempts=max(1, len(report["attempts"])),
        lag_ms=((lag["p99"] or 0) / 1e6, (lag["max"] or 0) / 1e6),
        ttft_ms=None if ttft is None else ttft / 1e6,
        reasons=tuple(report["verdict"]["reasons"]),
    )


def measure(wanted: argparse.Namespace) -> list[Seen]:
    """All runs, one after the other, said as they come."""
    found: list[Seen] = []
    extra = ["--rate", str(wanted.rate), "--duration", wanted.duration, "--retries", str(wanted.retries), *wanted.flags]
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)  # for us and all that we start
    for name, ttft in (("calm", CALM), ("slowed", SLOWED)):
        with server("--model", "scripted", "--ttft", ttft, "--itl", "10ms") as target:
            for number in range(wanted.runs):
                with (
                    tempfile.TemporaryDirectory(prefix="plimsoll-stolen-") as scratch,
                    stolen(cores, wanted.stolen, LIMIT_S),
                ):
                    seen = one(target.url, name, extra, Path(scratch) / "run")
                found.append(seen)
                p99, most = seen.lag_ms
                slow = "infinite" if seen.ttft_ms is None else f"{seen.ttft_ms:.0f} ms"
                why = f"; {seen.reasons[0]}" if seen.reasons and seen.outcome == "INVALID" else ""
                print(
                    f"{name:6} {number + 1:3}/{wanted.runs} {seen.outcome:12} attempts {seen.attempts}, lag p99 "
                    f"{p99:6.2f} ms, max {most:6.1f} ms, TTFT p99 {slow}{why}",
                    flush=True,
                )
    return found


def kept(found: Sequence[Seen], runs: int) -> bool:
    """The bound: at most one in forty is INVALID, and a certain failure is always said."""
    invalid = Counter(seen.server for seen in found if seen.outcome == "INVALID")
    failed = sum(seen.outcome == "FAIL" for seen in found if seen.server == "slowed")
    return invalid["calm"] * 40 <= max(runs, 40) and failed == runs


def main() -> int:
    """Entry point."""
    if sys.argv[1:2] == ["--thief"]:
        thief(int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=40, help="runs of each server (40)")
    parser.add_argument("--stolen", type=float, default=0.3, help="share of each core that others burn (0.3)")
    parser.add_argument("--rate", type=float, default=24.0, help="requests per second (24; the scenario has 4)")
    parser.add_argument("--duration", default="20s", help="of each run (20s; the scenario has 120s)")
    parser.add_argument("--retries", type=int, default=0, help="of each run (0)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep what every run said")
    parser.add_argument("flags", nargs="*", metavar="FLAG", help="after --: further flags of plimsoll run")
    wanted = parser.parse_args()
    if not 0 <= wanted.stolen < 1 or wanted.runs < 1:
        parser.error("--stolen is a share below 1, --runs at least 1")
    found = measure(wanted)
    for name in ("calm", "slowed"):
        counts = Counter(seen.outcome for seen in found if seen.server == name)
        print(f"{name}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    if wanted.json is not None:
        wanted.json.write_text(json.dumps([asdict(seen) for seen in found], indent=1) + "\n")
    return 0 if kept(found, wanted.runs) else 1


if __name__ == "__main__":
    sys.exit(main())
