"""Requests that the scenario chose to cancel: a phase of their own, kept, counted and in no metric.

They are chosen at random before the run (``scenarios/plan/cancellation.py`` says why all of them are left out, and not
only those that were in fact cancelled). ``Phase`` knows two phases; this is the third. A row whose phase is MEASURE and
whose status is CANCELLED was given up for another reason, and counts as the failure it is.
"""

from dataclasses import dataclass

import numpy as np

from plimsoll.slo.records.records import BoolArray, Phase, Records, Status

#: The value of the column ``phase`` and its name on disk.
CANCEL = 2
NAME = "cancel"
#: Every phase by its number, as files have them.
PHASES = tuple(member.name.lower() for member in Phase)


def chosen(records: Records) -> BoolArray:
    """bool[n]: the row was to be cancelled."""
    return np.asarray(records.columns["phase"] == CANCEL)


def marked(records: Records, rows: BoolArray) -> Records:
    """The same records with these rows (of the measured phase) set apart as chosen."""
    rows = rows & records.in_measure
    if not bool(rows.any()):
        return records
    return _with_phase(records, rows, CANCEL)


def planned(records: Records) -> Records:
    """All rows of the planned load, chosen ones as measured ones: what the generator is judged by."""
    rows = chosen(records)
    return (_with_phase(records, rows, int(Phase.MEASURE)) if bool(rows.any()) else records).measured()


def endings(records: Records) -> dict[str, int]:
    """How the chosen requests ended: status name -> number, in the order of ``Status``."""
    number = np.bincount(records.columns["status"][chosen(records)], minlength=len(Status))
    return {member.name: int(number[member]) for member in Status if number[member]}


@dataclass(frozen=True, slots=True)
class Cancelled:
    """``chosen`` of ``of`` requests were to be cancelled, and how they ended:

    CANCELLED, or what came before their time.
    """

    chosen: int
    of: int
    by_status: dict[str, int]


def cancelled(records: Records) -> Cancelled | None:
    """None for a run whose scenario cancels nothing."""
    found = endings(records)
    return Cancelled(sum(found.values()), len(planned(records.without_chunks())), found) if found else None


def _with_phase(records: Records, rows: BoolArray, phase: int) -> Records:
    return records.with_columns(phase=np.where(rows, np.int8(phase), records.columns["phase"]))
