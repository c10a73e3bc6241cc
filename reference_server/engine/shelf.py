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
        self._room = room
        self._lock = threading.Lock()
        self._models: dict[str, Shelved] = {}
        self._loaded: dict[str, BatchModel] = {}
        """The one used longest ago first."""

    def place(self, build: Callable[[], BatchModel]) -> Shelved:
        """Build a model for the first time. Raises what ``build`` raises."""
        model = build()
        shelved = self._models[model.name] = Shelved(self, model, build)
        with self._lock:
            self._keep(model)
        return shelved

    def ready(self, name: str) -> bool:
        """Has no call unloaded it?"""
        return name not in self._models or not self._models[name].unloaded

    def get(self, name: str, stages: Stages, stage: str) -> BatchModel:
        """The model, loaded first if need be. Raises RequestError 503 before a request's first stage if a call has
        unloaded it.
        """
        shelved = self._models[name]
        if shelved.unloaded and stage == PREPROCESS:
            again = f"Load it: POST /v2/repository/models/{name}/load"
            raise unavailable(f"model {name!r} was unloaded. {again}", "unloaded")
        with self._lock:
            model = self._loaded.pop(name, None)
            if model is None:
                with stages.time(f"{stage}.load"):
                    model = shelved.build()
                    model.warm_up(1)
            if not shelved.unloaded:
                self._keep(model)
            return model

    def load(self, name: str) -> float:
        """Have it in memory from now on; how long that took, in seconds. Raises RequestError 400."""
        stages = Stages()
        self._known(name).unloaded = False
        self.get(name, stages, "call")
        return stages.spans_ns.get("call.load", 0) / 1e9

    def unload(self, name: str) -> None:
        """Drop it until it is loaded again. Raises RequestError 400."""
        self._known(name).unloaded = True
        with self._lock:
            self._loaded.pop(name, None)

    def _known(self, name: str) -> Shelved:
        if name not in self._models:
            there = ", ".join(self._models) or "none"
            message = f"model {name!r} can't be loaded or unloaded. Those of fixed outputs can, here: {there}"
            raise RequestError(400, message, param="model", code="wrong_model")
        return self._models[name]

    def _keep(self, model: BatchModel) -> None:
        while self._room and len(self._loaded) >= self._room:
            del self._loaded[next(iter(self._loaded))]
        self._loaded[model.name] = model


class Shelved:
    """One of them, as a batch model."""

    def __init__(self, shelf: Shelf, model: BatchModel, build: Callable[[], BatchModel]) -> None:
        self.name, self.inputs, self.outputs = model.name, model.inputs, model.outputs
        self.build = build
        self.unloaded = False
        self._shelf = shelf

    def warm_up(self, max_batch: int) -> None:
        self._shelf.get(self.name, Stages(), "call").warm_up(max_batch)

    def preprocess(self, tensors: Mapping[str, Tensor], stages: Stages) -> Sequence[Any]:
        return self._shelf.get(self.name, stages, PREPROCESS).preprocess(tensors, stages)

    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[Any]:
        return self._shelf.get(self.name, stages, "inference.forward").forward(samples, stages)

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[Tensor]:
        return self._shelf.get(self.name, stages, POSTPROCESS).postprocess(results, stages)
