"""How often a verdict by sums of parts is wrong where the truth is known, and how many bytes it takes.

    python -m tests.bench.parts [--runs 300] [--n 5000 50000] [--agents 4 40]
    python -m tests.bench.parts --size      bytes of every question, and of its answers

Each run is a simulated queue whose requests are dealt to agents by lot, judged whole and in parts: PASS and FAIL where
the true share of bad requests is the allowed one, and the design effect of parts over that of the whole. Windows hold
an eighth of the requests at most, so that nothing is known of most neighbours.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.signal import lfilter

from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.parts import course as windows
from plimsoll.slo.parts.evidence import Rows
from plimsoll.slo.parts.judge_parts import judge_parts
from plimsoll.slo.parts.part import Part
from plimsoll.slo.parts.wire import Of, Question, merge
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import FloatArray, Records, from_columns
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distance import Distance
from plimsoll.slo.validity.generator import GeneratorFacts

MS = 1_000_000
ALLOWED = ("0.5", "0.1", "0.01")
FACTS = GeneratorFacts(open_loop=True, planned=0, planned_queries=2, process="poisson")
_BURN_IN = 20_000


def mm1(rng: np.random.Generator, n: int, load: float) -> tuple[FloatArray, FloatArray]:
    """(gaps between arrivals, sojourn times) of an M/M/1 queue in equilibrium, in units of the mean service."""
    gaps, service = rng.exponential(1 / load, n + _BURN_IN), rng.exponential(1, n + _BURN_IN)
    walk = np.cumsum(np.append(0.0, service[:-1] - gaps[1:]))
    return gaps[_BURN_IN:], (walk - np.minimum.accumulate(walk) + service)[_BURN_IN:]


def autoregressive(rng: np.random.Generator, n: int, load: float) -> tuple[FloatArray, FloatArray]:
    """The same of lognormal times whose logarithms are an AR(1) series."""
    noise = rng.standard_normal(n + 2_000)
    return rng.exponential(1, n), np.exp(lfilter([(1 - load * load) ** 0.5], [1, -load], noise)[2_000:])


PROCESSES: dict[str, tuple[Callable[[np.random.Generator, int, float], tuple[FloatArray, FloatArray]], float]] = {
    "i.i.d.": (autoregressive, 0.0),
    "M/M/1 0.7": (mm1, 0.7),
    "M/M/1 0.9": (mm1, 0.9),
    "AR(1) 0.8": (autoregressive, 0.8),
    "AR(1) 0.95": (autoregressive, 0.95),
}


def run_of(gaps: FloatArray, took: FloatArray, unit_ns: int = MS) -> Records:
    """Records of requests that take so many units."""
    due = np.cumsum(gaps * unit_ns).astype(np.int64)
    done = due + (took * unit_ns).astype(np.int64) + 1
    return from_columns(len(due), due_ns=due, ready_ns=due, sent_ns=due, done_ns=done, attempts=1)


def dealt(records: Records, agents: int, rng: np.random.Generator) -> list[Records]:
    """By lot, as a plan is."""
    owner = rng.integers(0, agents, len(records))
    return [records.select(np.flatnonzero(owner == one)) for one in range(agents)]


def rows_of(parts: Sequence[Records]) -> Rows:
    """What is asked of parts in this process."""
    there = [Part(part, FACTS) for part in parts]
    return Rows(lambda asked: merge([one.digest(asked) for one in there]), Of(), (), planned=True)


def cell(name: str, n: int, agents: int, runs: int) -> tuple[Counter[tuple[str, str, str]], FloatArray]:
    """(outcomes by percentile and way; design effect of parts over the whole's)."""
    make, load = PROCESSES[name]
    true = np.sort(np.concatenate([make(np.random.default_rng([7, i]), 200_000, load)[1] for i in range(10)]))
    found: Counter[tuple[str, str, str]] = Counter()
    ratio = np.empty(runs)
    for i in range(runs):
        rng = np.random.default_rng([1, n, agents, i])
        records = run_of(*make(rng, n, load))
        rows = rows_of(dealt(records, agents, rng))
        latency = (records["done_ns"] - records["due_ns"]).astype(np.float64)
        ordered = np.sort(latency)
        whole = share.series(latency, np.arange(n), share.course(records, planned=True))
        parted = rows.series("latency")
        ratio[i] = parted.memory.design / whole.memory.design
        for allowed in ALLOWED:
            limit = float(true[int((1 - float(allowed)) * len(true))]) * MS
            for way, laid in (("whole", whole), ("parts", parted)):
                far = Distance(ordered / limit, laid.memory)
                seen = share.Counted(n, int(np.count_nonzero(latency > limit)), laid.memory.design, laid.memory)
                failed = share.p_many(seen, allowed, far) <= 0.05
                found[allowed, way, "FAIL"] += failed
                found[allowed, way, "PASS"] += not failed and share.p_few(seen, allowed, far) <= 0.05
    return found, ratio


def level(runs: int, lengths: Sequence[int], agents: Sequence[int]) -> None:
    """The table of docs/evidence/statistics.md."""
    print(
        "| process | requests | agents | p50 whole, parts | p90 | p99 | design effect, parts over whole: p5, p50, p95 |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in PROCESSES:
        for n in lengths:
            windows.SAMPLE = n // 8
            for k in agents:
                found, ratio = cell(name, n, k, runs)
                shown = [
                    ", ".join(
                        "/".join(f"{100 * found[allowed, way, outcome] / runs:.1f}" for outcome in ("PASS", "FAIL"))
                        for way in ("whole", "parts")
                    )
                    for allowed in ALLOWED
                ]
                spread = ", ".join(f"{one:.2f}" for one in np.quantile(ratio, (0.05, 0.5, 0.95)))
                print(f"| {name} | {n:,} | {k} | {' | '.join(shown)} | {spread} |", flush=True)


def size(n: int, agents: int) -> None:
    """Bytes both ways of judging a queue's run, by kind of question, and the CPU that it takes."""
    rng = np.random.default_rng(3)
    records = run_of(*mm1(rng, n, 0.7))
    promises = Promises(tuple(map(parse, ("p99(latency) <= 40ms", "p50(ttfb) <= 40ms", "ratio(error) <= 1%"))))
    there = [Part(part, FACTS, promises.objectives) for part in dealt(records, agents, rng)]
    asked: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    back: Counter[str] = Counter()

    def ask(question: bytes) -> Iterator[bytes]:
        kind = Question.from_bytes(question).kind
        asked[kind] += 1
        sent[kind] += len(question)
        for part in there:
            answer = part.answer(question)
            back[kind] += len(answer)
            yield answer

    began = time.process_time()
    found = judge_parts(lambda question: [*ask(question)], FACTS, promises)
    took = time.process_time() - began
    print("| question | times | bytes of it | bytes back, an agent |\n|---|---|---|---|")
    for kind, times in asked.items():
        print(f"| {kind} | {times} | {sent[kind]:,} | {back[kind] // agents:,} |")
    total = sum(sent.values()), sum(back.values()) // agents
    print(f"| all | {sum(asked.values())} | {total[0]:,} | {total[1]:,} |")
    print(f"\n{n:,} requests of {agents} agents: {found.verdict.outcome}, {took:.1f} s of CPU for all agents together")


def main() -> None:
    """Print what is asked for."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.parts")
    options.add_argument("--runs", type=int, default=300)
    options.add_argument("--n", nargs="*", type=int, default=[5_000, 50_000])
    options.add_argument("--agents", nargs="*", type=int, default=[4, 40])
    options.add_argument("--size", action="store_true")
    asked = options.parse_args()
    if asked.size:
        size(asked.n[0], asked.agents[0])
    else:
        level(asked.runs, asked.n, asked.agents)


if __name__ == "__main__":
    main()
