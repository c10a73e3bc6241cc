"""Random loads on the scheduler: everybody finishes, nobody overtakes, no block is lost, decoding never stands still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_server.kv_blocks import KvBlocks
from reference_server.runner import Chunk, ScriptedRunner
from reference_server.scheduler import Generation, QueueFull, Scheduler, TooLong

LOADS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 30), st.integers(0, 6)), min_size=1, max_size=20)
"""(prompt length, tokens to generate, steps until the next arrival)"""


@dataclass
class Trace:
    """What a run of the scheduler showed."""

    generations: list[Generation] = field(default_factory=list)
    plans: list[list[Chunk]] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    finished: dict[int, str] = field(default_factory=dict)


def run(scheduler: Scheduler, load: Sequence[tuple[int, int, int]], cancel: frozenset[int] = frozenset()) -> Trace:
    runner, trace = ScriptedRunner(), Trace()
    arrivals: list[Generation | None] = []
    for number, (n_prompt, n_new, gap) in enumerate(load):
        arrivals += [Generation(number, [7] * n_prompt, n_new, ignore_eos=True), *[None] * gap]
    for step in range(20_000):
        while arrivals and (arrival := arrivals.pop(0)) is not None:
            scheduler.submit(arrival)
            trace.generations.append(arrival)
        chunks = scheduler.plan()
        check(scheduler, chunks)
        trace.plans.append(chunks)
        trace.started += [c.sequence_id for c in chunks if c.sequence_id not in trace.started]
        if step % 3 == 1 and chunks and chunks[-1].sequence_id in cancel:
            scheduler.cancel(chunks[-1].sequence_id)  # while the step is under way
        for emission in scheduler.commit(chunks, runner.step(chunks)):
            if emission.finish:
                trace.finished[emission.sequence_id] = emission.finish
        if not chunks and not arrivals:
            return trace
    pytest.fail("the scheduler did not come to an end")


def check(scheduler: Scheduler, chunks: Sequence[Chunk]) -> None:
    ids = [chunk.sequence_id for chunk in chunks]
    assert len(set(ids)) == len(ids) <= scheduler.max_batch
    written: set[tuple[int, int]] = set()
    for chunk in chunks:
        for position in range(chunk.start, chunk.start + len(chunk.tokens)):
            size = scheduler.blocks.block_size
            slot = (chunk.blocks[position // size], position % size)
            assert slot not in written
            written.add(slot)
    # Only when decoding alone fills the budget may prompts get their least share beyond it.
    bound = max(scheduler.step_tokens, scheduler.max_batch) + scheduler.blocks.block_size
    assert sum(len(chunk.tokens) for chunk in chunks) <= bound


def scheduler_of(n_blocks: int, size: int, batch: int, budget: int, reuse: bool) -> Scheduler:
    blocks = KvBlocks(n_blocks, size, reuse_prefixes=reuse)
    return Scheduler(blocks, max_batch=batch, queue_limit=1000, max_context=90, step_tokens=budget)


SHAPES = {
    "size": st.integers(1, 8),
    "spare": st.integers(0, 40),
    "batch": st.integers(1, 8),
    "budget": st.integers(1, 64),
    "reuse": st.booleans(),
}


@given(load=LOADS, **SHAPES)
def test_every_admitted_sequence_finishes_and_no_block_is_lost(
    load: list[tuple[int, int, int]], size: int, spare: int, batch: int, budget: int, reuse: bool
) -> None:
    scheduler = scheduler_of(-(-90 // size) + spare, size, batch, budget, reuse)
    trace = run(scheduler, load)
    assert trace.finished == dict.fromkeys(range(len(load)), "length")
    assert [generation.n_new for generation in trace.generations] == [n_new for _, n_new, _ in load]
    assert scheduler.blocks.used == 0
    assert scheduler.n_running == scheduler.n_waiting == 0


@given(load=LOADS, **SHAPES)
def test_sequences_start_in_order_of_arrival(
    load: list[tuple[int, int, int]], size: int, spare: int, batch: int, budget: int, reuse: bool
) -> None:
    trace = run(scheduler_of(-(-90 // size) + spare, size, batch, budget, reuse), load)
    assert trace.started == sorted(trace.started)


@given(load=LOADS, cancel=st.frozensets(st.integers(0, 19)), **SHAPES)
def test_cancelling_in_the_middle_of_a_step_loses_no_block(
    load: list[tuple[int, int, int]],
    cancel: frozenset[int],
    size: int,
    spare: int,
    batch: int,
    budget: int,
    reuse: bool,
) -> None:
    scheduler = scheduler_of(-(-90 // size) + spare, size, batch, budget, reuse)
    trace = run(scheduler, load, cancel)
    assert set(range(len(load))) - set(trace.finished) <= cancel
    assert scheduler.blocks.used == 0


@given(n_prompt=st.integers(1, 80), n_decoding=st.integers(1, 6), budget=st.integers(1, 16))
def test_a_long_prompt_never_stops_decoding(n_prompt: int, n_decoding: int, budget: int) -> None:
    scheduler = Scheduler(KvBlocks(500, 4), max_batch=16, queue_limit=9, max_context=400, step_tokens=budget)
    runner = ScriptedRunner()
    decoders = [Generation(number, [1], 300, ignore_eos=True) for number in range(n_decoding)]
    for generation in decoders:
        scheduler.submit(generation)
    while not all(generation.n_new for generation in decoders):
        chunks = scheduler.plan()
        scheduler.commit(chunks, runner.step(chunks))
    late = Generation(99, [1] * n_prompt, 2, ignore_eos=True)
    scheduler.submit(late)
    for _ in range(n_prompt):
        chunks = scheduler.plan()
        decoding = {chunk.sequence_id for chunk in chunks if chunk.sample and chunk.sequence_id != 99}
        assert decoding == set(range(n_decoding))
        assert any(chunk.sequence_id == 99 for chunk in chunks)  # nor does decoding stop the prompt
        scheduler.commit(chunks, runner.step(chunks))
        if late.n_new:
            break
    assert late.n_new >= 1


def test_when_blocks_run_out_the_youngest_is_sent_back() -> None:
    scheduler = scheduler_of(23, 4, 8, 64, reuse=False)
    trace = run(scheduler, [(20, 30, 0)] * 4)
    assert scheduler.n_preempted > 0
    assert trace.generations[0].n_preempted == 0
    assert list(trace.finished) == [0, 1, 2, 3]


@pytest.mark.parametrize("planned_between", [True, False])
def test_the_queue_limit_counts_only_those_who_have_to_wait(planned_between: bool) -> None:
    scheduler = Scheduler(KvBlocks(100, 4), max_batch=3, queue_limit=2, max_context=90)
    for number in range(5):  # three that are admitted in the next step, two that wait
        scheduler.submit(Generation(number, [1], 5))
        if planned_between:
            scheduler.plan()
    with pytest.raises(QueueFull):
        scheduler.submit(Generation(5, [1], 5))
    scheduler.cancel(0)
    scheduler.submit(Generation(6, [1], 5))


def test_a_sequence_that_can_never_fit_is_refused() -> None:
    scheduler = Scheduler(KvBlocks(4, 4), max_batch=1, queue_limit=2, max_context=90)
    with pytest.raises(TooLong):
        scheduler.submit(Generation(0, [1] * 10, 7))
    scheduler.submit(Generation(1, [1] * 10, 6))
