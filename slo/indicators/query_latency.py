"""query_latency = done of the slowest sample - due, in ns: one value per query of several samples.

A query of N samples is answered when the last of them is: a scene of six cameras is known when the sixth picture is
classified. Each sample's own time is ``latency``; the largest of N is what p99 of single samples hides (with
independent samples of which 1 % are slow, 6 % of the queries of six are). If any sample failed the query ranks as
+inf. In an open loop due is the planned time; in LoadGen's closed loop the moment the query before was done. Runs of
single samples and a run of one single query (``offline``) have no such value. Source: MLPerf LoadGen's MultiStream
(the latency of a query is that of its last sample).
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.records.queries import of_queries

INDICATOR = Indicator(
    name="query_latency",
    title="Query latency",
    scope="query",
    needs=("query_id", "due_ns", "done_ns", "status"),
    formula="max over samples of done - due",
    from_due=True,
    source="MLPerf LoadGen, MultiStream: a query is done when its last sample is",
    summary="from when a query of several samples was due to the end of its slowest sample",
    compute=of_queries(lambda found: found.latency),
)
