"""A text encoder with seeded weights: texts in, unit vectors out; texts that share words or parts of words lie close.

A word is the sum of the embeddings of its hashed pieces and a little of its position; two transformer layers look at
all words at once. All products and sums over words are on integer grids (see ``grids``): a vector does not depend on
its batch, bit for bit.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plimsoll.reference_server.models.grids import GridLayer, seeded_linear
from plimsoll.reference_server.models.presets import EXACT
from plimsoll.reference_server.values import tensors as named
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError

MAX_BYTES = 16_384
MAX_WORDS = 512
_LONGEST = 24
"""Longer words (scripts without spaces, encoded data) are cut into words of this many characters."""
_PIECES = (3, 4, 5)
_WORD = re.compile(r"\w+|[^\w\s]")
DIM = 256
_N_LAYERS, _N_HEADS = 2, 4
_HEAD_DIM = DIM // _N_HEADS
_FEED_FORWARD = 512
_N_ROWS = 1 << 16
"""Of the table of pieces: 16 MB of signed bytes."""
_POSITION = 0.1
_LAYER_GAIN = 0.15
"""What a layer adds, beside words of spread one."""
_GRID, _GRID_MAX = 8.0, 31.0
"""Steps per unit, and the largest step, of queries, keys and values, whose spread is about one."""
_LEVELS = float(min(1024, EXACT // (int(_GRID_MAX) * MAX_WORDS)))
"""Steps between 0 and 1 of an attention weight."""
_MAX_SCORES = 8 * MAX_WORDS * MAX_WORDS
"""Scores of a head computed at a time: 32 MB for four heads, eight of the longest texts."""
_POOL_GRID, _POOL_MAX = 1024.0, 30_000.0
"""The same for the sum over words: 512 x 30,000 is below 2**24."""


def words_of(data: bytes, where: str) -> Sequence[str]:
    """The words of a text. Raises RequestError 400 that begins with ``where``."""
    if len(data) > MAX_BYTES:
        raise _bad(where, f"has {len(data)} bytes, the limit is {MAX_BYTES}. Send it in parts")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(where, f"is not UTF-8 at byte {error.start}. Send UTF-8") from None
    found = _WORD.findall(unicodedata.normalize("NFKC", text).lower())
    words = [word[at : at + _LONGEST] for word in found for at in range(0, len(word), _LONGEST)]
    if not words:
        raise _bad(where, "holds no words. Send some text")
    if len(words) > MAX_WORDS:
        raise _bad(where, f"has {len(words)} words, the limit is {MAX_WORDS}. Send it in parts")
    return words


def pieces_of(word: str, n_rows: int) -> Sequence[int]:
    """The rows, below ``n_rows``, of a word's pieces: the same for the same word, whatever the process."""
    marked = f"<{word}>"
    pieces = [marked, *(marked[i : i + n] for n in _PIECES for i in range(len(marked) - n + 1))]
    return [zlib.crc32(piece.encode()) % n_rows for piece in pieces]


def _bad(where: str, message: str) -> RequestError:
    return RequestError(400, f"{where}: {message}", param=where.partition("[")[0], code="invalid_text")


@dataclass(frozen=True, slots=True)
class Text:
    """One sample: the pieces of all words end to end, how many each word has, and how much each word counts."""

    pieces: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]


class Encoder:
    """The weights and the forward pass."""

    def __init__(self, *, seed: int, device: str) -> None:
        generator = torch.Generator().manual_seed(seed)
        table = np.random.default_rng(abs(seed)).integers(-127, 128, (_N_ROWS, DIM), dtype=np.int8)
        self._table = torch.from_numpy(table).to(device)
        self._positions = torch.randn(MAX_WORDS, DIM, generator=generator).mul_(_POSITION).to(device)
        self._layers = [
            GridLayer(
                qkv=seeded_linear(generator, DIM, 3 * DIM, device),
                out=seeded_linear(generator, DIM, DIM, device, gain=_LAYER_GAIN),
                gate_up=seeded_linear(generator, DIM, 2 * _FEED_FORWARD, device),
                down=seeded_linear(generator, _FEED_FORWARD, DIM, device, gain=_LAYER_GAIN),
            )
            for _ in range(_N_LAYERS)
        ]

    def __call__(self, texts: Sequence[Text], device: str) -> Tensor:
        """The sums over the words of each text: whole numbers [N, 256]."""
        lengths = [len(text.counts) for text in texts]
        x = self._words(texts, device)
        starts = [0, *itertools.accumulate(lengths)]
        places = torch.tensor([p for length in lengths for p in range(length)], device=device)
        x = x + self._positions[places]
        company = _company(lengths, starts, device)
        for layer in self._layers:
            x = x + layer.out(_attention(layer.qkv.normed(x), *company))
            x = x + layer.fed_forward(x)
        weights = torch.from_numpy(np.concatenate([text.weights for text in texts])).to(device)
        steps = (x * weights.unsqueeze(1)).mul_(_POOL_GRID).round_().clamp_(-_POOL_MAX, _POOL_MAX)
        owner = torch.tensor([i for i, length in enumerate(lengths) for _ in range(length)], device=device)
        return steps.new_zeros((len(texts), DIM)).index_add_(0, owner, steps)

    def _words(self, texts: Sequence[Text], device: str) -> Tensor:
        """One vector per word [words, 256], of spread one: the sum of its pieces' bytes over the root of their
        number."""
        pieces = torch.from_numpy(np.concatenate([text.pieces for text in texts])).to(device)
        counts = torch.from_numpy(np.concatenate([text.counts for text in texts])).to(device)
        owner = torch.repeat_interleave(counts)
        sums = torch.zeros((len(counts), DIM), device=device)
        sums.index_add_(0, owner, self._table.index_select(0, pieces).float())
        return sums / (counts.float().sqrt_() * (127 / math.sqrt(3.0))).unsqueeze(1)


def _company(lengths: Sequence[int], starts: Sequence[int], device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Where words go for attention and back: the word at each place [N, longest] (one past the last for none), which
    places are words, and the place of each word."""
    longest, n_words = max(lengths), starts[-1]
    at = torch.tensor(starts[:-1], device=device).unsqueeze(1) + torch.arange(longest, device=device)
    there = torch.arange(longest, device=device) < torch.tensor(lengths, device=device).unsqueeze(1)
    back = there.flatten().nonzero().squeeze(1)
    return at.masked_fill(~there, n_words), there, back


def _attention(qkv: Tensor, at: Tensor, there: Tensor, back: Tensor) -> Tensor:
    """Every word looks at every word of its text: [words, 3 * 256] -> [words, 256]."""
    grid = qkv.mul(_GRID).round_().clamp_(-_GRID_MAX, _GRID_MAX)
    grid = torch.cat((grid, grid.new_zeros((1, grid.shape[1]))))  # the word that is none
    n_texts, longest = at.shape
    heads = grid[at].view(n_texts, longest, 3, _N_HEADS, _HEAD_DIM).permute(2, 0, 3, 1, 4)
    q, k, v = heads.reshape(3, n_texts * _N_HEADS, longest, _HEAD_DIM).unbind(0)
    scores = torch.bmm(q, k.transpose(1, 2)).mul_(1.0 / (_GRID * _GRID * math.sqrt(_HEAD_DIM)))
    by_text = scores.view(n_texts, _N_HEADS, longest, longest)
    by_text.masked_fill_(~there[:, None, None, :], -1e9)
    # (1 + d / 16) ** 16 in place of exp(d): products only.
    weights = (scores - scores.amax(-1, keepdim=True)).mul_(1.0 / 16.0).add_(1.0).clamp_(min=0.0)
    weights = weights.square_().square_().square_().square_().mul_(_LEVELS).round_()
    mixed = torch.bmm(weights, v).div_(weights.sum(-1, keepdim=True).mul_(_GRID))
    mixed = mixed.view(n_texts, _N_HEADS, longest, _HEAD_DIM).permute(0, 2, 1, 3)
    return mixed.reshape(n_texts * longest, DIM).index_select(0, back)


class Embedder:
    """The encoder as a batch model: a sample is a ``Text``, a result its sum over words, float32 [256]."""

    name = "embedder"
    inputs = (named.TensorSpec("text", "BYTES", (-1,)),)
    outputs = (named.TensorSpec("embedding", "FP32", (-1, DIM)),)

    def __init__(self, encoder: Encoder, *, device: str, threads: int) -> None:
        self._encoder = encoder
        self._device = device
        self._threads = threads

    def warm_up(self, max_batch: int) -> None:
        torch.set_num_threads(self._threads)  # the setting is per thread, and this is the thread that computes
        text = _text(["warm"] * 16)
        for size in {1, max_batch}:
            self.forward([text] * size, Stages())

    def preprocess(self, tensors: Mapping[str, named.Tensor], stages: Stages) -> Sequence[Text]:
        samples = []
        for index, data in enumerate(tensors["text"].data):
            with stages.time("preprocess.split"):
                words = words_of(data, f"text[{index}]")
            with stages.time("preprocess.hash"):
                samples.append(_text(words))
        return samples

    @torch.inference_mode()
    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[npt.NDArray[np.float32]]:
        """One sum over words per text. Texts of like length are computed together, which changes the padding only."""
        order = sorted(range(len(samples)), key=lambda i: len(samples[i].counts))
        results: dict[int, npt.NDArray[np.float32]] = {}
        for group in _groups(order, [len(text.counts) for text in samples]):
            sums = self._encoder([samples[i] for i in group], self._device).cpu().numpy()
            results.update(zip(group, sums, strict=True))
        return [results[i] for i in range(len(samples))]

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[named.Tensor]:
        with stages.time("postprocess.normalise"):
            vectors = np.stack(results).astype(np.float64)
            lengths = np.array([math.sqrt(math.fsum(row * row)) for row in vectors])
            unit = (vectors / np.maximum(lengths, 1e-12)[:, None]).astype(np.float32)
        return [named.Tensor("embedding", "FP32", unit)]


def build(*, device: str, seed: int, threads: int) -> Embedder:
    torch.set_num_threads(threads)
    return Embedder(Encoder(seed=seed, device=device), device=device, threads=threads)


def _groups(order: Sequence[int], lengths: Sequence[int]) -> Sequence[Sequence[int]]:
    """Neighbours in ``order`` (shortest first) while their padded scores stay few: memory has a bound for any batch."""
    groups: list[list[int]] = []
    for i in order:
        if not groups or (len(groups[-1]) + 1) * lengths[i] ** 2 > _MAX_SCORES:
            groups.append([])
        groups[-1].append(i)
    return groups


def _text(words: Sequence[str]) -> Text:
    pieces = [pieces_of(word, _N_ROWS) for word in words]
    counts = [len(of_word) for of_word in pieces]
    # Short words are mostly glue: "of" counts a quarter as much as a word of eight letters.
    weights = [(len(word) / (len(word) + 4)) ** 2 for word in words]
    return Text(
        np.array([row for of_word in pieces for row in of_word], dtype=np.int64),
        np.array(counts, dtype=np.int64),
        np.array(weights, dtype=np.float32),
    )
