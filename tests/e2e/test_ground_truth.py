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
from tests.bench.schedule import bare_timer
from tests.bench.truth import measure, pinned

pytestmark = [pytest.mark.e2e, pytest.mark.alone]
KEPT_US, CROWDED_US = 100.0, 250.0
ITL_MS = 20.0


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
    """100 streams a second of 64 tokens: arrivals, gaps and nothing lost, in either engine.

    While a host stops the worker's core for longer than a gap the kernel joins two unread tokens and keeps the later
    stamp (docs/reference/metrics.md, merged chunks). What arrived while a bare timer on that core stood still for that
    long is not the recorder's error; three quarters of the run must be free of it.
    """
    with bare_timer() as host:
        found = measure(100, 3, 64, ITL_MS, "kernel", "--option", f"engine={engine}")
    assert len(found.ttft) > 200
    assert len(found.itl) == 63 * len(found.ttft)
    stood_ttft = host.worst_us(found.ttft_at, found.ttft_at) > ITL_MS * 500
    stood_itl = host.worst_us(found.itl_at[:, 0], found.itl_at[:, 1]) > ITL_MS * 500
    assert stood_ttft.mean() <= 0.25
    assert stood_itl.mean() <= 0.25
    assert found.p(found.ttft[~stood_ttft], 99) <= KEPT_US
    assert found.p(found.itl[~stood_itl], 99) <= KEPT_US + (
        0 if engine == "native" else 150
    )  # it reads two at once now and then


@pytest.mark.usefixtures("crowded")
def test_a_worker_that_has_no_time_still_records_the_truth_and_userland_stamps_do_not() -> None:
    kernel, user = (measure(100, 3, 64, ITL_MS, stamps) for stamps in ("kernel", "user"))
    assert kernel.p(kernel.ttft, 99) <= CROWDED_US
    assert kernel.p(kernel.itl, 99) <= CROWDED_US
    assert user.p(user.ttft, 99) > 1000
