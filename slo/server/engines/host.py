"""The host itself: Linux of a process and what it started, the driver of its GPUs, the meters of its processors."""

from plimsoll.slo.server.canonical import THROTTLED, Engine, Reading, counter, gauge

_NONE = "a driver whose library can be loaded here"

ENGINE = Engine(
    "host",
    "this host",
    (),
    (
        gauge("host.rss", "proc_resident_bytes"),
        counter("host.cpu", "proc_cpu_seconds_total"),
        counter("host.energy", "rapl_energy_joules_total", flag="a readable /sys/class/powercap"),
        gauge("gpu.utilisation", "nvml_gpu_utilisation_percent", scale=0.01, flag=_NONE),
        gauge("gpu.memory", "nvml_memory_used_bytes", flag=_NONE),
        gauge("gpu.power", "nvml_power_milliwatts", scale=1e-3, flag=_NONE),
        counter("gpu.energy", "nvml_energy_millijoules_total", scale=1e-3, flag=_NONE),
        gauge("gpu.clock", "nvml_sm_clock_mhz", scale=1e6, flag=_NONE),
        Reading("gpu.throttle", "gauge", ("nvml_clock_event_reasons",), bits=THROTTLED, flag=_NONE),
    ),
    rank=10,
)
