"""Other tools' variants on any records: always numbers, of successes only, whatever the order of rows."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from slo_strategies import records

from plimsoll.reports.sections.peers import peers_part
from plimsoll.slo.objectives.objective import parse_all
from plimsoll.slo.peers import figures as peers
from plimsoll.slo.peers.figures import CATALOGUE
from plimsoll.slo.records.records import Records

GOODPUT = {"vllm.goodput", "distserve.attainment", "mlperf.goodput"}
LIMITS = parse_all(["ttft <= 200ms", "tpot <= 100ms", "e2e <= 1s", "ratio(good) >= 50%"])[0]


@given(some=records)
def test_each_is_a_finite_number_and_has_data_behind_it(some: Records) -> None:
    ok = int(np.count_nonzero(some.ok & some.in_measure))
    for name, figures in peers.measure(some, LIMITS).items():
        assert figures.peer is CATALOGUE[name]
        numbers = [x for x in (figures.mean, figures.value, *figures.percentiles) if x is not None]
        knows_failures = figures.peer.percentile == "rounded"
        assert all(math.isfinite(x) or (knows_failures and x == math.inf) for x in numbers), name
        assert list(figures.percentiles) == sorted(figures.percentiles), name
        assert name in GOODPUT or figures.n >= 1
        assert figures.peer.sample == "gaps" or figures.n <= (len(some) if knows_failures else ok)
    peers_part(peers.measure(some, LIMITS))


@given(some=records, seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(some: Records, seed: int) -> None:
    shuffled = some.select(np.random.default_rng(seed).permutation(len(some)))
    one, other = (peers.measure(rows, LIMITS) for rows in (some, shuffled))
    assert one.keys() == other.keys()
    for name in one.keys() - {"mlperf.goodput"}:  # that one ends with the last-issued query, which may be a tie
        assert (one[name].n, one[name].percentiles) == (other[name].n, other[name].percentiles)
        for left, right in ((one[name].mean, other[name].mean), (one[name].value, other[name].value)):
            assert left == right or math.isclose(left or 0.0, right or 0.0, rel_tol=1e-12)


@given(some=records)
def test_failed_requests_might_as_well_not_have_been_sent(some: Records) -> None:
    """The reason why none of them judges a run: of what failed only goodput, and AIPerf's adjusted band, know
    anything.
    """
    successes = some.select(np.asarray(some.ok & some.in_measure))
    one, other = peers.measure(some), peers.measure(successes)
    assert {name: found for name, found in one.items() if found.peer.percentile != "rounded"} == other
