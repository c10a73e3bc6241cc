"""KServe's own model server, which times its stages and counts nothing else; an engine inside stands above it."""

from plimsoll.slo.server.canonical import Engine, counter, mean

ENGINE = Engine(
    "kserve",
    "KServe",
    ("/metrics",),
    (
        counter("server.requests", "request_predict_seconds_count"),
        mean("server.prefill_time", "request_predict_seconds"),
    ),
    rank=60,
)
