"""The asyncio part of dynamic batching with a model of known behaviour: company, failure, deadlines, cancellation, the
end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from plimsoll.reference_server.engine.batcher import Batcher
from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.values.durations import Stages, Startup
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import Tensor, TensorSpec

FOREVER_NS = 3600 * 10**9


@dataclass
class Doubling:
    """Twice each number. 13 can't be prepared, 99 breaks a batch, 77 can't be finished; ``gate`` holds forward back."""

    name: str = "doubling"
    inputs: Sequence[TensorSpec] = (TensorSpec("x", "INT64", (-1,)),)
    outputs: Sequence[TensorSpec] = (TensorSpec("y", "INT64", (-1,)),)
    batches: list[list[int]] = field(default_factory=list)
    warmed: list[int] = field(default_factory=list)
    prepared: list[int] = field(default_factory=list)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gate: threading.Event = field(default_factory=threading.Event)
    prepare_gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()
        self.prepare_gate.set()

    def warm_up(self, max_batch: int) -> None:
        self.warmed.append(max_batch)

    def preprocess(self, tensors: Mapping[str, Tensor], stages: Stages) -> Sequence[Any]:
        values: list[int] = tensors["x"].data.tolist()
        with stages.time("preprocess.read"):
            assert self.prepare_gate.wait(10)
            self.prepared += values
        if 13 in values:
            raise RequestError(400, "x: 13 is unlucky", param="x")
        if 14 in values:
            raise KeyError("surprise")
        return values

    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[Any]:
        self.batches.append(list(samples))
        self.entered.release()
        assert self.gate.wait(10)
        if 99 in samples:
            raise ArithmeticError("the script says that this batch fails")
        return [2 * sample for sample in samples if sample != 98]

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[Tensor]:
        with stages.time("postprocess.write"):
            if 2 * 77 in results:
                raise ValueError("no words for it")
            return [Tensor("y", "INT64", np.array(results))]


Play = Callable[[Batcher, Doubling], Coroutine[None, None, None]]


def with_batcher(play: Play, *, metrics: Metrics | None = None, **settings: int) -> Doubling:
    model = Doubling()

    async def main() -> None:
        given = {"max_batch": 4, "max_wait_ns": 0, "queue_limit": 100, **settings}
        batcher = Batcher(model, metrics=metrics, **given)  # type: ignore[arg-type]
        await batcher.start()
        try:
            await asyncio.wait_for(play(batcher, model), 120)
        finally:
            for gate in (model.gate, model.prepare_gate):
                gate.set()
            await asyncio.wait_for(batcher.stop(), 20)
            assert batcher.n_waiting == 0

    asyncio.run(main())
    return model


def x(*values: int) -> list[Tensor]:
    return [Tensor("x", "INT64", np.array(values, dtype=np.int64))]


async def ask(batcher: Batcher, *values: int, **how: int) -> list[int]:
    (y,) = await batcher.infer(x(*values), Stages(), **how)
    return [int(value) for value in y.data]


async def running(model: Doubling) -> None:
    """Return once the model has begun another batch."""
    assert await asyncio.to_thread(model.entered.acquire, timeout=10)


async def waiting(batcher: Batcher, n: int) -> None:
    """Return once so many samples stand in the queue."""
    while batcher.n_waiting != n:
        await asyncio.sleep(0)


async def ready(batcher: Batcher, n: int) -> None:
    """Return once so many samples could be computed."""
    while batcher._queue._n_ready != n:
        await asyncio.sleep(0)


async def error_of(answer: Coroutine[None, None, list[int]] | asyncio.Task[list[int]]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await answer
    return caught.value


def test_each_request_gets_its_own_results_and_full_batches_do_not_wait() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        answers = await asyncio.gather(*(ask(batcher, 3 * i, 3 * i + 1, 3 * i + 2) for i in range(4)))
        assert answers == [[6 * i, 6 * i + 2, 6 * i + 4] for i in range(4)]

    model = with_batcher(play, max_wait_ns=FOREVER_NS)
    assert [len(batch) for batch in model.batches] == [4, 4, 4]
    assert model.warmed == [4]


def test_a_batch_that_does_not_fill_starts_when_its_oldest_has_waited_long_enough() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        stages = Stages()
        first = asyncio.create_task(batcher.infer(x(1), stages))
        assert await asyncio.gather(first, ask(batcher, 2)) is not None
        assert stages.spans_ns["queue"] >= 200_000_000

    assert [sorted(batch) for batch in with_batcher(play, max_wait_ns=200_000_000).batches] == [[1, 2]]


def test_the_wait_of_a_batch_can_be_widened_and_put_back_while_requests_wait() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        batcher.widen(FOREVER_NS)
        first = asyncio.create_task(ask(batcher, 1))
        while not model.prepared:
            await asyncio.sleep(0)
        second = asyncio.create_task(ask(batcher, 2))
        await waiting(batcher, 2)
        batcher.widen(0)
        assert await asyncio.gather(first, second) == [[2], [4]]
        assert await ask(batcher, 3) == [6]
        assert batcher.n_batches == len(model.batches)

    with_batcher(play)


def test_the_next_batch_is_prepared_while_one_is_computed() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        model.gate.clear()
        first = asyncio.create_task(ask(batcher, 1))
        await running(model)
        second = asyncio.create_task(ask(batcher, 2))
        while model.prepared != [1, 2]:
            await asyncio.sleep(0)
        assert not first.done()
        model.gate.set()
        assert await asyncio.gather(first, second) == [[2], [4]]

    with_batcher(play)


def test_lower_priority_numbers_go_first_and_equals_in_order_of_arrival() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        model.gate.clear()
        tasks = [asyncio.create_task(ask(batcher, 0))]
        await running(model)
        for number, priority in ((1, 5), (2, 1), (3, 1), (4, 0), (5, 5), (6, 1)):
            tasks.append(asyncio.create_task(ask(batcher, number, priority=priority)))
            while number not in model.prepared:
                await asyncio.sleep(0)
        await ready(batcher, 6)
        model.gate.set()
        await asyncio.gather(*tasks)

    assert with_batcher(play, max_batch=2).batches == [[0], [4, 2], [3, 6], [1, 5]]


def test_a_synchronised_request_is_a_batch_of_its_own_and_all_its_results_come_at_once() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        answers = await asyncio.gather(ask(batcher, 1, 2, 3), ask(batcher, 4, 5, 6))
        assert answers == [[2, 4, 6], [8, 10, 12]]
        error = await error_of(ask(batcher, 7))
        assert (error.status, error.code) == (400, "invalid_tensor")
        assert "exactly 3 samples" in error.message

    model = with_batcher(play, synchronise=3, max_batch=64, max_wait_ns=FOREVER_NS)
    assert sorted(model.batches) == [[1, 2, 3], [4, 5, 6]]
    assert model.warmed == [3]


def test_the_stages_are_those_of_the_request_and_add_up_to_its_time() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        unexplained: list[int] = []
        for _ in range(10):  # what the host takes between the two clocks' readings is not the batcher's
            stages = Stages()
            begun_ns = time.monotonic_ns()
            await batcher.infer(x(*range(1, 11)), stages)  # three batches of up to four
            total_ns = time.monotonic_ns() - begun_ns
            spans = stages.spans_ns
            unexplained.append(total_ns - sum(ns for name, ns in spans.items() if "." not in name))
        assert 0 <= min(unexplained) < 200_000
        assert list(spans) == [
            "queue",
            "preprocess",
            "preprocess.read",
            "inference",
            "inference.dispatch",
            "inference.forward",
            "postprocess",
            "postprocess.write",
        ]
        assert spans["inference.forward"] <= spans["inference"]
        assert spans["preprocess.read"] <= spans["preprocess"]

    with_batcher(play)


def test_a_failing_batch_fails_its_requests_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        model.gate.clear()
        before = asyncio.create_task(ask(batcher, 1))
        await running(model)
        with_99 = asyncio.create_task(ask(batcher, 99, 5, 6, 7, 8, 9))
        await waiting(batcher, 6)
        while 9 not in model.prepared:
            await asyncio.sleep(0)
        later = asyncio.create_task(ask(batcher, 2))
        await waiting(batcher, 7)
        with caplog.at_level(logging.CRITICAL):
            model.gate.set()
            error = await error_of(with_99)
            assert (error.status, error.code) == (500, "step_failed")
            assert "the script says that this batch fails" in error.message
            assert await asyncio.gather(before, later) == [[2], [4]]
            short = await error_of(ask(batcher, 98))
            assert "0 results for 1 samples" in short.message
        assert await ask(batcher, 3) == [6]
        assert batcher.n_waiting == 0

    with_batcher(play)


def test_what_cannot_be_prepared_or_finished_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        with caplog.at_level(logging.CRITICAL):
            found = await asyncio.gather(
                ask(batcher, 13), ask(batcher, 1), ask(batcher, 14), ask(batcher, 77), return_exceptions=True
            )
        unlucky, fine, surprise, unsaid = found
        assert fine == [2]
        assert isinstance(unlucky, RequestError)
        assert (unlucky.status, unlucky.message) == (400, "x: 13 is unlucky")
        assert isinstance(surprise, RequestError)
        assert (surprise.status, surprise.code) == (400, "preprocess_failed")
        assert isinstance(unsaid, RequestError)
        assert (unsaid.status, unsaid.code) == (500, "step_failed")

    with_batcher(play)


@pytest.mark.parametrize(
    ("tensors", "part"),
    [
        ([], "x: is missing"),
        ([Tensor("z", "INT64", np.zeros(1, dtype=np.int64))], "z: is no input"),
        ([Tensor("x", "FP32", np.zeros(1, dtype=np.float32))], "has datatype FP32"),
        ([Tensor("x", "INT64", np.zeros((1, 1), dtype=np.int64))], "has shape"),
        (x(), "x: holds no samples"),
        (x(*range(105)), "a request may hold 1 to 104 samples"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(tensors: list[Tensor], part: str) -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        with pytest.raises(RequestError, match=part) as caught:
            await batcher.infer(tensors, Stages())
        assert caught.value.status == 400

    assert with_batcher(play).batches == []


def test_a_full_queue_refuses_with_the_time_after_which_to_come_back() -> None:
    metrics = Metrics()

    async def play(batcher: Batcher, model: Doubling) -> None:
        model.gate.clear()
        tasks = [asyncio.create_task(ask(batcher, 1, 2))]
        await running(model)
        tasks.append(asyncio.create_task(ask(batcher, 3, 4)))
        await waiting(batcher, 2)
        error = await error_of(ask(batcher, 5, 6))
        assert (error.status, error.code, error.retry_after_s) == (503, "queue_full", 1)
        assert "2 samples wait, the limit is 3" in error.message
        batcher._drain.add(1, 4_000_000_000)  # as if a sample had taken four seconds
        assert (await error_of(ask(batcher, 5, 6))).retry_after_s == 8
        tasks.append(asyncio.create_task(ask(batcher, 7)))  # one still fits
        await waiting(batcher, 3)
        model.gate.set()
        assert await asyncio.gather(*tasks) == [[2, 4], [6, 8], [14]]

    with_batcher(play, queue_limit=3, metrics=metrics)
    text = metrics.render(None, None).decode()
    assert 'reference_rejected_total{model="doubling",reason="queue_full"} 2.0' in text
    assert 'reference_batch_fill_sum{model="doubling"} 1.25' in text  # five samples, four seats a batch
    assert 'reference_queue_depth{model="doubling"} 0.0' in text


def test_a_cancelled_request_gives_its_place_back_at_once_wherever_it_is() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        model.gate.clear()
        computed = asyncio.create_task(ask(batcher, 1, 2))
        await running(model)
        waits = asyncio.create_task(ask(batcher, 3, 4, 5))
        while 5 not in model.prepared:
            await asyncio.sleep(0)
        model.prepare_gate.clear()
        in_preparation = [asyncio.create_task(ask(batcher, 10 + i)) for i in range(6)]
        await waiting(batcher, 9)
        for task in (waits, computed, *in_preparation):
            task.cancel()
        gone = await asyncio.gather(waits, computed, *in_preparation, return_exceptions=True)
        assert all(isinstance(error, asyncio.CancelledError) for error in gone)
        assert batcher.n_waiting == 0
        model.gate.set()
        model.prepare_gate.set()
        assert await asyncio.gather(*(ask(batcher, 20 + i) for i in range(8))) == [[40 + 2 * i] for i in range(8)]

    model = with_batcher(play)
    assert not {3, 4, 5} & {sample for batch in model.batches for sample in batch}


def test_a_deadline_ends_the_wait_in_the_queue_in_a_batch_and_before_the_start() -> None:
    metrics = Metrics()

    async def play(batcher: Batcher, model: Doubling) -> None:
        past = await error_of(ask(batcher, 1, deadline_ns=time.monotonic_ns() - 1))
        assert (past.status, past.code) == (504, "deadline_exceeded")
        model.gate.clear()
        late_ns = time.monotonic_ns() + 150_000_000
        computed = asyncio.create_task(ask(batcher, 2, deadline_ns=late_ns))
        await running(model)
        queued = asyncio.create_task(ask(batcher, 3, deadline_ns=late_ns))
        patient = asyncio.create_task(ask(batcher, 4, deadline_ns=late_ns + FOREVER_NS))
        assert [(await error_of(task)).status for task in (computed, queued)] == [504, 504]
        assert time.monotonic_ns() >= late_ns
        assert batcher.n_waiting == 1
        model.gate.set()
        assert await patient == [8]

    assert [3] not in with_batcher(play, metrics=metrics, max_batch=1).batches
    text = metrics.render(None, None).decode()
    assert 'reference_deadlines_missed_total{model="doubling"} 2.0' in text


def test_the_end_lets_the_running_batch_finish_and_tells_everybody_else() -> None:
    async def main() -> None:
        model = Doubling()
        batcher = Batcher(model, max_batch=2, max_wait_ns=0, queue_limit=100)
        assert (await error_of(ask(batcher, 1))).code == "starting"
        await batcher.start()
        model.gate.clear()
        computed = asyncio.create_task(ask(batcher, 1, 2))
        await running(model)
        waits = asyncio.create_task(ask(batcher, 3))
        while 3 not in model.prepared:
            await asyncio.sleep(0)
        model.prepare_gate.clear()
        in_preparation = [asyncio.create_task(ask(batcher, 10 + i)) for i in range(6)]
        await waiting(batcher, 7)
        stopping = asyncio.create_task(batcher.stop())
        told = await error_of(waits)
        assert (told.status, told.code, told.message) == (503, "shutting_down", "the server is shutting down")
        assert (await error_of(ask(batcher, 4))).code == "shutting_down"
        model.prepare_gate.set()
        assert {(await error_of(task)).code for task in in_preparation} == {"shutting_down"}
        assert not stopping.done()
        model.gate.set()
        assert await computed == [2, 4]
        await stopping
        assert model.batches == [[1, 2]]

    asyncio.run(asyncio.wait_for(main(), 20))


def test_the_warm_up_is_a_phase_of_the_start() -> None:
    startup = Startup()

    async def main() -> None:
        batcher = Batcher(Doubling(), max_batch=2, max_wait_ns=0, queue_limit=1, startup=startup)
        await batcher.start()
        await batcher.stop()

    asyncio.run(main())
    assert list(startup.seconds()) == ["warm_up"]


def test_ten_thousand_requests_leave_no_object_behind() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        async def some(n: int) -> None:
            for at in range(0, n, 100):
                tasks = [asyncio.create_task(ask(batcher, 1000 + at + i, priority=i % 2)) for i in range(100)]
                await asyncio.sleep(0)
                for task in tasks[::10]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            model.batches.clear()
            model.prepared.clear()
            gc.collect()

        await some(1000)
        before = len(gc.get_objects())
        await some(10_000)
        assert len(gc.get_objects()) - before < 100

    with_batcher(play, max_batch=32, queue_limit=5000)


def test_thousands_of_requests_in_random_company_keep_their_own_results_and_leave_nothing_behind() -> None:
    async def play(batcher: Batcher, model: Doubling) -> None:
        async def one(i: int) -> None:
            task = asyncio.create_task(ask(batcher, *range(1000 + i, 1000 + i + 1 + i % 7), priority=i % 3))
            if i % 11 == 0:
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return
            assert await task == [2 * value for value in range(1000 + i, 1000 + i + 1 + i % 7)]

        for at in range(0, 2000, 200):
            await asyncio.gather(*(one(i) for i in range(at, at + 200)))
        assert (batcher.n_waiting, batcher._requests, batcher._workers._turns) == (0, {}, {})

    with_batcher(play, max_batch=8, queue_limit=5000)
