"""Dynamic batching for models of fixed outputs: samples wait until a batch is full or the oldest has waited long enough."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from reference_server.batch_model import BatchModel
from reference_server.metrics import Metrics
from reference_server.stages import INFERENCE, POSTPROCESS, PREPROCESS, Stages
from reference_server.startup import WARM_UP, Startup
from reference_server.tensors import Tensor, checked


class Batcher:
    """One model and its queue."""

    def __init__(
        self,
        model: BatchModel,
        *,
        max_batch: int,
        max_wait_ns: int,
        queue_limit: int,
        synchronise: int = 1,
        startup: Startup | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.model = model
        self.n_waiting = 0
        self._max_batch = max_batch
        self._startup = startup or Startup()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=model.name)

    async def start(self) -> None:
        """Warm up, then begin to serve."""
        with self._startup.phase(WARM_UP):
            await asyncio.get_running_loop().run_in_executor(self._pool, self.model.warm_up, self._max_batch)

    async def stop(self) -> None:
        """End after the running batch; whoever still waits is told (RequestError 503)."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)

    async def infer(
        self, tensors: Sequence[Tensor], stages: Stages, *, priority: int = 0, deadline_ns: int = -1
    ) -> Sequence[Tensor]:
        """The reply to one request."""
        by_name = checked(tensors, self.model.inputs)
        with stages.time(PREPROCESS):
            samples = self.model.preprocess(by_name, stages)
        with stages.time(INFERENCE):
            results = await asyncio.get_running_loop().run_in_executor(self._pool, self.model.forward, samples)
        with stages.time(POSTPROCESS):
            return self.model.postprocess(results, stages)
