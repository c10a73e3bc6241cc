"""Text Generation Inference: counters without ``_total``, tokens as sums of histograms, no time to the first token."""

from plimsoll.slo.server.canonical import Engine, counter, gauge, mean

ENGINE = Engine(
    "tgi",
    "TGI",
    ("/metrics",),
    (
        gauge("server.queue", "tgi_queue_size"),
        gauge("server.running", "tgi_batch_current_size"),
        gauge("server.batch", "tgi_batch_current_size"),
        counter("server.prompt_tokens", "tgi_request_input_length_sum"),
        counter("server.generated_tokens", "tgi_request_generated_tokens_sum"),
        counter("server.requests", "tgi_request_count"),
        counter("server.failures", "tgi_request_failure"),
        mean("server.queue_time", "tgi_request_queue_duration"),
        mean("server.itl", "tgi_request_mean_time_per_token_duration"),
        mean("server.e2e", "tgi_request_duration"),
    ),
)
