"""The page's panel on speech: the facts of the whole run, and its tables. Places what ``plimsoll.reports.sections.speech`` says; finds nothing out."""

from __future__ import annotations

from typing import Any

from plimsoll.reports.sections.speech import Speech, facts, tables


def speech_panel(part: Speech | None, confidence: float) -> dict[str, Any] | None:
    """Facts and tables; None for a run without audio."""
    if part is None:
        return None
    return {"facts": facts(part), "tables": tables(part, confidence)}
