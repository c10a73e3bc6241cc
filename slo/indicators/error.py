"""error: 1 for a request that did not succeed, 0 for one that did.

Every status but OK is an error: failed, refused, timed out, unfinished and unsent alike. ``ratio(error)`` is its share
of all measured requests. Source: the SRE notion of an error ratio, with nothing left out of the denominator.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, OnFailure

INDICATOR = Indicator(
    name="error",
    title="Error",
    group="last",
    rank=6,
    unit="1",
    needs=("status",),
    formula="1 if status is not OK, else 0",
    source="Site Reliability Engineering, error ratio",
    summary="whether the request failed",
    compute=lambda records: ((~records.ok).astype(np.float64), np.ones(len(records), np.bool_)),
    on_failure=OnFailure.AS_IS,
)
