"""NVIDIA's DCGM exporter, whose own period may be 30 s. ``GPU_UTIL`` only says that some kernel ran."""

from plimsoll.slo.server.canonical import THROTTLED, Engine, Reading, counter, gauge

_FILE = "that field in the exporter's --collectors file"

ENGINE = Engine(
    "dcgm",
    "the DCGM exporter",
    ("9400/metrics",),
    (
        gauge("gpu.utilisation", "DCGM_FI_DEV_GPU_UTIL", scale=0.01, flag=_FILE),
        gauge("gpu.sm_active", "DCGM_FI_PROF_SM_ACTIVE", flag=_FILE),
        gauge("gpu.memory", "DCGM_FI_DEV_FB_USED", scale=2.0**20, flag=_FILE),
        gauge("gpu.power", "DCGM_FI_DEV_POWER_USAGE", flag=_FILE),
        counter("gpu.energy", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", scale=1e-3, flag=_FILE),
        gauge("gpu.clock", "DCGM_FI_DEV_SM_CLOCK", scale=1e6, flag=_FILE),
        Reading(
            "gpu.throttle",
            "gauge",
            ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
            bits=THROTTLED,
            flag=_FILE,
        ),
    ),
    rank=30,
)
