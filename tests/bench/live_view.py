"""``python -m tests.bench.live_view [PAIRS]``: what a page with five readers costs a run: pairs of runs without and with ``--live``.

2,000 streams a second over two workers for 10 s against the oracle. Of each: CPU seconds of the coordinator (its children are not in it), p99
of the generator's own lag, and whether the run is VALID.
"""  # noqa: E501

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from tests.e2e.oracle import oracle

READERS = 5
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process, without its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def read(url: str) -> None:
    """One reader of the page's events, until they end."""
    try:
        with urllib.request.urlopen(f"{url}/events", timeout=60) as answer:
            for _ in answer:
                pass
    except OSError:
        return


def once(url: str, live: bool, out: Path) -> tuple[float, float, str]:
    """(coordinator's CPU s, p99 of the generator's lag in ms, validity) of one run."""
    command = [
        sys.executable, "-m", "plimsoll", "run", "--url", url, "--protocol", "openai-chat", "--model", "m", "--kind", "server", "--rate", "2000",  # noqa: E501
        "--duration", "10s", "--workers", "2", "--prompt-tokens", "8", "--output-tokens", "4", "--slo", "p99(ttft) <= 1s", "--out", str(out),  # noqa: E501
        *(["--live", "0"] if live else []),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found: list[str] = []

    def listen() -> None:
        for line in process.stderr or ():
            found.extend(re.findall(r"http://127\.0\.0\.1:\d+", line) if "live" in line.lower() else [])

    threading.Thread(target=listen, daemon=True).start()
    readers: list[threading.Thread] = []
    spent = 0.0
    while process.poll() is None:
        if found and not readers:
            readers = [threading.Thread(target=read, args=(found[0],), daemon=True) for _ in range(READERS)]
            for reader in readers:
                reader.start()
        try:
            spent = max(spent, cpu_s(process.pid))
        except (OSError, IndexError, ValueError):
            break
        time.sleep(0.05)
    process.wait()
    assert bool(readers) == live, "the page's address was not found on stderr"
    report = json.loads((out / "report.json").read_text())
    lag = report["metrics"]["generator_lag"]["p99"] / 1e6
    return spent, lag, report["validity"]["outcome"]


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print("| run | page | coordinator's CPU, s | lag p99, ms | validity |\n|---|---|---|---|---|")
    with oracle("--truth", "0") as server, tempfile.TemporaryDirectory() as folder:
        for number in range(2 * pairs):
            live = number % 4 in (1, 2)  # off on, on off
            spent, lag, validity = once(server.url, live, Path(folder) / str(number))
            print(
                f"| {number + 1} | {'5 readers' if live else '-'} | {spent:.2f} | {lag:.2f} | {validity} |", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
