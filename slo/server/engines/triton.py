"""Triton's metrics, on a port of their own. Sums of microseconds over requests and over executions of batches."""

from plimsoll.slo.server.canonical import Engine, Reading, counter, gauge, mean

_DONE = ("nv_inference_request_success",)
_GPU = "--allow-gpu-metrics=true, on a host with GPUs"


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
        mean(
            "server.ttft",
            "nv_inference_first_response_histogram_ms",
            scale=1e6,
            flag="--metrics-config histogram_latencies=true",
        ),
        _us("server.e2e", "nv_inference_request_duration_us"),
        Reading(
            "server.kv_usage",
            "gauge",
            ("nv_trt_llm_kv_cache_block_metrics",),
            where=(("kv_cache_block_type", "fraction"),),
        ),
        Reading("server.running", "gauge", ("nv_trt_llm_request_metrics",), where=(("request_type", "active"),)),
        gauge("gpu.utilisation", "nv_gpu_utilization", flag=_GPU),
        gauge("gpu.memory", "nv_gpu_memory_used_bytes", flag=_GPU),
        gauge("gpu.power", "nv_gpu_power_usage", flag=_GPU),
        counter("gpu.energy", "nv_energy_consumption", flag=_GPU),
    ),
    rank=45,
)
