"""How fast memory grows: the interval holds what it claims for samples that are alike, and a limit is judged by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.objectives.objective import ObjectiveError, parse
from plimsoll.slo.objectives.sentence import sentence
from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics.slope import FEWEST, slope
from plimsoll.slo.verdict.on_server import judge_server
from tests.unit.slo.test_server_objectives import NAN, side

MIB = 2.0**20


def noise(rng: np.random.Generator, n: int, phi: float) -> FloatArray:
    """AR(1), in its own level from the start; ``phi`` 1 is a walk."""
    steps = rng.standard_normal(n)
    steps[0] *= 1 / np.sqrt(1 - phi**2) if phi < 1 else 1
    found = np.empty(n)
    level = 0.0
    for at, step in enumerate(steps):
        found[at] = level = phi * level + step
    return found


@pytest.mark.parametrize("n", [30, 240])
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_the_interval_covers_the_slope_however_alike_neighbours_are(n: int, phi: float) -> None:
    """Samples once a second in virtual time, on a line of 100 an hour. 2 % of 500 is three of its standard errors."""
    rng, at = np.random.default_rng([n, round(phi * 1000)]), np.arange(n, dtype=float)
    covered = 0
    for _ in range(500):
        found = slope(at, 100 * at / 3600 + noise(rng, n, phi))
        assert found is not None
        covered += found.low <= 100 <= found.high
    assert covered >= 500 * (0.95 - 0.02)


def test_least_squares_would_not() -> None:
    """What the usual interval, of independent residuals, does with such samples: it is what this is there for."""
    rng, n = np.random.default_rng(7), 240
    at, covered = np.arange(n) - (n - 1) / 2, 0
    for _ in range(300):
        values = noise(rng, n, 0.9)
        found = (at @ values) / (at @ at)
        rest = values - values.mean() - found * at
        covered += abs(found) <= 1.96 * np.sqrt(rest @ rest / (n - 2) / (at @ at))
    assert covered < 300 * 0.6


@given(per_h=st.floats(-1e9, 1e9), start=st.floats(0, 1e10), n=st.integers(FEWEST, 100))
def test_a_line_is_its_own_slope(per_h: float, start: float, n: int) -> None:
    at = np.arange(n) * 60.0
    found = slope(at, start + per_h * at / 3600)
    assert found is not None
    assert found.per_h == pytest.approx(per_h, rel=1e-6, abs=1e-2)
    assert found.low <= found.per_h <= found.high


def test_a_spike_moves_nothing_and_too_few_samples_say_nothing() -> None:
    at = np.arange(100.0)
    values = at.copy()
    values[[0, 45, 99]] = 1e12
    found, bare = slope(at, values), slope(at, at)
    assert found is not None
    assert bare is not None
    assert abs(found.per_h - bare.per_h) < 300  # half a sample at either end, of 3600 an hour
    assert slope(at[: FEWEST - 1], values[: FEWEST - 1]) is None
    assert slope(np.zeros(FEWEST), values[:FEWEST]) is None


@pytest.mark.parametrize(
    ("values", "outcome", "says"),
    [
        ([4 * MIB] * 60, "PASS", "0 B/h, between 0 B/h and 0 B/h"),
        ([MIB * at for at in range(60)], "FAIL", "3.516 GiB/h"),
        ([MIB * (at % 2) for at in range(60)], "PASS", "sampled every 1 s: 60 samples"),
        ([MIB * (at // 30) for at in range(60)], "INCONCLUSIVE", "between -"),  # one step is no slope, and may be one
        ([MIB] * 19, "INCONCLUSIVE", "19 samples, every 1 s, are too few: a slope takes 20"),
        ([MIB] * 30 + [NAN] * 5 + [MIB] * 30, "INCONCLUSIVE", "of 65 samples 5 are unknown"),
        ([MIB] * 60 + [NAN], "PASS", "60 samples"),
    ],
)
def test_a_limit_on_growth_is_kept_broken_or_open(values: list[float], outcome: str, says: str) -> None:
    found = judge_server(parse("slope(host.rss) <= 10MiB/h"), side("host.rss", values))
    assert (found.outcome, says in found.detail) == (outcome, True), found.detail


def test_a_limit_that_is_not_decided_says_how_much_would() -> None:
    found = judge_server(parse("slope(host.rss) <= 10MiB/h"), side("host.rss", [MIB * (at // 30) for at in range(60)]))
    assert found.n_needed is not None
    assert found.n_needed > 60
    assert f"too few to be sure: {found.n_needed:,} in all would decide" in sentence(found)


@pytest.mark.parametrize(
    "text",
    ["slope(host.cpu) <= 1", "slope(host.rss) >= 1MiB/h", "slope(host.rss) <= 1MiB", "slope(server.running) <= 1/h"],
)
def test_what_is_no_slope_is_refused(text: str) -> None:
    with pytest.raises(ObjectiveError):
        parse(text)


def test_its_text_is_read_back() -> None:
    for text in ("slope(host.rss) <= 10MiB/h", "slope(server.queue) < 5/h"):
        assert str(parse(text)) == text
