"""Ray Serve: what waits for a replica and what replicas work at, over all of its series. An engine inside stands above
it.
"""

from plimsoll.slo.server.canonical import Engine, counter, gauge, mean

ENGINE = Engine(
    "ray_serve",
    "Ray Serve",
    ("8080/metrics",),
    (
        gauge("server.queue", "ray_serve_deployment_queued_queries"),
        gauge("server.running", "ray_serve_replica_processing_queries", "ray_serve_num_ongoing_requests_at_replicas"),
        counter(
            "server.requests", "ray_serve_deployment_request_counter_total", "ray_serve_deployment_request_counter"
        ),
        counter("server.failures", "ray_serve_deployment_error_counter_total", "ray_serve_deployment_error_counter"),
        mean("server.e2e", "ray_serve_deployment_processing_latency_ms", scale=1e6),
    ),
    rank=60,
)
