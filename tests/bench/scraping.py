"""``python -m tests.bench.scraping [PAIRS]``: what scraping costs a run: pairs of runs without and with a page of
200 kB that is read once a second. 1,000 answers a second for 10 s against the oracle.

Of each: CPU of the senders as a share of one core, and p99 of the generator's own lag. The law: both change by less
than 2 %, in the median over the pairs. Beside them the CPU of the process that asks, which is no sender.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.oracle import oracle
from tests.e2e.test_server_metrics import pages, said

LAW = 0.02
LINE = 'vllm:request_queue_time_seconds_bucket{{engine="{}",le="{}.0",model_name="m"}} 1.0\n'
PAGE = "# TYPE vllm:request_queue_time_seconds histogram\n" + "".join(LINE.format(i // 20, i % 20) for i in range(2500))


def once(url: str, out: Path, *flags: str) -> tuple[float, float, float, str]:
    """(senders' CPU, p99 of the lag in ms, CPU s of who asks, validity) of one run."""
    load = ["--protocol", "openai-chat", "--model", "m", "--kind", "server", "--rate", "1000", "--duration", "10s"]
    sizes = ["--prompt-tokens", "8", "--output-tokens", "4", "--out", str(out), *flags]
    command = [sys.executable, "-m", "plimsoll", "run", "--url", url, *load, *sizes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stderr + done.stdout
    report = json.loads((out / "report.json").read_text())
    asked = report["server"]["cpu_s"] if flags else 0.0
    lag, valid = report["metrics"]["generator_lag"]["p99"] / 1e6, report["validity"]["outcome"]
    return sum(report["validity"]["worker_cpu"]), lag, asked, valid


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    changes: list[tuple[float, float]] = []
    print(f"a page of {len(PAGE):,} bytes\n\n| pair | CPU | with | lag p99, ms | with | who asks, s | |")
    print("|---|---|---|---|---|---|---|")
    with oracle("--truth", "0") as target, pages(said(PAGE.encode())) as url, tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            found = {}
            for scraped in (pair % 2 == 0, pair % 2 == 1):
                flags = ["--server-metrics", url] if scraped else []
                found[scraped] = once(target.url, Path(folder) / f"{pair}{scraped}", *flags)
            off, on = found[False], found[True]
            cells = [f"{one:.3f}" for one in (off[0], on[0], off[1], on[1], on[2])]
            print("|", " | ".join([str(pair + 1), *cells, f"{off[3]} {on[3]}"]), "|", flush=True)
            changes.append((on[0] / off[0] - 1, on[1] / off[1] - 1))
    middle = [statistics.median(column) for column in zip(*changes, strict=True)]
    print(f"\nmedian change: CPU {middle[0]:+.2%}, lag p99 {middle[1]:+.2%} (the law: less than {LAW:.0%})")
    return int(any(one >= LAW for one in middle))


if __name__ == "__main__":
    sys.exit(main())
