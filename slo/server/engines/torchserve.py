"""TorchServe, on a port of its own. Its latencies are counters in microseconds, and ``QueueTime`` a gauge in
milliseconds: the last request's. Of requests over gRPC there are no latencies, and refused ones count.
"""

from plimsoll.slo.server.canonical import Engine, Reading, counter, gauge

_DONE = "ts_inference_requests_total"
_ON = "metrics_mode=prometheus"

ENGINE = Engine(
    "torchserve",
    "TorchServe",
    ("8082/metrics",),
    (
        counter("server.requests", _DONE, flag=_ON),
        Reading("server.queue_time", "mean", ("ts_queue_latency_microseconds",), (_DONE,), 1e3, flag=_ON, mute=True),
        Reading("server.e2e", "mean", ("ts_inference_latency_microseconds",), (_DONE,), 1e3, flag=_ON, mute=True),
        gauge("gpu.utilisation", "GPUUtilization", scale=0.01, flag=_ON),
        gauge("gpu.memory", "GPUMemoryUsed", scale=2.0**20, flag=_ON),
    ),
)
