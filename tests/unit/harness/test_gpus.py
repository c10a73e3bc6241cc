"""NVIDIA's management library, as the driver's own declarations call it: a library in C stands in for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from plimsoll.harness.scraping.gpus import Gpus
from plimsoll.harness.wire.exposition import labels_of
from plimsoll.slo.server.canonical import name_of
from plimsoll.slo.server.courses import courses
from plimsoll.slo.server.served import Asked, Origin, Served, Track

#: Two devices; the second knows neither its energy nor its reasons (3: not supported).
LIBRARY = r"""
#include <stdio.h>
typedef struct { int number; } *Device;
typedef struct { unsigned int gpu, memory; } Rates;
typedef struct { unsigned long long total, free, used; } Memory;
static struct { int number; } devices[2] = {{0}, {1}};
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, Device *d) { *d = (Device)&devices[i]; return i > 1; }
int nvmlDeviceGetUUID(Device d, char *to, unsigned int n) { snprintf(to, n, "GPU-%d", d->number); return 0; }
int nvmlDeviceGetPowerUsage(Device d, unsigned int *mw) { *mw = 300500 + d->number; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(Device d, unsigned long long *mj) { *mj = 5000; return d->number ? 3 : 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long *r) { *r = 0x40; return d->number ? 3 : 0; }
int nvmlDeviceGetClockInfo(Device d, int kind, unsigned int *mhz) { *mhz = kind == 1 ? 1980 : 7; return 0; }
int nvmlDeviceGetUtilizationRates(Device d, Rates *r) { r->gpu = 40 + 20 * d->number; r->memory = 5; return 0; }
int nvmlDeviceGetMemoryInfo(Device d, Memory *m) { m->total = 9; m->free = 8; m->used = 7000000000ull; return 0; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_every_figure_is_read_into_its_name(tmp_path: Path) -> None:
    source, library = tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so.1"
    source.write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    values = Gpus(str(library)).read()
    assert sum(family == "nvml_energy_millijoules_total" for family, _ in values) == 1
    tracks = [
        Track("a", family, labels_of(labels), name_of(family), np.array([0]), np.array([value], float))
        for (family, labels), value in values.items()
    ]
    now = np.array([0])
    found = courses(Served({"a": Asked(Origin("a", "process 1", 1, 1, 0), now, now, now, now * 1.0)}, tuple(tracks)))[0]
    assert {name: one.values[0] for name, one in found.items() if one.kind == "gauge"} == pytest.approx(
        {"gpu.utilisation": 0.5, "gpu.memory": 1.4e10, "gpu.power": 601.001, "gpu.clock": 1.98e9, "gpu.throttle": 1}
    )
    assert found["gpu.energy"].families == ("nvml_energy_millijoules_total",)


def test_without_the_library_there_are_none(tmp_path: Path) -> None:
    assert Gpus(str(tmp_path / "none.so")).read() == {}
