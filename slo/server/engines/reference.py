"""The reference server that Plimsoll brings along."""

from plimsoll.slo.server.canonical import Engine, Reading, Sizes, counter, gauge, mean

ENGINE = Engine(
    "reference",
    "Plimsoll's reference server",
    ("/metrics",),
    (
        gauge("server.queue", "reference_queue_depth", "reference_waiting"),
        gauge("server.running", "reference_running"),
        gauge("server.kv_usage", "reference_kv_blocks_used", over=("reference_kv_blocks",), flag="--model llm"),
        Reading("server.batch", "mean", ("reference_batched_total",), ("reference_batch_fill_count",)),
        Reading("server.busy", "mean", ("reference_busy_seconds_total",), ("reference_watched_seconds_total",)),
        counter("server.preempted", "reference_preempted"),
        counter("server.cached_tokens", "reference_prefix_hit_tokens_total"),
        counter("server.generated_tokens", "reference_output_tokens_total"),
        counter("server.requests", "reference_requests_total"),
        counter("server.failures", "reference_rejected_total"),
        mean("server.ttft", "reference_ttft_seconds"),
        mean("server.queue_time", "reference_stage_seconds", stage="queue"),
        mean("server.prefill_time", "reference_stage_seconds", stage="prefill"),
        mean("server.decode_time", "reference_stage_seconds", stage="decode"),
        gauge("host.rss", "reference_resident_bytes"),
    ),
    rank=20,
    sizes=(Sizes(("reference_batch_size_total",)),),
    phases=("reference_startup_seconds", "phase", 1e9),
)
