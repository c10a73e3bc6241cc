"""How many live audio streams one machine plays on time: the figures of docs/evidence/performance.md, section Live
streams.

``python -m tests.bench.live_streams [STREAMS] [FRAME_MS] [SECONDS] [WORKERS]`` runs ``plimsoll run`` with that many
WebSocket sessions at once, each 16 kHz PCM in frames of FRAME_MS on absolute deadlines, against ``live_sink`` on the
last core, and prints what a frame cost the generator, how late frames left, and what the run was judged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from plimsoll.slo.records import tables
from tests.bench.pinned import ROOT, on, two_cores

RATE = 16_000
#: Frames between two partial transcripts.
EVERY = 10


def wire_bytes(payload: int) -> int:
    """A masked frame with that payload on the wire (RFC 6455 section 5.2)."""
    return payload + 4 + (2 if payload < 126 else 4 if payload < 65_536 else 10)


def scenario(port: int, streams: int, frame_ms: int, seconds: int, workers: int, sounds: Path) -> dict[str, Any]:
    return {
        "name": "live-streams",
        "kind": "concurrency",
        "params": {"concurrency": streams},
        "target": {
            "url": f"ws://127.0.0.1:{port}",
            "protocol": "websocket",
            "options": {"text_path": "text", "final_path": "is_final", "audio": {"frame": f"{frame_ms}ms"}},
        },
        "source": {"kind": "audio", "files": [str(sounds)]},
        "stop": {"min_queries": streams, "max_queries": streams, "min_duration": "0s"},
        "timeout": f"{seconds + 30}s",
        "workers": workers,
    }


def main(streams: int = 1000, frame_ms: int = 20, seconds: int = 10, workers: int = 1) -> str:
    """One line of figures. Raises RuntimeError if the run left no records."""
    from plimsoll.scenarios.media.sound import wav_bytes

    cores = two_cores()
    frame = RATE * frame_ms // 1000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tone = (8000 * np.sin(np.arange(RATE * seconds) * 0.1)).astype(np.int16)
        (folder / "tone.wav").write_bytes(wav_bytes(tone, RATE))
        frames = seconds * 1000 // frame_ms
        arguments = [str(wire_bytes(frame * 2)), str(frames), str(EVERY)]
        with on(cores.server):
            sink = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.live_sink", *arguments],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        if sink.stdin is None or sink.stdout is None:
            raise RuntimeError("the sink was started without pipes")
        port = json.loads(sink.stdout.readline())["port"]
        asked = scenario(port, streams, frame_ms, seconds, workers, folder / "tone.wav")
        (folder / "s.json").write_text(json.dumps(asked))
        run = [sys.executable, "-m", "plimsoll", "run", str(folder / "s.json"), "--out", str(folder / "run"), "--json"]
        allowed = os.sched_getaffinity(0)
        if workers == 1:
            os.sched_setaffinity(0, {cores.client})
        try:
            done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=seconds + 120)
        finally:
            os.sched_setaffinity(0, allowed)
            sink.stdin.close()
        sink_s = json.loads(sink.stdout.readlines()[-1])["cpu_s"]
        sink.wait()
        if not (folder / "run" / "requests.parquet").is_file():
            raise RuntimeError(done.stderr[-2000:])
        return told(folder / "run", json.loads(done.stdout), sink_s, frames * streams)


def told(run: Path, report: dict[str, Any], sink_s: float, planned: int) -> str:
    """The line for a finished run."""
    records = tables.load(run)
    lags, _ = records.ragged("frame_lag_ns")
    generator = json.loads((run / "generator.json").read_text())
    cpu = sum(generator["facts"]["worker_cpu"])
    p50, p99, worst = np.percentile(lags, [50, 99, 100]) / 1e6 if len(lags) else (np.nan,) * 3
    return (
        f"{len(records)} streams, {int(records.ok.sum())} ok, {len(lags):,} of {planned:,} frames; frame lag p50 "
        f"{p50:.2f} ms, p99 {p99:.2f} ms, max {worst:.1f} ms; generator CPU {cpu:.2f} of a core; sink {sink_s:.1f} s; "
        f"{report['validity']['outcome']} {report['validity']['reasons']}"
    )


if __name__ == "__main__":
    print(main(*map(int, sys.argv[1:5])))
