"""tpot = (last_token - first_token) / (n_out - 1), in ns per token: the mean gap between tokens of one request.

Request-weighted; ``itl`` is gap-weighted. A successful answer of at most one token is outside the definition: it counts
as missing and satisfies a limit on a single request (LoadGen makes it negative, vLLM zero). A server that sends the
whole answer in one chunk has a TPOT of 0: read it together with ``ttft``. Where ``n_out`` was counted from chunks it is
an estimate. A failed request ranks as +inf. Source: MLPerf LoadGen's token mode.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, between
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    span, both = between(records, "first_token_ns", "last_token_ns")
    n_out = records["n_out"]
    return span / np.maximum(n_out - 1, 1), both & (n_out >= 2)


INDICATOR = Indicator(
    name="tpot",
    title="Time per output token",
    short="TPOT",
    group="answer",
    rank=2,
    chart="pace",
    drawn=True,
    needs=("first_token_ns", "last_token_ns", "n_out"),
    formula="(last_token - first_token) / (n_out - 1)",
    source="MLPerf LoadGen token mode, with answers of at most one token left out",
    summary="mean time per output token after the first, per request",
    compute=_compute,
    outside=lambda records: (records["n_out"] == 0) | (records["n_out"] == 1),
)
