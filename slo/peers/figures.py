"""The same run in the words of other tools: ``vllm.tpot``, ``guidellm.itl``, ``loadgen.ttft``, each by its rules.

Two tools that watch one server print different numbers under one name, because they start the clock elsewhere, leave
failures out, divide by another count or interpolate percentiles. The variants reconcile a bake-off; Plimsoll judges by
none of them, since with most of them a server gains by failing its slowest requests. Nothing is sorted, and gaps are
never held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from plimsoll.slo.metrics import deadlines
from plimsoll.slo.metrics.deadlines import slabs
from plimsoll.slo.objectives.goodput import per_second, span_ns
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.statistics.confidence import n_required
from plimsoll.slo.statistics.distribution import exact, quantile, quantile_linear, quantile_loadgen
from plimsoll.slo.statistics.order import HELD, SLAB, Folded, Ordered, buckets, ranked

PERCENTILES = ("0.5", "0.9", "0.95", "0.99")
#: Buckets (``plimsoll.slo.statistics.order``) that weights are added up in.
_BITS, _UNDER, _TOP = 10, 20, 54
_GAP_BITS = 13
_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Figures:
    """One variant over one run, in its unit. ``percentiles`` as in ``PERCENTILES``, by the tool's own rule; ``value``
    instead of them where the variant is one number. ``n`` values of ``weight`` in all.
    """

    peer: Peer
    n: int
    mean: float | None = None
    percentiles: tuple[float, ...] = ()
    value: float | None = None
    note: str = ""


def quantile_lower(ordered: Ordered, p: str) -> float:
    """numpy's method ``lower``: ``sorted[floor(p (n - 1))]``."""
    return float(ordered[int(exact(p) * (len(ordered) - 1) // 1)])


def quantile_rounded(ordered: Ordered, p: str) -> float:
    """numpy's method ``nearest``: ``sorted[round(p (n - 1))]``, a half to the even place."""
    return float(ordered[round(exact(p) * (len(ordered) - 1))])


_QUANTILES: Mapping[str, Callable[[Any, str], float]] = {
    "nearest": quantile,
    "linear": quantile_linear,
    "lower": quantile_lower,
    "rounded": quantile_rounded,
    "loadgen": quantile_loadgen,
}


def measure(records: Records, objectives: Iterable[Any] = ()) -> dict[str, Figures]:
    """Every variant whose stamps the run has, by name. Goodput only where ``objectives`` promise something to a
    request; their limits on ``ttft`` and ``tpot`` are Etalon's deadlines too.
    """
    of = successes(records)
    wanted = limits(objectives)
    found = _distributions(of)
    found |= _of_gaps(records, of)
    found |= _of_tokens(records, of, wanted)
    found |= _goodputs(records, of, wanted)
    return {name: found[name] for name in CATALOGUE if name in found}


def _distributions(of: Successes) -> dict[str, Figures]:
    """The variants that are statistics of one value a request. Tools that share a sample share its sorting."""
    found: dict[str, Figures] = {}
    last: tuple[FloatArray, Ordered] | None = None
    for name, make in SAMPLES.items():
        peers = [peer for peer in CATALOGUE.values() if peer.sample == name]
        sample = make(of)
        if not len(sample.values):
            continue
        if sample.weights is not None:
            found |= {peer.name: weighted(peer, sample) for peer in peers}
            continue
        if last is None or not np.array_equal(last[0], sample.values):  # what differs in failures alone is alike here
            last = (sample.values, ranked(sample.values))
        ordered = last[1]
        for peer in peers:
            if peer.percentile != "rounded":
                found[peer.name] = summary(peer, ordered)
            elif of.failed:
                found[peer.name] = punished(peer, ordered, of.failed)
    if "endpoints.tpot" in found:
        p90 = found["endpoints.tpot"].percentiles[1]
        rate = 1e9 / p90 if p90 > 0 else None
        peer = CATALOGUE["endpoints.tps_per_user"]
        found[peer.name] = Figures(peer, found["endpoints.tpot"].n, value=rate)
    return found


def summary(peer: Peer, ordered: Ordered) -> Figures:
    """Mean and percentiles of ascending values, at least one."""
    n, rule = len(ordered), _QUANTILES[peer.percentile]
    # All ranks that a rule may look at, read at once.
    places = [place for p in PERCENTILES for place in (int(exact(p) * (n - 1) // 1), int(exact(p) * n // 1))]
    ordered[np.unique(np.clip([place + step for place in places for step in (-1, 0, 1)], 0, n - 1))]
    return Figures(peer, n, float(ordered.mean()), tuple(rule(ordered, p) for p in PERCENTILES))


def punished(peer: Peer, ordered: Ordered, failed: int) -> Figures:
    """The same of values with a +inf for each failure, by numpy's method ``nearest``."""
    n = len(ordered)
    places = [round(exact(p) * (n + failed - 1)) for p in PERCENTILES]
    known = iter(ordered[np.array([place for place in places if place < n], np.int64)].tolist())
    percentiles = tuple(next(known) if place < n else math.inf for place in places)
    return Figures(peer, n + failed, math.inf, percentiles)


def weighted(peer: Peer, sample: Sample) -> Figures:
    """GuideLLM's: the smallest value with at least p of all weight at or below it."""
    assert sample.weights is not None
    n = len(sample.values)
    sums, reached, products = _reached(sample.values, sample.weights)
    total = float(reached[-1])
    limits = [float(exact(p)) * total for p in PERCENTILES]
    cells = np.minimum(np.searchsorted(reached, limits), len(reached) - 1)
    wanted = np.full(len(reached), n <= SLAB)
    wanted[cells] = True
    some = _picked(sample.values, wanted)
    order = np.argsort(sample.values[some], kind="stable")
    values, weights = sample.values[some[order]], sample.weights[some[order]]
    own = _cells(values)
    found = []
    for limit, cell in zip(limits, cells.tolist(), strict=True):
        inside = slice(*np.searchsorted(own, (cell, cell + 1)).tolist())
        place = np.searchsorted(reached[cell] - sums[cell] + np.cumsum(weights[inside]), limit)
        found.append(float(values[inside][min(int(place), len(values[inside]) - 1)]))
    mean = float((values * weights).sum() / total) if n <= SLAB else products / total
    return Figures(peer, n, mean, tuple(found))


def _reached(values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """The weight of the values of each bucket, the same summed up from the lowest on, and the sum of all products.

    Weights are numbers of tokens, so their sums are exact whatever the order.
    """
    sums, products = np.zeros(((_TOP + _UNDER) << _BITS) + 1), []
    for first in range(0, len(values), SLAB):
        part, weight = values[first : first + SLAB], weights[first : first + SLAB]
        found = np.bincount(_cells(part), weight)
        sums[: len(found)] += found
        products.append(float((part * weight).sum()))
    return sums, np.cumsum(sums), math.fsum(products)


def _cells(values: FloatArray) -> IntArray:
    """The bucket of each value; negative ones, of broken records, are in the lowest."""
    return np.maximum(buckets(values, _BITS, _UNDER), 0)


def _picked(values: FloatArray, wanted: BoolArray) -> IntArray:
    """The places of the values in these buckets."""
    parts = [
        np.flatnonzero(wanted[_cells(values[first : first + SLAB])]) + first for first in range(0, len(values), SLAB)
    ]
    return np.concatenate(parts)


def _of_gaps(records: Records, of: Successes) -> dict[str, Figures]:
    """The variants that pool the gaps of all requests; all three interpolate, so one selection serves them."""
    first, last = records.chunk_offsets[:-1][of.rows], records.chunk_offsets[1:][of.rows] - 1
    several = last > first
    n = int((last - first)[several].sum())
    if not n:
        return {}
    # The gaps of a request add up to the time from its first chunk to its last.
    total = int((records.chunk_ns[last[several]] - records.chunk_ns[first[several]]).sum())
    peers = [peer for peer in CATALOGUE.values() if peer.sample == "gaps"]
    percentiles = summary(peers[0], _ordered(lambda: gaps(records, of.rows), n)).percentiles
    return {peer.name: Figures(peer, n, total / n, percentiles) for peer in peers}


def _ordered(parts: Callable[[], Iterator[FloatArray]], n: int) -> Ordered:
    """The order of ``n`` values in ``parts()``, which is read again for each question if they are many."""
    if n <= HELD:
        return ranked(np.concatenate(list(parts())))
    folded = Folded(lambda: ((part, _NO_ROWS) for part in parts()), _GAP_BITS)
    for part in parts():
        folded.add(part)
    return folded


def _of_tokens(records: Records, of: Successes, wanted: Mapping[str, float]) -> dict[str, Figures]:
    """Etalon's: both rules of the index, and its fluid token rate."""
    prefill = int(wanted.get("ttft", deadlines.PREFILL_NS))
    decode = max(int(wanted.get("tpot", deadlines.DECODE_NS)), 1)
    found: dict[str, Figures] = {}
    names = ("etalon.fluidity", "etalon.fluidity_docs")
    for name, sample in zip(names, fluidities(records, of.rows, prefill, decode), strict=True):
        if len(sample.values):
            note = f"deadlines {prefill / 1e6:g} ms, then {decode / 1e6:g} ms"
            found[name] = replace(summary(CATALOGUE[name], ranked(sample.values)), note=note)
    pace = deadlines.fluid_pace(records, of.rows)
    if pace.looked_at:
        p99 = quantile_linear(ranked(pace.pace_ns), "0.99")
        peer = CATALOGUE["etalon.fluid_token_rate"]
        note = "" if pace.looked_at == pace.of else f"of an even pick: {pace.looked_at} of {pace.of} requests"
        found[peer.name] = Figures(peer, pace.looked_at, value=1e9 / p99 if p99 > 0 else None, note=note)
    return found


def _goodputs(records: Records, of: Successes, wanted: Mapping[str, float]) -> dict[str, Figures]:
    """What each tool would call goodput under these limits, if there are any."""
    if not wanted or not bool(records.in_measure.any()):
        return {}
    shares = {"vllm.goodput": vllm_goodput(records, of, wanted), "mlperf.goodput": mlperf_goodput(records, of, wanted)}
    if "ttft" in wanted or "tpot" in wanted:
        shares["distserve.attainment"] = distserve_attainment(of, wanted)
    said = ", ".join(f"{key} {limit / 1e6:g} ms" for key, limit in wanted.items())
    return {
        name: Figures(
            CATALOGUE[name], share.n, value=share.value, note=f"{said}{'; ' if share.note else ''}{share.note}"
        )
        for name, share in shares.items()
    }


# -- the samples that other tools' metrics are statistics of ----------------------------------------------------------

# Every tool here leaves failed requests out, so this module does too: that is the difference to
# ``plimsoll.slo.indicators``, and the reason why nothing here is ever judged. One sample serves all tools that agree on
# it. Values are float64, in ns unless the name says otherwise; gaps are not held but streamed, because there may be
# fifty million.


@dataclass(frozen=True)
class Successes:
    """Columns of the measured successes, int64[n], -1 for what did not happen: ``sent due first last done`` in ns,
    ``tokens`` of output, ``head`` of them in the first chunk (an even share), ``rows``: their places in the records.
    ``failed``: how many measured requests are not among them because they failed.
    """

    sent: IntArray
    due: IntArray
    first: IntArray
    last: IntArray
    done: IntArray
    tokens: IntArray
    head: IntArray
    rows: BoolArray
    failed: int

    @cached_property
    def per_later_token(self) -> Sample:
        """(last - first token) / (tokens - 1), of answers of two tokens or more; by tokens - 1."""
        return _per_later_token(self, self.last)


@dataclass(frozen=True, slots=True)
class Sample:
    """``values`` float64[m], and how much each counts (None: all the same)."""

    values: FloatArray
    weights: FloatArray | None = None


def successes(records: Records) -> Successes:
    """The rows that a tool without failures would see."""
    rows = np.asarray(records.ok & records.in_measure)
    good = records.select(rows)
    tokens = good["n_out"]
    chunks = np.maximum(_of(rows, np.diff(records.chunk_offsets)), 1)
    sent, due, first, last, done = (
        good[name] for name in ("sent_ns", "due_ns", "first_token_ns", "last_token_ns", "done_ns")
    )
    failed = int(np.count_nonzero(records.in_measure & ~records.ok))
    return Successes(sent, due, first, last, done, tokens, np.maximum(tokens // chunks, 1), rows, failed)


def _of(rows: BoolArray, values: IntArray) -> IntArray:
    """The values of these rows; all of them without a copy."""
    return values if bool(rows.all()) else values[rows]


def _span(end: IntArray, start: IntArray) -> Sample:
    both = (end != -1) & (start != -1)
    return Sample(np.subtract(_of(both, end), _of(both, start), dtype=np.float64, casting="unsafe"))


def _zero_without(of: Successes) -> Sample:
    """From sent to the first token, and 0 for a success that has none."""
    has = (of.first != -1) & (of.sent != -1)
    return Sample(np.where(has, of.first - of.sent, 0).astype(np.float64) if has.any() else np.empty(0))


def _per_later_token(of: Successes, end: IntArray) -> Sample:
    """(end - first token) / (tokens - 1), of answers of two tokens or more; by tokens - 1."""
    rows = (of.first != -1) & (end != -1) & (of.tokens >= 2)
    later = (_of(rows, of.tokens) - 1).astype(np.float64)
    return Sample((_of(rows, end) - _of(rows, of.first)) / later, later)


def _loadgen_tpot(of: Successes) -> Sample:
    """LoadGen's: integer division by tokens - 1, where at most one token counts as none and so turns the sign."""
    rows = (of.first != -1) & (of.done != -1) & (of.tokens >= 0)
    span, tokens = _of(rows, of.done) - _of(rows, of.first), _of(rows, of.tokens)
    return Sample(np.where(tokens > 1, span // np.maximum(tokens - 1, 1), -span).astype(np.float64))


def _after_first_chunk(of: Successes) -> Sample:
    """(done - first token) / the tokens after the first chunk, where there is one."""
    rows = (of.first != -1) & (of.done != -1) & (of.tokens > of.head)
    later = _of(rows, of.tokens) - _of(rows, of.head)
    return Sample((_of(rows, of.done) - _of(rows, of.first)) / later)


def _per_token(of: Successes, weighted: bool) -> Sample:
    """(last token - sent) / tokens; unweighted also 0 for each answer without a token."""
    rows = (of.last != -1) & (of.sent != -1) & (of.tokens >= 1)
    tokens = _of(rows, of.tokens).astype(np.float64)
    values = (_of(rows, of.last) - _of(rows, of.sent)) / tokens
    if weighted:
        return Sample(values, tokens)
    none = int(np.count_nonzero(of.tokens == 0)) if len(values) else 0
    return Sample(np.concatenate([values, np.zeros(none)]))


#: name -> how it is made.
SAMPLES: Mapping[str, Callable[[Successes], Sample]] = MappingProxyType(
    {
        "first - sent": lambda of: _span(of.first, of.sent),
        "first - sent or 0": _zero_without,
        "first - due": lambda of: _span(of.first, of.due),
        "last - sent": lambda of: _span(of.last, of.sent),
        "done - sent": lambda of: _span(of.done, of.sent),
        "done - due": lambda of: _span(of.done, of.due),
        "last, per later token": lambda of: Sample(of.per_later_token.values),
        "last, per later token, rounded": lambda of: Sample(np.rint(of.per_later_token.values)),
        "last, per later token, by tokens": lambda of: of.per_later_token,
        "done, per later token": lambda of: Sample(_per_later_token(of, of.done).values),
        "loadgen": _loadgen_tpot,
        "after the first chunk": _after_first_chunk,
        "per token": lambda of: _per_token(of, weighted=False),
        "per token, by tokens": lambda of: _per_token(of, weighted=True),
    }
)


def fluidities(records: Records, rows: BoolArray, prefill_ns: int, decode_ns: int) -> tuple[Sample, Sample]:
    """Etalon's index by its code and by its documentation, a chunk taken as a token, from the time of sending."""
    met = deadlines.measure(records, records["sent_ns"], prefill_ns, decode_ns, per_chunk=True)
    wanted = met.valid & rows
    return (Sample(deadlines.share_of_deadlines(met)[wanted]), Sample(deadlines.share_on_time(met)[wanted]))


def gaps(records: Records, rows: BoolArray) -> Iterator[FloatArray]:
    """The gaps between chunks of these rows (bool[n]), slab by slab, float64 ns."""
    offsets = records.chunk_offsets
    for first, last in slabs(records):
        begin, end = int(offsets[first]), int(offsets[last])
        if end - begin < 2:
            continue
        times = records.chunks.part(first, last)
        steps = np.subtract(times[1:], times[:-1], dtype=np.float64, casting="unsafe")
        inside = np.ones(end - begin, np.bool_)
        lengths = np.diff(offsets[first : last + 1])
        if not rows[first:last].all():
            inside = np.repeat(rows[first:last], lengths)
        inside[offsets[first:last][lengths > 0] - begin] = False  # the step into a request's first chunk is no gap
        yield steps[inside[1:]]


# -- goodput as others define it --------------------------------------------------------------------------------------

# What they disagree about: whether failed requests are in the denominator, from when a request is timed, what an answer
# of one token has for a TPOT, and whether the limits hold jointly.

_KEYS = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2el", "latency": "e2el"}


@dataclass(frozen=True, slots=True)
class Share:
    """``value``: the number itself, None where the definition gives none, and then ``note`` says why.

    ``n``: of how many.
    """

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
        if key and scope and promise.of_all and promise.unit == "ns" and promise.operator in ("<=", "<"):
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
        values = ranked(SAMPLES[sample[key]](of).values)
        over = len(values) - int(values.searchsorted(wanted[key], "right"))
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


# -- the other tools' variants -----------------------------------------------------------------------------------------

# The variants of other tools, as data: one entry a variant, with its rules and where they are written. ``read`` sources
# were read in the tool's own repository in 2026-11; a later version may differ. ``unverified`` says what was taken from
# memory or papers. Nothing is computed here.

Percentile = Literal["nearest", "linear", "lower", "rounded", "loadgen", "weighted", "value"]
Unit = Literal["ns", "per_s", "1", "ratio"]


@dataclass(frozen=True, slots=True)
class Peer:
    """One number of one tool. ``start``: where its clock starts. ``percentile``: its rule (``value``: it is one
    number). ``one_token``: what an answer of one token is. ``differs``: what records can't reproduce. ``unverified``:
    what of this was not read in the source. ``failed``: what becomes of failed requests.
    """

    name: str
    unit: Unit
    start: str
    formula: str
    percentile: Percentile
    sample: str
    one_token: str
    source: str
    differs: str = ""
    unverified: str = ""
    failed: str = "failed requests left out"

    @property
    def definition(self) -> str:
        rule = {
            "linear": "percentiles interpolated",
            "lower": "percentiles rounded down",
            "rounded": "percentiles at round((n - 1) p), a half to even",
            "loadgen": "percentiles at floor(p n)",
            "weighted": "percentiles by weight of tokens",
            "nearest": "nearest-rank percentiles",
            "value": "one number",
        }[self.percentile]
        parts = [self.formula, rule, self.failed]
        parts += [f"one token: {self.one_token}"] if self.one_token else []
        parts += [f"here {self.differs}"] if self.differs else []
        parts += [f"unverified: {self.unverified}"] if self.unverified else []
        return "; ".join(parts)


_ROLE = "from the first chunk with output; vLLM also takes a role-only chunk for the first token"
_FINISH = "to the last chunk with output; vLLM ends at the last chunk with choices, the finish chunk too"
_NO_CONTENT = "0 for a success without content"
_OWN_COUNT = "with the server's count; the tool counts with a tokenizer"
_VLLM = "vllm/benchmarks/serve.py calculate_metrics, lib/endpoint_request_func.py"
_SGLANG = "sglang bench_serving, OpenAI chat back end"
_GUIDELLM = "guidellm schemas/request_stats.py, statistics.py"
_AIPERF = "aiperf 0.13 metrics/types"
_AIPERF_DERIVED = "aiperf 0.13 metrics/derived_latency.py"
_INFINITE = "each failed request is +inf; none of these where nothing failed"
_GENAI = "genai-perf llm_profile_data_parser.py, statistics.py"
_LOADGEN = "mlcommons/inference loadgen logging.cc, results.cc"
_ENDPOINTS = "mlcommons/endpoints metrics_table.py"
_LLMPERF = "llmperf token_benchmark_ray.py, openai_chat_completions_client.py"
_ETALON = "etalon/metrics/metric_utils.py"

_ENTRIES = (
    Peer("vllm.ttft", "ns", "sent", "first chunk - sent", "linear", "first - sent", "", _VLLM, _ROLE),
    Peer(
        "vllm.tpot", "ns", "first chunk", "(latency - ttft) / (tokens - 1)", "linear", "last, per later token",
        "left out (0 in goodput)", _VLLM, _FINISH,
    ),
    Peer("vllm.itl", "ns", "gap", "gaps between chunks, pooled", "linear", "gaps", "no gap", _VLLM, _FINISH),
    Peer("vllm.e2el", "ns", "sent", "last chunk - sent", "linear", "last - sent", "", _VLLM, _FINISH),
    Peer(
        "sglang.ttft", "ns", "sent", f"first content - sent, {_NO_CONTENT}", "linear", "first - sent or 0", "", _SGLANG,
    ),
    Peer(
        "sglang.tpot", "ns", "first content", "(end of stream - first content) / (tokens - 1)", "linear",
        "done, per later token", "left out", _SGLANG,
        "with the server's count; without usage SGLang takes the length asked for",
    ),
    Peer(
        "sglang.itl", "ns", "gap", "gaps between content chunks, pooled", "linear", "gaps", "no gap", _SGLANG,
        "as its OpenAI back end does; the native one divides a gap by the tokens that came with it",
    ),
    Peer("sglang.e2el", "ns", "sent", "end of stream - sent", "linear", "done - sent", "", _SGLANG),
    Peer(
        "guidellm.ttft", "ns", "sent", f"first iteration - sent, {_NO_CONTENT}", "nearest", "first - sent or 0", "",
        _GUIDELLM,
    ),
    Peer(
        "guidellm.tpot", "ns", "sent", "(last token - sent) / tokens, weighted by tokens: the first token is in it",
        "weighted", "per token, by tokens", "its TTFT", _GUIDELLM,
    ),
    Peer(
        "guidellm.itl", "ns", "first token", "(last token - first token) / (tokens - 1), weighted by tokens - 1",
        "weighted", "last, per later token, by tokens", "left out", _GUIDELLM,
    ),
    Peer("guidellm.request_latency", "ns", "sent", "end - sent", "nearest", "done - sent", "", _GUIDELLM),
    Peer("aiperf.ttft", "ns", "sent", "first content - sent", "linear", "first - sent", "", _AIPERF),
    Peer(
        "aiperf.itl", "ns", "first content", "(last content - first content) / (tokens - 1), a mean per request",
        "linear", "last, per later token", "left out", _AIPERF, _OWN_COUNT,
    ),
    Peer(
        "aiperf.icl", "ns", "gap", "gaps between content chunks, pooled", "linear", "gaps", "no gap", _AIPERF,
        "exact; the tool takes percentiles from a t-digest",
    ),
    Peer("aiperf.request_latency", "ns", "sent", "last content - sent", "linear", "last - sent", "", _AIPERF),
    Peer(
        "aiperf.effective_latency", "ns", "due", "end of stream - when the request was let go", "linear", "done - due",
        "", _AIPERF_DERIVED, "from the due time; the tool starts when its credit is issued",
    ),
    Peer(
        "aiperf.adj_ttft", "ns", "sent", "first content - sent", "rounded", "first - sent", "", _AIPERF_DERIVED,
        failed=_INFINITE,
    ),
    Peer(
        "aiperf.adj_itl", "ns", "first content", "(last content - first content) / (tokens - 1), a mean per request",
        "rounded", "last, per later token", "left out", _AIPERF_DERIVED, _OWN_COUNT, failed=_INFINITE,
    ),
    Peer(
        "aiperf.adj_request_latency", "ns", "sent", "last content - sent", "rounded", "last - sent", "",
        _AIPERF_DERIVED, failed=_INFINITE,
    ),
    Peer("genai-perf.ttft", "ns", "sent", "first content - sent", "linear", "first - sent", "", _GENAI),
    Peer(
        "genai-perf.itl", "ns", "first content",
        "(last content - first content) / (tokens - 1), rounded, a mean per request", "linear",
        "last, per later token, rounded", "left out", _GENAI, _OWN_COUNT,
    ),
    Peer("genai-perf.request_latency", "ns", "sent", "last content - sent", "linear", "last - sent", "", _GENAI),
    Peer(
        "llmperf.ttft", "ns", "sent", f"first content - sent, {_NO_CONTENT}", "linear", "first - sent or 0", "",
        _LLMPERF,
    ),
    Peer(
        "llmperf.inter_token_latency", "ns", "sent", "(last content - sent) / tokens: the first token is in it",
        "linear", "per token", "its TTFT", _LLMPERF, _OWN_COUNT,
    ),
    Peer("llmperf.e2e", "ns", "sent", "end of stream - sent", "linear", "done - sent", "", _LLMPERF),
    Peer("loadgen.ttft", "ns", "due", "first token - scheduled", "loadgen", "first - due", "", _LOADGEN),
    Peer(
        "loadgen.tpot", "ns", "first token", "(complete - first token) / (tokens - 1) in whole ns", "loadgen",
        "loadgen", "negative: at most one token counts as none", _LOADGEN,
    ),
    Peer("loadgen.latency", "ns", "due", "complete - scheduled", "loadgen", "done - due", "", _LOADGEN),
    Peer("endpoints.ttft", "ns", "sent", "first fragment - issued", "lower", "first - sent", "", _ENDPOINTS),
    Peer(
        "endpoints.tpot", "ns", "first chunk", "(complete - first chunk) / tokens after the first chunk", "lower",
        "after the first chunk", "left out", _ENDPOINTS,
        "with the server's count, spread evenly over the chunks; the tool counts the text after the first chunk",
    ),
    Peer(
        "endpoints.tps_per_user", "per_s", "first chunk", "1 / p90 of endpoints.tpot", "value", "", "left out",
        "MLPerf Endpoints rules, draft 1.0",
    ),
    Peer(
        "etalon.fluidity", "1", "sent", "1 - missed deadlines / deadlines, a long wait misses several", "linear",
        "fluidity", "", _ETALON, "", "that a chunk is taken as one token",
    ),
    Peer(
        "etalon.fluidity_docs", "1", "sent", "tokens on time / tokens", "linear", "fluidity", "",
        "Etalon's documentation", "", "that a chunk is taken as one token",
    ),
    Peer(
        "etalon.fluid_token_rate", "per_s", "first token",
        "1 / p99 of the shortest deadline between tokens of which at most a tenth is missed", "value", "", "left out",
        _ETALON, "found to a microsecond, on an even pick of the requests of a long run",
        "that a chunk is taken as one token",
    ),
    Peer(
        "vllm.goodput", "per_s", "sent", "successes with every value at or below its limit / duration", "value", "",
        "TPOT 0", _VLLM, failed="failed requests are not good, and their time counts",
    ),
    Peer(
        "distserve.attainment", "ratio", "sent", "results that keep TTFT and TPOT / results", "value", "", "TPOT 0",
        "DistServe's evaluation code", "", "where its clock starts",
        "failed requests have no result, so they are not in it",
    ),
    Peer(
        "mlperf.goodput", "per_s", "due",
        "completed samples per second, if p99 of each limit holds on its own with early stopping; else none", "value",
        "", "TPOT negative", "MLPerf inference rules, LoadGen results.cc",
        "without the rules on duration and counts; DistServe and MLPerf search for the highest rate, this is one run",
        failed="with a failed request there is no such number",
    ),
)  # fmt: skip

CATALOGUE: Mapping[str, Peer] = MappingProxyType({peer.name: peer for peer in _ENTRIES})
