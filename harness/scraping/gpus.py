"""The GPUs of this host, as NVIDIA's management library tells of them. Where it is not there, there are none."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_uint, c_ulonglong, c_void_p
from typing import Any

from plimsoll.harness.wire.exposition import Written, quoted

_LIBRARY = "libnvidia-ml.so.1"
#: family -> the function of one number that gives it.
_NUMBERS = {
    "nvml_power_milliwatts": ("nvmlDeviceGetPowerUsage", c_uint),
    "nvml_energy_millijoules_total": ("nvmlDeviceGetTotalEnergyConsumption", c_ulonglong),
    "nvml_clock_event_reasons": ("nvmlDeviceGetCurrentClocksThrottleReasons", c_ulonglong),
}
_SM_CLOCK = 1


class Gpus:
    """All that the driver shows us; opened once."""

    def __init__(self, library: str = _LIBRARY) -> None:
        self._devices: list[tuple[str, c_void_p]] = []
        try:
            self._library: Any = ctypes.CDLL(library)
            if self._library.nvmlInit_v2() == 0:
                self._find()
        except (OSError, AttributeError):
            return

    def _find(self) -> None:
        count = c_uint()
        self._library.nvmlDeviceGetCount_v2(byref(count))
        for index in range(count.value):
            device, uuid = c_void_p(), (c_char * 96)()
            if self._library.nvmlDeviceGetHandleByIndex_v2(index, byref(device)) == 0:
                self._library.nvmlDeviceGetUUID(device, uuid, 96)
                self._devices.append((quoted(gpu=index, uuid=uuid.value.decode()), device))

    def read(self) -> dict[Written, float]:
        """What each says now; what one does not know is left out."""
        found: dict[Written, float] = {}
        for labels, device in self._devices:
            for family, (function, of) in _NUMBERS.items():
                value = of()
                if getattr(self._library, function)(device, byref(value)) == 0:
                    found[family, labels] = value.value
            clock, rates, memory = c_uint(), (c_uint * 2)(), (c_ulonglong * 3)()
            if self._library.nvmlDeviceGetClockInfo(device, _SM_CLOCK, byref(clock)) == 0:
                found["nvml_sm_clock_mhz", labels] = clock.value
            if self._library.nvmlDeviceGetUtilizationRates(device, rates) == 0:
                found["nvml_gpu_utilisation_percent", labels] = rates[0]
            if self._library.nvmlDeviceGetMemoryInfo(device, memory) == 0:
                found["nvml_memory_used_bytes", labels] = memory[2]
        return found
