"""The probe of the host's timer: what is made of a lateness, and where it matters at all. Nothing sleeps here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from plimsoll.harness.run import coordinator
from plimsoll.harness.run.coordinator import MOST_NS, chosen, matters, tuned
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.flags import with_flags
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.slo.records.records import IntArray

US = 1_000


def plan(rate: float = 10.0, **flags: object) -> Plan:
    return with_flags(None, **{"kind": "server", "rate": rate, "queries": 200, **flags}).build(1)  # type: ignore[arg-type]


def late(p90_us: int) -> IntArray:
    """200 sleeps: half of them 30 us late, the rest so much, and one 20 ms."""
    return np.sort(np.array([30 * US] * 100 + [p90_us * US] * 99 + [20_000 * US], dtype=np.int64))


@pytest.mark.parametrize(
    ("p90_us", "rate", "workers", "spin_us"),
    [
        (40, 10, 1, 50),  # a good timer: as without a probe
        (180, 10, 1, 180),  # as long as hides it
        (
            9_000,
            10,
            1,
            200,
        ),  # somebody else has the core: no timer is that late, and waiting awake for long makes it worse
        (180, 5_000, 1, 50),  # a quarter of a core: 0.25 / 5,000 per s
        (180, 5_000, 2, 100),  # of each of two
        (180, 5_000, 4, 180),
        (40, 100_000, 1, 2.5),
    ],
)
def test_the_engine_stays_awake_as_long_as_hides_the_timer_for_a_quarter_of_a_core_at_most(
    p90_us: int, rate: float, workers: int, spin_us: float
) -> None:
    found = chosen(late(p90_us), plan(rate, arrival="constant"), workers)
    assert found["spin_ns"] == pytest.approx(spin_us * US, rel=0.01)
    assert found["spin_ns"] <= MOST_NS
    assert found["core_share"] == pytest.approx(found["spin_ns"] * rate / 1e9 / workers, rel=0.01)
    assert found["core_share"] <= 0.25
    assert found["late_ns"] == {"p50": 30 * US, "p90": p90_us * US, "p99": p90_us * US, "max": 20_000 * US}
    assert found["sleeps"] == 200


HTTP = Target("http://127.0.0.1:1", "openai-chat", "m")


@pytest.mark.parametrize(
    ("target", "made", "does"),
    [
        (HTTP, plan, True),
        (HTTP, lambda: plan(rate=None, kind="concurrency", concurrency=2), False),  # nothing is due
        (HTTP, lambda: plan(rate=None, kind="offline"), False),  # one query
        (Target("http://127.0.0.1:1", "openai-chat", "m", spin_ns=0), plan, False),  # the user has chosen
        (Target("http://127.0.0.1:1", "openai-chat", "m", engine="python"), plan, False),
        (Target("https://127.0.0.1:1", "openai-chat", "m"), plan, False),  # the Python engine
        (Target("http://127.0.0.1:1", "null"), plan, False),
    ],
)
def test_only_an_open_loop_of_the_compiled_engine_is_probed_for(
    target: Target, made: Callable[[], Plan], does: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.harness.host.calibration_table.find_spec", lambda name: object())

    async def asked(limit_ns: int) -> IntArray:
        return late(180)

    monkeypatch.setattr(coordinator, "lateness", asked)
    load = made()
    assert matters(target, load) is does
    tuned_target, facts = asyncio.run(tuned(target, load, 1))
    if does:
        assert (tuned_target.spin_ns, facts["timer"]["spin_ns"]) == (180 * US, 180 * US)
    else:
        assert (tuned_target, facts) == (target, {})
