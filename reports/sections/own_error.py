"""The generator's own error, as a part of the report: what it added by its calibration, and how late it was in this run.

Reads the calibration out of the manifest, so a report says the same wherever it is made. A calibration counts only for a
run that it covers: the same engine, the same stamps, and not more load than was found honest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.reports.parts.parts import ErrorSpread, GeneratorError
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import Validity

UNKNOWN = "not calibrated on this machine: run `plimsoll calibrate`"
_BEYOND = "the calibration covers less load than this run's (see the warnings)"


def generator_error_part(manifest: Mapping[str, Any], seen: Validity, facts: GeneratorFacts) -> GeneratorError:
    """``validity.generator_error``. Of the manifest: ``calibration`` with ``table``, ``note`` and ``beyond``."""
    run = GeneratorError(lag_p99_ns=seen.generator_lag_ns.p99, stamp=seen.stamp, note=UNKNOWN)
    told = manifest.get("calibration")
    if not isinstance(told, Mapping):
        return run if not facts.no_endpoint else run.model_copy(update={"note": "the null protocol has no endpoint"})
    table = told.get("table")
    added = table.get("added") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or not isinstance(added, Mapping):
        busy = "this machine was too busy when it was calibrated: run `plimsoll calibrate` again"
        return run.model_copy(update={"note": str(told.get("note") or busy)})
    why = _why_not(table, added, seen, facts, bool(told.get("beyond")))
    known: dict[str, Any] = {
        "calibrated_at": str(table.get("measured_at", "")),
        "engine": str(table.get("host", {}).get("engine", "")),
        "note": why,
    }
    if not why:
        known |= {
            "added_ttft_ns": _spread(added.get("ttft_error_ns")),
            "added_itl_ns": _spread(added.get("itl_error_ns")),
            "at_token_events_per_s": added.get("token_events_per_s"),
        }
    return run.model_copy(update=known)


def _why_not(
    table: Mapping[str, Any], added: Mapping[str, Any], seen: Validity, facts: GeneratorFacts, over: bool
) -> str:
    engine = "native" if facts.engine_cpu else "python"
    calibrated = table.get("host", {}).get("engine")
    if calibrated != engine:
        return f"calibrated with the {calibrated} engine, and this run used the {engine} one: its error is not known"
    if float(added.get("kernel_share", 0.0)) > seen.kernel_share + 0.01:
        return "calibrated with kernel stamps, and this run has userland ones: its error is larger and not known"
    return _BEYOND if over else ""


def _spread(told: object) -> ErrorSpread | None:
    if not isinstance(told, Mapping) or told.get("p99") is None:
        return None
    return ErrorSpread(p50=int(told["p50"]), p99=int(told["p99"]))
