"""ResNet-50 v1.5 with seeded weights: JPEG files in, the five likeliest of 1000 classes out. What it says means
nothing; what it costs is real.

On a CPU pictures are computed one by one in float32, so a result can't depend on its company; on a GPU a batch is one
compiled pass in bfloat16, where company may move logits by 2 % of their spread. With 8 bits weights have a scale a
channel and activations one a layer, found once with seeded pictures: again no result depends on its company. Pictures
are refused that are no JPEG, end too early, or would cost far more to decode than to send.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL.Image import Image, Resampling
from PIL.JpegImagePlugin import JpegImageFile
from torch import Tensor
from torch.nn import functional

from plimsoll.reference_server.models.presets import SIDES
from plimsoll.reference_server.values import tensors as named
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import ConfigError, RequestError

MAX_PIXELS = 32_000_000
MAX_SCANS = 100
"""A progressive JPEG has about ten; each is a pass over the whole picture."""
SIDE = 224
_SHORTER = 256
_BASE64 = b"/9j/"
"""How a JPEG begins in base64; a JPEG itself begins with FF D8, so the two can't be confused."""
_START_OF_SCAN = b"\xff\xda"
# ImageNet's mean and spread of each channel, for pixels from 0 to 1.
_MEAN = np.array((0.485, 0.456, 0.406), dtype=np.float32)
_SPREAD = np.array((0.229, 0.224, 0.225), dtype=np.float32)
N_CLASSES = 1000
_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width of the bottleneck and number of blocks."""
_EXPANSION = 4
_N_PICTURES = 16
_PICTURE_SIDE = 112
_BRANCH_GAIN = 0.25
"""Of a block's last normalisation, near 0 as in trained networks: at 1 each rounding grows sevenfold."""
_LOGIT_SPREAD = 3.0
"""Of one class over pictures: the likeliest of 1000 then gets a tenth or so."""
_log = logging.getLogger(__name__)


def decode(data: bytes, where: str) -> Image:
    """The RGB picture in a JPEG file, perhaps in base64. Raises RequestError 400 that begins with ``where``."""
    if not data:
        raise _bad(where, "is empty. Send the bytes of a JPEG file")
    if data.startswith(_BASE64):
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise _bad(where, f"looks like base64 and isn't: {error}. Send the bytes of a JPEG file") from None
    if data.count(_START_OF_SCAN) > MAX_SCANS:
        raise _bad(where, f"has more than {MAX_SCANS} scans. Save it as a baseline JPEG")
    try:
        image = JpegImageFile(io.BytesIO(data))
    except (SyntaxError, OSError, ValueError):
        raise _bad(where, f"is no JPEG; it begins with {data[:4].hex(' ')}. Send the bytes of a JPEG file") from None
    if image.width * image.height > MAX_PIXELS:
        raise _bad(
            where, f"has {image.width} x {image.height} pixels, the limit is {MAX_PIXELS:,} in all. Send a smaller one"
        )
    try:
        return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise _bad(where, f"can't be decoded: {error}. Send a whole JPEG file") from None


def resize(image: Image, wanted: int = SIDE) -> Image:
    """Shorter side to 256, then the middle 224 x 224, in one step: no side of a long strip is ever blown up.

    ``wanted`` is another size of the middle; 0 takes it as it is, between 32 and 512 pixels.
    """
    side = min(image.size) * SIDE / _SHORTER
    wanted = wanted or min(SIDES[1], max(SIDES[0], round(side)))
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return image.resize((wanted, wanted), Resampling.BILINEAR, box=(left, top, left + side, top + side))


def normalise(image: Image) -> npt.NDArray[np.float32]:
    """Pixels [side, side, 3] minus ImageNet's mean, over its spread."""
    pixels = np.asarray(image, dtype=np.float32)
    return pixels * (1 / (255 * _SPREAD)) - _MEAN / _SPREAD


def _bad(where: str, message: str) -> RequestError:
    return RequestError(400, f"{where}: {message}", param=where.partition("[")[0], code="invalid_image")


@dataclass(frozen=True, slots=True)
class _Conv:
    """A convolution with its normalisation folded in."""

    weight: Tensor
    bias: Tensor
    stride: int

    def __call__(self, x: Tensor) -> Tensor:
        """[N, n_in, H, W] -> [N, n_out, H / stride, W / stride]."""
        return functional.conv2d(x, self.weight, self.bias, self.stride, self.weight.shape[-1] // 2)


@dataclass(frozen=True, slots=True)
class _Block:
    """A bottleneck: 1x1, 3x3, 1x1, and a shortcut that is the identity where shapes allow."""

    reduce: _Conv
    spatial: _Conv
    expand: _Conv
    shortcut: _Conv | None

    def __call__(self, x: Tensor) -> Tensor:
        inner = self.expand(self.spatial(self.reduce(x).relu_()).relu_())
        return inner.add_(x if self.shortcut is None else self.shortcut(x)).relu_()


@dataclass(frozen=True, slots=True)
class Network:
    """The weights and the forward pass."""

    stem: _Conv
    blocks: Sequence[_Block]
    classes: Tensor
    class_bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Pictures [N, 3, H, W] to logits [N, 1000]."""
        x = functional.max_pool2d(self.stem(x).relu_(), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return functional.linear(x.mean((2, 3)), self.classes, self.class_bias)

    def tensors(self) -> list[Tensor]:
        convs = [self.stem, *(c for b in self.blocks for c in (b.reduce, b.spatial, b.expand, b.shortcut) if c)]
        return [t for conv in convs for t in (conv.weight, conv.bias)] + [self.classes, self.class_bias]

    def moved(self, device: str, dtype: torch.dtype) -> Network:
        """The network on a device, channels last."""

        def conv(given: _Conv) -> _Conv:
            weight = given.weight.to(device, dtype).contiguous(memory_format=torch.channels_last)
            return _Conv(weight, given.bias.to(device, dtype), given.stride)

        blocks = [
            _Block(conv(b.reduce), conv(b.spatial), conv(b.expand), conv(b.shortcut) if b.shortcut else None)
            for b in self.blocks
        ]
        head = [t.to(device, dtype) for t in (self.classes, self.class_bias)]
        return Network(conv(self.stem), blocks, *head)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Compute in one thread: what comes of it is the same for any number of threads."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(n_threads)


@_alone()
def grow(seed: int) -> Network:
    """The network of a seed, in float32 on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    x = _pictures(generator)

    def conv(x: Tensor, n_out: int, size: int, stride: int = 1, gain: float = 1.0) -> tuple[_Conv, Tensor]:
        n_in = x.shape[1]
        weight = torch.randn(n_out, n_in, size, size, generator=generator).mul_(math.sqrt(2 / (n_in * size * size)))
        raw = functional.conv2d(x, weight, None, stride, size // 2)
        variance, mean = torch.var_mean(raw, (0, 2, 3), correction=0)
        scale = (variance + 1e-5).rsqrt().mul_(gain)
        grown = _Conv(weight * scale.view(-1, 1, 1, 1), -mean * scale, stride)
        return grown, (raw - mean.view(-1, 1, 1)).mul_(scale.view(-1, 1, 1))

    stem, x = conv(x, 64, 7, 2)
    x = functional.max_pool2d(x.relu_(), 3, 2, 1)
    blocks = []
    for stage, (width, n_blocks) in enumerate(_STAGES):
        for index in range(n_blocks):
            stride = 2 if stage > 0 and index == 0 else 1
            reduce, inner = conv(x, width, 1)
            spatial, inner = conv(inner.relu_(), width, 3, stride)
            expand, inner = conv(inner.relu_(), width * _EXPANSION, 1, gain=_BRANCH_GAIN)
            shortcut, around = conv(x, width * _EXPANSION, 1, stride) if index == 0 else (None, x)
            x = inner.add_(around).relu_()
            blocks.append(_Block(reduce, spatial, expand, shortcut))
    features = x.mean((2, 3))
    classes = torch.randn(N_CLASSES, features.shape[1], generator=generator)
    spread, mean = torch.std_mean(functional.linear(features, classes), 0)
    scale = _LOGIT_SPREAD / spread.clamp(min=1e-6)
    return Network(stem, blocks, classes * scale.unsqueeze(1), -mean * scale)


def _pictures(generator: torch.Generator) -> Tensor:
    """Seeded pictures [N, 3, side, side] of waves and noise, from smooth to rough, as varied as photographs."""
    at = torch.linspace(0, 1, _PICTURE_SIDE)
    size = (_N_PICTURES, 3, 1, 1)
    roughness = torch.rand(_N_PICTURES, 1, 1, 1, generator=generator)
    waves = torch.zeros(_N_PICTURES, 3, _PICTURE_SIDE, _PICTURE_SIDE)
    for octave in range(6):
        down, right, phase = (torch.randn(size, generator=generator) * 2**octave for _ in range(3))
        height = torch.randn(size, generator=generator) * (0.3 + 0.7 * roughness) ** octave
        waves += height * torch.sin(2 * math.pi * (down * at.view(-1, 1) + right * at) + phase)
    bright = torch.randn(size, generator=generator)
    noise = torch.randn(waves.shape, generator=generator) * 0.3 * roughness**2
    return waves * 0.5 + bright * 0.7 + noise


_Grid = tuple[float, int]
"""What one step of a byte is worth, and the byte that means 0."""


def _grid(low: float, high: float) -> _Grid:
    step = (high - min(low, 0.0)) / 255
    return step, round(-min(low, 0.0) / step)


@dataclass(frozen=True, slots=True)
class _ByteConv:
    """A convolution of bytes by signed bytes, summed exactly."""

    packed: Any
    grid: _Grid
    rectified: bool

    def __call__(self, x: Tensor) -> Tensor:
        product = torch.ops.quantized.conv2d_relu if self.rectified else torch.ops.quantized.conv2d
        made: Tensor = product(x, self.packed, *self.grid)
        return made


@dataclass(frozen=True, slots=True)
class ByteNetwork:
    """The same network in 8 bits but for its head: a quarter of the memory, and products that processors have
    instructions for. Of each block: its three convolutions, its shortcut, and the grid of their sum.
    """

    grid: _Grid
    stem: _ByteConv
    blocks: Sequence[tuple[_ByteConv, _ByteConv, _ByteConv, _ByteConv | None, _Grid]]
    classes: Tensor
    class_bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """A picture [1, 3, H, W] to logits [1, 1000]."""
        x = functional.max_pool2d(self.stem(torch.quantize_per_tensor(x, *self.grid, torch.quint8)), 3, 2, 1)
        for reduce, spatial, expand, shortcut, grid in self.blocks:
            around = x if shortcut is None else shortcut(x)
            x = torch.ops.quantized.add_relu(expand(spatial(reduce(x))), around, *grid)
        return functional.linear(x.dequantize().mean((2, 3)), self.classes, self.class_bias)


@_alone()
def in_bytes(network: Network, seed: int) -> ByteNetwork:
    """Rounded to bytes; what a layer gives for the pictures of the seed is the range of its activations."""

    def conv(given: _Conv, x: Tensor, rectified: bool = True) -> tuple[_ByteConv, Tensor]:
        y = given(x).relu_() if rectified else given(x)
        steps = given.weight.abs().amax((1, 2, 3)).double().clamp_(min=1e-12).div_(127)
        weight = torch.quantize_per_channel(given.weight, steps, torch.zeros_like(steps).long(), 0, torch.qint8)
        where = [given.stride] * 2, [given.weight.shape[-1] // 2] * 2, [1, 1], 1
        packed = torch.ops.quantized.conv2d_prepack(weight, given.bias, *where)
        return _ByteConv(packed, _grid(float(y.min()), float(y.max())), rectified), y

    with warnings.catch_warnings():
        # torch means to remove its tensors of bytes; what replaces them computes some layers ten times slower.
        warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
        darkest, brightest = -_MEAN / _SPREAD, (1 - _MEAN) / _SPREAD
        stem, x = conv(network.stem, _pictures(torch.Generator().manual_seed(seed)))
        x = functional.max_pool2d(x, 3, 2, 1)
        blocks = []
        for block in network.blocks:
            reduce, inner = conv(block.reduce, x)
            spatial, inner = conv(block.spatial, inner)
            expand, inner = conv(block.expand, inner, rectified=False)
            shortcut, around = conv(block.shortcut, x, rectified=False) if block.shortcut else (None, x)
            x = inner.add_(around).relu_()
            blocks.append((reduce, spatial, expand, shortcut, _grid(0.0, float(x.max()))))
    pixels = _grid(float(darkest.min()), float(brightest.max()))
    return ByteNetwork(pixels, stem, blocks, network.classes, network.class_bias)


def compiled(network: Network | ByteNetwork, **options: Any) -> Callable[[Tensor], Tensor]:
    """The network's pass as one graph for each batch size; ``options`` are torch.compile's."""
    made: Callable[[Tensor], Tensor] = torch.compile(network.__call__, dynamic=False, fullgraph=True, **options)
    return made


def padded_size(n: int) -> int:
    """The power of two from ``n`` on: few batch sizes, so few compilations."""
    return 1 << (n - 1).bit_length()


class ResNet50:
    """The network as a batch model: a sample is a picture float32 [side, side, 3], a result 1000 logits in float32."""

    name = "resnet50"
    inputs = (named.TensorSpec("image", "BYTES", (-1,)),)
    outputs = (
        named.TensorSpec("top5_class", "INT32", (-1, 5)),
        named.TensorSpec("top5_probability", "FP32", (-1, 5)),
        named.TensorSpec("top1_class", "INT32", (-1,)),
    )

    def __init__(self, network: Network | ByteNetwork, *, device: str, threads: int, side: int = SIDE) -> None:
        self._side = side
        self._threads = threads
        self._device = device
        self._dtype = torch.float32 if device == "cpu" else torch.bfloat16
        self._network = network.moved(device, self._dtype) if isinstance(network, Network) else network
        self._pass: Callable[[Tensor], Tensor] = self._network

    @torch.inference_mode()
    def warm_up(self, max_batch: int) -> None:
        """A picture on a CPU; on a GPU every batch size that will come, compiled where that works."""
        torch.set_num_threads(self._threads)  # the setting is per thread, and this is the thread that computes
        picture = np.zeros((self._side or SIDE, self._side or SIDE, 3), dtype=np.float32)
        if self._device == "cpu":
            self.forward([picture], Stages())
            return
        self._pass = compiled(self._network)
        try:
            self.forward([picture], Stages())
        except Exception:  # noqa: BLE001 - compilers fail in many ways, and the model is served without one
            _log.warning("resnet50 is not compiled: torch.compile failed", exc_info=True)
            self._pass = self._network
        size = 1
        while size < max_batch:
            size = padded_size(size + 1)
            self.forward([picture] * size, Stages())

    def preprocess(self, tensors: Mapping[str, named.Tensor], stages: Stages) -> Sequence[npt.NDArray[np.float32]]:
        samples = []
        for index, data in enumerate(tensors["image"].data):
            with stages.time("preprocess.decode"):
                image = decode(data, f"image[{index}]")
            with stages.time("preprocess.resize"):
                image = resize(image, self._side)
            with stages.time("preprocess.normalise"):
                samples.append(normalise(image))
        return samples

    @torch.inference_mode()
    def forward(self, samples: Sequence[Any], stages: Stages) -> Sequence[npt.NDArray[np.float32]]:
        if self._device == "cpu":
            return [self._pass(torch.from_numpy(s).permute(2, 0, 1).unsqueeze(0))[0].numpy() for s in samples]
        padded = [*samples, *[samples[-1]] * (padded_size(len(samples)) - len(samples))]
        with stages.time("inference.forward.copy"):
            pinned = torch.from_numpy(np.stack(padded)).pin_memory()
            batch = pinned.to(self._device, non_blocking=True).to(self._dtype).permute(0, 3, 1, 2)
            torch.cuda.synchronize()
        logits = self._pass(batch)[: len(samples)].float().cpu().numpy()
        return list(logits)

    def postprocess(self, results: Sequence[Any], stages: Stages) -> Sequence[named.Tensor]:
        """The five likeliest classes, likeliest first, their probabilities, and the likeliest alone."""
        classes = np.empty((len(results), 5), dtype=np.int32)
        probabilities = np.empty((len(results), 5), dtype=np.float32)
        with stages.time("postprocess.softmax"):
            for row, logits in enumerate(results):
                best = np.argsort(-logits, kind="stable")[:5]
                shares = np.exp(logits.astype(np.float64) - logits[best[0]])
                classes[row] = best
                probabilities[row] = shares[best] / shares.sum()
        made = (classes, probabilities, np.ascontiguousarray(classes[:, 0]))
        return [named.Tensor(spec.name, spec.datatype, data) for spec, data in zip(self.outputs, made, strict=True)]


def build(*, device: str, seed: int, threads: int, side: int = SIDE, precision: str = "float32") -> ResNet50:
    """Raises ConfigError where pictures of several sizes would have to be one tensor, and for bytes on a GPU."""
    if device != "cpu" and side == 0:
        raise ConfigError("--image-side 0: a GPU computes batches of one size. Choose a side, or --device cpu")
    if device != "cpu" and precision != "float32":
        raise ConfigError(f"--precision {precision}: of a CPU; a GPU computes bfloat16. Leave it out, or --device cpu")
    torch.set_num_threads(threads)
    network = grow(seed)
    made = in_bytes(network, seed) if precision == "int8" else network
    return ResNet50(made, device=device, threads=threads, side=side)
