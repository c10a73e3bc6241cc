"""The same run in the words of other tools: ``vllm.tpot``, ``guidellm.itl``, ``loadgen.ttft``, each by that tool's rules.

Two tools that watch one server print different numbers under one name, because they start the clock elsewhere, leave
failures out, divide by another count or interpolate percentiles. Each variant here is one line of a catalogue: what it is,
how that tool takes percentiles, where that is written. They reconcile a bake-off; Plimsoll judges by none of them, since
with most of them a server gains by failing its slowest requests.

``plimsoll.slo.peers.samples`` makes the values; this module summarises each as its tool would. Bounded: each sample is sorted once,
and gaps are never held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plimsoll.slo.metrics import fluidity_index as fluidity
from plimsoll.slo.peers import peers_goodput as peer_goodput
from plimsoll.slo.peers.catalogue import CATALOGUE, Peer
from plimsoll.slo.peers.samples import SAMPLES, Sample, Successes, fluidities, gaps, successes
from plimsoll.slo.records.records import FloatArray, Records
from plimsoll.slo.statistics.distribution import exact, quantile, quantile_linear, quantile_loadgen
from plimsoll.slo.statistics.selection import order_statistics

PERCENTILES = ("0.5", "0.9", "0.95", "0.99")


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


def quantile_lower(ordered: FloatArray, p: str) -> float:
    """numpy's method ``lower``: ``sorted[floor(p (n - 1))]``."""
    return float(ordered[int(exact(p) * (len(ordered) - 1) // 1)])


def quantile_rounded(ordered: FloatArray, p: str) -> float:
    """numpy's method ``nearest``: ``sorted[round(p (n - 1))]``, a half to the even place."""
    return float(ordered[round(exact(p) * (len(ordered) - 1))])


_QUANTILES: Mapping[str, Callable[[FloatArray, str], float]] = {
    "nearest": quantile,
    "linear": quantile_linear,
    "lower": quantile_lower,
    "rounded": quantile_rounded,
    "loadgen": quantile_loadgen,
}


def measure(records: Records, objectives: Iterable[Any] = ()) -> dict[str, Figures]:
    """Every variant whose stamps the run has, by name. Goodput only where ``objectives`` promise something to a request;
    their limits on ``ttft`` and ``tpot`` are Etalon's deadlines too.
    """
    of = successes(records)
    wanted = peer_goodput.limits(objectives)
    found = _distributions(of)
    found |= _of_gaps(records, of)
    found |= _of_tokens(records, of, wanted)
    found |= _goodputs(records, of, wanted)
    return {name: found[name] for name in CATALOGUE if name in found}


def _distributions(of: Successes) -> dict[str, Figures]:
    """The variants that are statistics of one value a request. Tools that share a sample share its sorting."""
    found: dict[str, Figures] = {}
    for name, make in SAMPLES.items():
        peers = [peer for peer in CATALOGUE.values() if peer.sample == name]
        sample = make(of)
        if not len(sample.values):
            continue
        if sample.weights is not None:
            found |= {peer.name: weighted(peer, sample) for peer in peers}
            continue
        ordered = np.sort(sample.values)
        for peer in peers:
            if peer.percentile != "rounded":
                found[peer.name] = summary(peer, ordered)
            elif of.failed:
                found[peer.name] = summary(peer, np.append(ordered, np.full(of.failed, np.inf)))
    if "endpoints.tpot" in found:
        p90 = found["endpoints.tpot"].percentiles[1]
        rate = 1e9 / p90 if p90 > 0 else None
        peer = CATALOGUE["endpoints.tps_per_user"]
        found[peer.name] = Figures(peer, found["endpoints.tpot"].n, value=rate)
    return found


def summary(peer: Peer, ordered: FloatArray) -> Figures:
    """Mean and percentiles of ascending values, at least one."""
    rule = _QUANTILES[peer.percentile]
    return Figures(peer, len(ordered), float(ordered.mean()), tuple(rule(ordered, p) for p in PERCENTILES))


def weighted(peer: Peer, sample: Sample) -> Figures:
    """GuideLLM's: the smallest value with at least p of all weight at or below it."""
    assert sample.weights is not None
    order = np.argsort(sample.values, kind="stable")
    values, weights = sample.values[order], sample.weights[order]
    reached = np.cumsum(weights)
    total = float(reached[-1])
    places = [int(np.searchsorted(reached, float(exact(p)) * total, side="left")) for p in PERCENTILES]
    mean = float((values * weights).sum() / total)
    return Figures(peer, len(values), mean, tuple(float(values[min(place, len(values) - 1)]) for place in places))


def _of_gaps(records: Records, of: Successes) -> dict[str, Figures]:
    """The variants that pool the gaps of all requests; all three interpolate, so one selection serves them."""
    first, last = records.chunk_offsets[:-1][of.rows], records.chunk_offsets[1:][of.rows] - 1
    several = last > first
    n = int((last - first)[several].sum())
    if not n:
        return {}
    # The gaps of a request add up to the time from its first chunk to its last.
    total = int((records.chunk_ns[last[several]] - records.chunk_ns[first[several]]).sum())
    places = [exact(p) * (n - 1) for p in PERCENTILES]
    ranks = [rank for place in places for rank in (int(place // 1), min(int(place // 1) + 1, n - 1))]
    chosen = order_statistics(lambda: gaps(records, of.rows), n, ranks)
    percentiles = tuple(
        low + (high - low) * float(place % 1)
        for place, low, high in zip(places, chosen[::2], chosen[1::2], strict=True)
    )
    peers = [peer for peer in CATALOGUE.values() if peer.sample == "gaps"]
    return {peer.name: Figures(peer, n, total / n, percentiles) for peer in peers}


def _of_tokens(records: Records, of: Successes, wanted: Mapping[str, float]) -> dict[str, Figures]:
    """Etalon's: both rules of the index, and its fluid token rate."""
    prefill = int(wanted.get("ttft", fluidity.PREFILL_NS))
    decode = max(int(wanted.get("tpot", fluidity.DECODE_NS)), 1)
    found: dict[str, Figures] = {}
    names = ("etalon.fluidity", "etalon.fluidity_docs")
    for name, sample in zip(names, fluidities(records, of.rows, prefill, decode), strict=True):
        if len(sample.values):
            figures = summary(CATALOGUE[name], np.sort(sample.values))
            note = f"deadlines {prefill / 1e6:g} ms, then {decode / 1e6:g} ms"
            found[name] = Figures(figures.peer, figures.n, figures.mean, figures.percentiles, note=note)
    pace = fluidity.fluid_pace(records, of.rows)
    if pace.looked_at:
        p99 = quantile_linear(np.sort(pace.pace_ns), "0.99")
        peer = CATALOGUE["etalon.fluid_token_rate"]
        note = "" if pace.looked_at == pace.of else f"of an even pick: {pace.looked_at} of {pace.of} requests"
        found[peer.name] = Figures(peer, pace.looked_at, value=1e9 / p99 if p99 > 0 else None, note=note)
    return found


def _goodputs(records: Records, of: Successes, wanted: Mapping[str, float]) -> dict[str, Figures]:
    """What each tool would call goodput under these limits, if there are any."""
    if not wanted or not bool(records.in_measure.any()):
        return {}
    shares = {
        "vllm.goodput": peer_goodput.vllm_goodput(records, of, wanted),
        "mlperf.goodput": peer_goodput.mlperf_goodput(records, of, wanted),
    }
    if "ttft" in wanted or "tpot" in wanted:
        shares["distserve.attainment"] = peer_goodput.distserve_attainment(of, wanted)
    said = ", ".join(f"{key} {limit / 1e6:g} ms" for key, limit in wanted.items())
    return {
        name: Figures(
            CATALOGUE[name], share.n, value=share.value, note=f"{said}{'; ' if share.note else ''}{share.note}"
        )
        for name, share in shares.items()
    }
