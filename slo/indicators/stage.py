"""stage.NAME: how long a server says that one of its stages took, in ns: a family, with a metric for each name.

Of each request whose answer named the stage (Server-Timing, or what each protocol says instead). A success that didn't
name it is missing and counted as that: a server that says nothing was not fast. A failed request ranks as +inf.
Source: W3C Server Timing.
"""

from functools import cache

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.stages import durations
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


@cache
def FAMILY(name: str) -> Indicator:  # noqa: N802 - what the file exports
    """The metric ``stage.NAME``."""
    stage = name.partition(".")[2]

    def compute(records: Records) -> tuple[FloatArray, BoolArray]:
        took = durations(records, [stage])[stage]
        return took.astype("f8"), took >= 0

    return Indicator(
        name=name,
        title=f"Stage {stage}",
        short=stage,
        group="last",
        rank=90,
        needs=("server_timing",),
        formula=f"the duration of {stage} in what the server says of its stages",
        source="W3C Server Timing",
        summary=f"how long the server says that its stage {stage} took",
        compute=compute,
    )
