"""TensorRT-LLM's own server. Its plain ``/metrics`` is JSON that each reader takes away from the next: not read."""

from plimsoll.slo.server.canonical import Engine, counter, gauge, mean


def _all(name: str) -> tuple[str, str]:
    return f"trtllm_{name}", f"trtllm:{name}"


_ITERATIONS = "enable_iter_perf_stats: true"
_REQUESTS = "return_perf_metrics: true"

ENGINE = Engine(
    "tensorrt_llm",
    "TensorRT-LLM",
    ("/prometheus/metrics",),
    (
        gauge("server.queue", *_all("num_requests_waiting"), flag=_ITERATIONS),
        gauge("server.running", *_all("num_requests_running"), flag=_ITERATIONS),
        gauge("server.kv_usage", *_all("kv_cache_utilization"), flag=_ITERATIONS),
        gauge("server.batch", *_all("num_scheduled_requests"), flag=_ITERATIONS),
        gauge("gpu.memory", *_all("gpu_memory_usage_bytes"), flag=_ITERATIONS),
        counter("server.cached_tokens", *_all("prompt_cached_tokens_total"), flag=_REQUESTS),
        counter("server.prompt_tokens", *_all("prompt_tokens_total"), flag=_REQUESTS),
        counter("server.generated_tokens", *_all("generation_tokens_total"), flag=_REQUESTS),
        counter("server.requests", *_all("request_success_total"), flag=_REQUESTS),
        counter("server.failures", *_all("request_error_total"), flag=_REQUESTS),
        mean("server.queue_time", *_all("request_queue_time_seconds"), flag=_REQUESTS),
        mean("server.prefill_time", *_all("request_prefill_time_seconds"), flag=_REQUESTS),
        mean("server.decode_time", *_all("request_decode_time_seconds"), flag=_REQUESTS),
        mean("server.ttft", *_all("time_to_first_token_seconds"), flag=_REQUESTS),
        mean("server.itl", *_all("time_per_output_token_seconds"), flag=_REQUESTS),
        mean("server.e2e", *_all("e2e_request_latency_seconds"), flag=_REQUESTS),
    ),
)
