"""The manifest: versions, host, clock, seeds, plan fingerprint, command. What makes a run repeatable. No secrets."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

SCHEMA = "plimsoll.manifest/1"
_LIBRARIES = ("numpy", "uvloop", "httptools", "orjson", "pydantic", "pyarrow", "hdrhistogram", "scipy")


def package_version(name: str = "plimsoll-slo") -> str:
    """The installed version of a distribution, or "unknown"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def public_url(url: str) -> str:
    """A URL without user, password and query: what may be written down."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    host = parts.hostname or ""
    name = f"[{host}]" if ":" in host else host
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return urlunsplit((parts.scheme, name + port, parts.path, "", ""))


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        return platform.processor()
    return platform.machine()


def host_facts() -> dict[str, Any]:
    """This machine, as far as it bears on timing."""
    clock = time.get_clock_info("monotonic")
    return {
        "hostname": socket.gethostname(),
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "load_average": list(os.getloadavg()),
        "python": platform.python_version(),
        "clock": {"implementation": clock.implementation, "resolution_s": clock.resolution},
    }


def build(
    *,
    run_id: str,
    started_at: str,
    t0_wall_ns: int,
    t0_monotonic_ns: int,
    command: Sequence[str],
    scenario: Mapping[str, Any],
    target_url: str,
    model: str,
    bundled: Mapping[str, Any] | None,
    fingerprint: str,
    workers: int,
) -> dict[str, Any]:
    """The manifest of one run. Every argument must be free of secrets already."""
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "started_at": started_at,
        "t0_wall_ns": t0_wall_ns,
        "t0_monotonic_ns": t0_monotonic_ns,
        "plimsoll": package_version(),
        "libraries": {name: package_version(name) for name in _LIBRARIES},
        "host": host_facts(),
        "command": list(command) or list(sys.argv),
        "scenario_name": scenario.get("name", ""),
        "target": {
            "url": public_url(target_url) if target_url else "",
            "model": model,
            "bundled": dict(bundled) if bundled else None,
        },
        "seed": scenario.get("seed"),
        "plan_fingerprint": fingerprint,
        "workers": workers,
    }
