"""A look at a made-up run, as the harness would hand it over."""

from __future__ import annotations

from typing import Any

from plimsoll.reports.documents.live import Band, BurnPart, Intervals, LiveReport, Percentiles, RunPart

S = 1_000_000_000
MS = 1_000_000


def look(**changes: Any) -> LiveReport:
    """Ten seconds into a run of a minute, with an error and a slow stretch."""
    n = 10
    band = Band(n=[100] * n, p50=[20 * MS] * n, p90=[40 * MS] * n, p99=[80 * MS] * 9 + [None])
    report = LiveReport(
        run=RunPart(
            id="abc123", plimsoll="1.2.3", scenario="chat <b>", kind="server", url="http://h:1", protocol="openai-chat",
            workers=2
        ),
        stage="running", elapsed_ns=10 * S, left_ns=50 * S, fraction=1 / 6, sent=1000, done=990, failed=2, in_flight=10,
        planned=6000, planned_so_far=1000, planned_per_s=100.0, sent_per_s=99.5,
        metrics={"latency": Percentiles(n=988, failed=2, p50=20 * MS, p90=40 * MS, p99=80 * MS)},
        objectives=[
            BurnPart(
                objective="p99(latency) <= 50ms", indicator="latency", threshold_ns=50 * MS, allowed=0.01, n=990,
                bad=30,
                burn=30 / 9.9, spent=0.5, interval_n=[99] * n, interval_bad=[3] * n,
            )
        ],
        unfollowed=["max(latency) <= 1s"],
        intervals=Intervals(
            interval_ns=S, start_ns=0, end_ns=n * S, planned_per_s=[100.0] * n, sent_per_s=[100.0] * n,
            done_per_s=[99.0] * n,
            failed=[0] * 9 + [2], in_flight_max=[10] * n, bands={"latency": band},
        ),
        spreads={"latency": {512: 5, 776: 980, 783: 3, 900: 2}},
    )  # fmt: skip
    return report.model_copy(update=changes)
