"""TensorFlow Serving, whose page there is with a ``--monitoring_config_file``. Times are in microseconds."""

from plimsoll.slo.server.canonical import Engine, counter, gauge, mean

_ON = "--monitoring_config_file"

ENGINE = Engine(
    "tf_serving",
    "TensorFlow Serving",
    ("/monitoring/prometheus/metrics",),
    (
        gauge("server.queue", ":tensorflow:serving:batching_session:queue_size", flag=_ON),
        counter("server.requests", ":tensorflow:serving:request_count", flag=_ON),
        counter("server.failures", ":tensorflow:serving:request_error_count", flag=_ON),
        mean("server.batch", ":tensorflow:serving:batching_session:batch_size", scale=1.0, flag=_ON),
        mean("server.queue_time", ":tensorflow:serving:batching_session:queuing_latency", scale=1e3, flag=_ON),
        mean("server.prefill_time", ":tensorflow:serving:runtime_latency", scale=1e3, flag=_ON),
        mean("server.e2e", ":tensorflow:serving:request_latency", scale=1e3, flag=_ON),
    ),
    phases=(":tensorflow:cc:saved_model:load_latency", "model_path", 1e3),
)
