"""itl: the gaps between successive output chunks of a request, in ns, each gap a value of its own.

Chunks are not tokens: a chunk may carry several (speculative decoding, buffering proxies), so this is what a reader
sees, not the model's step time. Gap-weighted: a long answer weighs more than a short one. Gaps of one request depend on
each other, so a verdict cuts them by requests. A success with a single chunk or without a token has no gap: missing,
and it satisfies a limit on a single request; any other request satisfies it if all its gaps do. Chunks of speech are
transcripts or audio: outside. A failed request contributes the gaps it had, and of +inf those that the longest answer
of the run has more, at least one: what never came never comes. Source: vLLM bench (inter-token latency).
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, gap_rows
from plimsoll.slo.metrics.speech import sounds
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    if len(records.chunk_ns) == 0:
        return np.empty(0), np.empty(0, np.bool_)
    times = records.chunk_ns
    # Straight to floats (exact: below 2**53), without an integer array of the same size between.
    steps = np.subtract(times[1:], times[:-1], dtype=np.float64, casting="unsafe")
    inside = np.ones(len(records.chunk_ns), np.bool_)
    starts = records.chunk_offsets[:-1]
    inside[starts[starts < len(inside)]] = False  # the step into a row's first chunk is between two requests
    gaps = steps[inside[1:]]
    if records.session is None:
        return gaps, np.ones(len(gaps), np.bool_)
    return gaps, ~sounds(records)[gap_rows(records)]


INDICATOR = Indicator(
    name="itl",
    title="Inter-token latency",
    short="ITL",
    group="answer",
    rank=3,
    chart="pace",
    scope="gap",
    needs=("chunk_ns",),
    formula="chunk[i + 1] - chunk[i]",
    source="vLLM bench (inter-token latency), per chunk",
    summary="gap between successive output chunks (chunks are not tokens)",
    compute=_compute,
    outside=lambda records: (np.diff(records.chunk_offsets) == 1) | (records["n_out"] == 0) | sounds(records),
)
