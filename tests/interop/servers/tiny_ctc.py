"""Writes a streaming CTC model in NeMo's shape (a random matrix), its tokens, and recordings with what sherpa hears.

``tiny_ctc.py FOLDER``, in sherpa's environment. No weights are fetched: the words are gibberish, the same for the
same sound.
"""

from __future__ import annotations

import json
import sys
import wave
from pathlib import Path

import numpy as np
import onnx
import sherpa_onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES, WINDOW, SHIFT, SUBSAMPLING = 80, 48, 32, 8
RATE, PADDING_S = 16_000, 0.8  # as the server pads the end
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def model(folder: Path) -> None:
    tokens = ["<unk>", *LETTERS, "\u2581", *(f"\u2581{letter}" for letter in LETTERS), "<blk>"]
    (folder / "tokens.txt").write_text("".join(f"{token} {number}\n" for number, token in enumerate(tokens)))
    rng = np.random.default_rng(42)
    matrix = rng.normal(0, 1, (FEATURES, len(tokens))).astype(np.float32)
    matrix -= matrix.mean(0)  # silence, whose features are all alike, prefers nothing
    constants = {
        "weights": matrix,
        "bias": np.eye(1, len(tokens), len(tokens) - 1, dtype=np.float32)[0],
        "from": np.array([0]), "to": np.array([SHIFT]), "axis": np.array([2]), "step": np.array([SUBSAMPLING]),
        "steps": np.array([SHIFT // SUBSAMPLING]), "one": np.array([1]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Slice", ["audio_signal", "from", "to", "axis", "step"], ["thinned"]),
        helper.make_node("Transpose", ["thinned"], ["frames"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["frames", "weights"], ["scores"]),
        helper.make_node("Add", ["scores", "bias"], ["biased"]),
        helper.make_node("LogSoftmax", ["biased"], ["logprobs"], axis=-1),
        helper.make_node("Mul", ["one", "steps"], ["encoded_lengths"]),
        helper.make_node("Identity", ["cache_last_channel"], ["cache_last_channel_next"]),
        helper.make_node("Identity", ["cache_last_time"], ["cache_last_time_next"]),
        helper.make_node("Identity", ["cache_last_channel_len"], ["cache_last_channel_next_len"]),
    ]
    real, whole = TensorProto.FLOAT, TensorProto.INT64
    inputs = [
        ("audio_signal", real, ["N", FEATURES, "T"]), ("length", whole, ["N"]),
        ("cache_last_channel", real, ["N", 1, 1, 1]), ("cache_last_time", real, ["N", 1, 1, 1]),
        ("cache_last_channel_len", whole, ["N"]),
    ]  # fmt: skip
    outputs = [
        ("logprobs", real, ["N", "S", len(tokens)]), ("encoded_lengths", whole, ["M"]),
        ("cache_last_channel_next", real, ["N", 1, 1, 1]), ("cache_last_time_next", real, ["N", 1, 1, 1]),
        ("cache_last_channel_next_len", whole, ["N"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    told = {
        "model_type": "EncDecHybridRNNTCTCBPEModel",
        "vocab_size": len(tokens) - 1,
        "normalize_type": "",
        "version": 1,
    }
    told |= {"window_size": WINDOW, "chunk_shift": SHIFT, "subsampling_factor": SUBSAMPLING}
    told |= {f"cache_last_{kind}_dim{i}": 1 for kind in ("channel", "time") for i in (1, 2, 3)}
    helper.set_model_props(made, {name: str(value) for name, value in told.items()})
    onnx.checker.check_model(made)
    onnx.save(made, str(folder / "tiny.onnx"))


def recordings(folder: Path) -> None:
    """Tones of seeded pitch, 0.1 s each, and a manifest of what is heard in them."""
    heard = sherpa_onnx.OnlineRecognizer.from_nemo_ctc(
        str(folder / "tokens.txt"), str(folder / "tiny.onnx"), num_threads=1
    )
    rng = np.random.default_rng(7)
    lines = []
    for name in ("a.wav", "b.wav", "c.wav"):
        pitches = rng.uniform(100, 4000, (15, 3))
        at = np.arange(RATE // 10) / RATE
        sound = np.concatenate([np.sin(2 * np.pi * np.outer(each, at)).mean(0) for each in pitches])
        samples = (sound * 20_000).astype("<i2")
        with wave.open(str(folder / name), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(samples.tobytes())
        stream = heard.create_stream()
        stream.accept_waveform(RATE, samples.astype(np.float32) / 32768)
        stream.accept_waveform(RATE, np.zeros(int(PADDING_S * RATE), np.float32))
        stream.input_finished()
        while heard.is_ready(stream):
            heard.decode_stream(stream)
        lines.append(json.dumps({"file": name, "text": heard.get_result(stream), "start": 0.0, "end": 1.5}))
    (folder / "manifest.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    model(Path(sys.argv[1]))
    recordings(Path(sys.argv[1]))
