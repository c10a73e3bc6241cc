"""The clock: absolute deadlines, and kernel stamps that a step of the wall clock can't corrupt."""

from __future__ import annotations

import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.clock import OFFSET_MAX_AGE_NS, LoopClock, WallMap, sample_offset

MS = 1_000_000


class Wall:
    """A wall clock that can be stepped: ``offset`` is CLOCK_REALTIME - CLOCK_MONOTONIC."""

    def __init__(self, offset: int = 10**18) -> None:
        self.offset = offset
        self.samples = 0

    def sample(self) -> int:
        self.samples += 1
        return self.offset


def test_a_kernel_stamp_is_mapped_to_monotonic_time() -> None:
    wall = Wall()
    assert WallMap(wall.sample).to_monotonic(10**18 + 5 * MS, 0, 6 * MS) == 5 * MS


def test_a_stamp_slightly_outside_its_window_is_clamped_to_it() -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    assert mapping.to_monotonic(10**18 + 6 * MS + 9_000, 0, 6 * MS) == 6 * MS
    assert mapping.to_monotonic(10**18 + 3 * MS - 9_000, 3 * MS, 6 * MS) == 3 * MS


@given(step=st.integers(-(10**12), 10**12).filter(lambda step: abs(step) > 300_000))
def test_a_step_of_the_wall_clock_changes_no_stamp(step: int) -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    assert mapping.to_monotonic(wall.offset + 4 * MS, 3 * MS, 5 * MS) == 4 * MS
    before = wall.offset
    wall.offset += step
    # Stamped by the kernel after the step, with our last sample from before it.
    assert mapping.to_monotonic(wall.offset + 7 * MS, 6 * MS, 8 * MS) in range(6 * MS, 8 * MS + 1)
    # Stamped before the step, read after we know of it.
    late = mapping.to_monotonic(before + 7 * MS, 6 * MS, 8 * MS)
    assert late == -1 or 6 * MS <= late <= 8 * MS


def test_a_large_step_is_counted_and_stamps_on_both_sides_stay_right() -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    mapping.to_monotonic(wall.offset + 4 * MS, 3 * MS, 5 * MS)
    before = wall.offset
    wall.offset += 3_600 * 10**9
    assert mapping.to_monotonic(wall.offset + 7 * MS, 6 * MS, 8 * MS) == 7 * MS
    assert mapping.to_monotonic(before + 7 * MS + 1, 6 * MS, 8 * MS) == 7 * MS + 1
    assert mapping.steps == 1


def test_a_stamp_that_fits_no_known_offset_is_refused_and_counted() -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    assert mapping.to_monotonic(wall.offset + 10**15, 0, 5 * MS) == -1
    assert mapping.refused == 1


def test_the_offset_is_sampled_again_when_it_is_old_and_only_then() -> None:
    wall = Wall()
    mapping = WallMap(wall.sample)
    mapping.to_monotonic(wall.offset + MS, 0, 2 * MS)
    first = wall.samples
    mapping.to_monotonic(wall.offset + 3 * MS, 0, 4 * MS)
    assert wall.samples == first
    now = 2 * MS + OFFSET_MAX_AGE_NS + 1
    mapping.to_monotonic(wall.offset + now - 1, 0, now)
    assert wall.samples == first + 1


def test_the_sampled_offset_agrees_with_the_two_clocks() -> None:
    assert abs(sample_offset() - (time.time_ns() - time.monotonic_ns())) < 50 * MS


def test_calls_come_in_deadline_order_never_early_and_soon_after() -> None:
    """Real time: bounded by 30 ms of waiting; lateness is only bounded loosely here (this machine is shared)."""

    async def main() -> list[tuple[int, int]]:
        clock = LoopClock(asyncio.get_running_loop())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        calls: list[tuple[int, int]] = []
        begun = clock.now_ns()
        for ms in (20, 5, 30, 5, 0):
            due = begun + ms * MS
            clock.wake_at(due, lambda due=due: calls.append((due, clock.now_ns())))  # type: ignore[misc]
        clock.wake_at(begun + 30 * MS, lambda: done.set_result(None))
        await asyncio.wait_for(done, 5)
        clock.close()
        return calls

    calls = asyncio.run(main())
    assert len(calls) == 5
    assert [due for due, _ in calls] == sorted(due for due, _ in calls)
    assert all(0 <= now - due < 100 * MS for due, now in calls)


def test_a_call_may_ask_for_another_even_one_already_due() -> None:
    async def main() -> int:
        clock = LoopClock(asyncio.get_running_loop())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        count = 0

        def again() -> None:
            nonlocal count
            count += 1
            if count == 50:
                done.set_result(None)
            else:
                clock.wake_at(0, again)

        clock.wake_at(clock.now_ns(), again)
        await asyncio.wait_for(done, 5)
        clock.close()
        return count

    assert asyncio.run(main()) == 50


def test_a_far_deadline_does_not_put_off_one_that_is_due_at_once() -> None:
    async def main() -> int:
        clock = LoopClock(asyncio.get_running_loop())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        clock.wake_at(0, lambda: done.set_result(None))
        clock.wake_at(clock.now_ns() + 3600 * 1000 * MS, lambda: None)
        begun = clock.now_ns()
        await asyncio.wait_for(done, 5)
        clock.close()
        return clock.now_ns() - begun

    assert asyncio.run(main()) < 1000 * MS


def test_an_error_in_one_call_does_not_lose_the_others() -> None:
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        errors: list[object] = []
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        clock = LoopClock(loop)
        done: asyncio.Future[None] = loop.create_future()
        now = clock.now_ns()
        clock.wake_at(now, lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        clock.wake_at(now + 1, lambda: done.set_result(None))
        await asyncio.wait_for(done, 5)
        clock.close()
        return len(errors) == 1

    assert asyncio.run(main())


def test_work_that_asks_for_more_of_itself_lets_the_loop_breathe() -> None:
    """A chain of calls due at once must not keep sockets and other timers waiting until it ends."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        order: list[str] = []
        done: asyncio.Future[None] = loop.create_future()

        def chain() -> None:
            order.append("chain")
            if len(order) < 50:
                clock.wake_at(0, chain)
            else:
                done.set_result(None)

        clock.wake_at(0, chain)
        loop.call_later(0.0, lambda: order.append("loop"))
        await asyncio.wait_for(done, 5)
        clock.close()
        return order

    order = asyncio.run(main())
    assert order.index("loop") < 10
