"""What machine and which versions the figures are of, in lines for people. Names no host."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from plimsoll.harness.host.manifest import host_facts, package_version
from tests.bench.contestants import missing
from tests.bench.servers import nginx_path


def facts(load_before: float, stolen: float) -> list[str]:
    """One line a fact. ``load_before``: the 1-minute load average; ``stolen``: share of time the hypervisor took."""
    host = host_facts()
    return [
        f"date: {datetime.now(UTC):%Y-%m-%d}",
        f"processor: {host['cpu']}, {host['cpus_allowed']} of {host['cpus']} cores used",
        f"system: {host['os']}, Python {platform.python_version()}",
        f"load average before: {load_before:.2f}, after: {load():.2f} (the benchmark alone makes about 1.5); time "
        f"taken by the hypervisor: {stolen:.1%}",
        f"plimsoll {package_version()}, " + ", ".join(_versions()),
    ]


def _versions() -> list[str]:
    found = [_said(["wrk", "-v"], r"wrk (?:debian/)?([\w.-]+)", "wrk")] if missing("wrk") is None else []
    nginx = nginx_path()
    found += [_said([nginx, "-v"], r"nginx/([\w.]+)", "nginx")] if nginx else []
    for name in ("aiohttp", "uvloop", "orjson", "mlcommons-loadgen"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found


def _said(command: list[str], pattern: str, name: str) -> str:
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(pattern, told.stdout + told.stderr)
    return f"{name} {match[1] if match else 'of unknown version'}"


def busy_ticks() -> tuple[int, int]:
    """(ticks stolen by the hypervisor, all ticks) since boot, over all cores."""
    fields = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    return fields[7], sum(fields)


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]
