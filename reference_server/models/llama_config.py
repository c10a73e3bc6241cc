"""What a local folder says about its Llama model: config.json and generation_config.json, checked. Reads no weights, imports no torch.

Every mistake that can be seen is named at once. It refuses what models/llama.py doesn't compute (other architectures, biases,
other activations, quantised weights, other kinds of rotary scaling), because a model that is nearly computed answers nonsense.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.reference_server.models.presets import LlamaShape, RopeScaling
from plimsoll.reference_server.values.errors import ConfigError

CONFIG = "config.json"
_SHOWN = 12


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
    """The model that a folder describes. Raises ConfigError."""
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
