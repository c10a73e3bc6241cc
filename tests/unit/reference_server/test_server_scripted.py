"""The scripted model's timetable and its slots; the wheel's order. Everything due here lies in the past: no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.scripted import ScriptedAnswer, ScriptedModel
from plimsoll.reference_server.misfortune.fault import parse_fault
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.seams.models import Ask, Script
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.transports.stream import EventSink, Stopped, StopSink, TextSink, struck
from plimsoll.reference_server.values.errors import RequestError, StreamCut, StreamFailure
from plimsoll.reference_server.values.timetable import DeadlineWheel


def on_wheel(play: Callable[[DeadlineWheel], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        wheel = DeadlineWheel(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(play(wheel), 10)
        finally:
            wheel.close()

    asyncio.run(main())


def model_on(wheel: DeadlineWheel, **settings: int) -> ScriptedModel:
    return ScriptedModel(wheel, ttft_ns=50, itl_ns=10, seed=0, **settings)


def ask(script: Script | None = None, *, n: int = 4) -> Ask:
    return Ask([65], n, TruthRow("r", "scripted", 1000), script=script or Script())


def test_nothing_is_written_or_stamped_when_the_client_is_gone() -> None:
    class Gone(asyncio.WriteTransport):
        def is_closing(self) -> bool:
            return True

    row = TruthRow("r", "scripted", 1000)
    sink = EventSink(Gone(), row, str.encode, chunked=True)
    with pytest.raises(ConnectionError):
        sink.token("word", 1, -1)
    assert len(row.before_ns) == 0


def test_a_timetable_that_a_text_ends_counts_up_to_there() -> None:
    async def play(wheel: DeadlineWheel) -> None:
        wanted = ask(n=9)
        answer = model_on(wheel).ask(wanted)
        await answer.ready()
        with pytest.raises(Stopped):
            await answer.play(StopSink(TextSink(), ["is"]))  # the third word
        assert wanted.stages.spans_ns["decode"] == 2 * 10
        answer.close()

    on_wheel(play)


def test_an_answer_with_other_words_keeps_its_times() -> None:
    async def said(wheel: DeadlineWheel, faults: Faults) -> tuple[str, int]:
        model = ScriptedModel(wheel, ttft_ns=50, itl_ns=10, seed=0, rewords=faults.rewords)
        answer, sink = model.ask(wanted := ask()), TextSink()
        await answer.ready()
        await answer.play(sink)
        answer.close()
        return sink.text, wanted.stages.spans_ns["decode"]

    async def play(wheel: DeadlineWheel) -> None:
        as_ever, struck_all = (Faults([parse_fault(f"other_words={p}")], seed=0) for p in (0, 1))
        assert as_ever.first(0)
        assert struck_all.first(0)
        (one, took), (other, too) = await said(wheel, as_ever), await said(wheel, struck_all)
        assert one.split()[1:] == other.split()[:-1]
        assert one != other
        assert took == too
        assert [faults.present[0].n_hits for faults in (as_ever, struck_all)] == [0, 1]

    on_wheel(play)


@given(
    n=st.integers(1, 40),
    ttft_ns=st.integers(0, 10**9),
    itl_ns=st.integers(0, 10**8),
    stall=st.tuples(st.integers(-1, 50), st.integers(0, 10**9)),
    step=st.integers(1, 5),
)
def test_events_come_at_their_due_instants_in_order(
    n: int, ttft_ns: int, itl_ns: int, stall: tuple[int, int], step: int
) -> None:
    script = Script(ttft_ns=ttft_ns, itl_ns=itl_ns, stall_at=stall[0], stall_ns=stall[1], tokens_per_event=step)

    async def play(wheel: DeadlineWheel) -> None:
        answer = model_on(wheel).ask(ask(script, n=n))
        due = [answer.due_ns(position) for position in range(0, n, step)]
        assert due == sorted(due)
        assert due[0] == 1000 + ttft_ns + (stall[1] if stall[0] == 0 else 0)
        paused = 0 <= stall[0] <= (n - 1) // step * step
        assert due[-1] == 1000 + ttft_ns + (n - 1) // step * itl_ns + paused * stall[1]

    on_wheel(play)


def test_an_answer_has_all_its_tokens_whatever_the_event_size() -> None:
    async def play(wheel: DeadlineWheel) -> None:
        texts = []
        for step in (1, 2, 3, 7):
            answer, sink = model_on(wheel).ask(ask(Script(tokens_per_event=step), n=7)), TextSink()
            await answer.ready()
            finish = await answer.play(sink)
            answer.close()
            assert (finish.reason, finish.n_new) == ("length", 7)
            texts.append(sink.text)
        assert texts == [" the line is painted on her hull"] * 4

    on_wheel(play)


def test_slots_are_passed_on_in_order_and_survive_who_gives_up() -> None:
    async def play(wheel: DeadlineWheel) -> None:
        model = model_on(wheel, n_slots=1)
        answers = [model.ask(ask()) for _ in range(4)]
        await answers[0].ready()
        waiting = [asyncio.create_task(answer.ready()) for answer in answers[1:]]
        await asyncio.sleep(0)
        assert (model.n_busy, model.n_waiting) == (1, 3)
        waiting[0].cancel()  # gives up while waiting
        await asyncio.wait({waiting[0]})
        assert model.n_waiting == 2
        answers[0].close()
        waiting[1].cancel()  # gives up in the very moment of getting the slot
        await asyncio.wait({waiting[1]})
        await waiting[2]
        assert (model.n_busy, model.n_waiting) == (1, 0)
        answers[3].close()
        answers[3].close()
        assert model.n_busy == 0

    on_wheel(play)


def test_slots_are_a_queue_whose_ends_are_chained_to_ends_however_late_we_wake_up() -> None:
    async def play(wheel: DeadlineWheel) -> None:
        model = model_on(wheel, n_slots=1)
        rows = [TruthRow(f"r{i}", "scripted", received) for i, received in enumerate((1000, 1010, 1020, 5000))]
        answers = [model.ask(Ask([65], 2, row, script=Script())) for row in rows]

        async def through(answer: ScriptedAnswer) -> tuple[int, int]:
            await answer.ready()
            await answer.play(TextSink())
            answer.close()
            return answer.due_ns(0), answer.due_ns(1)

        # All of it lies in the past, so that each wakes up ages after its time. The last one finds the slot free.
        due = await asyncio.gather(*(through(answer) for answer in answers))
        assert due == [(1050, 1060), (1110, 1120), (1170, 1180), (5050, 5060)]
        assert (model.n_busy, model.n_waiting) == (0, 0)

    on_wheel(play)


def test_two_slots_serve_whoever_is_first_at_the_one_that_is_free_first() -> None:
    async def play(wheel: DeadlineWheel) -> None:
        model = model_on(wheel, n_slots=2)
        starts = []
        for received, took in ((1000, 100), (1000, 30), (1001, 5), (1002, 5), (2000, 1)):
            row = TruthRow(f"r{received}-{took}", "scripted", received)
            answer = model.ask(Ask([65], 1, row, script=Script(ttft_ns=took)))
            await answer.ready()
            await answer.play(TextSink())
            starts.append(answer.due_ns(0) - took)
            answer.close()
        assert starts == [1000, 1000, 1030, 1035, 2000]

    on_wheel(play)


def test_exponential_service_has_the_mean_it_was_told_and_the_same_draw_for_the_same_request() -> None:
    async def play(wheel: DeadlineWheel) -> None:
        model = ScriptedModel(wheel, ttft_ns=10**6, itl_ns=0, seed=3, service="exponential")
        drawn = [model.stretch(f"run-{i}-0") for i in range(20_000)]
        mean = sum(drawn) / len(drawn)
        assert abs(mean - 1) < 0.03  # four standard errors
        assert abs(sum((x - mean) ** 2 for x in drawn) / len(drawn) - 1) < 0.08
        answer = model.ask(Ask([65], 1, TruthRow("run-7-0", "scripted", 0), script=Script()))
        assert answer.due_ns(0) == round(10**6 * drawn[7])

    on_wheel(play)


def test_too_many_waiting_for_a_slot_are_refused() -> None:
    async def play(wheel: DeadlineWheel) -> None:
        model = model_on(wheel, n_slots=1, queue_limit=0)
        first = model.ask(ask())
        await first.ready()
        with pytest.raises(RequestError) as caught:
            model.ask(ask())
        assert (caught.value.status, caught.value.retry_after_s) == (503, 1)
        first.close()
        await model.ask(ask()).ready()

    on_wheel(play)


def test_the_wheel_fires_in_order_of_due_time_and_skips_the_cancelled() -> None:
    async def play(wheel: DeadlineWheel) -> None:
        fired: list[int] = []
        done = asyncio.Event()

        def note(due_ns: int) -> None:
            fired.append(due_ns)
            if due_ns == 9:
                done.set()

        wheel.at(9, note)
        wheel.at(3, note)
        wheel.at(5, note).cancel()
        wheel.at(4, note)
        wheel.at(1, lambda due_ns: (note(due_ns), due_ns + 6 if due_ns < 7 else None)[1])
        await done.wait()
        assert fired == [1, 3, 4, 7, 9]

    on_wheel(play)


def test_postponing_moves_all_that_is_still_to_come() -> None:
    async def play(wheel: DeadlineWheel) -> None:
        fired: list[int] = []
        done = asyncio.Event()

        def stepping(due_ns: int) -> int | None:
            fired.append(due_ns)
            if len(fired) == 3:
                done.set()
                return None
            return 10 * (len(fired) + 1)

        wheel.at(10, stepping)
        wheel.postpone(5)
        await done.wait()
        assert fired == [15, 25, 35]

    on_wheel(play)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_script_strikes_from_its_token_on(position: int) -> None:
    struck(position, 3, -1)
    struck(position, -1, 3)
    with pytest.raises(StreamFailure):
        struck(position, position, -1)
    with pytest.raises(StreamCut):
        struck(position, position, position)
