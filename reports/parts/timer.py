"""The host's timer as a probe found it just before the load, and what was made of it. Reads the manifest's note; judges nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

_RANKS = ("p50", "p90", "p99", "max")


class Timer(BaseModel, frozen=True, extra="forbid"):
    """How late the host woke a sleeper, and how long the engine therefore stayed awake before each due time."""

    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int
    sleeps: int = Field(description="of 1 ms each")
    spin_ns: int
    core_share: float = Field(description="of a core at most, for staying awake, in each worker")


def timer_part(found: Mapping[str, Any]) -> Timer | None:
    """The manifest's ``timer``; None of an older run, or a damaged one."""
    late = found.get("late_ns")
    try:
        named = {f"{name}_ns": late[name] for name in _RANKS} if isinstance(late, Mapping) else {}
        return Timer(**named, **{name: found[name] for name in ("sleeps", "spin_ns", "core_share")})
    except (KeyError, ValueError):
        return None
