"""llama.cpp's server. Releases of 2025 and later have no gauge of the KV cache; how full it is, its slots say. Prompt
tokens that it found in a slot's cache are no part of its prompt tokens, and its batch is the mean since it began.
"""

from plimsoll.slo.server.canonical import Engine, Reading, counter, gauge

_ON, _SLOTS = "--metrics", "--slots"

ENGINE = Engine(
    "llamacpp",
    "llama.cpp",
    ("/metrics", "/slots"),
    (
        gauge("server.queue", "llamacpp:requests_deferred", flag=_ON),
        gauge("server.running", "llamacpp:requests_processing", flag=_ON),
        gauge("server.kv_usage", "llamacpp_slot_usage", "llamacpp:kv_cache_usage_ratio", flag=_SLOTS),
        gauge("server.batch", "llamacpp:n_busy_slots_per_decode", flag=_ON),
        counter("server.prompt_tokens", "llamacpp:prompt_tokens_total", flag=_ON),
        counter("server.cached_tokens", "llamacpp:prompt_tokens_cached_total", flag=f"{_ON}, a release of 2026"),
        counter("server.generated_tokens", "llamacpp:tokens_predicted_total", flag=_ON),
        Reading(
            "server.itl",
            "mean",
            ("llamacpp:tokens_predicted_seconds_total",),
            ("llamacpp:tokens_predicted_total",),
            1e9,
            flag=_ON,
        ),
    ),
)
