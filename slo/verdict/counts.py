"""How the measured requests ended, and what was counted of their tokens. Numbers only; no request is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.records.records import Phase, Records, Status, TokensFrom

#: Error texts that are told apart, whatever the size of the run.
MAX_ERRORS = 20


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """One error text, as it was recorded, and how often it was seen."""

    text: str
    status: str
    count: int


@dataclass(frozen=True, slots=True)
class Counts:
    """``errors``: the most frequent texts; ``other_errors``: failures without one of them. ``asked_exactly``: successes of which an
    exact number of output tokens was asked and whose server counted them, ``short_of_asked`` those that had fewer.

    Of the successes, ``guessed_output`` have their tokens counted by chunks and ``planned_input`` their prompt's length from the
    plan. ``all_empty_400``: every request was refused by a 400 without a word.
    """

    measured: int
    ok: int
    failed: int
    by_status: Mapping[str, int]
    errors: tuple[ErrorCount, ...]
    other_errors: int
    warmup: int
    asked_exactly: int
    short_of_asked: int
    guessed_output: int
    planned_input: int
    all_empty_400: bool


def count(records: Records) -> Counts:
    """The counts of a run."""
    measured = records["phase"] == Phase.MEASURE
    status = records["status"][measured]
    number_of = np.bincount(status, minlength=len(Status))
    errors = _errors(records)
    failed = int(np.count_nonzero(status != Status.OK))
    good = records.ok & records.in_measure
    asked = good & (records["n_asked"] >= 0) & (records["tokens_from"] == TokensFrom.USAGE)
    return Counts(
        measured=int(np.count_nonzero(measured)),
        ok=int(number_of[Status.OK]),
        failed=failed,
        by_status={status.name: int(number_of[status]) for status in Status if number_of[status]},
        errors=errors,
        other_errors=failed - sum(error.count for error in errors),
        warmup=int(np.count_nonzero(records["phase"] == Phase.WARMUP)),
        asked_exactly=int(np.count_nonzero(asked)),
        short_of_asked=int(np.count_nonzero(asked & (records["n_out"] < records["n_asked"]))),
        guessed_output=int(np.count_nonzero((records["tokens_from"] == TokensFrom.CHUNKS) & good)),
        planned_input=int(np.count_nonzero((records["n_in_from"] == TokensFrom.PLAN) & (records["n_out"] >= 0) & good)),
        all_empty_400=_all_empty_400(records),
    )


def _errors(records: Records) -> tuple[ErrorCount, ...]:
    """The most frequent texts of requests that failed, with their status."""
    failed = (records["phase"] == Phase.MEASURE) & (records["status"] != Status.OK)
    # One integer for each pair of status and text, so that a single pass counts them all.
    width = len(records.errors) + 1
    pairs, numbers = np.unique(records["status"][failed] * width + records["error"][failed] + 1, return_counts=True)
    order = np.lexsort((pairs, -numbers))
    listed = [(int(pairs[i]), int(numbers[i])) for i in order if pairs[i] % width][:MAX_ERRORS]
    return tuple(
        ErrorCount(records.errors[pair % width - 1], Status(pair // width).name, number) for pair, number in listed
    )


def _all_empty_400(records: Records) -> bool:
    if not bool((records["code"][records.in_measure] == 400).all()):
        return False
    return {"HTTP 400"} == set(records.measured().texts("error"))
