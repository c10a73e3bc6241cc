"""What every model of a scenario file has in common: exact types, no unknown keys, frozen."""

from __future__ import annotations

from pydantic import ConfigDict

STRICT = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
