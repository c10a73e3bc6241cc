"""Who is let in, who is turned away and when to come back, and what a deadline does to whom it passes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.engine import Engine
from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import Bounds, EngineAnswer, LanguageModel
from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.engine.scheduler import LEAST, Drain, Scheduler
from plimsoll.reference_server.seams.models import Ask
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError, StreamFailure
from tests.scripted_runner import ScriptedRunner

MS = 1_000_000
S = 1_000 * MS


class Gate:
    """A runner's sleep that lets steps through one by one, or all."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)
        self.open = False

    def __call__(self, _: float) -> None:
        self.entered.release()
        assert self.open or self.leave.acquire(timeout=10)

    def let_all_through(self) -> None:
        self.open = True
        self.leave.release()


class Clock:
    """Moved by the test alone."""

    def __init__(self) -> None:
        self.now_ns = 100 * S

    def read(self) -> int:
        return self.now_ns


class Text:
    """A sink that keeps the text."""

    def __init__(self) -> None:
        self.text = ""

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        self.text += text


def ask(n_prompt: int = 3, max_new: int = 5, **options: int) -> Ask:
    return Ask([1] * n_prompt, max_new, TruthRow("id", "llm", 0), ignore_eos=True, **options)  # type: ignore[arg-type]


def with_model(
    play: Callable[[LanguageModel, Gate], Coroutine[None, None, None]],
    *,
    clock: Clock | None = None,
    bounds: Bounds | None = None,
    metrics: Metrics | None = None,
) -> None:
    async def main() -> None:
        gate = Gate()
        now_ns = (clock or Clock()).read
        scheduler = Scheduler(KvBlocks(64, 4), max_batch=1, queue_limit=2, max_context=200)
        engine = Engine(scheduler, ScriptedRunner(sleep=gate), now_ns=now_ns)
        model = LanguageModel(engine, bounds=bounds, metrics=metrics, now_ns=now_ns)
        await model.engine.start()
        try:
            await asyncio.wait_for(play(model, gate), 10)
        finally:
            gate.let_all_through()
            await model.engine.stop()
        assert model.engine.n_tickets == scheduler.blocks.used == scheduler.n_waiting == scheduler.n_running == 0

    asyncio.run(main())


def counted(metrics: Metrics, line: str) -> float:
    for row in metrics.render(None, None).decode().splitlines():
        if row.startswith(line + " "):
            return float(row.split()[-1])
    return 0.0


def test_a_deadline_that_passes_while_waiting_is_a_504() -> None:
    metrics, clock = Metrics(), Clock()

    async def play(model: LanguageModel, gate: Gate) -> None:
        model.ask(ask())  # has the only place, and its step is under way
        await asyncio.to_thread(gate.entered.acquire)
        waits = model.ask(ask(deadline_ns=clock.now_ns + 20 * MS))
        assert model.engine.scheduler.n_waiting == 1
        clock.now_ns += 20 * MS
        with pytest.raises(RequestError, match="the deadline has passed") as refused:
            await waits.ready()
        assert (refused.value.status, refused.value.code) == (504, "deadline_exceeded")
        assert model.engine.scheduler.n_waiting == 0  # though no step has ended meanwhile
        assert counted(metrics, 'reference_deadlines_missed_total{model="llm"}') == 1
        gate.let_all_through()

    with_model(play, metrics=metrics, clock=clock)


def test_a_deadline_that_passes_in_the_first_step_is_a_504_and_frees_the_blocks_at_once() -> None:
    clock = Clock()

    async def play(model: LanguageModel, gate: Gate) -> None:
        answer = model.ask(ask(40, deadline_ns=clock.now_ns + 20 * MS))
        await asyncio.to_thread(gate.entered.acquire)
        assert model.engine.scheduler.blocks.used == 10
        clock.now_ns += 20 * MS
        with pytest.raises(RequestError) as refused:
            await answer.ready()
        assert refused.value.status == 504
        assert model.engine.scheduler.blocks.used == 0  # the step is still under way

    with_model(play, clock=clock)


def test_a_deadline_that_passes_after_the_first_token_breaks_the_answer_off() -> None:
    clock = Clock()

    async def play(model: LanguageModel, gate: Gate) -> None:
        answer, sink = model.ask(ask(max_new=100, deadline_ns=clock.now_ns + 60 * S)), Text()
        gate.leave.release()
        await answer.ready()
        for _ in range(2):
            await asyncio.to_thread(gate.entered.acquire)
        clock.now_ns += 60 * S
        gate.leave.release()  # the step under way gives its token, and is the last
        with pytest.raises(StreamFailure, match="the deadline has passed, after 2 tokens") as failed:
            await answer.play(sink)
        assert (failed.value.status, failed.value.code, len(sink.text)) == (504, "deadline_exceeded", 2)
        assert model.engine.scheduler.blocks.used == 0

    with_model(play, clock=clock)


def test_a_deadline_in_the_past_is_a_504_before_any_work() -> None:
    async def play(model: LanguageModel, gate: Gate) -> None:
        with pytest.raises(RequestError, match="before the request was read") as refused:
            model.ask(ask(deadline_ns=100 * S))
        assert refused.value.status == 504

    with_model(play)


def test_an_answer_in_time_is_whole_and_its_deadline_is_forgotten() -> None:
    async def play(model: LanguageModel, gate: Gate) -> None:
        gate.let_all_through()
        ticket, sink = model.engine.submit([1], max_new=5, ignore_eos=True, deadline_ns=160 * S), Text()
        answer = EngineAnswer(model, ticket, Stages())
        await answer.ready()
        assert (await answer.play(sink)).n_new == 5
        assert ticket.expiry is not None
        assert ticket.expiry.cancelled()  # a timer kept for a minute would keep the answer

    with_model(play)


def test_the_more_important_go_first_and_the_first_come_first_within_a_priority() -> None:
    order: list[int] = []

    async def play(model: LanguageModel, gate: Gate) -> None:
        async def follow(number: int, answer: EngineAnswer) -> None:
            await answer.ready()
            order.append(number)
            await answer.play(Text())

        model.ask(ask())
        await asyncio.to_thread(gate.entered.acquire)
        model.engine.scheduler.queue_limit = 8
        answers = [model.ask(ask(priority=priority)) for priority in (5, 0, 5, -1)]
        following = [asyncio.create_task(follow(number, answer)) for number, answer in enumerate(answers)]
        gate.let_all_through()
        await asyncio.gather(*following)

    with_model(play)
    assert order == [3, 1, 0, 2]


@pytest.mark.parametrize(
    ("wanted", "says", "code"),
    [
        (ask(11), "prompt of 11 tokens exceeds this server's --max-prompt of 10", "prompt_too_long"),
        (ask(10, 21), "max_tokens of 21 exceeds this server's --max-output of 20", "output_too_long"),
        (ask(priority=101), "priority 101: choose from -100 (first) to 100 (last)", "invalid_priority"),
    ],
)
def test_what_goes_beyond_a_bound_is_a_400_that_names_it(wanted: Ask, says: str, code: str) -> None:
    async def play(model: LanguageModel, gate: Gate) -> None:
        with pytest.raises(RequestError) as refused:
            model.ask(wanted)
        assert refused.value.message.startswith(says)
        assert (refused.value.status, refused.value.code) == (400, code)
        with pytest.raises(RequestError, match="--max-prompt"):
            await model.embed([[1], [1] * 11], wanted.script)
        model.ask(ask(10, 20)).close()

    with_model(play, bounds=Bounds(10, 20))


def paced(model: LanguageModel, clock: Clock, seconds: int) -> None:
    """Have the engine believe that an answer ended every so many seconds, the last just now."""
    for back in reversed(range(LEAST)):
        model.engine.drain.departed(clock.now_ns - back * seconds * S, n_waiting=2)


def test_a_full_queue_is_a_503_that_says_when_to_come_back() -> None:
    clock = Clock()

    async def play(model: LanguageModel, gate: Gate) -> None:
        model.ask(ask())
        await asyncio.to_thread(gate.entered.acquire)
        for _ in range(2):
            model.ask(ask())
        for seconds, retry_s in ((0, 1), (2, 4), (100, 60)):  # two wait
            if seconds:
                model.engine.drain.departed(0, n_waiting=0)
                paced(model, clock, seconds)
            with pytest.raises(RequestError, match="the queue is full: 2 requests wait, the limit is 2") as refused:
                model.ask(ask())
            assert (refused.value.status, refused.value.code) == (503, "queue_full")
            assert refused.value.retry_after_s == retry_s

    with_model(play, clock=clock)


def test_a_deadline_out_of_reach_is_a_503_and_one_within_reach_is_let_in() -> None:
    clock = Clock()

    async def play(model: LanguageModel, gate: Gate) -> None:
        model.engine.scheduler.queue_limit = 10
        model.ask(ask())
        await asyncio.to_thread(gate.entered.acquire)
        for _ in range(4):
            model.ask(ask())
        model.ask(ask(deadline_ns=clock.now_ns + 1)).close()  # no pace is known yet
        paced(model, clock, 2)  # four wait, which takes 8 s, or 4 s when things go twice as fast
        with pytest.raises(RequestError, match="too slowly for the deadline") as refused:
            model.ask(ask(deadline_ns=clock.now_ns + 4 * S - 1))
        assert (refused.value.status, refused.value.code) == (503, "deadline_unreachable")
        assert refused.value.retry_after_s == 8
        model.ask(ask(deadline_ns=clock.now_ns + 3 * S, priority=-10)).close()  # it would be the next
        model.ask(ask(deadline_ns=clock.now_ns + 4 * S)).close()

    with_model(play, clock=clock)


def test_who_waits_only_for_the_next_step_is_no_queue() -> None:
    clock = Clock()

    async def play(model: LanguageModel, gate: Gate) -> None:
        scheduler = model.engine.scheduler
        scheduler.max_batch = 8
        answers = [model.ask(ask(max_new=1))]
        await asyncio.to_thread(gate.entered.acquire)
        paced(model, clock, 2)
        answers += [model.ask(ask(max_new=9)) for _ in range(3)]
        assert (scheduler.n_waiting, scheduler.n_kept) == (3, 0)
        model.ask(ask(deadline_ns=clock.now_ns + 1)).close()  # the next step has room for it
        gate.leave.release()
        await answers[0].ready()
        await asyncio.to_thread(gate.entered.acquire)
        assert (
            model.engine.drain.wait_s(1, clock.now_ns) is None
        )  # and who left meanwhile says nothing of a queue's pace
        for answer in answers:
            answer.close()

    with_model(play, clock=clock)


def test_who_still_waits_when_the_server_stops_is_told_with_a_503() -> None:
    async def main() -> None:
        model = LanguageModel(
            Engine(Scheduler(KvBlocks(8, 4), max_batch=1, queue_limit=1, max_context=32), ScriptedRunner())
        )
        answer = model.ask(ask())
        await model.engine.stop()
        with pytest.raises(RequestError) as refused:
            await answer.ready()
        assert (refused.value.status, refused.value.code) == (503, "shutting_down")
        with pytest.raises(RequestError) as refused:
            model.ask(ask())
        assert (refused.value.status, refused.value.retry_after_s) == (503, 1)

    asyncio.run(main())


@pytest.mark.parametrize("stage", ["waiting", "prefilling", "decoding"])
def test_an_answer_given_up_frees_everything_wherever_it_is(stage: str) -> None:
    async def play(model: LanguageModel, gate: Gate) -> None:
        scheduler = model.engine.scheduler
        if stage == "waiting":
            first = model.ask(ask())
            await asyncio.to_thread(gate.entered.acquire)
        answer = model.ask(ask(100, 50))
        if stage != "waiting":
            await asyncio.to_thread(gate.entered.acquire)
        if stage == "decoding":
            gate.leave.release(2)
            await answer.ready()
        assert (scheduler.n_waiting, scheduler.n_running) == ((1, 1) if stage == "waiting" else (0, 1))
        answer.close()
        answer.close()
        assert model.engine.n_tickets == scheduler.n_running == (1 if stage == "waiting" else 0)
        if stage == "waiting":
            first.close()
        assert scheduler.blocks.used == scheduler.n_waiting == 0

    with_model(play)


@given(gaps=st.lists(st.integers(0, 10 * S), min_size=1, max_size=200), n=st.integers(0, 300), since=st.integers(0, S))
def test_an_estimate_is_the_measured_pace_and_never_a_guess(gaps: list[int], n: int, since: int) -> None:
    drain, now_ns, seen = Drain(), 0, []
    for gap in gaps:
        now_ns += gap
        drain.departed(now_ns, n_waiting=1)
        seen.append(now_ns)
    now_ns += since
    retry_s, wait_s = drain.retry_after_s(n, now_ns), drain.wait_s(n, now_ns)
    assert 1 <= retry_s <= 60
    if len(seen) < LEAST:
        assert (wait_s, retry_s) == (None, 1)
        assert not drain.too_late(n, now_ns, now_ns)
        return
    assert wait_s is not None
    last = seen[-64:]
    assert wait_s == pytest.approx(n * max(now_ns - last[0], 1) / 1e9 / (len(last) - 1))
    assert retry_s >= min(wait_s, 60)
    assert not drain.too_late(n, -1, now_ns)
    assert drain.too_late(n, now_ns + int(wait_s * 0.49e9), now_ns) == (n > 0 and wait_s > 1e-7)
    assert not drain.too_late(n, now_ns + int(wait_s * 0.51e9) + 1, now_ns)
    drain.departed(now_ns, n_waiting=0)
    assert drain.wait_s(n, now_ns) is None  # nobody waits: what was measured is history
