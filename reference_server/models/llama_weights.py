"""Llama weights from a local folder of *.safetensors files, one or several with an index: the only importer of safetensors.

All names and shapes are checked from the files' headers before a byte of weights is read, and every mistake is named at once. Each
tensor is copied straight into its place on the device, so that the largest tensor is all that main memory must hold twice.
It refuses to guess: a missing, misshapen or unknown tensor is an error.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from plimsoll.reference_server.models.llama import LlamaLayer, LlamaWeights
from plimsoll.reference_server.models.llama_config import refuse
from plimsoll.reference_server.models.presets import LlamaShape

_INDEX = "model.safetensors.index.json"
_FLOATS = ("F64", "F32", "F16", "BF16")
_IGNORED = ("rotary_emb.inv_freq",)
"""Ends of names that old files carry although they follow from the configuration."""


def load(folder: Path, shape: LlamaShape, *, device: str, dtype: torch.dtype) -> LlamaWeights:
    """All weights of the folder's model. Raises ConfigError."""
    with contextlib.ExitStack() as stack:
        problems: list[str] = []
        where = _headers(folder, stack, problems)
        _check(where, shape, problems)
        refuse(folder, problems)

        def fill(target: Tensor, name: str) -> Tensor:
            try:
                return target.copy_(where[name].get_tensor(name))
            except (SafetensorError, OSError, RuntimeError) as error:
                refuse(folder, [f"{name} can't be read: {error}"])
                raise AssertionError from None  # refuse has raised

        return _read(shape, fill, device, dtype)


def _read(shape: LlamaShape, fill: Callable[[Tensor, str], Tensor], device: str, dtype: torch.dtype) -> LlamaWeights:
    def single(name: str, *size: int) -> Tensor:
        return fill(torch.empty(size, device=device, dtype=dtype), name)

    def stacked(names: tuple[str, ...], rows: tuple[int, ...]) -> Tensor:
        whole = torch.empty(sum(rows), shape.hidden, device=device, dtype=dtype)
        first = 0
        for name, n in zip(names, rows, strict=True):
            fill(whole[first : first + n], name)
            first += n
        return whole

    def layer(index: int) -> LlamaLayer:
        at = f"model.layers.{index}"
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        return LlamaLayer(
            attention_norm=single(f"{at}.input_layernorm.weight", shape.hidden),
            qkv=stacked(
                tuple(f"{at}.self_attn.{which}_proj.weight" for which in "qkv"),
                (queries, keys, keys),
            ),
            out=single(f"{at}.self_attn.o_proj.weight", shape.hidden, queries),
            feed_forward_norm=single(f"{at}.post_attention_layernorm.weight", shape.hidden),
            gate_up=stacked(
                (f"{at}.mlp.gate_proj.weight", f"{at}.mlp.up_proj.weight"), (shape.feed_forward, shape.feed_forward)
            ),
            down=single(f"{at}.mlp.down_proj.weight", shape.hidden, shape.feed_forward),
        )

    embedding = single("model.embed_tokens.weight", shape.vocabulary, shape.hidden)
    layers = tuple(layer(index) for index in range(shape.layers))
    norm = single("model.norm.weight", shape.hidden)
    unembed = embedding if shape.tied else single("lm_head.weight", shape.vocabulary, shape.hidden)
    return LlamaWeights(embedding, layers, norm, unembed)


def expected(shape: LlamaShape) -> Iterator[tuple[str, list[int]]]:
    """Name and shape of every tensor that a model of this shape has."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "model.embed_tokens.weight", [shape.vocabulary, shape.hidden]
    for index in range(shape.layers):
        at = f"model.layers.{index}"
        yield f"{at}.input_layernorm.weight", [shape.hidden]
        yield f"{at}.self_attn.q_proj.weight", [queries, shape.hidden]
        yield f"{at}.self_attn.k_proj.weight", [keys, shape.hidden]
        yield f"{at}.self_attn.v_proj.weight", [keys, shape.hidden]
        yield f"{at}.self_attn.o_proj.weight", [shape.hidden, queries]
        yield f"{at}.post_attention_layernorm.weight", [shape.hidden]
        yield f"{at}.mlp.gate_proj.weight", [shape.feed_forward, shape.hidden]
        yield f"{at}.mlp.up_proj.weight", [shape.feed_forward, shape.hidden]
        yield f"{at}.mlp.down_proj.weight", [shape.hidden, shape.feed_forward]
    yield "model.norm.weight", [shape.hidden]
    if not shape.tied:
        yield "lm_head.weight", [shape.vocabulary, shape.hidden]


def _headers(folder: Path, stack: contextlib.ExitStack, problems: list[str]) -> dict[str, Any]:
    """The open file of every tensor name."""
    where: dict[str, Any] = {}
    for name in _files(folder, problems):
        try:
            opened = stack.enter_context(safe_open(folder / name, framework="pt"))
            where.update(dict.fromkeys(opened.keys(), opened))
        except FileNotFoundError:
            problems.append(f"{name} is missing, although {_INDEX} names it")
        except (SafetensorError, OSError) as error:
            problems.append(f"{name} can't be read: {error}")
    return where


def _files(folder: Path, problems: list[str]) -> list[str]:
    index = folder / _INDEX
    if index.exists():
        try:
            named = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return sorted({str(name) for name in named.values()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append(f"{_INDEX} can't be read: {type(error).__name__}: {error}")
            return []
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if not found:
        problems.append("it holds no *.safetensors file")
    return found


def _check(where: dict[str, Any], shape: LlamaShape, problems: list[str]) -> None:
    if problems:
        return  # a file that can't be read has already been named; its tensors would be called missing
    wanted = dict(expected(shape))
    for name, size in wanted.items():
        if name not in where:
            problems.append(f"{name} is missing")
            continue
        header = where[name].get_slice(name)
        if list(header.get_shape()) != size:
            problems.append(f"{name} is {list(header.get_shape())}, but config.json makes it {size}")
        elif header.get_dtype() not in _FLOATS:
            problems.append(f"{name} holds {header.get_dtype()}; one of {', '.join(_FLOATS)} is served")
    allowed = {"lm_head.weight"} if shape.tied else set()
    problems += [
        f"{name} has no place in a Llama model as it is served here"
        for name in sorted(where.keys() - wanted.keys() - allowed)
        if not name.endswith(_IGNORED)
    ]
