"""Faults of the device and of the server's own machinery, in no time: steps, plans, slots, windows, timers,
connections. Faults that come and go while the server runs: windows, chances, and what becomes of a request. Faults
are parsed strictly and drawn repeatably.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import LanguageModel
from plimsoll.reference_server.engine.scheduler import Generation, Scheduler
from plimsoll.reference_server.misfortune.fault import (
    KINDS,
    Break,
    Fault,
    Misfortune,
    Window,
    check_models,
    parse_fault,
)
from plimsoll.reference_server.misfortune.faults import UNBEGUN, Faults, linger
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
from plimsoll.reference_server.values.durations import Stages, Startup
from plimsoll.reference_server.values.errors import ConfigError, RequestError
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

    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[Any]:
        return [2 * sample for sample in samples]

    def postprocess(self, results: Sequence[Any], stages: Any) -> Sequence[Any]:
        return results


def test_a_batch_waits_for_its_straggler_and_gives_the_same_results() -> None:
    clock = Time()
    model = MisfortuneModel(Doubling(), SlowedSteps(unlucky("straggler=p:0.2,by:1s"), clock=clock, sleep=clock.sleep))
    assert all(list(model.forward([i, i + 1], Stages())) == [2 * i, 2 * i + 2] for i in range(40))
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


# -- faults that come and go ----------------------------------------------------------------------------------------

SECOND = 1_000_000_000


def faults(*texts: str, seed: int = 0) -> Faults:
    return Faults([parse_fault(text) for text in texts], seed=seed, sleep=lambda _s: None)


def drawn(made: Faults, n: int, *, in_flight: int = 0) -> Iterator[Misfortune | int]:
    """What becomes of n requests, a millisecond apart: a misfortune, or the status of a refusal."""
    for i in range(n):
        try:
            yield made.draw(i * 1_000_000, in_flight=in_flight)
        except RequestError as error:
            yield error.status


durations = st.integers(0, 5_000)


@given(durations, st.integers(-1, 500), durations, st.integers(0, 20_000))
def test_a_window_changes_at_its_edges_and_nowhere_else(at_ns: int, for_ns: int, every_ns: int, now_ns: int) -> None:
    window = Window(at_ns, for_ns, every_ns)
    edge_ns = window.next_edge(now_ns)
    until_ns = now_ns + 12_000 if edge_ns is None else edge_ns
    assert until_ns > now_ns
    assert len({window.open(t) for t in range(now_ns, until_ns, 37)}) == 1
    if edge_ns is not None and for_ns != 0:
        assert window.open(edge_ns) != window.open(edge_ns - 1)


def test_a_repeated_window_opens_again_and_again() -> None:
    window = Window(at_ns=10, for_ns=3, every_ns=8)
    assert [t for t in range(40) if window.open(t)] == [10, 11, 12, 18, 19, 20, 26, 27, 28, 34, 35, 36]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_fault_written_in_full_reads_as_itself(name: str) -> None:
    needed = {"for": "2s", "by": "1ms"}
    keys = KINDS[name].keys
    text = ",".join(
        f"{key}:{needed.get(key, '0.5' if key == 'p' else '5')}" for key, value in keys.items() if value is None
    )
    fault = parse_fault(f"{name}={text}")
    assert parse_fault(fault.text) == fault


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("memory_leak=per:3MB", "no size"),
        ("memory_leak=0B", "between 1B and 64GiB"),
        ("content_type=type:html", "media type"),
        ("queue_build_up=1.5", "whole number"),
        ("stall=for:always", "write how long"),
        ("slow_drip=bytes:0", "between 1"),
        ("noisy_neighbour=0.5", "between 1 and 1000"),
        ("kv_thrash=keep:2", "between 0 and 1"),
        ("slow_start=compile:1s", "takes import, weights, warm_up"),
        ("jitter", "needs by"),
        ("reset=at:-1", "between 0"),
        ("error_rate=nan", "between 0 and 1"),
        ("error_rate=often", "p: 'often' is not a number. Correct"),
        (
            "error_rate=p=0.1,status=500",
            "'p=0.1' is no KEY:VALUE. error_rate takes p, status. Write it like error_rate=p:",
        ),
        ("cut=0.1:3", "unknown key '0.1'. cut takes p, at. Write it like cut=p:"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        parse_fault(text)


def test_a_fault_that_no_served_model_can_suffer_is_refused() -> None:
    check_models(parse_fault("kv_thrash"), ["scripted", "llm"])
    check_models(parse_fault("cut"), ["scripted"])
    with pytest.raises(ConfigError, match="strikes only llm; served here: scripted"):
        check_models(parse_fault("kv_thrash"), ["scripted"])


def test_times_count_from_the_call_that_placed_the_fault() -> None:
    made = faults()
    made.draw(0)
    placed = made.place(parse_fault("reject=at:1s,for:1s"), 50 * SECOND)
    made.draw(51 * SECOND - 1)
    with pytest.raises(RequestError):
        made.draw(51 * SECOND)
    made.draw(52 * SECOND)
    assert placed.n_hits == 1


def test_nothing_acts_before_the_first_request() -> None:
    made = faults("jitter=1ms")
    assert made.acting("jitter", 5) == []
    made.first(5)
    assert len(made.acting("jitter", 5)) == 1
    assert made.present[0].origin_ns == 5 != UNBEGUN


def test_rejections_come_in_bursts() -> None:
    made = faults("reject=for:2ms,every:5ms,status:429,retry_after:0s")
    assert [i for i, fate in enumerate(drawn(made, 15)) if fate == 429] == [0, 1, 5, 6, 10, 11]


def test_another_fault_does_not_shift_the_draws_of_the_first() -> None:
    alone = [isinstance(fate, Misfortune) and fate.cut_at for fate in drawn(faults("cut=0.3"), 200)]
    beside = faults("error_rate=0", "cut=0.3", "content_type=0.5")
    beside.place(parse_fault("reset=p:0"), 3)
    assert [isinstance(fate, Misfortune) and fate.cut_at for fate in drawn(beside, 200)] == alone


def test_a_fault_is_forgotten_when_it_is_taken_away() -> None:
    made = faults("reject=60m", "slow_headers=1s")
    assert list(drawn(made, 1)) == [503]
    assert [placed.fault.name for placed in made.remove("f1")] == ["reject"]
    assert made.remove("f1") == []
    assert next(drawn(made, 1)) == Misfortune(delay_ns=SECOND)
    assert len(made.remove()) == 1
    assert next(drawn(made, 1)) == Misfortune()


def test_the_fault_placed_last_says_how_an_answer_breaks() -> None:
    (fate,) = drawn(faults("cut=at:4", "reset=at:2"), 1)
    assert isinstance(fate, Misfortune)
    assert (fate.cut_at, fate.break_by, fate.breaks_at_once) == (2, Break.RESET, False)
    (fate,) = drawn(faults("half_open"), 1)
    assert isinstance(fate, Misfortune)
    assert (fate.break_by, fate.breaks_at_once) == (Break.MUTE, True)


def test_one_request_in_n_goes_to_the_stalled_replica() -> None:
    fates = list(drawn(faults("stalled_replica=n:4,by:1s"), 12))
    assert [i for i, fate in enumerate(fates) if isinstance(fate, Misfortune) and fate.hold_ns] == [3, 7, 11]


def test_load_above_the_limit_is_shed_at_a_cost_and_told_to_come_back_at_once() -> None:
    slept: list[float] = []
    made = Faults([parse_fault("retry_storm=limit:2,cost:5ms")], seed=0, sleep=slept.append)
    made.draw(0, in_flight=2)
    with pytest.raises(RequestError) as caught:
        made.draw(1, in_flight=3)
    assert (caught.value.status, caught.value.retry_after_s, slept) == (503, 0, [0.005])
    assert made.present[0].n_hits == 1


def test_a_leak_grows_to_its_cap_and_is_given_back() -> None:
    made = faults("memory_leak=per:1KiB,cap:4KiB")
    list(drawn(made, 10))
    (leak,) = made.present
    assert leak.n_hits == 4
    assert not leak.leak()
    made.remove()
    assert leak.leak()


def test_waits_are_exponential_and_belong_to_their_name() -> None:
    (placed,) = faults("jitter=10ms").present
    waits = [placed.wait_ns(str(i)) for i in range(2000)]
    assert waits == [placed.wait_ns(str(i)) for i in range(2000)]
    assert 9e6 < sum(waits) / len(waits) < 11e6


def test_a_slow_start_lengthens_the_phases_that_are_published() -> None:
    startup = Startup()
    slept: list[float] = []
    linger(faults("slow_start=weights:2s,warm_up:1s"), startup, slept.append)
    assert slept == [2.0, 1.0]
    assert list(startup.phases.spans_ns) == ["weights", "warm_up"]


# -- what is written of faults --------------------------------------------------------------------------------------


def test_an_unknown_fault_lists_all_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_fault("explode=1")
    assert all(name in str(caught.value) for name in KINDS)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("stall", "needs for"),
        ("stall=for:2s,colour:red", "unknown key 'colour'"),
        ("stall=for:2", "no duration"),
        ("error_rate=1.5", "between 0 and 1"),
        ("error_rate=p:0.5,status:200", "between 400 and 599"),
        ("slots=0", "between 1"),
        ("cut=p:x", "'x' is not a number"),
    ],
)
def test_a_bad_fault_is_refused_with_its_bad_part(text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        parse_fault(text)


def test_defaults_fill_in_and_a_bare_value_is_the_main_key() -> None:
    fault = parse_fault("stall=at:5s,for:2s")
    assert (fault.duration_ns("at"), fault.duration_ns("for"), fault.duration_ns("every")) == (
        5 * SECOND,
        2 * SECOND,
        0,
    )
    assert parse_fault("error_rate=0.25").number("p") == 0.25
    assert parse_fault("slow_headers=20ms").duration_ns("by") == 20_000_000


def outcomes(seed: int, *texts: str, n: int = 400) -> list[str]:
    faults = Faults([parse_fault(text) for text in texts], seed=seed)
    faults.first(0)
    seen = []
    for _ in range(n):
        try:
            drawn = faults.draw(1)
        except RequestError as error:
            seen.append(str(error.status))
        else:
            seen.append("cut" if drawn.cut_at >= 0 else "ok")
    return seen


def test_the_same_seed_draws_the_same_faults() -> None:
    assert outcomes(3, "error_rate=0.3") == outcomes(3, "error_rate=0.3") != outcomes(4, "error_rate=0.3")


def test_the_share_of_errors_is_about_what_was_asked_for() -> None:
    assert 80 < outcomes(0, "error_rate=p:0.3,status:502").count("502") < 160


def test_a_rejection_lasts_as_long_as_it_was_given() -> None:
    faults = Faults([parse_fault("reject=at:1s,for:2s,retry_after:1500ms")], seed=0)
    assert faults.first(10 * SECOND)
    assert not faults.first(11 * SECOND)
    faults.draw(11 * SECOND - 1)
    with pytest.raises(RequestError) as caught:
        faults.draw(11 * SECOND)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 2)
    faults.draw(13 * SECOND)
