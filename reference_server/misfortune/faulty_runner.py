"""Faults of the device, laid round a runner or a batch model: steps that take longer, and steps that fail.

Extra time is slept, not burnt, so that a fault costs what it says on any machine and the load generator beside it keeps its cores. The
tokens are those of the runner inside. It reads the faults in force at every step, so they may come and go meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.seams.batch_model import BatchModel
from plimsoll.reference_server.seams.runner import Chunk, Runner
from plimsoll.reference_server.values.stages import Stages
from plimsoll.reference_server.values.tensors import Tensor, TensorSpec


class OutOfMemory(RuntimeError):
    """The device has no room for a sequence of that length."""


class SlowedSteps:
    """How much longer a step takes than it took. Clock and sleep are given, so that it is tested in no time."""

    def __init__(
        self,
        faults: Faults,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.faults = faults
        self.clock = clock
        self._sleep = sleep

    def lengthen(self, begun_ns: int, members: Sequence[str]) -> None:
        """Sleep for what the faults add to a step that began then and had those members (sequences, samples)."""
        now_ns = self.clock()
        extra_ns = 0
        for placed in self.faults.acting("noisy_neighbour", now_ns):
            extra_ns += round((placed.fault.number("factor") - 1.0) * (now_ns - begun_ns))
            placed.hit()
        for placed in self.faults.acting("straggler", now_ns):
            if any(placed.marks(member) for member in members):
                extra_ns += placed.fault.duration_ns("by")
                placed.hit()
        if extra_ns > 0:
            self._sleep(extra_ns / 1e9)

    def jitter(self) -> None:
        """Sleep for what the faults add to one step's tokens."""
        for placed in self.faults.acting("jitter", self.clock()):
            placed.hit()
            self._sleep(placed.wait_ns() / 1e9)


class MisfortuneRunner:
    """A runner under the faults of its server."""

    def __init__(self, runner: Runner, slowed: SlowedSteps) -> None:
        self._runner = runner
        self._slowed = slowed

    def warm_up(self) -> None:
        """As the runner does: the cold start has a fault of its own."""
        self._runner.warm_up()

    def step(self, chunks: Sequence[Chunk]) -> list[int]:
        """The runner's tokens, perhaps later. Raises OutOfMemory when a sequence is longer than ``long_oom`` allows."""
        begun_ns = self._slowed.clock()
        longest = max((chunk.start + len(chunk.tokens) for chunk in chunks), default=0)
        for placed in self._slowed.faults.acting("long_oom", begun_ns):
            if longest > placed.fault.whole("tokens"):
                placed.hit()
                raise OutOfMemory(f"out of memory at a sequence of {longest} tokens (scripted fault: long_oom)")
        tokens = self._runner.step(chunks)
        self._slowed.lengthen(begun_ns, [str(chunk.sequence_id) for chunk in chunks])
        self._slowed.jitter()
        return tokens

    def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """As the runner does, under the same slowness."""
        begun_ns = self._slowed.clock()
        vectors = self._runner.embed(prompts)
        self._slowed.lengthen(begun_ns, ())
        return vectors


class MisfortuneModel:
    """A batch model under the faults of its server."""

    def __init__(self, model: BatchModel, slowed: SlowedSteps) -> None:
        self._model = model
        self._slowed = slowed
        self._n_samples = 0

    @property
    def name(self) -> str:
        """What requests call it."""
        return self._model.name

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What a request must hold."""
        return self._model.inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What a reply holds."""
        return self._model.outputs

    def warm_up(self, max_batch: int) -> None:
        """As the model does."""
        self._model.warm_up(max_batch)

    def preprocess(self, tensors: Mapping[str, Tensor], stages: Stages) -> Sequence[Any]:
        """As the model does."""
        return self._model.preprocess(tensors, stages)

    def forward(self, samples: Sequence[Any]) -> Sequence[Any]:
        """The model's results, perhaps later. Samples are numbered in the order in which they are computed."""
        begun_ns = self._slowed.clock()
        results = self._model.forward(samples)
        members = [str(self._n_samples + i) for i in range(len(samples))]
        self._n_samples += len(samples)
        self._slowed.lengthen(begun_ns, members)
        return results

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[Tensor]:
        """As the model does."""
        return self._model.postprocess(results, stages)
