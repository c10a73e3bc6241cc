"""Many listeners and speakers at once: batches, stages, limits, and that whoever leaves gives everything back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from plimsoll.reference_server.config import ServerConfig
from plimsoll.reference_server.seams.models import Audio, Heard
from plimsoll.reference_server.speech.listening import Float, Hearing, Listener, Recogniser
from plimsoll.reference_server.speech.speaking import MAX_CHARACTERS, PIECE_S, Synthesiser
from plimsoll.reference_server.values.durations import Stages, Startup
from plimsoll.reference_server.values.errors import RequestError

pytest.importorskip("torch", reason="the recogniser needs torch")

from plimsoll.reference_server.assembly import recogniser
from plimsoll.reference_server.models.tone_bank import ToneBank

RATE = 16_000


class Gate:
    """A filter bank that waits for leave, and notes its batch sizes."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()
        self.sizes: list[int] = []
        self.error: Exception | None = None
        self._bank = ToneBank()

    def warm_up(self, max_batch: int) -> None:
        self._bank.warm_up(max_batch)

    def shares(self, samples: Float) -> tuple[Float, Float]:
        self.sizes.append(len(samples))
        self.entered.set()
        assert self.open.wait(10)
        if self.error is not None:
            raise self.error
        return self._bank.shares(samples)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


async def started(gate: Gate, rows: int = 8, max_batch: int = 4) -> Recogniser:
    model = Recogniser(Hearing(gate, rows), max_batch=max_batch)
    await model.start(Startup())
    gate.sizes.clear()
    gate.entered.clear()
    return model


async def said(text: str, rate: int = RATE, speed: float = 1.0) -> Audio:
    model = Synthesiser()
    pieces = [piece async for piece in model.speak(text, sample_rate=rate, speed=speed)]
    await model.stop()
    return np.concatenate(pieces)


async def all_of(listener: Listener, audio: Audio, size: int = 1600) -> list[Heard]:
    heard: list[Heard] = []
    for at in range(0, len(audio), size):
        heard += await listener.feed(audio[at : at + size])
    return heard + list(await listener.finish())


def refusal(error: pytest.ExceptionInfo[RequestError]) -> tuple[int, str | None]:
    return error.value.status, error.value.param


def test_what_the_settings_build_hears_what_they_build_speaks() -> None:
    async def work() -> None:
        config = ServerConfig(models=("recogniser", "synthesiser"), max_batch=2, queue_limit=1, device="cpu")
        ears, voice, startup = (recogniser(config), Synthesiser(limit=config.max_batch + config.queue_limit), Startup())
        await ears.start(startup)
        await voice.start(startup)
        assert list(startup.seconds()) == ["warm_up"]
        listener = ears.listen(24_000)
        async with aclosing(voice.speak("So, does it work?")) as pieces:
            heard = [each async for piece in pieces for each in await listener.feed(piece)]
        heard += await listener.finish()
        assert heard[-1].text == "so, does it work?"
        assert [name for name, ns in listener.stages.spans_ns.items() if ns > 0] == [
            "queue", "preprocess", "inference", "postprocess",
        ]  # fmt: skip
        for _ in range(2):
            ears.listen(8000)
        with pytest.raises(RequestError, match="3 streams are open") as error:
            ears.listen(8000)
        assert error.value.status == 503
        assert error.value.retry_after_s == 1
        listener.close()
        ears.listen(8000)
        await ears.stop()
        await voice.stop()

    run(work())


def test_streams_that_wait_together_are_heard_in_one_batch() -> None:
    async def work() -> None:
        gate = Gate()
        model = await started(gate)
        audio = await said("one two three")
        gate.open.clear()
        lone = asyncio.create_task(all_of(model.listen(RATE), audio, len(audio)))
        await asyncio.get_running_loop().run_in_executor(None, gate.entered.wait)
        others = [asyncio.create_task(all_of(model.listen(RATE), audio, len(audio))) for _ in range(6)]
        await asyncio.sleep(0)
        gate.open.set()
        results = [await lone, *(await asyncio.gather(*others))]
        assert all(result == results[0] for result in results)
        assert results[0][-1].text == "one two three"
        assert gate.sizes[0] == 1
        assert max(gate.sizes) == 4
        assert sum(size > 1 for size in gate.sizes) > len(gate.sizes) / 2
        await model.stop()

    run(work())


def test_a_long_file_does_not_hold_up_a_live_stream() -> None:
    async def work() -> None:
        gate = Gate()
        model = await started(gate)
        file = asyncio.create_task(all_of(model.listen(RATE), np.zeros(60 * RATE, np.float32), 60 * RATE))
        await asyncio.get_running_loop().run_in_executor(None, gate.entered.wait)
        turns = len(gate.sizes)
        await model.listen(RATE).feed(np.zeros(1600, np.float32))
        assert len(gate.sizes) - turns <= 4
        assert not file.done()
        assert await file == []
        await model.stop()

    run(work())


def test_a_listener_that_leaves_while_it_is_heard_gives_its_row_back() -> None:
    async def work() -> None:
        gate = Gate()
        model = await started(gate, rows=2)
        gate.open.clear()
        leaving, staying = model.listen(RATE), model.listen(RATE)
        task = asyncio.create_task(leaving.feed(np.zeros(RATE, np.float32)))
        await asyncio.get_running_loop().run_in_executor(None, gate.entered.wait)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        leaving.close()
        leaving.close()
        with pytest.raises(RequestError):  # its row is still in the running turn
            model.listen(RATE)
        gate.open.set()
        assert (await all_of(staying, await said("still here")))[-1].text == "still here"
        heir = model.listen(RATE)
        assert (await all_of(heir, await said("a fresh ear")))[-1].text == "a fresh ear"
        staying.close()
        heir.close()
        assert model.n_open == 0
        assert model.n_waiting == 0
        await model.stop()

    run(work())


def test_a_listener_that_leaves_while_it_waits_is_not_heard() -> None:
    async def work() -> None:
        gate = Gate()
        model = await started(gate, max_batch=1)
        gate.open.clear()
        first, second = model.listen(RATE), model.listen(RATE)
        hearing = asyncio.create_task(first.feed(np.zeros(1600, np.float32)))
        await asyncio.get_running_loop().run_in_executor(None, gate.entered.wait)
        waiting = asyncio.create_task(second.feed(np.zeros(1600, np.float32)))
        await asyncio.sleep(0)
        assert model.n_waiting == 1
        second.close()
        assert model.n_waiting == 0
        gate.open.set()
        assert await hearing == []
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(gate.sizes) == 1
        await model.stop()

    run(work())


@pytest.mark.parametrize(
    ("rate", "endpointing_ms", "param"),
    [(7999, 300, "sample_rate"), (48_001, 300, "sample_rate"), (8000, -1, "endpointing_ms")],
)
def test_what_cannot_be_heard_is_refused(rate: int, endpointing_ms: int, param: str) -> None:
    async def work() -> None:
        model = Recogniser(Hearing(Gate(), 1))
        with pytest.raises(RequestError) as error:
            model.listen(rate, endpointing_ms=endpointing_ms)
        assert refusal(error) == (400, param)
        await model.stop()

    run(work())


def test_samples_that_are_no_numbers_are_refused_and_the_stream_lives_on() -> None:
    async def work() -> None:
        model = await started(Gate())
        listener = model.listen(RATE)
        with pytest.raises(RequestError) as error:
            await listener.feed(np.array([0, np.nan], np.float32))
        assert refusal(error) == (400, "audio")
        assert (await all_of(listener, await said("fine")))[-1].text == "fine"
        assert await listener.finish() == []
        with pytest.raises(RuntimeError, match="Listen anew"):
            await listener.feed(np.zeros(1, np.float32))
        await model.stop()

    run(work())


def test_a_turn_that_fails_fails_its_streams_and_not_the_server() -> None:
    async def work() -> None:
        gate = Gate()
        model = await started(gate)
        gate.error = ValueError("out of luck")
        with pytest.raises(RequestError, match="hearing failed: ValueError: out of luck") as error:
            await model.listen(RATE).feed(np.zeros(1600, np.float32))
        assert error.value.status == 500
        gate.error = None
        assert (await all_of(model.listen(RATE), await said("again")))[-1].text == "again"
        await model.stop()

    run(work())


def test_stopping_tells_whoever_waits() -> None:
    async def work() -> None:
        gate = Gate()
        model = await started(gate, max_batch=1)
        gate.open.clear()
        listeners = [model.listen(RATE) for _ in range(3)]
        tasks = [asyncio.create_task(listener.feed(np.zeros(1600, np.float32))) for listener in listeners]
        await asyncio.get_running_loop().run_in_executor(None, gate.entered.wait)
        stopping = asyncio.create_task(model.stop())
        await asyncio.sleep(0)
        gate.open.set()
        await stopping
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, RequestError)
            assert result.status == 503
        for call in (lambda: listeners[0].feed(np.zeros(1, np.float32)), listeners[0].finish):
            with pytest.raises(RequestError, match="shutting down"):
                await call()
        with pytest.raises(RequestError, match="shutting down"):
            model.listen(RATE)

    run(work())


# -- the synthesiser --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rate", "speed", "param"),
    [
        ("", 24_000, 1.0, "input"),
        (" \n ()", 24_000, 1.0, "input"),
        ("x" * (MAX_CHARACTERS + 1), 24_000, 1.0, "input"),
        ("日本", 24_000, 1.0, "input"),
        ("hi", 7999, 1.0, "sample_rate"),
        ("hi", 48_001, 1.0, "sample_rate"),
        ("hi", 24_000, 0.2, "speed"),
        ("hi", 24_000, 4.1, "speed"),
        ("hi", 24_000, float("nan"), "speed"),
    ],
)
def test_what_cannot_be_spoken_is_refused_before_the_first_piece(
    text: str, rate: int, speed: float, param: str
) -> None:
    async def work() -> None:
        model = Synthesiser()
        with pytest.raises(RequestError) as error:
            await anext(model.speak(text, sample_rate=rate, speed=speed))
        assert refusal(error) == (400, param)
        assert model.n_speaking == 0
        await model.stop()

    run(work())


def test_pieces_are_small_equal_and_the_same_every_time() -> None:
    async def work() -> None:
        model, stages = Synthesiser(), Stages()
        text = "the same text, word for word, " * 5
        first = [piece async for piece in model.speak(text, stages=stages)]
        again = [piece async for piece in model.speak(text)]
        assert np.array_equal(np.concatenate(first), np.concatenate(again))
        assert {len(piece) for piece in first[:-1]} == {round(PIECE_S * 24_000)}
        assert list(stages.spans_ns) == ["preprocess", "queue", "inference"]
        assert model.n_speaking == 0
        await model.stop()

    run(work())


def test_nothing_is_computed_for_a_listener_who_stopped_asking() -> None:
    async def work() -> None:
        model, stages = Synthesiser(limit=1), Stages()
        async with aclosing(model.speak("a long text " * 300, stages=stages)) as pieces:
            await anext(pieces)
            spent_ns = stages.spans_ns["inference"]
            assert model.n_speaking == 1
            with pytest.raises(RequestError, match="1 texts are being spoken") as error:
                await anext(model.speak("too many"))
            assert refusal(error) == (503, None)
        assert model.n_speaking == 0
        assert stages.spans_ns["inference"] == spent_ns
        assert len(await anext(model.speak("free again"))) > 0
        await model.stop()

    run(work())


def test_a_stopped_synthesiser_says_so_even_in_the_middle() -> None:
    async def work() -> None:
        model = Synthesiser()
        pieces = model.speak("a long text " * 50)
        await anext(pieces)
        await model.stop()
        with pytest.raises(RequestError, match="shutting down") as error:
            async for _ in pieces:
                pass
        assert error.value.status == 503
        with pytest.raises(RequestError, match="shutting down"):
            await anext(model.speak("hello"))
        assert model.n_speaking == 0

    run(work())
