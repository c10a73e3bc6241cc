"""What status lines tell about objectives is a lower bound of what the verdict will count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.generator.recorder import FRESH, spread
from plimsoll.harness.run.tally import Tally, over
from plimsoll.slo.objectives.objective import parse


def line(measured: int, bad: int = 0, **values: list[int]) -> dict[str, Any]:
    return {"measured": measured, "bad": bad, **{name: spread(values.get(name, [])) for name in FRESH}}


def test_values_over_a_limit_and_failures_are_bad() -> None:
    tally = Tally([parse("p99(latency) <= 100ms")])
    tally.add(0, line(3, 1, latency=[50_000_000, 150_000_000]))
    tally.add(0, line(4, 1, latency=[200_000_000]))
    (found,) = tally.counts()
    assert (found.n, found.bad) == (4, 3)
    assert found.burn == pytest.approx(3 / 4 / 0.01)


def test_workers_add_up() -> None:
    tally = Tally([parse("ratio(error) <= 1%")])
    tally.add(0, line(10, 1))
    tally.add(1, line(20, 2))
    tally.add(0, line(15, 1))
    (found,) = tally.counts()
    assert (found.n, found.bad) == (35, 3)


def test_a_failed_request_with_a_late_first_token_counts_once() -> None:
    tally = Tally([parse("p90(ttft) <= 10ms")])
    tally.add(0, line(2, 1, ttft=[50_000_000]))
    assert tally.counts()[0].bad == 1


def test_a_request_that_breaks_two_limits_is_one_bad_request() -> None:
    tally = Tally([parse("ratio(good) >= 90%"), parse("ttft <= 10ms"), parse("tpot <= 1ms")])
    tally.add(0, line(1, 0, ttft=[50_000_000], tpot=[5_000_000]))
    (found,) = tally.counts()
    assert (found.n, found.bad) == (1, 1)


@pytest.mark.parametrize("text", ["mean(latency) <= 1s", "p99(e2e) <= 1s", "rate(ok) >= 5/s", "max(ttft) <= 1s"])
def test_what_status_lines_do_not_tell_is_left_out(text: str) -> None:
    assert Tally([parse(text)]).counts() == ()


@given(st.lists(st.integers(1, 10**12), max_size=50), st.integers(1, 10**12))
def test_over_is_never_more_than_there_are_and_misses_only_the_bin_of_the_limit(values: list[int], limit: int) -> None:
    found = over(spread(values), float(limit))
    assert found <= sum(value > limit for value in values)
    assert found >= sum(value > limit * 1.05 + 1 for value in values)
