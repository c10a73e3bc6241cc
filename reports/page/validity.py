"""The page's panel on the generator and on the run itself: every check with its limit, merged chunks, and steadiness.

Translates the report's parts into words; finds nothing out on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plimsoll.reports.parts.parts import MergedChunks, Validity
from plimsoll.reports.sections.steadiness import Drift, Proposal, SteadinessPart
from plimsoll.reports.sentences import words
from plimsoll.reports.wording import units


def check_rows(validity: Validity) -> list[dict[str, Any]]:
    """Every check, the broken ones first."""
    ordered = sorted(validity.checks, key=lambda check: check.ok)
    return [{"name": check.name, "ok": check.ok, "seen": check.detail or check.seen} for check in ordered]


def merged_sentence(merged: MergedChunks) -> str:
    """How many chunks carry the time of another one; empty where none does."""
    if not merged.count:
        return ""
    late = (
        ""
        if merged.uncertainty_p99_ns is None
        else f", at most {units.duration(merged.uncertainty_p99_ns)} too late (p99)"
    )
    return (
        f"{units.many(merged.count, 'chunk')} ({units.percent(merged.share, 3)}) came in one read with a later one and "
        f"carry its time{late}."
    )


def steadiness_panel(part: SteadinessPart | None) -> dict[str, Any] | None:
    """Warm-up, drift and steady stretch in words; None where nothing was looked at."""
    if part is None:
        return None
    return {
        "notes": [words.sentence(note) for note in part.notes],
        "facts": [*_warmup(part.warmup), *_stretch(part)],
        "drift": [_drift(drift) for drift in part.drift],
        "metric": part.metric,
        "windows": max(len(part.edges_ns) - 1, 0),
    }


def cut_marks(part: SteadinessPart | None) -> list[tuple[int, str]]:
    """Where the proposed cut is marked on charts over the run's time."""
    if part is None or part.warmup is None or not part.warmup.proposed:
        return []
    return [(part.warmup.until_ns, "proposed end of warm-up")]


def _warmup(found: Proposal | None) -> list[tuple[str, str]]:
    if found is None:
        return [("Warm-up", "not judged: fewer than 100 values")]
    if found.incident:
        return [("Warm-up", f"none to leave out: {found.incident}")]
    if found.too_short:
        return [("Warm-up", "may be longer than half of the run")]
    if not found.proposed:
        return [("Warm-up", "none to leave out")]
    levels = ""
    if found.before_ns is not None and found.after_ns is not None:
        levels = f"; median {units.duration(found.before_ns)} before, {units.duration(found.after_ns)} after"
    return [
        (
            "Warm-up (MSER-5)",
            f"the first {units.duration(found.until_ns)}, {units.many(found.drop, 'request')}{levels}",
        ),
        ("Left out of the numbers", "nothing: the cut is a proposal"),
    ]


def _stretch(part: SteadinessPart) -> list[tuple[str, str]]:
    found = part.steady
    if found is None:
        return []
    if found.since_ns is None or found.until_ns is None:
        flat = (
            found.verdict == "not_found" and bool(part.drift) and all(drift.direction == "none" for drift in part.drift)
        )
        levels = "none covers half of the run: its levels move up and down, with no trend either way"
        return [("Steady stretch", levels if flat else found.verdict.replace("_", " "))]
    span = (
        f"{units.duration(found.since_ns)} to {units.duration(found.until_ns)}"
        if found.since_ns
        else (f"0 s to {units.duration(found.until_ns)}")
    )
    return [("Steady stretch", f"{found.verdict.replace('_', ' ')}, {span}")]


def _drift(drift: Drift) -> dict[str, str]:
    change = "" if drift.change is None or drift.direction == "none" else f" by {units.percent(abs(drift.change), 2)}"
    words_of = {"up": "rises", "down": "falls", "none": "no trend"}
    shift = units.NOTHING if drift.shift_at_ns is None else f"at {units.duration(drift.shift_at_ns)}"
    return {
        "percentile": drift.percentile,
        "trend": words_of[drift.direction] + change,
        "p": _probability(drift.p),
        "shift": shift,
        "low": _extreme(drift.value_ns, least=True),
        "high": _extreme(drift.value_ns, least=False),
    }


def _extreme(values: Sequence[int | float | None], least: bool) -> str:
    known = [float("inf") if value is None else float(value) for value in values]
    if not known:
        return units.NOTHING
    value = min(known) if least else max(known)
    return units.INFINITE if value == float("inf") else units.duration(value)


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"
