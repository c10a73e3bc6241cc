"""Images: seeded pictures or files, as tensors for KServe v2 endpoints and as the bytes of a file for HTTP bodies.

``Payload.data`` is ``{"inputs": [{"name", "shape", "datatype", "data"}], "image": bytes, "content_type": str, "width":
int, "height": int}``. Numbers are numpy arrays, BYTES a list of one file a picture. The bundled ``resnet50`` takes the
defaults (JPEG as BYTES), over JSON ``tensor: BASE64``.
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, model_validator

from plimsoll.documents import files
from plimsoll.scenarios.media.pictures import Undecodable, jpeg_bytes, picture, pixels_of, png_bytes, require_decoder
from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.lines import cap
from plimsoll.scenarios.samples.payload import Payload, PayloadSource, require_index
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT, FileName, expanded, missing

MAX_SIDE = 8192
MAX_ELEMENTS = 100_000_000
_DEFAULT_COUNT = 64
#: (bytes a file begins with, its media type)
_KNOWN = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
)
#: Mean and spread of red, green and blue over ImageNet's training pictures: what most image networks were trained on.
_MEAN, _SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Pixels = npt.NDArray[np.uint8]


class Images(BaseModel):
    """Files, or ``count`` seeded pictures of ``width`` x ``height`` where none are given."""

    model_config = STRICT
    kind: Literal["image"] = "image"
    files: tuple[FileName, ...] | None = Field(
        default=None, strict=False, min_length=1, description="Pictures; `*` and `?` match names, in their order."
    )
    count: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Samples; synthetic: 64 by default, else one a file."
    )
    width: int = Field(default=224, ge=1, le=MAX_SIDE, description="Pixels; of files only where they become numbers.")
    height: int = Field(default=224, ge=1, le=MAX_SIDE, description="Pixels, likewise.")
    format: Literal["jpeg", "png"] = Field(default="jpeg", description="Of synthetic pictures.")
    quality: int = Field(default=85, ge=1, le=100, description="Of JPEG.")
    input: str = Field(default="image", min_length=1, description="The tensor's name.")
    tensor: Literal["BYTES", "BASE64", "UINT8", "FP32", "none"] = Field(
        default="BYTES", description="Files, files as base64 text (for JSON), pixels, normalised pixels, or no tensor."
    )
    layout: Literal["NHWC", "NCHW"] = Field(default="NCHW", description="Of UINT8 and FP32.")
    normalise: Literal["imagenet", "unit"] = Field(
        default="imagenet", description="FP32: (x / 255 - mean) / spread, or x / 255."
    )
    batch: int | None = Field(default=1, ge=1, le=1024, description="Pictures a sample; null: one, without that axis.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.width * self.height * 3 * (self.batch or 1) > MAX_ELEMENTS:
            raise ValueError(f"a sample would have more than {MAX_ELEMENTS:,} numbers. Lower width, height or batch")
        return self

    @property
    def numbers(self) -> bool:
        """Are pixels wanted, and not only files?"""
        return self.tensor in ("UINT8", "FP32")


class _Pictures(Protocol):
    def __len__(self) -> int: ...

    def file(self, index: int) -> tuple[bytes, str]:
        """The bytes and the media type."""

    def pixels(self, index: int) -> Pixels:
        """uint8[height, width, 3]."""


@dataclass(frozen=True, slots=True)
class _Painted:
    """Seeded pictures."""

    params: Images
    seed: int
    count: int

    def __len__(self) -> int:
        return self.count

    def file(self, index: int) -> tuple[bytes, str]:
        pixels = self.pixels(index)
        if self.params.format == "png":
            return png_bytes(pixels), "image/png"
        return jpeg_bytes(pixels, self.params.quality), "image/jpeg"

    def pixels(self, index: int) -> Pixels:
        return picture(self.params.width, self.params.height, child(self.seed, f"picture {index}"))


@dataclass(frozen=True, slots=True)
class _Stored:
    """Files, read when they are asked for."""

    params: Images
    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def file(self, index: int) -> tuple[bytes, str]:
        path = self.paths[index]
        try:
            data = files.read_bytes(path)
        except OSError as error:
            raise ScenarioError([f"{path}: can't be read ({error.strerror}). Put it back."]) from None
        return data, _media_type(data[:16]) or "application/octet-stream"

    def pixels(self, index: int) -> Pixels:
        try:
            return pixels_of(self.file(index)[0], self.params.width, self.params.height)
        except Undecodable as error:
            raise ScenarioError([f"{self.paths[index]}: {error}."]) from None


@dataclass(frozen=True, slots=True)
class _Samples:
    """Makes each sample when it is asked for; the same index gives the same bytes."""

    params: Images
    pictures: _Pictures
    count: int

    def __len__(self) -> int:
        return self.count

    def payload(self, index: int) -> Payload:
        require_index(index, len(self))
        params = self.params
        n = params.batch or 1
        which = [(index * n + i) % len(self.pictures) for i in range(n)]
        files = [self.pictures.file(i) for i in (which if not params.numbers else which[:1])]
        data: dict[str, Any] = {"image": files[0][0], "content_type": files[0][1]}
        data |= {"width": params.width, "height": params.height} if isinstance(self.pictures, _Painted) else {}
        if params.numbers:
            data["inputs"] = [self._numbers(np.stack([self.pictures.pixels(i) for i in which]))]
        elif params.tensor != "none":
            encoded = [file for file, _ in files]
            texts: list[Any] = [base64.b64encode(file).decode() for file in encoded]
            given = texts if params.tensor == "BASE64" else encoded
            data["inputs"] = [{"name": params.input, "shape": [n], "datatype": "BYTES", "data": given}]
        return Payload(data=data)

    def _numbers(self, pixels: npt.NDArray[np.uint8]) -> dict[str, Any]:
        """A tensor of [n, height, width, 3] pixels in the layout and type asked for."""
        params = self.params
        made: npt.NDArray[Any] = pixels
        if params.tensor == "FP32":
            made = pixels.astype(np.float32) / np.float32(255)
            if params.normalise == "imagenet":
                made = (made - np.array(_MEAN, np.float32)) / np.array(_SPREAD, np.float32)
        if params.layout == "NCHW":
            made = made.transpose(0, 3, 1, 2)
        made = np.ascontiguousarray(made if params.batch is not None else made[0])
        return {"name": params.input, "shape": list(made.shape), "datatype": params.tensor, "data": made}


def _media_type(head: bytes) -> str | None:
    found = next((kind for magic, kind in _KNOWN if head.startswith(magic)), None)
    return found if found != "image/webp" or head[8:12] == b"WEBP" else None


def _build(params: Images, seed: int) -> PayloadSource:
    if params.files is None:
        count = params.count or _DEFAULT_COUNT
        return _Samples(params, _Painted(params, child(seed, "image"), count * (params.batch or 1)), count)
    paths, errors = expanded(params.files, "source.files")
    if params.numbers:
        try:
            require_decoder()
        except Undecodable as error:
            errors.append(f"source.tensor: {error}.")
    for path in paths:
        errors += _wrong(path)
    if errors:
        raise ScenarioError(cap(errors, "source.files"))
    return _Samples(params, _Stored(params, tuple(paths)), params.count or -(-len(paths) // (params.batch or 1)))


def _wrong(path: Path) -> list[str]:
    """Why a file is no picture, by its first bytes."""
    problem = missing(path, "source.files")
    if problem:
        return [problem]
    try:
        with files.opened(path) as file:
            head = file.read(16)
    except OSError as error:
        return [f"{path}: can't be read ({error.strerror}). Give a file that this user may read."]
    return [] if _media_type(head) else [f"{path}: is no picture. Give JPEG, PNG, WebP, GIF, BMP or TIFF."]


SOURCE = Source(
    name="image", summary="Pictures, seeded or from files, as tensors and as file bytes.", params=Images, build=_build
)
