"""vLLM, alone or inside Ray Serve, which calls its families ``ray_vllm_*``. Names of release 0.6 (V0) to 0.32 (V1)."""

from plimsoll.slo.server.canonical import Engine, Reading, Sizes, counter, gauge, mean


def _all(*names: str) -> tuple[str, ...]:
    """Of each release what vLLM calls it, and what Ray does, whose names have no colon."""
    return tuple(f"{prefix}{name}" for name in names for prefix in ("vllm:", "ray_vllm_", "ray_vllm:"))


_HITS = ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total")
_QUERIES = ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total")

ENGINE = Engine(
    "vllm",
    "vLLM",
    ("/metrics",),
    (
        gauge("server.queue", *_all("num_requests_waiting")),
        gauge("server.running", *_all("num_requests_running")),
        gauge("server.kv_usage", *_all("kv_cache_usage_perc", "gpu_cache_usage_perc")),
        counter("server.preempted", *_all("num_preemptions_total", "num_preemptions")),
        Reading("server.prefix_hit", "mean", _all(*_HITS), _all(*_QUERIES), flag="--enable-prefix-caching"),
        counter("server.cached_tokens", *_all(*_HITS), flag="--enable-prefix-caching"),
        counter("server.prompt_tokens", *_all("prompt_tokens_total", "prompt_tokens")),
        counter("server.generated_tokens", *_all("generation_tokens_total", "generation_tokens")),
        counter("server.requests", *_all("request_success_total", "request_success")),
        counter("server.failures", *_all("admission_rejections_total"), flag="--max-num-queued-reqs"),
        mean("server.queue_time", *_all("request_queue_time_seconds")),
        mean("server.prefill_time", *_all("request_prefill_time_seconds")),
        mean("server.decode_time", *_all("request_decode_time_seconds")),
        mean("server.ttft", *_all("time_to_first_token_seconds")),
        mean("server.itl", *_all("inter_token_latency_seconds", "time_per_output_token_seconds")),
        mean("server.e2e", *_all("e2e_request_latency_seconds")),
    ),
    sizes=(Sizes(_all("iteration_tokens_total_bucket"), "le", "tokens", exact=False),),
)
