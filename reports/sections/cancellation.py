"""The requests that the scenario dropped on purpose: how many, and how each of them ended. In no other number of the report."""

from __future__ import annotations

from pydantic import BaseModel, Field

from plimsoll.slo.records import cancelled
from plimsoll.slo.records.records import Records, Status


class Cancellation(BaseModel, frozen=True, extra="forbid"):
    """Of the measured phase: requests chosen before the run to be cancelled after a delay."""

    chosen: int = Field(description="requests that were to be cancelled; in no metric, ratio or objective")
    by_status: dict[str, int] = Field(description="how they ended: CANCELLED, or what came before their time")


def cancellation_part(records: Records) -> Cancellation | None:
    """None for a run whose scenario cancels nothing."""
    found = cancelled.endings(records)
    return Cancellation(chosen=sum(found.values()), by_status=found) if found else None


def said(part: Cancellation | None, records: Records) -> list[str]:
    """For the reader of any format: nothing is left out in silence."""
    if part is None:
        return []
    dropped = part.by_status.get(Status.CANCELLED.name, 0)
    early = [f"{number} {name}" for name, number in part.by_status.items() if name != Status.CANCELLED.name]
    before = f", {part.chosen - dropped} were over before their time ({', '.join(early)})" if early else ""
    whole = len(cancelled.planned(records.without_chunks()))
    return [
        f"{part.chosen} of {whole} requests were chosen at random, before the run, to be cancelled: {dropped} were{before}. None of "
        "them is in any metric, ratio or objective; the others are a random part of the load"
    ]
