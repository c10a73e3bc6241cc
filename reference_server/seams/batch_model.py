"""The seam between models of fixed outputs (an image, a click, a vector) and whoever batches their samples. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from plimsoll.reference_server.values.stages import Stages
from plimsoll.reference_server.values.tensors import Tensor, TensorSpec


class BatchModel(Protocol):
    """A model whose samples can be computed side by side.

    A request holds one or more samples. ``preprocess`` and ``postprocess`` run per request, in worker threads, several at a time;
    ``forward`` runs in one thread, on samples of several requests. What a sample and a result are is the model's own business.
    """

    @property
    def name(self) -> str:
        """What requests call it."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What a request must hold; a leading -1 is the number of samples."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What a reply holds."""

    def warm_up(self, max_batch: int) -> None:
        """Pay once-only costs, in the thread that will call ``forward``."""

    def preprocess(self, tensors: Mapping[str, Tensor], stages: Stages) -> Sequence[Any]:
        """The samples of a request whose tensors were checked against ``inputs``; parts are timed as ``preprocess.PART``.

        Raises RequestError 400 for contents that are no good (a JPEG that can't be decoded, an index out of range).
        """

    def forward(self, samples: Sequence[Any]) -> Sequence[Any]:
        """One result per sample, in order."""

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[Tensor]:
        """The reply's tensors from the results of one request; parts are timed as ``postprocess.PART``."""


class Batched(Protocol):
    """A batch model behind its queue, as front-ends see it."""

    @property
    def model(self) -> BatchModel:
        """What is behind the queue."""

    @property
    def n_waiting(self) -> int:
        """Samples in the queue."""

    @property
    def n_batches(self) -> int:
        """Batches computed so far."""

    async def infer(
        self, tensors: Sequence[Tensor], stages: Stages, *, priority: int = 0, deadline_ns: int = -1
    ) -> Sequence[Tensor]:
        """The reply to one request; its stages are filled in. A cancelled call gives its place in the queue back.

        Lower ``priority`` goes first; ``deadline_ns`` is an instant of ``time.monotonic_ns()``, -1 for none. Raises RequestError: 400 for
        wrong tensors, 503 with Retry-After when the queue is full, 504 when the deadline passes before the answer.
        """

    async def start(self) -> None:
        """Warm up, then begin to serve."""

    async def stop(self) -> None:
        """End after the running batch; whoever still waits is told (RequestError 503)."""
