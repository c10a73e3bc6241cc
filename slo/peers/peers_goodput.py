"""Goodput as others define it, from one run and one set of limits, to stand beside Plimsoll's own.

What they disagree about: whether failed requests are in the denominator, from when a request is timed, what an answer of
one token has for a TPOT, and whether the limits hold jointly. Nothing here passes or fails a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plimsoll.slo.objectives.goodput import per_second, span_ns
from plimsoll.slo.peers.samples import SAMPLES, Successes
from plimsoll.slo.records.records import BoolArray, IntArray, Records
from plimsoll.slo.statistics.confidence import n_required
from plimsoll.slo.statistics.distribution import quantile_loadgen

_KEYS = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2el", "latency": "e2el"}


@dataclass(frozen=True, slots=True)
class Share:
    """``value``: the number itself, None where the definition gives none, and then ``note`` says why. ``n``: of how many."""

    value: float | None
    n: int
    note: str = ""


def limits(objectives: Iterable[Any]) -> Mapping[str, float]:
    """``ttft``, ``tpot`` and ``e2el`` in ns, as far as they were promised: the strictest limit on a single request, or
    where there is none the strictest on a percentile of the run.
    """
    found: dict[str, dict[str, float]] = {"request": {}, "run": {}}
    for promise in objectives:
        key = _KEYS.get(promise.indicator)
        statistic = promise.statistic or ""
        scope = "request" if not statistic else "run" if statistic[:1] == "p" and statistic != "ratio" else None
        if key and scope and promise.unit == "ns" and promise.operator in ("<=", "<"):
            found[scope][key] = min(promise.threshold, found[scope].get(key, float("inf")))
    return found["request"] or found["run"]


def _tpot(of: Successes, nothing: float) -> IntArray | Any:
    """Time per output token after the first, ``nothing`` for answers of at most one."""
    known = (of.first != -1) & (of.last != -1) & (of.tokens >= 2)
    return np.where(known, (of.last - of.first) / np.maximum(of.tokens - 1, 1), nothing)


def _good(of: Successes, wanted: Mapping[str, float]) -> BoolArray:
    """vLLM's and DistServe's rule for one result: every value at or below its limit, timed from when it was sent."""
    good = np.ones(len(of.sent), np.bool_)
    streamed = of.first != -1
    if "ttft" in wanted:
        good &= streamed & (of.first - of.sent <= wanted["ttft"])
    if "tpot" in wanted:
        good &= streamed & (_tpot(of, 0.0) <= wanted["tpot"])
    if "e2el" in wanted:
        good &= np.where(of.last != -1, of.last, of.done) - of.sent <= wanted["e2el"]
    return good


def vllm_goodput(records: Records, of: Successes, wanted: Mapping[str, float]) -> Share:
    """Good completed requests per second of the whole run."""
    good = int(np.count_nonzero(_good(of, wanted)))
    return Share(per_second(good, span_ns(records)), len(of.sent))


def distserve_attainment(of: Successes, wanted: Mapping[str, float]) -> Share:
    """The share of *results* that kept TTFT and TPOT; a request without a result is not in it."""
    n = len(of.sent)
    wanted = {key: limit for key, limit in wanted.items() if key != "e2el"}
    if not n:
        return Share(None, 0, "no results")
    return Share(int(np.count_nonzero(_good(of, wanted))) / n, n)


def mlperf_goodput(records: Records, of: Successes, wanted: Mapping[str, float]) -> Share:
    """Completed samples per second if the run would be VALID by its percentiles and early stopping, else None.

    Each limit on its own, at the 99th percentile and 99 % confidence, from the due time. Nothing is said of minimum
    duration and counts. A failed request has no place in LoadGen, so a run with one has no such number.
    """
    measured = records.in_measure
    n = len(of.due)
    if n < int(np.count_nonzero(measured)):
        return Share(None, n, "INVALID: a request failed, and LoadGen waits for every answer")
    sample = {"ttft": "first - due", "tpot": "loadgen", "e2el": "done - due"}
    # In token mode the end-to-end limit is ignored.
    asked = [key for key in ("ttft", "tpot") if key in wanted] or ["e2el"]
    broken = []
    for key in asked:
        values = np.sort(SAMPLES[sample[key]](of).values)
        over = len(values) - int(np.searchsorted(values, wanted[key], side="right"))
        if len(values) < n or not n:
            broken.append(f"{key}: {n - len(values)} answers have none")
        elif quantile_loadgen(values, "0.99") > wanted[key]:
            broken.append(f"{key}: p99 above the limit")
        elif n < (needed := n_required(over, "0.99")):
            broken.append(f"{key}: early stopping wants {needed} queries with {over} over the limit")
    if broken:
        return Share(None, n, f"INVALID: {'; '.join(broken)}")
    last_issued = int(of.done[int(np.argmax(of.due))])
    return Share(per_second(n - 1, last_issued), n)
