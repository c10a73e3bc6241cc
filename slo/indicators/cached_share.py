"""cached_share = cached_tokens / n_in: the share of a prompt that the endpoint's prefix cache had.

By the endpoint's own word (``usage.prompt_tokens_details.cached_tokens`` and its kin), which stands in the label
``cached_tokens``. 0 is a prompt that was computed as a whole. More than the server says that the prompt has is no word
and is counted as missing, as is a success that does not say; a failed request ranks as 0. A mean is over requests, each
counting alike; the share of all tokens is in the report's section on the prefix cache. More is better:
``mean(cached_share) >= 0.6``, ``p10(cached_share{turn>1}) >= 0.8``. Source: hit rate of prefix caches (vLLM, SGLang),
per request.
"""

from __future__ import annotations

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.stages import cached_tokens
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    n_in, cached = records["n_in"], cached_tokens(records)
    valid = (cached >= 0) & (n_in > 0)
    return np.minimum(cached / np.where(valid, n_in, 1), 1.0), valid


INDICATOR = Indicator(
    name="cached_share",
    title="Cached share of a prompt",
    rank=90,
    unit="1",
    better="higher",
    needs=("n_in",),
    formula="cached_tokens / n_in",
    source="hit rate of prefix caches (vLLM, SGLang), per request",
    summary="share of a prompt's tokens that a prefix cache had",
    compute=_compute,
)
