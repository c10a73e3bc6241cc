"""Random loads on the scheduler: everybody finishes, rank decides who is next, nobody starves, no block is lost or
owned twice, decoding never stands still.

Every trace runs over a cache that remembers what was written where, so a block handed out too early or shared wrongly
is found by its contents, not only by the books.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.scheduler import Generation, QueueFull, Scheduler, TooLong
from plimsoll.reference_server.seams.models import Chunk
from tests.scripted_runner import ScriptedRunner

STEP_NS = 1_000_000
AGEING_NS = 5 * STEP_NS


@dataclass(frozen=True)
class Wish:
    """One request of a load, its times in steps; a cancellation or deadline of -1 never comes."""

    n_prompt: int
    n_new: int
    gap: int = 0
    priority: int = 0
    cancel: int = -1
    deadline: int = -1
    family: int = 0


ALL_FINISH = st.builds(
    Wish, st.integers(1, 60), st.integers(1, 30), st.integers(0, 6), st.integers(-3, 3), family=st.integers(0, 2)
)
ANY_END = st.builds(
    Wish,
    st.integers(1, 60),
    st.integers(1, 30),
    st.integers(0, 6),
    st.integers(-3, 3),
    st.integers(-1, 40),
    st.integers(-1, 40),
    st.integers(0, 2),
)
SHAPES = st.builds(
    lambda size, spare, batch, budget, reuse, chunked, kv_cache: Scheduler(
        KvBlocks(-(-90 // size) + spare, size, reuse_prefixes=reuse),
        max_batch=batch,
        queue_limit=1000,
        max_context=90,
        step_tokens=budget,
        chunked_prefill=chunked,
        kv_cache=kv_cache,
        ageing_ns=AGEING_NS,
    ),
    st.integers(1, 8),
    st.integers(0, 40),
    st.integers(1, 8),
    st.integers(1, 64),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["paged", "asked", "longest"]),
)


@dataclass
class World:
    """A scheduler, what its cache holds, and what became of everybody."""

    scheduler: Scheduler
    generations: dict[int, Generation] = field(default_factory=dict)
    alive: set[int] = field(default_factory=set)
    started: list[int] = field(default_factory=list)
    started_ns: dict[int, int] = field(default_factory=dict)
    finished: dict[int, str] = field(default_factory=dict)
    expired: dict[int, int] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    cache: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """(block, place) -> all tokens up to the one whose keys and values lie there."""
    now_ns: int = 0

    def submit(self, number: int, wish: Wish) -> None:
        deadline_ns = self.now_ns + wish.deadline * STEP_NS if wish.deadline >= 0 else -1
        generation = Generation(
            number,
            [wish.family] * wish.n_prompt,
            wish.n_new,
            ignore_eos=True,
            priority=wish.priority,
            queued_ns=self.now_ns,
            deadline_ns=deadline_ns,
        )
        self.scheduler.submit(generation)
        self.generations[number] = generation
        self.alive.add(number)

    def cancel(self, number: int) -> None:
        if self.scheduler.cancel(number):
            self.cancelled.add(number)
            self.alive.discard(number)

    def step(self, cancel: Sequence[int] = ()) -> list[Chunk]:
        for number in self.scheduler.expire(self.now_ns):
            self.expired[number] = self.now_ns
            self.alive.discard(number)
        sent_back = {number: self.generations[number].n_preempted for number in self.alive}
        chunks = self.scheduler.plan(self.now_ns)
        self.check_plan(chunks, sent_back)
        tokens = ScriptedRunner().step(chunks)
        self.compute(chunks)
        for number in cancel:
            self.cancel(number)
            self.check_blocks()
        for emission in self.scheduler.commit(chunks, tokens):
            if emission.finish:
                self.finished[emission.sequence_id] = emission.finish
                self.alive.discard(emission.sequence_id)
        self.check_blocks()
        self.now_ns += STEP_NS
        return chunks

    def owning(self) -> dict[int, list[int]]:
        tables = {}
        for number in self.alive:
            try:
                tables[number] = list(self.scheduler.blocks.table(number))
            except KeyError:
                continue
        return tables

    def check_plan(self, chunks: Sequence[Chunk], sent_back: dict[int, int]) -> None:
        scheduler, rank = self.scheduler, {number: self.generations[number].rank for number in self.alive}
        ids = [chunk.sequence_id for chunk in chunks]
        assert len(set(ids)) == len(ids) <= scheduler.max_batch
        assert bool(chunks) == bool(self.alive)
        running = self.owning()
        admitted = [number for number in ids if number not in self.started]
        waiting = [number for number in self.alive if number not in running]
        if admitted and waiting:
            assert max(rank[number] for number in admitted) < min(rank[number] for number in waiting)
        for number, before in sent_back.items():
            if self.generations[number].n_preempted > before:
                assert number != min(rank, key=lambda other: rank[other])
        self.started += admitted
        self.started_ns |= dict.fromkeys(admitted, self.now_ns)
        if scheduler.chunked_prefill:
            # Only when decoding alone fills the budget may prompts get their least share beyond it.
            bound = max(scheduler.step_tokens, scheduler.max_batch) + scheduler.blocks.block_size
            assert sum(len(chunk.tokens) for chunk in chunks) <= bound

    def compute(self, chunks: Sequence[Chunk]) -> None:
        """Write what the chunks write, after checking that all that they read is there and theirs."""
        blocks, size = self.scheduler.blocks, self.scheduler.blocks.block_size
        for chunk in chunks:
            tokens = tuple(self.generations[chunk.sequence_id].tokens)
            for position in range(chunk.start):
                assert self.cache[chunk.blocks[position // size], position % size] == tokens[: position + 1]
        written = set()
        for chunk in chunks:
            tokens = tuple(self.generations[chunk.sequence_id].tokens)
            for position in range(chunk.start, chunk.start + len(chunk.tokens)):
                slot = (chunk.blocks[position // size], position % size)
                assert slot not in written
                assert blocks.references(slot[0]) == 1  # nobody writes where others read
                written.add(slot)
                self.cache[slot] = tokens[: position + 1]

    def check_blocks(self) -> None:
        blocks, owners = self.scheduler.blocks, [block for table in self.owning().values() for block in table]
        assert len(set(owners)) == blocks.used == blocks.n_blocks - blocks.available
        assert blocks.reuse_prefixes or len(set(owners)) == len(owners)
        assert all(blocks.references(block) == owners.count(block) for block in set(owners))


def run(scheduler: Scheduler, load: Sequence[Wish]) -> World:
    world = World(scheduler)
    arrivals: dict[int, list[tuple[int, Wish]]] = {}
    at = 0
    for number, wish in enumerate(load):
        arrivals.setdefault(at, []).append((number, wish))
        at += wish.gap
    for step in range(20_000):
        for number, wish in arrivals.pop(step, []):
            world.submit(number, wish)
        ages = {n: (world.now_ns - world.generations[n].queued_ns) // STEP_NS for n in world.alive}
        world.step([number for number, age in ages.items() if age == load[number].cancel])
        if not arrivals and not world.alive:
            return world
    pytest.fail("the scheduler did not come to an end")


@given(load=st.lists(ALL_FINISH, min_size=1, max_size=20), scheduler=SHAPES)
def test_every_admitted_sequence_finishes_and_no_block_is_lost(load: list[Wish], scheduler: Scheduler) -> None:
    world = run(scheduler, load)
    assert world.finished == dict.fromkeys(range(len(load)), "length")
    assert [world.generations[number].n_new for number in range(len(load))] == [wish.n_new for wish in load]
    assert scheduler.blocks.used == scheduler.n_running == scheduler.n_waiting == 0


@given(load=st.lists(ANY_END, min_size=1, max_size=20), scheduler=SHAPES)
def test_whoever_is_neither_cancelled_nor_late_finishes_and_all_blocks_come_back(
    load: list[Wish], scheduler: Scheduler
) -> None:
    world = run(scheduler, load)
    assert {*world.finished, *world.expired, *world.cancelled} == set(range(len(load)))
    for number in world.cancelled - {*world.finished}:
        assert load[number].cancel >= 0
    for number, at_ns in world.expired.items():
        assert at_ns == world.generations[number].deadline_ns  # the first plan that could know it
    assert scheduler.blocks.used == scheduler.n_running == scheduler.n_waiting == 0


@given(load=st.lists(ALL_FINISH, min_size=1, max_size=20), scheduler=SHAPES)
def test_the_more_important_overtake_for_so_long_and_nobody_else_does(load: list[Wish], scheduler: Scheduler) -> None:
    world = run(scheduler, load)
    place = {number: place for place, number in enumerate(world.started)}
    for early in range(len(load)):
        for late in range(early + 1, len(load)):
            levels = load[early].priority - load[late].priority
            came_ns = world.generations[late].queued_ns
            may_overtake = came_ns - world.generations[early].queued_ns < levels * AGEING_NS
            if world.started_ns[early] < came_ns or not may_overtake:
                assert place[early] < place[late]
            else:
                assert place[late] < place[early]


@given(
    priority=st.integers(1, 20),
    n_new=st.integers(1, 6),
    batch=st.integers(1, 4),
    queue_limit=st.integers(1, 12),
    blocks=st.integers(4, 40),
)
def test_nobody_starves_under_an_endless_stream_of_the_more_important(
    priority: int, n_new: int, batch: int, queue_limit: int, blocks: int
) -> None:
    """Bound: after ``priority`` x ageing nobody new gets ahead, and at most the running and the queued are served
    first, one by one at worst. Each needs its prompt and ``n_new`` steps, and may be recomputed while others of a
    better rank go on.
    """
    scheduler = Scheduler(
        KvBlocks(blocks, 4), max_batch=batch, queue_limit=queue_limit + 1, max_context=16, ageing_ns=AGEING_NS
    )
    world = World(scheduler)
    world.submit(0, Wish(3, n_new, priority=priority))
    ahead = queue_limit + 1 + batch
    bound = priority * AGEING_NS // STEP_NS + (ahead + 1) * (n_new + 1)
    number = 1
    for _ in range(bound):
        while True:  # as many as are let in: more than can ever be served
            try:
                world.submit(number, Wish(3, n_new))
            except QueueFull:
                break
            number += 1
        world.step()
        if 0 in world.finished:
            return
    pytest.fail(f"not served after {bound} steps")


@given(n_prompt=st.integers(1, 80), n_decoding=st.integers(1, 6), budget=st.integers(1, 16))
def test_a_long_prompt_never_stops_decoding(n_prompt: int, n_decoding: int, budget: int) -> None:
    scheduler = Scheduler(KvBlocks(500, 4), max_batch=16, queue_limit=9, max_context=400, step_tokens=budget)
    world, late = decoding(scheduler, n_decoding), Generation(99, [1] * n_prompt, 2, ignore_eos=True)
    scheduler.submit(late)
    for _ in range(n_prompt):
        chunks = scheduler.plan()
        sampled = {chunk.sequence_id for chunk in chunks if chunk.sample and chunk.sequence_id != 99}
        assert sampled == world
        assert any(chunk.sequence_id == 99 for chunk in chunks)  # nor does decoding stop the prompt
        scheduler.commit(chunks, ScriptedRunner().step(chunks))
        if late.n_new:
            break
    assert late.n_new >= 1


def decoding(scheduler: Scheduler, n: int) -> set[int]:
    """``n`` sequences, all past their first token."""
    generations = [Generation(number, [1], 300, ignore_eos=True) for number in range(n)]
    for generation in generations:
        scheduler.submit(generation)
    while not all(generation.n_new for generation in generations):
        chunks = scheduler.plan()
        scheduler.commit(chunks, ScriptedRunner().step(chunks))
    return set(range(n))


def test_without_chunks_a_prompt_is_computed_whole_and_decoding_waits_for_it() -> None:
    scheduler = Scheduler(
        KvBlocks(500, 4), max_batch=16, queue_limit=9, max_context=400, step_tokens=8, chunked_prefill=False
    )
    running = decoding(scheduler, 3)
    scheduler.submit(Generation(98, [1] * 60, 2, ignore_eos=True))
    scheduler.submit(Generation(99, [1] * 60, 2, ignore_eos=True))
    plans = []
    for _ in range(3):
        chunks = scheduler.plan()
        plans.append([(chunk.sequence_id, len(chunk.tokens)) for chunk in chunks])
        scheduler.commit(chunks, ScriptedRunner().step(chunks))
    assert plans == [[(98, 60)], [(99, 60)], [(number, 1) for number in (*sorted(running), 98, 99)]]


def test_a_prompt_begun_in_pieces_is_finished_whole_when_the_setting_changes() -> None:
    scheduler = Scheduler(KvBlocks(500, 4), max_batch=16, queue_limit=9, max_context=400, step_tokens=8)
    scheduler.submit(Generation(0, [1] * 60, 2, ignore_eos=True))
    plans = []
    for chunked in (True, False, False):
        scheduler.chunked_prefill = chunked
        chunks = scheduler.plan()
        plans.append([len(chunk.tokens) for chunk in chunks])
        scheduler.commit(chunks, ScriptedRunner().step(chunks))
    assert plans == [[8], [52], [1]]


def test_when_blocks_run_out_the_least_important_is_sent_back_then_the_youngest() -> None:
    def sent_back(priorities: Sequence[int]) -> list[int]:
        scheduler = Scheduler(KvBlocks(20, 4), max_batch=8, queue_limit=9, max_context=80, ageing_ns=AGEING_NS)
        world = World(scheduler)
        for number, priority in enumerate(priorities):
            world.submit(number, Wish(12, 40, priority=priority))
        order: list[int] = []
        while world.alive:
            world.step()
            order += [n for n, g in world.generations.items() if g.n_preempted and n not in order]
        assert world.finished == dict.fromkeys(range(len(priorities)), "length")
        return order

    assert sent_back([0, 0, 0])[0] == 2
    assert sent_back([5, 0, 0])[0] == 0
    assert sent_back([0, 5, 5])[0] == 2
    assert 0 not in sent_back([0, 1, 2])


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


@pytest.mark.parametrize("priority", [-101, 101])
def test_a_priority_that_does_not_exist_is_refused(priority: int) -> None:
    scheduler = Scheduler(KvBlocks(4, 4), max_batch=1, queue_limit=2, max_context=16)
    with pytest.raises(ValueError, match="-100 to 100"):
        scheduler.submit(Generation(0, [1], 1, priority=priority))


def test_each_tokenizer_has_its_own_ends() -> None:
    scheduler = Scheduler(KvBlocks(4, 4), max_batch=1, queue_limit=2, max_context=16, eos=frozenset({5, 6}))
    for number, token, finish in ((0, 257, ""), (1, 5, "stop"), (2, 6, "stop")):
        scheduler.submit(Generation(number, [1], 3))
        chunks = scheduler.plan()
        (emission,) = scheduler.commit(chunks, [token])
        assert emission.finish == finish
        scheduler.cancel(number)


def test_the_time_in_the_queue_counts_again_after_being_sent_back() -> None:
    scheduler = Scheduler(KvBlocks(2, 4), max_batch=2, queue_limit=2, max_context=8)
    first, second = (Generation(number, [1] * 3, 5, ignore_eos=True) for number in (0, 1))
    scheduler.submit(first)
    assert scheduler.waiting_since_ns() == 0
    now_ns = 0
    for now_ns in (7, 8):  # the first takes a block at 7, and grows into the other at 9
        chunks = scheduler.plan(now_ns)
        if now_ns == 7:
            second.queued_ns = second.waiting_ns = 7
            scheduler.submit(second)
        scheduler.commit(chunks, ScriptedRunner().step(chunks))
    assert (first.queue_ns, second.queue_ns, scheduler.waiting_since_ns()) == (7, 0, 7)
    while scheduler.n_running:
        now_ns += 1
        chunks = scheduler.plan(now_ns)
        scheduler.commit(chunks, ScriptedRunner().step(chunks))
        if first.n_new == 5:
            break
    scheduler.plan(100)
    assert second.queue_ns == 93
