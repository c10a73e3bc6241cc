"""One more bad entry never helps, wherever it falls and however the others lie."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.statistics.share import share_test

RANK = {"PASS": 0, "INCONCLUSIVE": 1, "FAIL": 2}
limits = st.sampled_from(["0.001", "0.01", "0.05", "0.1", "0.5", "0.9", "0.99"])
#: Runs of equal entries, so that clusters of every size occur.
entries = st.lists(st.tuples(st.booleans(), st.integers(1, 90)), min_size=1, max_size=14).map(
    lambda runs: np.concatenate([np.full(length, value) for value, length in runs])
)


@given(bad=entries, at=st.integers(0, 10_000), limit=limits)
def test_a_good_entry_that_turns_bad_never_improves_the_outcome(bad: np.ndarray, at: int, limit: str) -> None:
    worse = bad.copy()
    worse[at % len(bad)] = True
    before, after = share_test(bad, limit, "0.9"), share_test(worse, limit, "0.9")
    assert after.p_pass >= before.p_pass - 1e-12
    assert after.p_fail <= before.p_fail + 1e-12
    assert RANK[after.outcome] >= RANK[before.outcome]


@given(bad=entries, limit=limits)
def test_the_outcome_is_never_surer_than_that_of_independent_entries(bad: np.ndarray, limit: str) -> None:
    even = np.zeros(len(bad), bool)
    k = int(bad.sum())
    even[np.arange(k) * len(bad) // max(k, 1)] = True
    clustered, apart = share_test(bad, limit), share_test(even, limit)
    assert clustered.p_pass >= apart.p_pass - 1e-9 or apart.p_pass > 0.05
    low, high = clustered.interval
    assert 0.0 <= low <= k / len(bad) <= high <= 1.0
