"""Models that come into memory and leave it: who makes room for whom, and where the time of it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from plimsoll.reference_server.engine.shelf import Shelf, Shelved
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import Tensor


class Small:
    """A model that gives back what it gets."""

    inputs = outputs = ()

    def __init__(self, name: str, built: list[str]) -> None:
        self.name = name
        built.append(name)

    def warm_up(self, max_batch: int) -> None:
        """It costs nothing."""

    def preprocess(self, tensors: Mapping[str, Tensor], stages: Stages) -> Sequence[Any]:
        return list(tensors)

    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[Any]:
        return samples

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[Tensor]:
        return results


def shelf_of(room: int, *names: str) -> tuple[Shelf, dict[str, Shelved], list[str]]:
    shelf, built = Shelf(room), []  # type: tuple[Shelf, list[str]]
    return shelf, {name: Shelved(shelf, lambda name=name: Small(name, built)) for name in names}, built


def test_without_a_limit_each_model_is_built_once() -> None:
    _, models, built = shelf_of(0, "a", "b", "c")
    for name in "abcabc":
        models[name].preprocess({}, Stages())
    assert built == ["a", "b", "c"]


def test_the_one_used_longest_ago_makes_room_and_the_swap_is_a_stage() -> None:
    _, models, built = shelf_of(2, "a", "b", "c")  # c has taken the place of a
    stages = Stages()
    models["b"].forward([1], stages)
    assert stages.spans_ns == {}
    models["a"].preprocess({}, stages)  # in the place of c, since b was used later
    assert list(stages.spans_ns) == ["preprocess.load"]
    models["b"].forward([1], stages)
    assert built == ["a", "b", "c", "a"]
    models["c"].forward([1], stages)
    assert list(stages.spans_ns) == ["preprocess.load", "inference.forward.load"]


def test_what_a_call_has_unloaded_is_refused_until_a_call_loads_it_and_who_is_under_way_ends() -> None:
    shelf, models, built = shelf_of(0, "a", "b")
    shelf.change("a", load=False)
    with pytest.raises(RequestError, match="POST /v2/repository/models/a/load") as refused:
        models["a"].preprocess({}, Stages())
    assert refused.value.status == 503
    assert models["a"].forward([1], Stages()) == [1]
    assert shelf.change("a", load=True) > 0
    models["a"].preprocess({}, Stages())
    assert shelf.change("a", load=True) == 0
    assert built == ["a", "b", "a", "a"]
    with pytest.raises(RequestError, match="can't be loaded or unloaded"):
        shelf.change("llm", load=False)
