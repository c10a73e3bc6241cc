"""TensorFlow Serving, whose page there is with a ``--monitoring_config_file``. Times are in microseconds. It has no
gauge of what waits, and counts failures among requests, by their status.
"""

from plimsoll.slo.server.canonical import Engine, counter, mean

_ON = "--monitoring_config_file"
_BATCHES = f"--enable_batching, {_ON}"


def _batches(name: str) -> tuple[str, ...]:
    """Of TensorFlow's own runtime, and of its successor."""
    return tuple(f":tensorflow:serving:{of}:{name}" for of in ("batching_session", "saved_model_with_batching"))


ENGINE = Engine(
    "tf_serving",
    "TensorFlow Serving",
    ("/monitoring/prometheus/metrics",),
    (
        counter("server.requests", ":tensorflow:serving:request_count", flag=_ON),
        counter("server.failures", ":tensorflow:serving:request_count", flag=_ON, status="!OK"),
        mean("server.batch", *_batches("processed_batch_size"), scale=1.0, flag=_BATCHES),
        mean("server.queue_time", *_batches("queuing_latency"), scale=1e3, flag=_BATCHES),
        mean("server.prefill_time", ":tensorflow:serving:runtime_latency", scale=1e3, flag=_ON),
        mean("server.e2e", ":tensorflow:serving:request_latency", scale=1e3, flag=_ON),
    ),
    phases=(":tensorflow:cc:saved_model:load_latency", "model_path", 1e3),
)
