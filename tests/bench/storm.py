"""``python -m tests.bench.storm [ROW ...]``: both tables of docs/guide/clients.md, a line a row (default: all of them,
in some three minutes on a quiet host). A row is a server of its own, with faults that count from its first request, and
one run.

Storm: the server stands still for a second and pays for refusals; what comes after is the clients' doing. Hedges: one
replica of twenty is slow at once, or a share of sequences slows whoever shares their steps.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from plimsoll.harness.run.rundir import open_sealed
from plimsoll.slo.records.records import Status
from tests.e2e.plimsoll import plimsoll_here, server

S = 1_000_000_000
#: The storm's length, and where its second lies in it; how long hedges are watched.
SECONDS, STALLED, LONGER = 9, (2, 3), 16
STORM = ("--model", "scripted", "--ttft", "20ms", "--itl", "2ms", "--fault", f"stall=at:{STALLED[0]}s,for:1s")
RETRY: dict[str, Any] = {
    "on": [503],
    "max": 10,
    "backoff": "50ms..400ms",
    "jitter": "none",
    "honour_retry_after": False,
}
STORMS: dict[str, dict[str, Any]] = {
    "no-budget": {"retry": RETRY},
    "jitter": {"retry": {**RETRY, "jitter": "full"}},
    "backoff": {"retry": {**RETRY, "jitter": "full", "backoff": "500ms..8s"}},
    "retry-after": {"retry": {**RETRY, "jitter": "full", "honour_retry_after": True}},
    "budget": {"retry": {**RETRY, "budget": "10%"}},
    "budget-jitter": {"retry": {**RETRY, "budget": "10%", "jitter": "full"}},
    "amplification": {"retry": RETRY, "max_amplification": 3},
}
SLOW = {
    "stalled_replica": (60, "scripted", "stalled_replica=n:20,by:400ms", "--ttft", "30ms", "--itl", "2ms"),
    "straggler": (15, "llm", "straggler=p:0.05,by:30ms", "--preset", "tiny", "--device", "cpu"),
}
HEDGES = {
    f"{fault}{'-' if after else ''}{after}": (fault, {"hedge": {"after": after}} if after else None)
    for fault in SLOW
    for after in ("", "p90", "p95")
}


def run(folder: Path, rate: int, seconds: int, client: dict[str, Any] | None, *arguments: str) -> tuple[Any, Any, str]:
    """Records and report of one run against a server with these arguments, and why it ended early."""
    scenario = {
        "name": "storm", "kind": "server", "params": {"rate": rate}, "client": client,
        "source": {"kind": "synthetic_text", "prompt_tokens": 32, "output_tokens": 8},
        "stop": {"min_queries": 1, "min_duration": f"{seconds}s"},
    }  # fmt: skip
    (folder / "s.yaml").write_text(yaml.safe_dump(scenario))
    with server(*arguments) as served:
        plimsoll_here("run", "s.yaml", "--url", served.url, "--out", "r", cwd=folder)
    report = json.loads((folder / "r" / "report.json").read_text())
    ended = next((text for text in report["validity"]["reasons"] if "attempts were sent" in text), "")
    return open_sealed(folder / "r").records.measured(), report, ended


def storm(folder: Path, row: str) -> str:
    records, report, ended = run(
        folder, 60, SECONDS, STORMS[row], *STORM, "--fault", "retry_storm=limit:12,cost:10ms,retry_after:1s"
    )
    failed, due = records["status"] != Status.OK, records["due_ns"]
    after = np.flatnonzero(failed & (due >= STALLED[1] * S))
    last_s = (due[after[-1]] / S - STALLED[1]) if len(after) else -1.0
    well = f"{last_s:.1f} s after the stall" if last_s < SECONDS - STALLED[1] - 1 else "never ends"
    ratio = f"{report['client']['amplification']:.2f}"
    told = ended.split(" (")[0] or (well if last_s >= 0 else "none")
    return f"| {row} | {ratio} | {int(failed.sum())} of {len(records)} | {told} |"


def hedge(folder: Path, row: str) -> str:
    fault, client = HEDGES[row]
    rate, model, text, *more = SLOW[fault]
    _, report, _ = run(folder, rate, LONGER, client, "--model", model, *more, "--fault", text)
    shown = [f"{report['metrics'][name][p] / 1e6:.1f}" for name in ("ttft", "latency") for p in ("p50", "p90", "p99")]
    told = report.get("client") or {"amplification": 1, "hedges": 0, "hedge_wins": 0}
    hedges = f"{told['hedges']}, {told['hedge_wins']} of them answered"
    return f"| {row} | {' / '.join(shown[:3])} | {' / '.join(shown[3:])} | {told['amplification']:.3f} | {hedges} |"


def main() -> int:
    rows = sys.argv[1:] or [*STORMS, *HEDGES]
    if unknown := [row for row in rows if row not in (*STORMS, *HEDGES)]:
        print(f"no row {', '.join(unknown)}. There are {', '.join((*STORMS, *HEDGES))}", file=sys.stderr)
        return 2
    for table, heads, of in (
        (STORMS, ("client", "attempts per request", "failed", "the last failure"), storm),
        (HEDGES, ("against, hedged after", "TTFT p50 / p90 / p99, ms", "latency, ms", "attempts", "hedges"), hedge),
    ):
        if wanted := [row for row in rows if row in table]:
            print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for row in wanted:
            with tempfile.TemporaryDirectory() as folder:
                print(of(Path(folder), row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
