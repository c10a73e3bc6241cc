"""The samples that other tools' metrics are statistics of, from the measured requests that succeeded.

Every tool here leaves failed requests out, so this module does too: that is the difference to ``plimsoll.slo.indicators``, and the
reason why nothing here is ever judged. One sample serves all tools that agree on it. Values are float64, in ns unless the
name says otherwise; gaps are not held but streamed, because there may be fifty million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from plimsoll.slo.metrics import fluidity_index as fluidity
from plimsoll.slo.metrics.deadlines import slabs
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records


@dataclass(frozen=True, slots=True)
class Successes:
    """Columns of the measured successes, int64[n], -1 for what did not happen: ``sent due first last done`` in ns,
    ``tokens`` of output, ``head`` of them in the first chunk (an even share), ``rows``: their places in the records. ``failed``: how many
    measured requests are not among them because they failed.
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


@dataclass(frozen=True, slots=True)
class Sample:
    """``values`` float64[m], and how much each counts (None: all the same)."""

    values: FloatArray
    weights: FloatArray | None = None


def successes(records: Records) -> Successes:
    """The rows that a tool without failures would see."""
    rows = np.asarray(records.ok & records.in_measure)
    tokens = records["n_out"][rows]
    chunks = np.maximum(np.diff(records.chunk_offsets)[rows], 1)
    sent, due, first, last, done = (
        records[name][rows] for name in ("sent_ns", "due_ns", "first_token_ns", "last_token_ns", "done_ns")
    )
    failed = int(np.count_nonzero(records.in_measure & ~records.ok))
    return Successes(sent, due, first, last, done, tokens, np.maximum(tokens // chunks, 1), rows, failed)


def _span(end: IntArray, start: IntArray) -> Sample:
    both = (end != -1) & (start != -1)
    return Sample((end[both] - start[both]).astype(np.float64))


def _zero_without(of: Successes) -> Sample:
    """From sent to the first token, and 0 for a success that has none."""
    has = (of.first != -1) & (of.sent != -1)
    return Sample(np.where(has, of.first - of.sent, 0).astype(np.float64) if has.any() else np.empty(0))


def _per_later_token(of: Successes, end: IntArray, weighted: bool = False) -> Sample:
    """(end - first token) / (tokens - 1), of answers of two tokens or more."""
    rows = (of.first != -1) & (end != -1) & (of.tokens >= 2)
    later = (of.tokens[rows] - 1).astype(np.float64)
    return Sample((end[rows] - of.first[rows]) / later, later if weighted else None)


def _rounded(sample: Sample) -> Sample:
    return Sample(np.rint(sample.values))


def _loadgen_tpot(of: Successes) -> Sample:
    """LoadGen's: integer division by tokens - 1, where at most one token counts as none and so turns the sign."""
    rows = (of.first != -1) & (of.done != -1) & (of.tokens >= 0)
    span, tokens = of.done[rows] - of.first[rows], of.tokens[rows]
    return Sample(np.where(tokens > 1, span // np.maximum(tokens - 1, 1), -span).astype(np.float64))


def _after_first_chunk(of: Successes) -> Sample:
    """(done - first token) / the tokens after the first chunk, where there is one."""
    rows = (of.first != -1) & (of.done != -1) & (of.tokens > of.head)
    return Sample((of.done[rows] - of.first[rows]) / (of.tokens[rows] - of.head[rows]))


def _per_token(of: Successes, weighted: bool) -> Sample:
    """(last token - sent) / tokens; unweighted also 0 for each answer without a token."""
    rows = (of.last != -1) & (of.sent != -1) & (of.tokens >= 1)
    tokens = of.tokens[rows].astype(np.float64)
    values = (of.last[rows] - of.sent[rows]) / tokens
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
        "last, per later token": lambda of: _per_later_token(of, of.last),
        "last, per later token, rounded": lambda of: _rounded(_per_later_token(of, of.last)),
        "last, per later token, by tokens": lambda of: _per_later_token(of, of.last, weighted=True),
        "done, per later token": lambda of: _per_later_token(of, of.done),
        "loadgen": _loadgen_tpot,
        "after the first chunk": _after_first_chunk,
        "per token": lambda of: _per_token(of, weighted=False),
        "per token, by tokens": lambda of: _per_token(of, weighted=True),
    }
)


def fluidities(records: Records, rows: BoolArray, prefill_ns: int, decode_ns: int) -> tuple[Sample, Sample]:
    """Etalon's index by its code and by its documentation, a chunk taken as a token, from the time of sending."""
    met = fluidity.measure(records, records["sent_ns"], prefill_ns, decode_ns, per_chunk=True)
    wanted = met.valid & rows
    return (
        Sample(fluidity.share_of_deadlines(met)[wanted]),
        Sample(fluidity.share_on_time(met)[wanted]),
    )


def gaps(records: Records, rows: BoolArray) -> Iterator[IntArray]:
    """The gaps between chunks of these rows (bool[n]), slab by slab, int64 ns."""
    offsets = records.chunk_offsets
    for first, last in slabs(records):
        begin, end = int(offsets[first]), int(offsets[last])
        if end - begin < 2:
            continue
        steps = np.diff(records.chunk_ns[begin:end])
        inside = np.ones(end - begin, np.bool_)
        lengths = np.diff(offsets[first : last + 1])
        if not rows[first:last].all():
            inside = np.repeat(rows[first:last], lengths)
        inside[offsets[first:last][lengths > 0] - begin] = False  # the step into a request's first chunk is no gap
        yield steps[inside[1:]]
