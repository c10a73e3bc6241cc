"""A local folder's Llama model: config.json, tokenizer.json and *.safetensors, read and checked.

Every mistake that can be seen is named at once, before a byte of weights is read, and so is what models/llama.py
doesn't compute: a model that is nearly computed answers nonsense. Chat templates of a folder are programs and never
run.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from plimsoll.reference_server.models.llama import LlamaLayer, LlamaWeights
from plimsoll.reference_server.models.presets import LlamaShape, RopeScaling
from plimsoll.reference_server.values.errors import ConfigError

CONFIG = "config.json"
_SHOWN = 12
_HALF = "\N{REPLACEMENT CHARACTER}"
_BEGIN, _HEADER, _HEADER_END, _TURN_END = (
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
_WINDOW = 8
"""Tokens of context that decoding may look back on, and most tokens that one character is made of."""
_INDEX = "model.safetensors.index.json"
_FLOATS = ("F64", "F32", "F16", "BF16")
_IGNORED = ("rotary_emb.inv_freq",)
"""Ends of names that old files carry although they follow from the configuration."""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """A folder's model: its shape, and the tokens that end an answer."""

    shape: LlamaShape
    eos: frozenset[int]


def refuse(folder: Path, problems: list[str]) -> None:
    """Raises ConfigError with all problems, or the first few and how many more, if there are any."""
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ConfigError(f"--weights {folder}: {'; '.join(problems[:_SHOWN])}{more}")


def read_config(folder: Path) -> LlamaConfig:
    if not folder.is_dir():
        raise ConfigError(
            f"--weights {folder}: no such folder. Name one with {CONFIG}, tokenizer.json and *.safetensors files"
        )
    given = _object(folder, CONFIG)
    if given is None:
        raise ConfigError(
            f"--weights {folder}: it has no {CONFIG}. Name the folder of a model in Hugging Face's layout"
        )
    problems = _foreign(given)
    shape = _shape(given, problems) if not problems else None
    generation = _object(folder, "generation_config.json") or {}
    eos = _eos(generation.get("eos_token_id", given.get("eos_token_id")), shape, problems)
    refuse(folder, problems)
    assert shape is not None
    return LlamaConfig(shape, eos)


def _object(folder: Path, name: str) -> dict[str, Any] | None:
    """A JSON object of the folder, or None when the file is not there."""
    path = folder / name
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"--weights {folder}: {name} can't be read: {error}") from None
    if not isinstance(loaded, dict):
        raise ConfigError(f"--weights {folder}: {name} holds no JSON object")
    return loaded


def _foreign(given: dict[str, Any]) -> list[str]:
    """What of the configuration is not a Llama model as this server computes it."""
    problems = []
    if given.get("model_type") != "llama":
        named = given.get("model_type") or given.get("architectures")
        problems.append(f"{CONFIG}: model_type is {named!r}; only 'llama' is served")
    if given.get("hidden_act", "silu") != "silu":
        problems.append(f"{CONFIG}: hidden_act {given['hidden_act']!r} is not served, only 'silu'")
    problems += [
        f"{CONFIG}: {name} is true; biases are not served" for name in ("attention_bias", "mlp_bias") if given.get(name)
    ]
    if given.get("quantization_config"):
        problems.append(
            f"{CONFIG}: quantised weights (quantization_config) are not served; give bf16, fp16 or fp32 ones"
        )
    return problems


def _shape(given: dict[str, Any], problems: list[str]) -> LlamaShape | None:
    def size(name: str, default: object = None) -> int:
        value = given.get(name)
        value = default if value is None else value
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        problems.append(f"{CONFIG}: {name} must be a positive whole number, not {value!r}")
        return 0

    hidden, heads = size("hidden_size"), size("num_attention_heads")
    layers, feed_forward = size("num_hidden_layers"), size("intermediate_size")
    vocabulary, context = size("vocab_size"), size("max_position_embeddings", 2048)
    kv_heads = size("num_key_value_heads", heads or None)
    head_dim = size("head_dim", hidden // heads if heads else None)
    # Version 5 of the library writes one object rope_parameters, earlier ones rope_theta and rope_scaling.
    rope = given.get("rope_parameters") or given.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        problems.append(f"{CONFIG}: the rotary parameters must be an object, not {rope!r}")
        rope = {}
    theta = _number(rope | given if "rope_theta" in given else rope, "rope_theta", 10_000.0, problems)
    scaling = _scaling(rope, problems)
    eps = _number(given, "rms_norm_eps", 1e-6, problems)
    if problems:
        return None
    if heads % kv_heads:
        problems.append(f"{CONFIG}: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    if head_dim % 2:
        problems.append(f"{CONFIG}: head_dim {head_dim} is odd; rotary positions need pairs")
    return LlamaShape(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward=feed_forward,
        vocabulary=vocabulary,
        max_context=context,
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=eps,
        tied=bool(given.get("tie_word_embeddings", False)),
    )


def _scaling(rope: dict[str, Any], problems: list[str]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        problems.append(f"{CONFIG}: rotary scaling {kind!r} is not served, only 'llama3'")
        return None
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    before = len(problems)
    factor, low, high, original = (_number(rope, name, None, problems) for name in names)
    if len(problems) == before and high <= low:
        problems.append(f"{CONFIG}: high_freq_factor {high} must exceed low_freq_factor {low}")
    return RopeScaling(factor, low, high, int(original))


def _number(given: dict[str, Any], name: str, default: float | None, problems: list[str]) -> float:
    value = given.get(name, default)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    problems.append(f"{CONFIG}: {name} must be a positive number, not {value!r}")
    return 1.0


def _eos(given: object, shape: LlamaShape | None, problems: list[str]) -> frozenset[int]:
    ids = given if isinstance(given, list) else [] if given is None else [given]
    top = shape.vocabulary if shape is not None else None
    wrong = [i for i in ids if not isinstance(i, int) or isinstance(i, bool) or i < 0 or (top is not None and i >= top)]
    if wrong:
        problems.append(f"{CONFIG}: eos_token_id {wrong} are no token ids of this model")
        return frozenset()
    return frozenset(ids)


class FileTokenizer:
    """A folder's tokenizer. Raises ConfigError when there is none, or when it knows more tokens than the model."""

    def __init__(self, folder: Path, *, vocabulary: int, eos: frozenset[int]) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"--weights {folder}: it has no tokenizer.json")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 - the library raises nothing narrower
            raise ConfigError(f"--weights {folder}: tokenizer.json can't be read: {error}") from None
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        if largest >= vocabulary:
            raise ConfigError(
                f"--weights {folder}: tokenizer.json has token {largest}, but the model has ids below {vocabulary} only"
            )
        self._vocabulary = vocabulary
        self._special = frozenset(
            token for token, added in self._tokenizer.get_added_tokens_decoder().items() if added.special
        )
        self._llama3 = all(self._id(name) is not None for name in (_HEADER, _HEADER_END, _TURN_END))
        turn_end = self._id(_TURN_END)
        # A conversation's turn ends with its own token, which base models' configurations don't list.
        self._eos = eos | ({turn_end} if self._llama3 and turn_end is not None else set())
        self._bos = _beginning(self._tokenizer, folder)

    @property
    def vocabulary(self) -> int:
        return self._vocabulary

    @property
    def eos(self) -> frozenset[int]:
        return self._eos

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt, with the beginning-of-text token where the model has one. Never empty.

        Special tokens that the prompt spells out are meant: whoever frames a conversation himself needs them.
        """
        return self._with_bos(self._ids(text, plain=False))

    def begin(self, tokens: Sequence[int]) -> list[int]:
        """A prompt of given token ids after the beginning-of-text token, unless it already begins with that."""
        return self._with_bos(list(tokens))

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Token ids of a conversation of (role, content), up to where the assistant speaks.

        Contents are text: special tokens spelled out in them are not taken for the real ones, so that no user can end
        a turn or speak for the system.
        """
        if not self._llama3:
            return self.encode("".join(f"{role}: {content}\n" for role, content in messages) + "assistant: ")
        turn_end = self._id(_TURN_END)
        assert turn_end is not None
        ids: list[int] = []
        for role, content in messages:
            ids += [*self._header(role), *self._plain(content.strip()), turn_end]
        return self._with_bos([*ids, *self._header("assistant")])

    def decoding(self) -> FileDecoding:
        return FileDecoding(self._tokenizer, self._special)

    def _header(self, role: str) -> list[int]:
        start, end = self._id(_HEADER), self._id(_HEADER_END)
        assert start is not None
        assert end is not None
        return [start, *self._plain(role), end, *self._plain("\n\n")]

    def _plain(self, text: str) -> list[int]:
        return self._ids(text, plain=True)

    def _ids(self, text: str, *, plain: bool) -> list[int]:
        self._tokenizer.encode_special_tokens = plain
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _with_bos(self, ids: list[int]) -> list[int]:
        if self._bos is None:
            return ids or [min(self._eos, default=0)]  # nothing to continue: where a text ends another begins
        return ids if ids[:1] == [self._bos] else [self._bos, *ids]

    def _id(self, name: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(name)
        return found


class FileDecoding:
    """One answer's tokens becoming text; special tokens vanish."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, special: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._tokens: list[int] = []
        self._emitted = 0
        """Of the tokens kept, these many from the front have been emitted; they stay as context, since how a piece is
        spelled (a leading space, say) depends on what came before it."""

    def feed(self, token: int) -> str:
        """Text that became certain with this token; may be empty."""
        if token in self._special:
            return ""
        self._tokens.append(token)
        text = self._pending()
        if text.endswith(_HALF) and len(self._tokens) - self._emitted < _WINDOW:
            return ""
        self._emitted = len(self._tokens)
        if self._emitted > 2 * _WINDOW:
            del self._tokens[: self._emitted - _WINDOW]
            self._emitted = _WINDOW
        return text

    def flush(self) -> str:
        """What was held back at the end: U+FFFD for an unfinished character, or nothing."""
        text = self._pending()
        self._emitted = len(self._tokens)
        return text

    def _pending(self) -> str:
        if self._emitted == len(self._tokens):
            return ""
        before = self._tokenizer.decode(self._tokens[: self._emitted])
        return str(self._tokenizer.decode(self._tokens))[len(before) :]


def _beginning(tokenizer: tokenizers.Tokenizer, folder: Path) -> int | None:
    """The token that prompts begin with: what the tokenizer puts there, else what tokenizer_config.json says."""
    framed: list[int] = tokenizer.encode("", add_special_tokens=True).ids
    if framed:
        return framed[0]
    try:
        given: dict[str, Any] = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        given = {}
    named = given.get("bos_token") if isinstance(given, dict) else None
    content = named.get("content") if isinstance(named, dict) else named
    if not isinstance(content, str) or given.get("add_bos_token") is False:
        return None
    found: int | None = tokenizer.token_to_id(content)
    return found


def load(folder: Path, shape: LlamaShape, *, device: str, dtype: torch.dtype) -> LlamaWeights:
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
            qkv=stacked(tuple(f"{at}.self_attn.{which}_proj.weight" for which in "qkv"), (queries, keys, keys)),
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
