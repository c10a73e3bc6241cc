"""Earlier attempts of a run, as its directory has them: what its manifest notes of them, and which are still there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The folder of earlier attempts, in the run directory of the last one.
ATTEMPTS = "attempts"
_OUTCOMES = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")


def noted(manifest: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The manifest, in which each earlier attempt says whether it is still ``kept`` below the run directory.

    Raises ValueError where the manifest notes something else than attempts.
    """
    attempts = manifest.get(ATTEMPTS)
    if attempts is None:
        return dict(manifest)
    if not isinstance(attempts, list):
        raise ValueError("attempts of manifest.json is no list")
    found = []
    for place, one in enumerate(attempts, 1):
        if not (isinstance(one, dict) and _is_attempt(one)):
            raise ValueError(f"attempt {place} in manifest.json is no attempt: number, outcome and reasons")
        found.append({**one, "kept": _is_whole(folder / ATTEMPTS / str(one["number"]))})
    return {**manifest, ATTEMPTS: found}


def instead(folder: Path) -> str:
    """What may be opened in place of a run directory that is not whole, because its last attempt was cut off; "" for nothing."""
    there = [one for one in (folder / ATTEMPTS).glob("*") if one.name.isdecimal() and _is_whole(one)]
    if not there:
        return ""
    last = max(there, key=lambda one: int(one.name))
    return f"its last attempt did not come to its end, and attempt {last.name} is whole. Give {last} to read that one, or run it again"


def _is_whole(folder: Path) -> bool:
    return (folder / "manifest.json").is_file()


def _is_attempt(one: Mapping[str, Any]) -> bool:
    number, reasons = one.get("number"), one.get("reasons", [])
    return (
        isinstance(number, int)
        and not isinstance(number, bool)
        and number >= 1
        and one.get("outcome", "INVALID") in _OUTCOMES
        and isinstance(reasons, list)
        and all(isinstance(text, str) for text in reasons)
    )
