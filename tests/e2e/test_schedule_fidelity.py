"""The load leaves when the plan says: rate, shape, lateness, and the same schedule from any number of workers. About 40 s.

Real time. Lateness is bounded at p50 by 60 us and at p99 by 500 us more than a bare timer on the same core does at the
same time: on an idle host that is nothing, on a shared one it is the host's own.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.bench.schedule import bare_timer, measure

pytestmark = [pytest.mark.e2e, pytest.mark.alone]


@pytest.mark.parametrize(("rate", "seconds"), [(100, 4), (1000, 4), (5000, 3)])
def test_poisson_load_leaves_as_planned(rate: int, seconds: int) -> None:
    with bare_timer() as host:
        found = measure(rate, seconds)
    assert abs(found.rate_ratio - 1) <= 0.001
    assert np.percentile(found.lag_us, 50) <= 60 + np.percentile(host, 50)
    assert np.percentile(found.lag_us, 99) <= 500 + np.percentile(host, 99)
    # The planned gaps are a sample of their own; what left may differ from the exponential by little more than they do.
    gaps = np.diff(found.due_ns)
    assert found.ks_distance <= stats.kstest(gaps, "expon", args=(0, gaps.mean())).statistic + 0.05
    planned = found.validity["arrivals"]["dispersion_planned"]
    # A host that stops for ms bunches what was due meanwhile; more than that is ours.
    assert 0.7 <= found.dispersion / planned <= 1.3 + rate * np.percentile(host, 99.9) / 1e6


def test_any_number_of_workers_gives_the_same_schedule() -> None:
    one, three = measure(300, 2), measure(300, 2, workers=3)
    assert np.array_equal(one.due_ns, three.due_ns)
    # The slope of all send times over the due times: the first and the last alone say how late those two were, and where
    # three workers begin at once on two cores that is milliseconds of two seconds.
    sent_ns = three.due_ns + three.lag_us * 1000
    assert abs(np.polyfit(three.due_ns, sent_ns, 1)[0] - 1) <= 0.001
