"""The image source: real JPEG and PNG without a library, tensors in the layout asked for, files as they are."""

from __future__ import annotations

import base64
import io
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios import spec
from plimsoll.scenarios.media.pictures import jpeg_bytes, picture, png_bytes
from plimsoll.scenarios.samples.payload import PayloadSource


def source(folder: Path | None = None, **params: Any) -> PayloadSource:
    given = {"kind": "server", "source": {"kind": "image", **params}}
    return spec.parse(given, "t", folder=folder).source_object()


def errors_of(folder: Path | None = None, **params: Any) -> list[str]:
    with pytest.raises(spec.ScenarioError) as caught:
        source(folder, **params)
    return caught.value.errors


def opened(data: bytes) -> Any:
    """The picture as another program sees it."""
    pillow = pytest.importorskip("PIL.Image", reason="the server extra isn't installed")
    found = pillow.open(io.BytesIO(data))
    found.load()
    return found


# -- pictures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(224, 224), (1, 1), (17, 9), (8, 300)])
@pytest.mark.parametrize("quality", [1, 50, 85, 100])
def test_our_jpeg_is_as_near_to_the_pixels_as_pillows_and_no_larger(width: int, height: int, quality: int) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="the server extra isn't installed")
    pixels = picture(width, height, 3)
    ours = jpeg_bytes(pixels, quality)
    file = io.BytesIO()
    pillow.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling=0)
    assert opened(ours).size == (width, height)
    far = [np.abs(np.asarray(opened(data)).astype(int) - pixels).mean() for data in (ours, file.getvalue())]
    assert far[0] <= far[1] * 1.1 + 0.1
    assert len(ours) <= len(file.getvalue()) * 1.02 + 16


def test_jpeg_holds_any_contrast() -> None:
    rng = np.random.default_rng(1)
    for pixels in (
        np.zeros((16, 16, 3), np.uint8),
        np.full((16, 16, 3), 255, np.uint8),
        rng.integers(0, 2, (64, 64, 3)).astype(np.uint8) * 255,
        np.indices((64, 64, 3)).sum(axis=0).astype(np.uint8) % 2 * 255,
    ):
        got = np.asarray(opened(jpeg_bytes(pixels, 100))).astype(int)
        assert np.abs(got - pixels).max() <= 6


@pytest.mark.parametrize(("width", "height"), [(224, 224), (1, 1), (5, 3)])
def test_our_png_gives_every_pixel_back(width: int, height: int) -> None:
    pixels = picture(width, height, 3)
    assert np.array_equal(np.asarray(opened(png_bytes(pixels))), pixels)


def test_a_seed_is_a_picture_byte_for_byte() -> None:
    assert jpeg_bytes(picture(64, 48, 7)) == jpeg_bytes(picture(64, 48, 7))
    assert jpeg_bytes(picture(64, 48, 7)) != jpeg_bytes(picture(64, 48, 8))
    # The same on every machine: this is what the seed has always given.
    assert zlib.crc32(picture(64, 48, 7).tobytes()) == 4282210021
    assert zlib.crc32(jpeg_bytes(picture(64, 48, 7))) == 2552148098


def test_a_picture_of_the_usual_size_weighs_what_a_photograph_weighs() -> None:
    sizes = [len(jpeg_bytes(picture(224, 224, seed))) for seed in range(5)]
    assert 6_000 < min(sizes) <= max(sizes) < 30_000


# -- payloads ---------------------------------------------------------------------------------------------------


def test_by_default_a_sample_is_one_jpeg_as_bytes() -> None:
    made = source(count=3)
    data = made.payload(1).data
    assert opened(data["image"]).size == (224, 224)
    assert (data["content_type"], data["width"], data["height"]) == ("image/jpeg", 224, 224)
    assert data["inputs"] == [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [data["image"]]}]
    assert len({made.payload(i).data["image"] for i in range(3)}) == 3


def test_for_json_the_files_are_base64_text() -> None:
    data = source(tensor="BASE64", batch=2, count=2).payload(0).data
    tensor = data["inputs"][0]
    assert tensor["shape"] == [2]
    assert base64.b64decode(tensor["data"][0]) == data["image"]
    assert tensor["data"][0] != tensor["data"][1]


@pytest.mark.parametrize(
    ("params", "shape"),
    [
        ({"layout": "NHWC"}, (1, 20, 30, 3)),
        ({"layout": "NCHW"}, (1, 3, 20, 30)),
        ({"layout": "NCHW", "batch": 4}, (4, 3, 20, 30)),
        ({"layout": "NHWC", "batch": None}, (20, 30, 3)),
    ],
)
def test_pixels_come_in_the_layout_asked_for(params: dict[str, Any], shape: tuple[int, ...]) -> None:
    data = source(tensor="UINT8", format="png", width=30, height=20, input="x", **params).payload(2).data
    tensor = data["inputs"][0]
    assert (tensor["name"], tensor["datatype"], tuple(tensor["shape"])) == ("x", "UINT8", shape)
    assert (tensor["data"].dtype, tensor["data"].shape) == (np.uint8, shape)
    assert tensor["data"].flags["C_CONTIGUOUS"]
    first = tensor["data"] if params["batch" if "batch" in params else "layout"] is None else tensor["data"][0]
    upright = first.transpose(1, 2, 0) if params["layout"] == "NCHW" else first
    assert np.array_equal(np.asarray(opened(data["image"])), upright)


def test_numbers_are_normalised_as_image_networks_expect() -> None:
    raw, unit, whitened = (
        source(layout="NHWC", width=32, height=32, **params).payload(0).data["inputs"][0]["data"]
        for params in ({"tensor": "UINT8"}, {"tensor": "FP32", "normalise": "unit"}, {"tensor": "FP32"})
    )
    assert unit.dtype == whitened.dtype == np.float32
    assert np.allclose(unit, raw / 255)
    assert np.allclose(whitened, (raw / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225], atol=1e-5)


def test_without_a_tensor_there_is_only_the_file() -> None:
    assert "inputs" not in source(tensor="none").payload(0).data


# -- files ------------------------------------------------------------------------------------------------------


def test_files_go_out_as_they_are(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(png_bytes(picture(10, 10, i)))
    made = source(tmp_path, files=["*.png"])
    assert [made.payload(i).data["image"] for i in range(len(made))] == [
        (tmp_path / f"{i}.png").read_bytes() for i in range(3)
    ]
    assert made.payload(0).data["content_type"] == "image/png"
    assert len(source(tmp_path, files=["*.png"], batch=2)) == 2
    assert len(source(tmp_path, files=["*.png"], count=10)) == 10


def test_files_become_numbers_of_the_size_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="the server extra isn't installed")
    pixels = picture(16, 12, 1)
    (tmp_path / "a.png").write_bytes(png_bytes(pixels))
    same = source(tmp_path, files=["a.png"], tensor="UINT8", layout="NHWC", width=16, height=12)
    assert np.array_equal(same.payload(0).data["inputs"][0]["data"][0], pixels)
    other = source(tmp_path, files=["a.png"], tensor="FP32", width=8, height=6)
    assert other.payload(0).data["inputs"][0]["shape"] == [1, 3, 6, 8]


def test_numbers_from_files_need_pillow_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(png_bytes(picture(16, 12, 1)))
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    [error] = errors_of(tmp_path, files=["a.png"], tensor="FP32")
    assert "pip install plimsoll-slo[server], or use tensor: BYTES" in error
    assert len(source(tmp_path, files=["a.png"])) == 1


def test_every_bad_file_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png_bytes(picture(4, 4, 1)))
    (tmp_path / "b.png").write_text("no picture")
    (tmp_path / "c.webp").write_bytes(b"RIFF\0\0\0\0WAVE")
    errors = errors_of(tmp_path, files=["a.png", "b.png", "c.webp", "gone.png", "*.bmp"])
    assert len(errors) == 4
    for name, says in (
        ("b.png", "is no picture"),
        ("c.webp", "is no picture"),
        ("gone", "does not exist"),
        (".bmp", "nothing"),
    ):
        assert any(name in error and says in error for error in errors)


def test_a_picture_that_breaks_off_is_one_clear_error(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="the server extra isn't installed")
    (tmp_path / "a.jpg").write_bytes(jpeg_bytes(picture(64, 64, 1))[:700])
    with pytest.raises(spec.ScenarioError, match=r"a\.jpg: can't be decoded"):
        source(tmp_path, files=["a.jpg"], tensor="UINT8").payload(0)


def test_a_sample_too_large_to_be_meant_is_refused() -> None:
    assert "more than 100,000,000 numbers" in errors_of(width=8000, height=8000)[0]
