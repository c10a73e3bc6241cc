"""Both ends of an objective, as a part of the report: a value, and nothing is computed here (see ``slo/validity/bracket.py``)."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Bracket(BaseModel, frozen=True, extra="forbid"):
    """An objective at both ends of the generator's own lateness: ``upper`` as measured, ``lower`` with it taken off."""

    lower: int | float | None = None
    upper: int | float | None = None
    outcome_lower: str
    outcome_upper: str
    lateness_ns: int = Field(description="the most of it that may be in any request's time")
