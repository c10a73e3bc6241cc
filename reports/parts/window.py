"""What a page needs to say percentiles, bounds and the verdict of a part of a run by itself: a block of columns.

Of up to ``ROWS`` values each request is in it, a time rounded up to a step that no limit falls between, so that what
breaks a limit is counted exactly. Of more there are counts by bucket of time and value, ``BUCKET`` wide at most, and
limits are edges. Objectives that the columns can't tell are there with the reason. Made when a page is; judges nothing.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from plimsoll.reports.parts.charts import Band, Timeline, banded, placed
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.wording.phrases import expression
from plimsoll.slo.judge import Judged
from plimsoll.slo.metrics.indicator import catalogue, entries, in_order, measure, short_of
from plimsoll.slo.objectives.goodput import against
from plimsoll.slo.objectives.objective import Objective, Promise
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict
from plimsoll.slo.objectives.selector import Selector, Split, rows_of
from plimsoll.slo.records.records import FloatArray, IntArray, Records
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.order import by_time

#: So many values are in a page one by one; the width of a bucket of more, as a ratio; the most requests of which the
#: page holds which ones failed.
ROWS, BUCKET, FLAGS = 240_000, 1 / 128, 2_000_000
#: At most so many metrics, and a step of time this small against the median.
_SERIES, _FINE = 5, 1e-4
#: How many times over its limit a request is, in steps; a label of more values is no choice.
_SEVERITY = 1_000_000
_VALUES = 255


@dataclass(frozen=True, slots=True)
class _Series:
    """Values (+inf: it failed) of requests in order of due time, and the limits that are told exactly."""

    name: str
    title: str
    unit: str
    values: FloatArray
    row: IntArray
    limits: frozenset[float] = frozenset()


@dataclass(frozen=True, eq=False)
class Window:
    """Of a run and its timeline: ``names`` of metrics, and the labels by which its rows are told apart."""

    records: Records
    judged: Judged
    timeline: Timeline
    names: Sequence[str]
    labels: Callable[[], Mapping[str, Split]]
    _arrays: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)

    @cached_property
    def block(self) -> Mapping[str, Any]:
        """The block, as JSON holds it."""
        self._arrays.clear()
        found, objectives = self._series, self._objectives()
        cells = sum(len(one.values) for one in found if one.unit != "flag") > ROWS
        timeline, verdict = self.timeline, self.judged.verdict
        series = [self._laid(one, cells) for one in found]
        return {
            "start": timeline.start_ns,
            "width": timeline.bucket_ns,
            "end": timeline.end_ns,
            "buckets": len(timeline.due),
            "alpha": float(1 - exact(self.judged.promises.confidence)),
            "growing": self.judged.validity.unstable is not None,
            "tests": sum(one.p_fail is not None for one in verdict.objectives),
            "invalid": verdict.outcome == "INVALID" and not verdict.by_lateness,
            "cells": BUCKET if cells else 0,
            "label": self._split[0],
            "values": list(self._split[1]),
            "series": series,
            "objectives": objectives,
            "columns": base64.b64encode(zlib.compress(b"".join(self._arrays), 9)).decode(),
        }

    def course(self, text: str) -> tuple[list[int], Band | list[Number]] | None:
        """Over the timeline, of the requests that an objective is about: how many there are, and its metric, or of a
        ratio the share that counts against it. None: it is about no requests, or about each value of a label.
        """
        one = next((one.objective for one in self.judged.verdict.objectives if one.text == text), None)
        if not isinstance(one, Objective) or one.each is not None:
            return None
        about, share = catalogue().get(one.indicator), one.statistic == "ratio"
        if not share and (about is None or about.scope != "request"):
            return None
        if share or about is None:
            flags, row = against(one.indicator, self.records, self.judged.goodput.good)
            values = flags.astype(np.float64)
        else:
            values, row = (found := measure(about, self.records, judged=True)).values, found.row
        n, kept = len(self.timeline.due), rows_of(one.where, self.records)[row]
        due_ns = self.records["due_ns"][row[kept]]
        place = placed(due_ns, self.timeline.start_ns, self.timeline.bucket_ns, n)
        number = np.bincount(place, minlength=n).tolist()
        if about is not None and not share:
            return number, banded(values[kept], place, n, about.unit)
        bad = np.bincount(place, weights=values[kept], minlength=n).tolist()
        return number, [some / of if of else None for some, of in zip(bad, number, strict=True)]

    @cached_property
    def _split(self) -> tuple[str, dict[str, Selector]]:
        """The label by which the page can choose, and what selects each of its values."""
        for label, one in self.labels().items():
            if 1 < len(one.values) < _VALUES:
                return label, dict(zip(one.values, one.conditions, strict=True))
        return "", {}

    @cached_property
    def _group(self) -> IntArray:
        """The value of the label that each record has, from 1; 0 for none."""
        found = np.zeros(len(self.records), np.int64)
        for place, condition in enumerate(self._split[1].values(), start=1):
            found[rows_of(condition, self.records)] = place
        return found

    @cached_property
    def _order(self) -> IntArray:
        """The place of each record in order of due time; those due at once lie by lot, as in a verdict."""
        rows = np.flatnonzero(self.records.in_measure)
        order = by_time(self.records["due_ns"][rows], lambda: np.random.default_rng(2).permutation(len(rows)))
        found = np.zeros(len(self.records), np.int64)
        found[rows if order is None else rows[order]] = np.arange(len(rows))
        return found

    @cached_property
    def _series(self) -> list[_Series]:
        promised = [one.objective for one in self.judged.verdict.objectives]
        wanted = dict.fromkeys([*(one.indicator for one in promised), *self.names])
        known, found = catalogue(), list[_Series]()
        for name in (one for one in in_order(known) if one in wanted):
            indicator = known[name]
            if indicator.unit != "ns" or indicator.scope != "request" or indicator.signed or len(found) == _SERIES:
                continue
            measured = measure(indicator, self.records, judged=True)
            limits = frozenset(one.threshold for one in promised if one.indicator == name)
            if measured.n:
                found.append(_Series(name, short_of(name), "ns", measured.values, measured.row, limits))
        good, rows = self.judged.goodput, np.flatnonzero(self.records.in_measure)
        if good.attainment:
            over = good.severity[rows]
            over = np.where(good.good[rows], np.minimum(over, 1.0), np.maximum(over, 1 + 1 / _SEVERITY))
            found.append(_Series("good", "good", "severity", over, rows, frozenset([1.0])))
        ratios = {one.indicator for one in promised if one.statistic == "ratio"}
        for name in sorted({"error", *ratios} - ({"good"} if good.attainment else set())):
            bad, rows = against(name, self.records, good.good)
            if len(rows) and len(rows) <= FLAGS:
                found.append(_Series(name, name, "flag", bad.astype(np.float64), rows))
        return found

    def _laid(self, one: _Series, cells: bool) -> Mapping[str, Any]:
        """Where its columns are, in order of due time: how many values each bucket of time has, the values, and how
        often and of which group each is.
        """
        timeline, records = self.timeline, self.records
        order = np.argsort(self._order[one.row], kind="stable")
        rows, values = one.row[order], one.values[order]
        bucket = placed(records["due_ns"][rows], timeline.start_ns, timeline.bucket_ns, len(timeline.due))
        group, told = self._group[rows], {"name": one.name, "title": one.title, "unit": one.unit}
        step = 1.0 if one.unit == "flag" else 1 / _SEVERITY if one.unit == "severity" else _step(values, one.limits)
        steps = np.where(np.isinf(values), 0.0, np.ceil(np.round(values / step, 6)) + 1).astype(np.int64)
        if not cells or one.unit == "flag":
            counts: dict[str, Any] = {}
        else:
            edges = _edges(steps, [round(limit / step) + 1 for limit in one.limits])
            cell = (bucket.astype(np.int64) * 256 + group) * (len(edges) + 1) + np.searchsorted(edges, steps)
            cell, number = np.unique(cell, return_counts=True)
            steps, cell = edges[cell % (len(edges) + 1)], cell // (len(edges) + 1)
            bucket, group, counts = (cell // 256).astype(np.int16), cell % 256, {"counts": self._put(number)}
        sizes = np.bincount(bucket, minlength=len(timeline.due))
        if self._split[0]:
            counts["groups"] = self._put(group)
        return {**told, "step": step, "sizes": self._put(sizes), "steps": self._put(steps), **counts}

    def _put(self, numbers: IntArray) -> tuple[int, int]:
        """Keep numbers as bytes, the lowest of all first: (how many, bytes of each)."""
        width = max(1, (int(numbers.max(initial=0)).bit_length() + 7) // 8)
        self._arrays.append(numbers.astype("<u8").view(np.uint8).reshape(len(numbers), 8)[:, :width].T.tobytes())
        return len(numbers), width

    def _objectives(self) -> list[Mapping[str, Any]]:
        names = [one.name for one in self._series]
        return [self._objective(one, names) for one in self.judged.verdict.objectives]

    def _objective(self, one: ObjectiveVerdict, names: Sequence[str]) -> Mapping[str, Any]:
        objective, told = one.objective, {"text": expression(one.text), "run": one.outcome}
        group = self._about(objective)
        if why := self._untold(one, names, group):
            return {**told, "why": why}
        assert isinstance(objective, Objective)
        assert one.memory is not None
        memory = one.memory
        ratio = objective.statistic == "ratio"
        p = exact(1 if objective.quantile is None else objective.quantile)
        return told | {
            "series": names.index(objective.indicator),
            "limit": 1.0 if ratio else objective.threshold,
            "allowed": float(exact(objective.allowed or 0)),
            "p": [p.numerator, p.denominator],
            "ratio": ratio,
            "down": objective.operator in (">", ">="),
            "memory": [memory.time, memory.own, memory.doubt],
            "far": not ratio or all(part.objective.unit in ("ns", "per_s") for part in self.judged.goodput.attainment),
            "group": group,
        }

    def _about(self, promise: Promise) -> int:
        """The value of the label that it is about: 0 for all rows, -1 for rows that no value stands for."""
        where = getattr(promise, "where", ())
        values = list(self._split[1].values())
        return 0 if not where else values.index(where) + 1 if where in values else -1

    def _untold(self, one: ObjectiveVerdict, names: Sequence[str], group: int) -> str:
        """Why the page can't judge it again; empty: it can."""
        objective = one.objective
        if not isinstance(objective, Objective):
            return "an OpenSLO document judges the whole run"
        if objective.allowed is None or one.memory is None:
            return "a fact about the whole run" if objective.allowed is None else "the run has no value of it"
        if one.outcome == "INVALID":
            return "the generator's lateness decides it"
        if objective.each is not None or group < 0:
            return "it is about rows that the page doesn't tell apart"
        if objective.indicator not in names:
            found = catalogue().get(objective.indicator)
            if found is not None and found.scope != "request":
                return f"{entries(found.scope)} are not in the page"
            return f"the page has no column of {objective.indicator}"
        if objective.statistic != "ratio" and objective.operator != "<=":
            return "times in the page are rounded up, which tells only what is above a limit"
        return ""


def _step(values: FloatArray, limits: frozenset[float]) -> float:
    """A power of ten, at most a microsecond, small against the median, on whose multiples all limits lie."""
    finite = values[np.isfinite(values)]
    middle = float(np.median(finite)) if len(finite) else 1e9
    return next(
        (step for step in (1e3, 1e2, 1e1) if step <= middle * _FINE and not any(one % step for one in limits)), 1.0
    )


def _edges(steps: IntArray, limits: Sequence[int]) -> IntArray:
    """Upper ends of buckets of one ratio, and the limits; 0, which stands for no value, is one."""
    most, found = int(steps.max(initial=1)), [1.0]
    while found[-1] < most:
        found.append(max(found[-1] + 1, found[-1] * (1 + BUCKET)))
    return np.unique(np.array([0, *map(int, found), *limits, most], np.int64))
