"""Faults of the device and of the server's own machinery, in no time: steps, plans, slots, windows, timers,
connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import LanguageModel
from plimsoll.reference_server.engine.scheduler import Generation, Scheduler
from plimsoll.reference_server.misfortune.fault import Fault, parse_fault
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.misfortune.levers import (
    Levers,
    MisfortuneModel,
    MisfortuneRunner,
    OutOfMemory,
    SchedulerLever,
    SlowedSteps,
    slots_lever,
    window_lever,
)
from plimsoll.reference_server.seams.models import Chunk
from plimsoll.reference_server.service.service import Canary
from plimsoll.reference_server.transports.http_calls import Drip
from plimsoll.reference_server.values.errors import ConfigError
from plimsoll.reference_server.values.timetable import DeadlineWheel, Fire
from tests.scripted_runner import ScriptedRunner

MS = 1_000_000


class Time:
    """A clock that only sleeping moves on."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.slept: list[float] = []

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 9))
        self.now_ns += round(seconds * 1e9)


def unlucky(*texts: str) -> Faults:
    made = Faults([parse_fault(text) for text in texts], seed=0)
    made.first(0)
    return made


def chunk(sequence_id: int, n: int = 1, start: int = 5) -> Chunk:
    return Chunk(sequence_id, [0] * n, start, range(100), True, False)


def stepped(*texts: str) -> tuple[MisfortuneRunner, Time]:
    """A runner whose every step takes 10 ms, under those faults."""
    clock = Time()
    inside = ScriptedRunner(step_s=0.01, sleep=clock.sleep)
    return MisfortuneRunner(inside, SlowedSteps(unlucky(*texts), clock=clock, sleep=clock.sleep)), clock


@pytest.mark.parametrize(
    ("text", "slept"),
    [
        ("noisy_neighbour=factor:4,for:always", [0.01, 0.03]),
        ("noisy_neighbour=factor:4,for:5ms,every:1s", [0.01]),
        ("straggler=p:1,by:25ms", [0.01, 0.025]),
        ("straggler=p:0,by:25ms", [0.01]),
        ("straggler=p:1,by:25ms,at:1s", [0.01]),
    ],
)
def test_a_step_takes_longer_by_what_the_fault_says(text: str, slept: list[float]) -> None:
    runner, clock = stepped(text)
    assert runner.step([chunk(1), chunk(2)]) == ScriptedRunner().step([chunk(1), chunk(2)])
    assert clock.slept == slept


def test_the_same_sequences_are_stragglers_alone_and_in_any_company() -> None:
    alone = []
    for i in range(60):
        runner, clock = stepped("straggler=p:0.3,by:1s")
        runner.step([chunk(i)])
        alone.append(len(clock.slept) == 2)
    assert 8 < sum(alone) < 30
    runner, clock = stepped("straggler=p:0.3,by:1s")
    runner.step([chunk(i) for i in range(60)])
    assert clock.slept == [0.01, 1.0]  # however many there are, the step waits once


def test_a_long_sequence_fails_its_step_before_anything_is_computed() -> None:
    runner, clock = stepped("long_oom=20")
    runner.step([chunk(1, n=15)])
    with pytest.raises(OutOfMemory, match="21 tokens"):
        runner.step([chunk(1), chunk(2, n=16)])
    assert clock.slept == [0.01]


def test_jitter_is_another_wait_at_each_step() -> None:
    runner, clock = stepped("jitter=10ms")
    for _ in range(50):
        runner.step([chunk(1)])
    waits = clock.slept[1::2]
    assert len(set(waits)) == 50
    assert 0.005 < sum(waits) / 50 < 0.02


class Doubling:
    """A batch model of numbers."""

    name = "doubling"
    inputs: Sequence[Any] = ()
    outputs: Sequence[Any] = ()

    def warm_up(self, max_batch: int) -> None:
        """Nothing."""

    def preprocess(self, tensors: Any, stages: Any) -> Sequence[Any]:
        return [1]

    def forward(self, samples: Sequence[Any]) -> Sequence[Any]:
        return [2 * sample for sample in samples]

    def postprocess(self, results: Sequence[Any], stages: Any) -> Sequence[Any]:
        return results


def test_a_batch_waits_for_its_straggler_and_gives_the_same_results() -> None:
    clock = Time()
    model = MisfortuneModel(Doubling(), SlowedSteps(unlucky("straggler=p:0.2,by:1s"), clock=clock, sleep=clock.sleep))
    assert all(list(model.forward([i, i + 1])) == [2 * i, 2 * i + 2] for i in range(40))
    assert 5 < len(clock.slept) < 30


def scheduled(*texts: str, n_blocks: int = 12, **options: Any) -> tuple[Scheduler, Faults]:
    faults = unlucky(*texts)
    scheduler = Scheduler(
        KvBlocks(n_blocks, 4), max_batch=8, queue_limit=100, max_context=48, step_tokens=16, **options
    )
    SchedulerLever(scheduler, faults)
    return scheduler, faults


def work_off(scheduler: Scheduler, limit: int = 3000) -> int:
    """Steps until nothing is left."""
    for step in range(limit):
        chunks = scheduler.plan(step * MS)
        if not chunks:
            assert scheduler.n_running + scheduler.n_waiting == 0, "work is left, and no plan"
            return step
        scheduler.commit(chunks, [ord("a") for chunk in chunks if chunk.sample])
    raise AssertionError("it never ends")


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=12),
    st.floats(0, 1),
    st.integers(1, 4),
    st.integers(0, 60),
    st.integers(1, 60),
)
def test_under_any_faults_everyone_finishes_and_no_block_is_lost(
    sizes: list[tuple[int, int]], keep: float, slots: int, at_ms: int, for_ms: int
) -> None:
    lasting = f"at:{at_ms}ms,for:{for_ms}ms,every:{2 * for_ms}ms"
    scheduler, _ = scheduled(
        f"kv_thrash=keep:{keep:.3f},{lasting}", f"queue_build_up=slots:{slots},{lasting}", f"prefill_stall={lasting}"
    )
    for i, (n_prompt, n_new) in enumerate(sizes):
        scheduler.submit(Generation(i, [7] * n_prompt, n_new, ignore_eos=True))
    work_off(scheduler)
    scheduler.plan(10**15)
    assert scheduler.blocks.available == scheduler.blocks.n_blocks


def test_blocks_that_are_taken_away_make_sequences_push_each_other_out() -> None:
    calm, _ = scheduled(n_blocks=40)
    thrashing, _ = scheduled("kv_thrash=0.2", n_blocks=40)
    for scheduler in (calm, thrashing):
        for i in range(4):
            scheduler.submit(Generation(i, [7] * 4, 30, ignore_eos=True))
    steps = [work_off(scheduler) for scheduler in (calm, thrashing)]
    assert (calm.n_preempted, thrashing.n_preempted > 3) == (0, True)
    assert steps[1] > steps[0]


def test_settings_go_back_when_the_fault_is_taken_away() -> None:
    scheduler, faults = scheduled("queue_build_up=2", "prefill_stall")
    scheduler.plan(1)
    assert (scheduler.max_batch, scheduler.chunked_prefill) == (2, False)
    faults.remove()
    scheduler.plan(2)
    assert (scheduler.max_batch, scheduler.chunked_prefill) == (8, True)


class Recorder:
    """What levers set, in order."""

    def __init__(self) -> None:
        self.settings: list[int | None] = []

    def limit(self, n_slots: int | None) -> None:
        self.settings.append(n_slots)

    def widen(self, by_ns: int) -> None:
        self.settings.append(by_ns)


class Wheel:
    """Timers that fire when they are told to."""

    def __init__(self) -> None:
        self.due: list[tuple[int, Fire]] = []

    def at(self, due_ns: int, fire: Fire) -> Wheel:
        self.due.append((due_ns, fire))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def run(self, until_ns: int) -> None:
        while self.due and self.due[0][0] <= until_ns:
            due_ns, fire = self.due.pop(0)
            following_ns = fire(due_ns)
            if following_ns is not None:
                self.due.append((following_ns, fire))


def test_levers_are_pulled_when_a_fault_begins_and_when_it_ends() -> None:
    wheel, model, batcher = Wheel(), Recorder(), Recorder()
    faults = Faults([parse_fault("slots=9")], seed=0)
    levers = Levers(cast(DeadlineWheel, wheel), faults)
    levers.attach(slots_lever(model, faults))
    levers.attach(window_lever(batcher, faults))
    far_ns = 10**18  # later than any clock of this host
    faults.place(parse_fault("queue_build_up=slots:3,at:1s,for:1s"), far_ns)
    faults.place(parse_fault("batch_window=by:5ms,for:3s"), far_ns)
    levers.changed(far_ns)
    wheel.run(far_ns + 10**10)
    assert model.settings == [9, 9, 3, 9, 9]
    assert batcher.settings == [0, 5 * MS, 5 * MS, 5 * MS, 0]


def test_a_stall_that_is_taken_away_does_not_freeze_anything() -> None:
    wheel = Wheel()
    faults = unlucky()
    levers = Levers(cast(DeadlineWheel, wheel), faults)
    faults.place(parse_fault("stall=at:1s,for:1s"), 10**18)
    levers.changed(10**18)
    assert [due_ns - 10**18 for due_ns, _ in wheel.due] == [10**9]
    faults.remove()
    levers.changed(10**18)
    assert wheel.due == []


def test_lateness_belongs_to_request_and_position() -> None:
    faults = unlucky("jitter=5ms")
    late = {(name, i): faults.late_ns(name, i, 1) for name in ("a", "b") for i in range(20)}
    assert len(set(late.values())) == 40
    assert late == {key: faults.late_ns(*key, 99) for key in late}
    assert unlucky().late_ns("a", 0, 1) == 0


class Pipe(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 0


def test_a_drip_lets_every_byte_through_in_order_a_few_at_a_time() -> None:
    async def scene() -> list[bytes]:
        pipe, wheel = Pipe(), Wheel()
        drip = Drip(pipe, cast(DeadlineWheel, wheel), 4, MS)
        drip.write(b"abcdefg")
        drip.write(b"hij")
        assert drip.get_write_buffer_size() == 10
        wheel.run(10**19)
        await drip.drained()
        return pipe.written

    assert asyncio.run(scene()) == [b"abcd", b"efgh", b"ij"]


def test_a_drip_into_a_closed_connection_ends() -> None:
    async def scene() -> list[bytes]:
        pipe, wheel = Pipe(), Wheel()
        drip = Drip(pipe, cast(DeadlineWheel, wheel), 4, MS)
        drip.write(b"abcdefg")
        pipe.closing = True
        wheel.run(10**19)
        await drip.drained()
        return pipe.written

    assert asyncio.run(scene()) == []


class Copy:
    """A model that notes whether it was stopped."""

    def __init__(self) -> None:
        self.engine = self
        self.stopped = False

    async def stop(self) -> None:
        self.stopped = True


def canary(faults: Faults, made: list[Copy]) -> Canary:
    async def build(_fault: Fault) -> LanguageModel:
        made.append(Copy())
        return cast(LanguageModel, made[-1])

    return Canary(faults, build)


def test_the_slice_that_goes_to_the_copy_depends_on_the_prompt_alone() -> None:
    async def scene(begin: Callable[[Faults], None]) -> list[bool]:
        faults = Faults([parse_fault("quality=slice:0.3")], seed=5)
        begin(faults)
        bird = canary(faults, [])
        await bird.start()
        return [bird.model_for([1, i]) is not None for i in range(200)]

    first = asyncio.run(scene(lambda faults: bool(faults.first(0))))
    assert 35 < sum(first) < 90
    assert asyncio.run(scene(lambda faults: bool(faults.first(0)))) == first
    assert not any(asyncio.run(scene(lambda _faults: None)))  # before the first request nothing acts


def test_there_is_one_quality_regression_at_a_time() -> None:
    async def scene() -> None:
        made: list[Copy] = []
        faults = Faults(seed=0)
        bird = canary(faults, made)
        await bird.prepare(parse_fault("quality"))
        faults.place(parse_fault("quality"), 0)
        with pytest.raises(ConfigError, match="in force already"):
            await bird.prepare(parse_fault("quality"))
        faults.remove()
        await bird.prepare(parse_fault("quality"))
        assert [copy.stopped for copy in made] == [True, False]
        await bird.stop()
        assert made[1].stopped
        with pytest.raises(ConfigError, match="given twice"):
            await canary(unlucky("quality", "quality"), []).start()

    asyncio.run(scene())
