"""``python -m tests.bench.known_queue``: does the search find the line of queues whose line is known?

``--simulated N``: N searches of each queue in virtual time, under the whole verdict: how near the closed form, how
often the interval holds it, and how many requests that takes. ``--defaults N``: the same as the command would search
with nothing but the objective given, its budget of 30 minutes included, where that is not enough for 2 %: what is
claimed has to hold. ``--real``: ``plimsoll search`` against the oracle as a queue, over loopback, one search a queue;
on a machine of two cores nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plimsoll.harness.run.promises import Asked
from plimsoll.harness.series.search.question import Texts, read
from plimsoll.slo.search.probe import Settings
from tests.bench.pinned import two_cores
from tests.bench.truth import pinned
from tests.e2e.oracle import oracle
from tests.simulated_queue import Clock, Queue, Service, promise, search, timed_search

RESOLUTION = 0.01
NEAR = 0.03
#: First load of a real search, as a share of the closed form.
START = 0.6


@dataclass(frozen=True, slots=True)
class Case:
    """A queue, the objective on it, and how many requests the shortest probe has; the longest has eight times as
    many.
    """

    name: str
    service: Service
    percent: str
    within: float
    base: int

    @property
    def q(self) -> float:
        return float(self.percent) / 100


CASES = (
    Case("M/D/1", "constant", "90", 8, 10_000),
    Case("M/D/1", "constant", "95", 10, 20_000),
    Case("M/M/1", "exponential", "90", 10, 20_000),
    Case("M/M/1", "exponential", "95", 20, 40_000),
)
REAL = (CASES[0], CASES[2])


@dataclass(frozen=True, slots=True)
class Cell:
    """An M/M/1 queue that serves ``capacity`` requests a second, and the objective on it."""

    capacity: int
    percent: str
    within: float

    @property
    def name(self) -> str:
        return f"{self.capacity}/s, p{self.percent} <= {self.within:g} services"


CELLS = (
    Cell(100, "99", 50),
    Cell(20, "95", 20),
    Cell(100, "95", 20),
    Cell(100, "90", 10),
    Cell(100, "50", 3),
)


@dataclass(frozen=True, slots=True)
class Defaulted:
    """A search as the command makes it; ``best`` and ``high`` are shares of the line, ``confidence`` is None if nothing
    is claimed.
    """

    outcome: str
    best: float
    high: float
    confidence: float | None
    probes: int
    requests: int

    @property
    def holds(self) -> bool:
        return self.best <= 1 <= self.high


def by_default(cell: Cell, seed: int) -> Defaulted:
    """One search in virtual time with the settings that the command takes by itself, its seed aside."""
    queue = Queue("exponential", service_ns=round(1e9 / cell.capacity))
    line = queue.line_per_s(float(cell.percent) / 100, cell.within)
    objective = promise(cell.percent, cell.within, queue)
    settings = read(None, {"url": "http://127.0.0.1:9", "seed": seed}, Asked(slo=[str(objective)]), Texts()).settings
    answer, probes = timed_search(queue, settings, [objective], Clock())
    return Defaulted(
        answer.outcome,
        (answer.best or 0.0) / line,
        answer.high / line,
        answer.confidence,
        len(probes),
        sum(probe.n for probe in probes),
    )


def held(found: Sequence[Defaulted]) -> tuple[float, float, bool]:
    """Of the answers that claim something: how many hold the line, how many they say do, and whether that agrees (2
    errors).
    """
    claims = [one for one in found if one.confidence is not None]
    if not claims:
        return 1.0, 0.0, True
    holding = float(np.mean([one.holds for one in claims]))
    said = float(np.mean([one.confidence or 0.0 for one in claims]))
    return holding, said, holding >= said - 2 * float(np.sqrt(said * (1 - said) / len(claims)))


def defaults(number: int, workers: int) -> int:
    """A table of ``number`` searches a cell; 1 where what is claimed does not hold."""
    failed = 0
    print(
        "| capacity, objective | answers that claim | line held | said | best above the line | outcomes | best / "
        "line: median | upper end: median | probes | requests |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(max_workers=workers) as pool:
        for cell in CELLS:
            found = list(pool.map(by_default, [cell] * number, range(number)))
            holding, said, agrees = held(found)
            failed |= not agrees
            counted = Counter(one.outcome for one in found).most_common()
            print(
                f"| {cell.name} | {np.mean([one.confidence is not None for one in found]):.0%} | {holding:.1%} | "
                f"{said:.0%} | {np.mean([one.best > 1 for one in found]):.1%} | "
                f"{', '.join(f'{name} {times}' for name, times in counted)} | "
                f"{np.median([one.best for one in found]):.2f} | {np.median([one.high for one in found]):.2f} | "
                f"{np.mean([one.probes for one in found]):.0f} | {np.mean([one.requests for one in found]):,.0f} |",
                flush=True,
            )
    return failed


@dataclass(frozen=True, slots=True)
class Searched:
    """One simulated search beside the closed form; ``best`` and ``high`` are shares of it."""

    best: float
    high: float
    confidence: float
    probes: int
    requests: int
    seconds: float


def simulate(case: Case, seed: int) -> Searched:
    """One search in virtual time; ``seconds`` is how long its probes would have sent."""
    queue = Queue(case.service)
    line = queue.line_per_s(case.q, case.within)
    settings = Settings("rate", 100.0, 1.0, resolution=RESOLUTION, seed=seed)
    answer, probes = search(queue, settings, [promise(case.percent, case.within, queue)], case.base)
    return Searched(
        (answer.best or 0.0) / line,
        answer.high / line,
        answer.confidence or 0.0,
        len(probes),
        sum(probe.n for probe in probes),
        sum(probe.n / probe.load for probe in probes),
    )


def simulated(number: int) -> int:
    """A table of ``number`` searches a case; 1 where the interval holds the line less often than it says."""
    failed = 0
    print(
        "| queue, objective | longest probe | best / line: min, median, max | within 3 % | upper end: median, max | "
        "line held | said | probes | requests |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)) // 2)) as pool:
        for case in CASES:
            found = list(pool.map(simulate, [case] * number, range(number)))
            best, high = np.array([one.best for one in found]), np.array([one.high for one in found])
            held = float(np.mean((best <= 1) & (high >= 1)))
            said = float(np.mean([one.confidence for one in found]))
            failed |= held < said - 2 * float(np.sqrt(said * (1 - said) / number))
            print(
                f"| {case.name} p{case.percent} <= {case.within:g} services | {8 * case.base:,} | {best.min():.3f}, "
                f"{np.median(best):.3f}, {best.max():.3f} | {np.mean(abs(best - 1) <= NEAR):.0%} | "
                f"{np.median(high):.3f}, {high.max():.3f} | {held:.0%} | {said:.0%} | "
                f"{np.mean([one.probes for one in found]):.0f} | {np.mean([one.requests for one in found]) / 1e6:.2f} "
                "M |",
                flush=True,
            )
    return int(failed)


def real(
    case: Case, service_us: int, folder: Path, *options: str, of: str = "latency", pin: bool = True
) -> dict[str, Any]:
    """``plimsoll search`` against the oracle; the document, with ``line``, ``exit`` and ``seconds``.

    ``of``: ``latency`` from when a request was due, or ``service_time`` from when it was sent, which a busy host's late
    sends don't blur.
    """
    queue = Queue(case.service, service_ns=service_us * 1000)
    line = queue.line_per_s(case.q, case.within)
    cores = two_cores()
    place = pinned if pin else nullcontext
    served = f"{service_us}us" if case.service == "constant" else f"exp:{service_us}us"
    with ExitStack() as stack:
        with place(cores.server):
            server = stack.enter_context(oracle("--service", served, "--truth", "0", "--spin", "30"))
        command = [
            sys.executable, "-m", "plimsoll", "search", "--url", server.url, "--protocol", "http", "--option",
            """body_text='{"x": 1}'""", "--over", "rate", "--start", f"{START * line:g}", "--lowest", f"{0.2 * line:g}",
            "--slo", str(promise(case.percent, case.within, queue, of)), "--resolution", f"{RESOLUTION:.0%}",
            "--probe", f"{case.base / line:.2f}s", "--longest", "8x", "--cooldown", "200ms", "--warmup", "500ms",
            "--out", str(folder), *options, "--json",
        ]  # fmt: skip
        begun = time.monotonic()
        with place(cores.client):
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3600, check=False)
    if done.returncode not in (0, 1, 3, 4):
        raise RuntimeError(f"plimsoll search ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"line": line, "exit": done.returncode, "seconds": time.monotonic() - begun}


def in_real(cases: Sequence[Case], service_us: int, keep: Path | None, of: str, pin: bool) -> int:
    """A table of one search a case; 1 where one is farther than 3 % from the closed form."""
    failed = 0
    print(
        "| queue, objective | service | closed form | best | best / line | interval / line | outcome | confidence | "
        "probes | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for number, case in enumerate(cases):
            folder = (keep or Path(temporary)) / f"{number}-{case.name.replace('/', '')}"
            found = real(case, service_us, folder, of=of, pin=pin)
            rate, line = found["rate_per_s"], found["line"]
            low, high = (None if end is None else end / line for end in rate["interval"])
            best = None if rate["best"] is None else rate["best"] / line
            failed |= best is None or abs(best - 1) > NEAR
            print(
                f"| {case.name} p{case.percent} <= {case.within:g} services | {service_us} us | {line:.1f}/s | "
                f"{rate['best']}/s | {_ratio(best)} | {_ratio(low)} to {_ratio(high)} | {found['outcome']} | "
                f"{found['interval_confidence']} | {len(found['probes'])} | {found['seconds']:.0f} |",
                flush=True,
            )
            for reason in found["reasons"]:
                print(f"  {reason}", file=sys.stderr)
    return int(failed)


def _ratio(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.known_queue", description=__doc__)
    parser.add_argument("--simulated", type=int, metavar="N", help="searches of each queue in virtual time")
    parser.add_argument(
        "--defaults", type=int, metavar="N", help="searches of each cell in virtual time, as the command makes them"
    )
    parser.add_argument("--workers", type=int, default=1, help="of --defaults: processes (default %(default)s)")
    parser.add_argument("--real", action="store_true", help="one search of each over loopback: some minutes")
    parser.add_argument("--case", type=int, choices=range(len(CASES)), help="of --real: only this one, counted from 0")
    parser.add_argument("--base", type=int, help="of --real: requests of the shortest probe, where not the case's own")
    parser.add_argument("--service-us", type=int, default=500, help="of --real (default %(default)s)")
    parser.add_argument(
        "--of", default="latency", choices=("latency", "service_time"), help="of --real: from due, or from sent"
    )
    parser.add_argument("--out", type=Path, help="of --real: keep the searches here")
    parser.add_argument(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="of --real: a core for each; on a busy host the scheduler does better",
    )
    given = parser.parse_args()
    if given.simulated is None and given.defaults is None and not given.real:
        parser.error("give --simulated N, --defaults N or --real")
    code = 0 if given.simulated is None else simulated(given.simulated)
    code |= 0 if given.defaults is None else defaults(given.defaults, given.workers)
    if given.real:
        cases = REAL if given.case is None else (CASES[given.case],)
        cases = tuple(replace(case, base=given.base or case.base) for case in cases)
        code |= in_real(cases, given.service_us, given.out, given.of, given.pin)
    return code


if __name__ == "__main__":
    sys.exit(main())
