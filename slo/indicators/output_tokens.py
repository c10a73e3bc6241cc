"""output_tokens = n_out: tokens of output that one request delivered.

From the server's usage block where it gave one, otherwise counted as ``tokens_from`` says. A failed request
delivered 0; a success whose count is unknown is missing. Source: OpenAI's usage.completion_tokens.
"""

from __future__ import annotations

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    n_out = records["n_out"]
    return n_out.astype(np.float64), n_out >= 0


INDICATOR = Indicator(
    name="output_tokens",
    title="Output tokens of a request",
    group="last",
    rank=2,
    unit="1",
    better="higher",
    needs=("n_out",),
    formula="n_out",
    source="OpenAI API, usage.completion_tokens",
    summary="tokens of output per request",
    compute=_compute,
)
