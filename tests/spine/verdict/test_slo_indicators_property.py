"""What holds for every indicator on any records."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.records import Records, Status, concat
from tests.exact_summary import summary
from tests.property.slo.slo_strategies import heard, records


@given(some=st.one_of(records, heard), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(some: Records, seed: int) -> None:
    shuffled = some.select(np.random.default_rng(seed).permutation(len(some)))
    for name, indicator in catalogue().items():
        one, other = measure(indicator, some), measure(indicator, shuffled)
        assert np.array_equal(np.sort(one.values), np.sort(other.values)), name
        assert (one.n, one.missing, one.failed) == (other.n, other.missing, other.failed), name
        if one.n:
            assert summary(one.values) == summary(other.values), name


@given(both=st.one_of(st.tuples(records, records), st.tuples(heard, heard)))
def test_measuring_parts_is_measuring_the_whole(both: tuple[Records, Records]) -> None:
    """Except where a part has successes (or of speech: any rows) but no stamps, and so the indicator does not apply to
    it.

    A failed request has as many gaps as the longest answer beside it, so those of gaps are compared without failures.
    """
    together = concat(both)
    for name, indicator in catalogue().items():
        parts = [measure(indicator, part) for part in both]
        whole = measure(indicator, together)
        assert whole.missing == sum(part.missing for part in parts), name
        if indicator.scope != "request" and whole.failed:
            finite = np.concatenate([part.values[np.isfinite(part.values)] for part in parts])
            assert np.array_equal(whole.values[np.isfinite(whole.values)], finite), name
        elif all(part.n or not (part.missing or indicator.live) for part in parts):
            assert np.array_equal(whole.values, np.concatenate([part.values for part in parts])), name


@given(some=st.one_of(records, heard))
def test_every_measured_request_is_accounted_for(some: Records) -> None:
    ok = set(np.flatnonzero(some.ok & some.in_measure).tolist())
    measured = set(np.flatnonzero(some.in_measure).tolist())
    for name, indicator in catalogue().items():
        found = measure(indicator, some)
        covered = set(found.row.tolist())
        assert found.n == len(found.values) == len(found.row), name
        worst = {row for row in ok & covered if indicator.awaited and np.isinf(found.values[found.row == row]).all()}
        assert len(ok - covered) + len(worst) == found.missing, name
        assert covered <= measured, name
        assert not np.isnan(found.values).any(), name


@given(some=st.one_of(records, heard), at=st.integers(0, 11))
def test_failing_a_request_never_makes_the_share_of_bad_values_smaller(some: Records, at: int) -> None:
    if at >= len(some):
        return
    status = some.columns["status"].copy()
    status[at] = Status.TIMEOUT
    worse = Records(
        {**some.columns, "status": status}, some.chunk_ns, some.chunk_offsets, some.errors, some.timings, some.session
    )
    for name, indicator in catalogue().items():
        before, after = measure(indicator, some), measure(indicator, worse)
        if before.n == 0 or after.n == 0:
            continue
        for limit in np.unique(before.values):
            shares = [
                (v > limit).mean() if indicator.better == "lower" else (v < limit).mean()
                for v in (before.values, after.values)
            ]
            assert shares[1] >= shares[0], (name, limit)
