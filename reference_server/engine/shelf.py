"""Models of fixed outputs that come into memory and leave it: at a call, or because there is room for a few only.

A model that is not in memory is built when a request needs it, and the one used longest ago makes room. The time shows
as the stage ``preprocess.load``, or ``inference.forward.load`` where it had to leave between two stages of a request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plimsoll.reference_server.seams.models import BatchModel
from plimsoll.reference_server.values.durations import POSTPROCESS, PREPROCESS, Stages
from plimsoll.reference_server.values.errors import RequestError, unavailable
from plimsoll.reference_server.values.tensors import Tensor


class Shelf:
    """All such models of one server. At most ``room`` of them are in memory at a time; 0: all."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.lock = threading.Lock()
        self.models: dict[str, Shelved] = {}
        self.loaded: dict[str, BatchModel] = {}
        """The one used longest ago first."""

    def change(self, name: str, *, load: bool) -> float:
        """Have a model in memory from now on, or not until it is loaded again; how long that took, in seconds.

        Raises RequestError 400.
        """
        if name not in self.models:
            there = ", ".join(self.models) or "none"
            message = f"model {name!r} can't be loaded or unloaded. Those of fixed outputs can, here: {there}"
            raise RequestError(400, message, param="model", code="wrong_model")
        stages = Stages()
        self.models[name].unloaded = not load
        if load:
            self.models[name].get(stages, "call")
        else:
            with self.lock:
                self.loaded.pop(name, None)
        return sum(stages.spans_ns.values()) / 1e9

    def keep(self, model: BatchModel) -> None:
        """Take it in as the one used last. The caller holds the lock."""
        while self.room and len(self.loaded) >= self.room:
            del self.loaded[next(iter(self.loaded))]
        self.loaded[model.name] = model


class Shelved:
    """One of them, as a batch model; ``build`` makes it, now and whenever it is needed again."""

    def __init__(self, shelf: Shelf, build: Callable[[], BatchModel]) -> None:
        model = build()
        self.name, self.inputs, self.outputs = model.name, model.inputs, model.outputs
        self.unloaded = False
        """By a call."""
        self._build = build
        self._shelf = shelf
        shelf.models[self.name] = self
        with shelf.lock:
            shelf.keep(model)

    def get(self, stages: Stages, stage: str) -> BatchModel:
        """The model itself. Raises RequestError 503 in a request's first stage when a call has unloaded it."""
        if self.unloaded and stage == PREPROCESS:
            again = f"Load it: POST /v2/repository/models/{self.name}/load"
            raise unavailable(f"model {self.name!r} was unloaded. {again}", "unloaded")
        with self._shelf.lock:
            model = self._shelf.loaded.pop(self.name, None)
            if model is None:
                with stages.time(f"{stage}.load"):
                    model = self._build()
                    model.warm_up(1)
            if not self.unloaded:
                self._shelf.keep(model)
            return model

    def warm_up(self, max_batch: int) -> None:
        self.get(Stages(), "call").warm_up(max_batch)

    def preprocess(self, tensors: Mapping[str, Tensor], stages: Stages) -> Sequence[Any]:
        return self.get(stages, PREPROCESS).preprocess(tensors, stages)

    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[Any]:
        return self.get(stages, "inference.forward").forward(samples, stages)

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[Tensor]:
        return self.get(stages, POSTPROCESS).postprocess(results, stages)
