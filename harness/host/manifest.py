"""The manifest says what makes a run repeatable: versions, host, clock, seeds, plan fingerprint, command. No
secrets."""

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

from plimsoll.harness.secrecy.redaction import redact
from plimsoll.slo.metrics.plugin import packages

SCHEMA = "plimsoll.manifest/1"
_LIBRARIES = ("numpy", "uvloop", "httptools", "orjson", "pydantic", "pyarrow", "hdrhistogram", "scipy")


def package_version(name: str = "plimsoll-slo") -> str:
    """The installed version of a distribution, or "unknown"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def public_url(url: str) -> str:
    """A URL without user, password and query, and no secret in its path: what may be written down. A host is none, even
    if it is called like a key.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    host = parts.hostname or ""
    name = f"[{host}]" if ":" in host else host
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return urlunsplit((parts.scheme, name + port, redact(parts.path), "", ""))


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
    started_at: str = "",
    t0_wall_ns: int = 0,
    t0_monotonic_ns: int = 0,
    command: Sequence[str],
    scenario: Mapping[str, Any],
    target_url: str,
    model: str,
    traceparent: float | None = None,
    bundled: Mapping[str, Any] | None,
    fingerprint: str,
    workers: int,
) -> dict[str, Any]:
    """The manifest of one run. Every argument must be free of secrets already. ``traceparent``: see ``Target``."""
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "started_at": started_at,
        "t0_wall_ns": t0_wall_ns,
        "t0_monotonic_ns": t0_monotonic_ns,
        "plimsoll": package_version(),
        "libraries": {name: package_version(name) for name in _LIBRARIES},
        **({"plugins": outside} if (outside := packages()) else {}),
        "host": host_facts(),
        "command": list(command) or list(sys.argv),
        "scenario_name": scenario.get("name", ""),
        "target": {
            "url": public_url(target_url) if target_url else "",
            "model": redact(model),  # a server may name a model after the key that asked for it
            "bundled": dict(bundled) if bundled else None,
        },
        "seed": scenario.get("seed"),
        "plan_fingerprint": fingerprint,
        "workers": workers,
        **({} if traceparent is None else {"traceparent": traceparent}),
    }


def absent(manifest: Mapping[str, Any]) -> list[str]:
    """Which packages with plug-ins a run was made with that are not installed here, in one sentence, if any is."""
    here = packages()
    gone = [f"{name} {made}" for name, made in (manifest.get("plugins") or {}).items() if name not in here]
    what = f"the run was made with plug-ins of {', '.join(gone)}, not installed here: what they add is missing"
    return [f"{what}. Install what you need of it"] if gone else []


#: Of what kind what is read of a run directory's files must be, where it is there at all: by its path.
_KINDS: Mapping[str, Mapping[str, type]] = {
    "manifest.json": {
        **dict.fromkeys(("run_id", "started_at", "plimsoll", "plan_fingerprint", "normaliser"), str),
        **dict.fromkeys(("scenario_sha256", "promises_sha256", "payloads_sha256"), str),
        **dict.fromkeys(("t0_wall_ns", "t0_monotonic_ns", "seed", "workers", "source_samples"), int),
        **dict.fromkeys(("host", "libraries", "plugins", "target", "timer", "calibration", "calibration.table"), dict),
        **dict.fromkeys(("calibration.table.host", "calibration.table.added"), dict),
        **dict.fromkeys(("command", "foreseen"), list),
        "traceparent": float,
    },
    "scenario.yaml": {
        **dict.fromkeys(("name", "description", "kind", "mode"), str),
        **dict.fromkeys(("target", "target.options", "params", "source", "stop", "cancel"), dict),
        **dict.fromkeys(("target.url", "target.protocol", "target.model"), str),
        "seed": int,
        "objectives": list,
    },
}
_CALLED = {str: "a text", int: "a whole number", float: "a fraction", dict: "a mapping", list: "a list of texts"}


def checked(name: str, held: object) -> dict[str, Any]:
    """What a file of a run directory holds, if it is as we write it. Raises ValueError that names what is not."""
    if not isinstance(held, dict):
        raise ValueError(f"{name} holds no mapping")
    for path, kind in _KINDS.get(name, {}).items():
        value: Any = held
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        fits = value is None or isinstance(value, kind) or (path, value) == ("cancel", "recorded")
        if kind is int and fits and value is not None:
            fits = not isinstance(value, bool) and abs(value) < (1 << 64 if path == "seed" else 1 << 63)
        if kind is list and fits and value is not None:
            fits = all(isinstance(one, str) for one in value)
        if not fits:
            raise ValueError(f"{path} of {name} is {str(value)[:60]!r}, not {_CALLED[kind]}")
    return held
