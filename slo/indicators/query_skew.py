"""query_skew = done of the last sample - done of the first, in ns: how far the samples of one query come apart.

The samples of a query left together, so this is the server's doing (queueing, batching, an order of its own) and the
network's. For a consumer that joins them it is the time it holds the early ones. A query with a failed sample ranks
as +inf. Runs of single samples have none. Source: RFC 5481 section 3 (a spread of delays over one set, as a range).
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.records.queries import Queries, of_queries
from plimsoll.slo.records.records import FloatArray


def _spread(found: Queries) -> FloatArray:
    lost = np.isinf(found.last_done)
    return np.where(lost, np.inf, np.where(lost, 0.0, found.last_done) - np.where(lost, 0.0, found.first_done))


INDICATOR = Indicator(
    name="query_skew",
    title="Query skew",
    scope="query",
    needs=("query_id", "done_ns", "status"),
    formula="max over samples of done - min over samples of done",
    source="RFC 5481, the range of a set of delays, here over the samples of one query",
    summary="from the end of a query's first sample to the end of its last",
    compute=of_queries(_spread),
)
