"""MLServer. Its queues are histograms of what was waiting when a request came: no gauge says what waits now."""

from plimsoll.slo.server.canonical import Engine, counter, mean

ENGINE = Engine(
    "mlserver",
    "MLServer",
    ("8082/metrics",),
    (
        mean(
            "server.queue", "parallel_request_queue", "batch_request_queue", scale=1.0, flag="parallel_workers above 0"
        ),
        counter("server.requests", "model_infer_request_success_total"),
        counter("server.failures", "model_infer_request_failure_total"),
        mean("server.e2e", "model_infer_request_duration"),
    ),
)
