"""What Plimsoll records is what the server did: every token against the oracle's own stamps. About 40 seconds.

The bounds are the issue's: 100 us at p99 while the worker has time, 250 us when its core is all but taken away, where
userland stamps are off by milliseconds. Real time; the oracle is on one core and the worker on another.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.bench.pinned import two_cores
from tests.bench.truth import measure, pinned

pytestmark = [pytest.mark.e2e, pytest.mark.alone]
KEPT_US, CROWDED_US = 100.0, 250.0


@pytest.fixture
def crowded() -> Iterator[None]:
    """Three processes that compute on the worker's core all the time."""
    with pinned(two_cores().client):
        hogs = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(10000))"]) for _ in range(3)]
    yield
    for hog in hogs:
        hog.kill()
        hog.wait()


@pytest.mark.parametrize("engine", ["native", "python"])
def test_every_token_is_recorded_when_it_arrived(engine: str) -> None:
    """100 streams a second of 64 tokens: arrivals, gaps and nothing lost, in either engine."""
    found = measure(100, 3, 64, 5.0, "kernel", "--option", f"engine={engine}")
    assert len(found.ttft) > 200
    assert len(found.itl) == 63 * len(found.ttft)
    assert found.p(found.ttft, 99) <= KEPT_US
    assert found.p(found.itl, 99) <= KEPT_US + (0 if engine == "native" else 150)  # it reads two at once now and then


@pytest.mark.usefixtures("crowded")
def test_a_worker_that_has_no_time_still_records_the_truth_and_userland_stamps_do_not() -> None:
    kernel, user = (measure(100, 3, 64, 20.0, stamps) for stamps in ("kernel", "user"))
    assert kernel.p(kernel.ttft, 99) <= CROWDED_US
    assert kernel.p(kernel.itl, 99) <= CROWDED_US
    assert user.p(user.ttft, 99) > 1000
