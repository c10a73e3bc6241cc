"""Queues whose departures are monotone in their arrivals keep the truth between L - G and L, of every request; others
mostly do.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.verdict import judge
from tests.bench.lag_bracket import QUEUES, errors
from tests.late_queue import MS, Queue, case, drawn, endless, first_come, stalled

MONOTONE: dict[str, tuple[Queue, int, bool]] = {
    "M/M/1": (first_come(1), 1, True),
    "M/D/1": (first_come(1), 1, False),
    "M/M/4": (first_come(4), 4, True),
    "M/M/inf": (endless, 4, True),
}
loads = st.sampled_from([0.3, 0.7, 0.95, 1.2])
stalls = st.tuples(st.integers(0, 12), st.sampled_from([0.5, 5.0, 50.0, 400.0]))


@given(name=st.sampled_from(sorted(MONOTONE)), load=loads, stall=stalls, seed=st.integers(0, 2**32 - 1))
def test_of_every_request_the_truth_lies_between_the_ends(
    name: str, load: float, stall: tuple[int, float], seed: int
) -> None:
    queue, servers, exponential = MONOTONE[name]
    due, service = drawn(300, servers * load * 1000, MS, exponential, seed)
    found = case(queue, due, stalled(due, stall[0], stall[1] * MS, seed), service)
    assert not found.above.any()
    assert not found.below.any()


@given(load=st.sampled_from([0.3, 0.7]), stall=stalls, seed=st.integers(0, 2**32 - 1))
def test_a_lateness_is_forgotten_once_nothing_is_in_flight(load: float, stall: tuple[int, float], seed: int) -> None:
    """Without that the bracket would be as wide as the longest stall of the run."""
    due, service = drawn(300, load * 1000, MS, True, seed)
    left = stalled(due, stall[0], stall[1] * MS, seed)
    found = case(first_come(1), due, left, service)
    late = left - due
    alone = (due >= np.append(0, np.maximum.accumulate(found.measured + due)[:-1])) & (
        np.append(due[1:], 1 << 62) >= due + found.measured
    )
    assert np.array_equal(found.reach[alone], late[alone])


@given(load=loads, stall=stalls, seed=st.integers(0, 2**32 - 1), limit=st.sampled_from([2, 5, 20, 100, 600]))
def test_a_verdict_on_a_bracket_is_never_the_opposite_of_the_true_one(
    load: float, stall: tuple[int, float], seed: int, limit: int
) -> None:
    """PASS and FAIL as measured by a late generator are not FAIL and PASS as a perfect one would have measured."""
    due, service = drawn(600, load * 1000, MS, True, seed)
    left = stalled(due, stall[0], stall[1] * MS, seed)
    asked = [parse(f"p90(latency) <= {limit}ms")]

    def run(sent: np.ndarray) -> Records:
        done = first_come(1)(sent, service)
        return from_columns(
            600, due_ns=due, ready_ns=sent, sent_ns=sent, first_byte_ns=done, headers_ns=done, done_ns=done
        )

    facts = GeneratorFacts(open_loop=True, planned=600, planned_queries=600)
    late, true = (
        judge(run(sent), asked, assess(run(sent), facts, asked)).objectives[0].outcome for sent in (left, due)
    )
    assert (late, true) not in {("PASS", "FAIL"), ("FAIL", "PASS"), ("PASS", "INCONCLUSIVE")}


@pytest.mark.parametrize("name", sorted(QUEUES))
def test_where_departures_are_not_monotone_requests_lie_outside_and_percentiles_of_light_loads_hardly(
    name: str,
) -> None:
    """Ten stalls of 20 ms, 2,000 requests at 70/s of 10 ms. What heavier ones do is in docs/reference/validity.md."""
    found = errors(name, 70.0, 10, 10, 20.0, seeds=15)
    assert found.valid == 15
    assert 0 < found.above <= 0.04, "or it is monotone after all"
    assert found.below <= 0.02
    for mean, worst in (*found.truth_above.values(), *found.truth_below.values()):
        assert mean <= 0.02
        assert worst <= 0.15


@pytest.mark.parametrize("name", sorted(QUEUES))
def test_a_pass_is_safe_where_a_fail_is_not(name: str) -> None:
    """A burst after a stall of 100 ms at 700/s of 1 ms: no percentile is truly above L, though far below L - G it may
    be.
    """
    found = errors(name, 700.0, 1, 1, 100.0, seeds=10)
    assert max(worst for _, worst in found.truth_above.values()) <= 0.03
