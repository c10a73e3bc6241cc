"""What an OpenSLO indicator counts in the records of a run: events, each good or bad, and slices of time.

An event is a value of an indicator held against a limit (a failed request is a bad one), or a measured request that is
good or not; in slices always a request. Slices begin at t0 and an event belongs to the slice in which its request was
due, so that no answer, however late, moves it to another. Nothing here passes or fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.metrics.indicator import Scope, catalogue, measure
from plimsoll.slo.objectives.goodput import goodput, over
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.selector import Selector, rows_of, selected
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records

Method = Literal["Occurrences", "Timeslices", "RatioTimeslices"]
Empty = Literal["exclude", "good", "bad"]


@dataclass(frozen=True, slots=True)
class Values:
    """Every value of the limit's indicator; good when it meets the limit."""

    limit: Objective

    @property
    def limits(self) -> tuple[Objective, ...]:
        return (self.limit,)

    @property
    def where(self) -> Selector:
        """The rows that it is about."""
        return self.limit.where

    @property
    def entry(self) -> Scope:
        return catalogue()[self.limit.indicator].scope


@dataclass(frozen=True, slots=True)
class Requests:
    """Every measured request ``where`` the selector holds; good when it succeeded and met all limits."""

    limits: tuple[Objective, ...]
    where: Selector = ()

    @property
    def entry(self) -> Scope:
        return "request"


@dataclass(frozen=True, slots=True)
class Component:
    """One objective of an SLO: what it counts, the share promised to be good, and its weight in a composite.

    ``slice_target``: the good share below which a slice is bad (Timeslices).
    """

    title: str
    events: Values | Requests
    target: Fraction
    weight: Fraction = Fraction(1)
    slice_target: Fraction = Fraction(0)

    @property
    def allowed(self) -> Fraction:
        return 1 - self.target


@dataclass(frozen=True, slots=True)
class Terms:
    """How events become a share: the budgeting method with its slices. Several components: a composite."""

    method: Method
    components: tuple[Component, ...]
    slice_ns: int = 0
    empty: Empty = "exclude"

    @property
    def allowed(self) -> Fraction:
        """The share of bad that is promised: of a composite the strictest component's."""
        return min(part.allowed for part in self.components)


@dataclass(frozen=True, slots=True)
class Tally:
    """``bad`` bool[m] of the events of one component, the ``row`` each belongs to and when that was due (``at_ns``).

    ``missing``: successful requests without an event. ``severity`` float64[m]: how many times over its hardest limit
    each event is, +inf where it failed.
    """

    bad: BoolArray
    row: IntArray
    at_ns: IntArray
    missing: int
    severity: FloatArray


def tally(events: Values | Requests, records: Records, sliced: bool = False) -> Tally:
    """The events of the measured rows, in the order of the records.

    ``sliced``: for shares by slice an event is always a request. How many a slice has then does not depend on how they
    went, which a mean over slices needs: else one more failure, where there was no value, would make its slice count
    more.
    """
    whole, at = records, None
    if events.where:
        records, at = selected(records, events.where), np.flatnonzero(rows_of(events.where, records))
    if isinstance(events, Values):
        measured = measure(catalogue()[events.limit.indicator], records, judged=True)
        if not sliced:
            bad = ~np.asarray(events.limit.met_by(measured.values))
            severity = over(events.limit, measured.values)
            rows = measured.row if at is None else at[measured.row]
            return Tally(bad, rows, whole["due_ns"][rows], measured.missing, severity)
        missing = measured.missing
    else:
        missing = 0
    rows = np.flatnonzero(records.in_measure)
    found = goodput(records, events.limits)
    there = rows if at is None else at[rows]
    return Tally(~found.good[rows], there, whole["due_ns"][there], missing, found.severity[rows])


@dataclass(frozen=True, slots=True)
class Grid:
    """``count`` slices of ``slice_ns`` from t0; ``cut``: a last one, covered by less than half, is left out."""

    count: int
    slice_ns: int
    cut: bool

    @property
    def end_ns(self) -> IntArray:
        """int64[count]: when each slice ended."""
        return (np.arange(self.count, dtype=np.int64) + 1) * self.slice_ns


def grid(records: Records, slice_ns: int) -> Grid:
    """The slices that the measured rows cover, from t0 to the last one due."""
    due = records["due_ns"][records.in_measure]
    if not len(due):
        return Grid(0, slice_ns, False)
    whole, rest = divmod(max(int(due.max()), 0), slice_ns)
    cut = 2 * rest < slice_ns
    return Grid(whole if cut else whole + 1, slice_ns, cut)


@dataclass(frozen=True, slots=True)
class Sliced:
    """Counts by slice: ``bad`` int64[slices] of ``total`` int64[slices] events."""

    bad: IntArray
    total: IntArray

    @property
    def empty(self) -> BoolArray:
        """bool[slices]: without an event."""
        return np.asarray(self.total == 0)


def by_slice(found: Tally, slices: Grid) -> Sliced:
    """Events by slice; those after the last slice are left out with it."""
    where = np.maximum(found.at_ns, 0) // slices.slice_ns
    inside = where < slices.count
    total = np.bincount(where[inside], minlength=slices.count)
    bad = np.bincount(where[inside & found.bad], minlength=slices.count)
    return Sliced(bad.astype(np.int64), total.astype(np.int64))


def slice_states(terms: Terms, counts: Sequence[Sliced]) -> tuple[BoolArray, BoolArray]:
    """(used, bad) bool[slices] of Timeslices: a slice is bad when any component's good share is below its slice target.

    An empty slice of a component says nothing, or what ``terms.empty`` says; a slice that no component has an event in,
    and empty ones are excluded, is not used.
    """
    used = np.zeros(len(counts[0].total), np.bool_)
    bad = np.zeros(len(counts[0].total), np.bool_)
    for part, one in zip(terms.components, counts, strict=True):
        # The fewest good events that a slice of each size needs, in whole numbers: 0.95 of 20 is 19, not
        # 19.000000000000004.
        sizes, back = np.unique(one.total, return_inverse=True)
        needed = np.array([-((-part.slice_target * size) // 1) for size in sizes.tolist()], dtype=np.int64)[back]
        below = (one.total - one.bad < needed) & ~one.empty
        bad |= below | (one.empty if terms.empty == "bad" else np.zeros_like(below))
        used |= ~one.empty | (terms.empty != "exclude")
    return used, bad


def slice_losses(one: Sliced, empty: Empty) -> tuple[BoolArray, FloatArray]:
    """(used bool[slices], bad share float64[slices]) of RatioTimeslices; the share of an unused slice is 0."""
    loss = one.bad / np.maximum(one.total, 1)
    if empty == "bad":
        loss = np.where(one.empty, 1.0, loss)
    used = ~one.empty if empty == "exclude" else np.ones(len(loss), np.bool_)
    return used, loss
