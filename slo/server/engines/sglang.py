"""SGLang. Its gauge of the cache's hit rate is 0 after every decode report, so hits are read from token counters. With
priorities its gauges of requests have a series for all, and one for each priority besides.
"""

from plimsoll.slo.server.canonical import Engine, Reading, counter, gauge, mean

_ON = "--enable-metrics"

ENGINE = Engine(
    "sglang",
    "SGLang",
    ("/metrics",),
    (
        gauge("server.queue", "sglang:num_queue_reqs", flag=_ON, priority=""),
        gauge("server.running", "sglang:num_running_reqs", flag=_ON, priority=""),
        gauge("server.kv_usage", "sglang:token_usage", flag=_ON),
        counter("server.preempted", "sglang:num_retracted_requests_total", flag=f"{_ON} from release 0.5.6"),
        Reading(
            "server.prefix_hit", "mean", ("sglang:cached_tokens_total",), ("sglang:prompt_tokens_total",), flag=_ON
        ),
        counter("server.cached_tokens", "sglang:cached_tokens_total", flag=_ON),
        counter("server.prompt_tokens", "sglang:prompt_tokens_total", flag=_ON),
        counter("server.generated_tokens", "sglang:generation_tokens_total", flag=_ON),
        counter("server.requests", "sglang:num_requests_total", flag=_ON),
        counter("server.failures", "sglang:num_aborted_requests_total", flag=_ON),
        mean("server.queue_time", "sglang:queue_time_seconds", flag=f"{_ON} from release 0.5"),
        mean("server.prefill_time", "sglang:per_stage_req_latency_seconds", stage="prefill_forward"),
        mean("server.ttft", "sglang:time_to_first_token_seconds", flag=_ON),
        mean("server.itl", "sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds", flag=_ON),
        mean("server.e2e", "sglang:e2e_request_latency_seconds", flag=_ON),
    ),
    phases=("sglang:startup_latency_breakdown_seconds_max", "context", 1e9),
)
