"""The attempts of one run, where the machine spoiled some of them. Reads what the manifest notes; judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Outcome, Text


class Attempt(BaseModel, frozen=True, extra="forbid"):
    """One time that the load was sent."""

    number: int
    outcome: Outcome
    reasons: list[Text] = Field(default_factory=list)
    directory: Text = Field(
        default="",
        description="below the run directory of the last attempt; . is that one; empty: it is no longer there",
    )


def attempts_part(manifest: Mapping[str, Any], outcome: Outcome, reasons: Sequence[str]) -> list[Attempt]:
    """The earlier attempts and this one; none where the first was the only one."""
    noted = manifest.get("attempts")
    earlier = [one for one in noted if isinstance(one, Mapping)] if isinstance(noted, list) else []
    found = [
        Attempt(
            number=int(one.get("number", number)),
            outcome=one.get("outcome", "INVALID"),
            reasons=[str(text) for text in one.get("reasons", ())],
            directory=f"attempts/{one.get('number', number)}" if one.get("kept", True) else "",
        )
        for number, one in enumerate(earlier, 1)
    ]
    last = Attempt(number=len(found) + 1, outcome=outcome, reasons=list(reasons), directory=".")
    return [*found, last] if found else []


def said(attempts: Sequence[Attempt]) -> str:
    """One sentence on what was repeated and why; "" where nothing was."""
    if len(attempts) < 2:
        return ""
    *earlier, last = attempts
    reason = next(iter(earlier[-1].reasons), "no reason given").rstrip(".")
    kept = [one for one in earlier if one.directory]
    if len(earlier) == 1:
        where = f"is kept in {earlier[0].directory}" if kept else "is no longer in the run directory"
        what = f"Attempt 1 was INVALID by the generator alone ({reason}) and {where}"
    else:
        which = "1 and 2" if len(earlier) == 2 else f"1 to {len(earlier)}"
        where = "are kept in attempts" if kept else "are no longer in the run directory"
        if 0 < len(kept) < len(earlier):
            where = f"only {', '.join(one.directory for one in kept)} of them are still kept"
        what = f"Attempts {which} were INVALID by the generator alone (the last of them: {reason}) and {where}"
    return f"{what}; this is attempt {last.number}, of the same schedule."
