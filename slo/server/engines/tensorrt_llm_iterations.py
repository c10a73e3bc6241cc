"""TensorRT-LLM's plain ``/metrics``: JSON of the iterations since it was asked before, by whomever. It is read where it
is named; ``auto`` leaves it to whoever lives on it, and so it has no place. Its text stands above it.
"""

from plimsoll.slo.server.canonical import Engine, gauge

_ = "trtllm_iteration_"

ENGINE = Engine(
    "tensorrt_llm_iterations",
    "TensorRT-LLM's iterations",
    (),
    (
        gauge("server.queue", f"{_}numQueuedRequests"),
        gauge("server.running", f"{_}numActiveRequests"),
        gauge("server.batch", f"{_}scheduled"),
        gauge("server.kv_usage", f"{_}kvCacheStats_usedNumBlocks", over=(f"{_}kvCacheStats_maxNumBlocks",)),
        gauge("gpu.memory", f"{_}gpuMemUsage"),
    ),
    rank=55,
)
