"""headers = first byte of the answer's headers - due: a metric of an outside package, announced by its entry point
alone.

An answer without headers is missing. A failed request ranks as +inf. Source: this test.
"""

from __future__ import annotations

from plimsoll.slo.metrics.indicator import Indicator, between
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    return between(records, "due_ns", "headers_ns")


INDICATOR = Indicator(
    name="headers",
    title="Time to the headers",
    group="answer",
    rank=20,
    chart="answer",
    drawn=True,
    unit="ns",
    better="lower",
    scope="request",
    needs=("due_ns", "headers_ns"),
    formula="headers - due",
    source="tests/outside/metric",
    summary="from when the request was due to the headers of its answer",
    compute=_compute,
)
