"""Triton's statistics (``GET v2/models/stats``): exact, by model, in nanoseconds. They stand above its metrics."""

from plimsoll.slo.server.canonical import Engine, Reading, Sizes, counter

_ = "triton_statistics_"
_DONE = f"{_}inference_stats_success_count"


def _ns(name: str, part: str) -> Reading:
    return Reading(name, "mean", (f"{_}inference_stats_{part}_ns",), (f"{_}inference_stats_{part}_count",), 1.0)


ENGINE = Engine(
    "triton_statistics",
    "Triton's statistics",
    ("/v2/models/stats",),
    (
        Reading("server.batch", "mean", (f"{_}inference_count",), (f"{_}execution_count",)),
        counter("server.requests", _DONE),
        counter("server.failures", f"{_}inference_stats_fail_count"),
        _ns("server.queue_time", "queue"),
        _ns("server.prefill_time", "compute_infer"),
        _ns("server.e2e", "success"),
    ),
    rank=40,
    sizes=(Sizes((f"{_}batch_executions",)),),
)
