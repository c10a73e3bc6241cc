"""Triton's metrics, on a port of their own. Sums of microseconds over requests and over executions of batches."""

from plimsoll.slo.server.canonical import Engine, Reading, counter, gauge

_DONE = ("nv_inference_request_success",)


def _us(name: str, *families: str) -> Reading:
    return Reading(name, "mean", families, _DONE * len(families), 1e3)


ENGINE = Engine(
    "triton",
    "Triton",
    ("8002/metrics",),
    (
        gauge("server.queue", "nv_inference_pending_request_count"),
        Reading("server.batch", "mean", ("nv_inference_count",), ("nv_inference_exec_count",)),
        counter("server.requests", *_DONE),
        counter("server.failures", "nv_inference_request_failure"),
        _us("server.queue_time", "nv_inference_queue_duration_us"),
        _us("server.prefill_time", "nv_inference_compute_infer_duration_us"),
        _us("server.e2e", "nv_inference_request_duration_us"),
        Reading(
            "server.kv_usage",
            "gauge",
            ("nv_trt_llm_kv_cache_block_metrics",),
            where=(("kv_cache_block_type", "fraction"),),
        ),
        Reading("server.running", "gauge", ("nv_trt_llm_request_metrics",), where=(("request_type", "active"),)),
        gauge("gpu.utilisation", "nv_gpu_utilization"),
        gauge("gpu.memory", "nv_gpu_memory_used_bytes"),
        gauge("gpu.power", "nv_gpu_power_usage"),
        counter("gpu.energy", "nv_energy_consumption"),
    ),
    rank=45,
)
