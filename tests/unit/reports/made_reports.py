"""Fixed synthetic runs and the reports built from them: no random generator, so that golden files never drift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from plimsoll.reports.blocks.document import Block, Cell, On, Row
from plimsoll.reports.format import formats
from plimsoll.reports.report import Report, build
from plimsoll.slo.judge import judge
from plimsoll.slo.objectives.objective import Objective, parse
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import COLUMNS, Phase, Records, Status, TokensFrom, from_arrays, offsets_of
from plimsoll.slo.validity.generator import GeneratorFacts
from tests.memory_held import memory_held

MS = 1_000_000
S = 1_000_000_000

MANIFEST: Mapping[str, Any] = MappingProxyType(
    {
        "run_id": "20260311-140512-7f3a",
        "started_at": "2026-03-11T14:05:12+00:00",
        "t0_wall_ns": 1_773_237_912_000_000_000,
        "plimsoll": "0.1.0",
        "host": {"hostname": "bench-01", "cpu": "AMD EPYC 9354", "cpus": 32, "clock": {"resolution_s": 1e-09}},
        "libraries": {"numpy": "2.4.0"},
        "command": ["plimsoll", "run", "chat", "--url", "https://me:pw@api.example.test/v1?key=s3cret"],
        "scenario_name": "chat",
        "target": {"url": "https://me:pw@api.example.test/v1/chat/completions?key=s3cret"},
        "seed": 20260311,
        "plan_fingerprint": "b3d1f0c4a2e95877",
        "workers": 2,
    }
)
SCENARIO: Mapping[str, Any] = MappingProxyType(
    {
        "name": "Chat under steady load",
        "kind": "server",
        "description": "Short prompts, streamed answers",
        "target": {"url": "https://api.example.test/v1/chat/completions", "protocol": "openai"},
    }
)


def spread(n: int, step: float) -> npt.NDArray[np.float64]:
    """n points that fill 0..1 evenly in any stretch (a Weyl sequence)."""
    return np.mod(np.arange(1, n + 1) * step, 1.0)


def records(
    n: int = 2000,
    *,
    rate: float = 50.0,
    tokens: bool = True,
    fail_every: int = 0,
    lag_ns: int = 40_000,
    warmup: int = 0,
    slow: float = 1.0,
    queue_ns: int = 0,
) -> Records:
    """n requests at a constant ``rate``; a slower stretch from 55 % to 70 % of the run; every k-th one fails.

    With ``queue_ns`` each request waits longer than the one before, the last one that long.
    """
    columns: dict[str, Any] = {name: np.full(n, -1, np.int64) for name in COLUMNS}
    due = (np.arange(n) / rate * S).astype(np.int64) - (warmup * int(S / rate))
    at = np.arange(n) / max(n, 1)
    busy = np.where((at > 0.55) & (at < 0.7), 1.6, 1.0) * slow
    u, v = spread(n, 0.6180339887498949), spread(n, 0.7548776662466927)
    ttft = ((60 + 40 * u + 300 * u**24) * busy * MS).astype(np.int64)
    gap = ((9 + 4 * v + 20 * v**40) * busy * MS).astype(np.int64)
    out = (8 + 24 * spread(n, 0.5698402909980532)).astype(np.int64)
    failed = np.zeros(n, bool)
    if fail_every:
        failed[fail_every - 1 :: fail_every] = True
    lag = (lag_ns * (0.5 + v)).astype(np.int64)
    ttft += (queue_ns * at).astype(np.int64)
    ttft += 2 * lag  # a late request is answered late; its first byte comes half way to the first token
    counts = np.where(failed | (not tokens), 0, out)
    last = due + ttft + (out - 1) * gap if tokens else due + ttft
    columns |= {
        "query_id": np.arange(n),
        "sample_ix": np.zeros(n),
        "due_ns": due,
        "ready_ns": due + lag // 2,
        "sent_ns": due + lag,
        "headers_ns": np.where(failed, -1, due + ttft // 2),
        "first_byte_ns": np.where(failed, -1, due + ttft // 2),
        "done_ns": np.where(failed, due + 900 * MS, last + 50_000),
        "status": np.where(failed, np.where(np.arange(n) % 3 == 0, Status.TIMEOUT, Status.REFUSED), Status.OK),
        "stamp": np.zeros(n),
        "phase": np.where(np.arange(n) < warmup, Phase.WARMUP, Phase.MEASURE),
        "tokens_from": np.full(n, TokensFrom.USAGE if tokens else TokensFrom.NONE),
        "n_in_from": np.full(n, TokensFrom.USAGE if tokens else TokensFrom.NONE),
        "worker": np.zeros(n),
        "bytes_out": np.full(n, 400),
        "bytes_in": np.full(n, 4000),
        "attempts": np.ones(n),
        "n_chunks": counts,
        "error": np.where(failed, np.where(np.arange(n) % 3 == 0, 0, 1), -1),
    }
    chunks = np.zeros(0, np.int64)
    if tokens:
        columns |= {"n_in": np.full(n, 128), "n_out": np.where(failed, -1, out)}
        columns["first_token_ns"] = np.where(failed, -1, due + ttft)
        columns["last_token_ns"] = np.where(failed, -1, last)
        row = np.repeat(np.arange(n), counts)
        place = np.arange(counts.sum()) - np.repeat(offsets_of(counts)[:-1], counts)
        chunks = (due + ttft)[row] + place * gap[row]
    errors = ("no byte for 900 ms", "503 <script>alert('x')</script> | queue is full")
    return from_arrays(columns, chunks, offsets_of(counts), errors, ())


def facts(made: Records, **changed: Any) -> GeneratorFacts:
    """What a healthy generator would say of these records."""
    n = int(np.count_nonzero(made.in_measure))
    elapsed = int(made["due_ns"].max()) if n else 0
    told: dict[str, Any] = {"open_loop": True, "planned": n, "planned_queries": n, "process": "constant"}
    return GeneratorFacts(**(told | {"elapsed_ns": elapsed} | changed))


def report(
    made: Records, objectives: tuple[str, ...] = (), scenario: Mapping[str, Any] = SCENARIO, **changed: Any
) -> Report:
    """The report of these records under objectives as text.

    One slow stretch, as these records have it, is a memory as long as the run, and would leave nothing decided: it is
    held at none, so that each outcome has a report.
    """
    with memory_held():
        return built(MANIFEST, scenario, made, facts(made, **changed), [parse(text) for text in objectives])


def built(
    manifest: Mapping[str, Any],
    scenario: Mapping[str, Any],
    made: Records,
    facts: GeneratorFacts,
    objectives: Sequence[Objective] = (),
    **promised: Any,
) -> Report:
    """The report of these records, judged by these objectives."""
    return build(manifest, scenario, made, judge(made, facts, Promises(tuple(objectives), **promised)))


GOOD = ("p99(ttft) <= 500ms", "p90(tpot) <= 40ms", "ratio(good) >= 97%", "ttft <= 400ms", "tpot <= 60ms")


@cache
def case(name: str) -> Report:
    """One report for each way a run can end."""
    return {
        "pass": lambda: report(records(), GOOD),
        "fail": lambda: report(records(fail_every=100), ("p99(ttft) <= 120ms", *GOOD[1:], "rate(good) >= 40/s")),
        "invalid": lambda: report(records(lag_ns=60 * MS), GOOD, planned=2_100),
        "too_late_to_tell": lambda: report(records(lag_ns=50 * MS), ("p99(ttft) <= 430ms", *GOOD[1:])),
        "unstable": lambda: report(records(queue_ns=10 * S), ("p50(ttft) <= 60s", "ratio(error) <= 1%")),
        "inconclusive": lambda: report(records(120), GOOD),
        "measured": lambda: report(records(warmup=100)),
        "latency_only": lambda: report(records(tokens=False), ("p99(latency) <= 500ms",)),
        "all_failed": lambda: report(records(200, fail_every=1), ("p99(ttft) <= 500ms", "ratio(error) <= 1%")),
        "one": lambda: report(records(1)),
        "nothing": lambda: report(records(10, warmup=10), ("p99(ttft) <= 500ms",)),
    }[name]()


@cache
def rendered(name: str, kind: str) -> bytes:
    """A case in a format, rendered once for all tests that only read it."""
    return formats()[kind].render(case(name))


CASES = (
    "pass",
    "fail",
    "invalid",
    "unstable",
    "inconclusive",
    "measured",
    "latency_only",
    "all_failed",
    "one",
    "nothing",
)


Kind = TypeVar("Kind")


def every(blocks: Sequence[Block], kind: type[Kind]) -> Iterator[Kind]:
    """The blocks of a kind that a page shows, at any depth."""
    for block in blocks:
        if not block.on & On.PAGE:
            continue
        if isinstance(block, kind):
            yield block
        yield from every(getattr(block, "blocks", ()), kind)


def texts(row: Row) -> list[str]:
    """The cells of a row as text."""
    return [cell.text if isinstance(cell, Cell) else cell for cell in row.cells]


#: Text that tries to break out of every format.
HOSTILE = "<script>alert(1)</script> | `x` @you #1 https://evil.test \x00\x1b[31m \u202e é\n\"'&]]>"


def hostile() -> Report:
    """A report whose every free string tries to break out of its format."""
    made = records(40, fail_every=10)
    scenario = {
        "name": HOSTILE,
        "kind": HOSTILE,
        "description": HOSTILE,
        "target": {"url": HOSTILE, "protocol": HOSTILE},
    }
    return report(replace(made, errors=(HOSTILE, HOSTILE + "2")), GOOD, scenario, worker_faults=(HOSTILE,))
