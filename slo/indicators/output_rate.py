"""output_rate = n_out / (done - due), in tokens per second: the speed of one answer as its user sees it.

Includes the wait for the first token, unlike 1 / ``tpot``; it is not the endpoint's total, which is
``rate(output_tokens)``. A failed request ranks as 0; a success whose count is unknown is missing. More is
better, so the tail that hurts is the low one: write ``p5(output_rate) >= 20/s``. Source: LLMPerf
(per-request output throughput), from the due time.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, between
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    took, both = between(records, "due_ns", "done_ns")
    n_out = records["n_out"]
    valid = both & (n_out >= 0) & (took > 0)
    return n_out / np.where(valid, took, 1.0) * 1e9, valid


INDICATOR = Indicator(
    name="output_rate",
    title="Tokens per second of a request",
    group="last",
    rank=1,
    unit="per_s",
    better="higher",
    needs=("n_out", "due_ns", "done_ns"),
    formula="n_out / (done - due)",
    source="LLMPerf (per-request output throughput), from the due time",
    summary="output tokens per second of one request, waiting included",
    compute=_compute,
)
