"""The image classifier: published shapes, honest pictures in, the same answer in any company, and files that are
refused.
"""

from __future__ import annotations

import base64
import io
import time
from typing import Any

import numpy as np
import pytest

from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import ConfigError, RequestError
from plimsoll.reference_server.values.tensors import bytes_tensor

torch = pytest.importorskip("torch", reason="the classifier needs torch")
pillow = pytest.importorskip("PIL.Image", reason="the classifier needs Pillow")

from plimsoll.reference_server.models import resnet  # noqa: E402
from plimsoll.reference_server.models.resnet import Network, ResNet50, build, compiled, grow, padded_size  # noqa: E402


def picture(seed: int, width: int = 250, height: int = 190) -> Any:
    """Coloured patches blown up softly: every seed another picture."""
    rng = np.random.default_rng(seed)
    patches = rng.integers(0, 256, (*rng.integers(2, 9, 2), 3), dtype=np.uint8)
    return pillow.fromarray(patches).resize((width, height), pillow.Resampling.BICUBIC)


def jpeg(image: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90, **how)
    return file.getvalue()


@pytest.fixture(scope="module")
def network() -> Network:
    return grow(0)


@pytest.fixture(scope="module")
def model(network: Network) -> ResNet50:
    made = ResNet50(network, device="cpu", threads=1)
    made.warm_up(8)
    return made


@pytest.fixture(scope="module")
def samples(model: ResNet50) -> list[Any]:
    tensor = bytes_tensor("image", [jpeg(picture(seed)) for seed in range(8)])
    return list(model.preprocess({"image": tensor}, Stages()))


@pytest.fixture(scope="module")
def logits(model: ResNet50, samples: list[Any]) -> list[Any]:
    return list(model.forward(samples, Stages()))


def test_the_shapes_are_those_of_resnet_50_v1_5(network: Network) -> None:
    assert [len([b for b in network.blocks if b.reduce.weight.shape[0] == n]) for n in (64, 128, 256, 512)] == [
        3,
        4,
        6,
        3,
    ]
    strided = [index for index, block in enumerate(network.blocks) if block.spatial.stride == 2]
    assert strided == [3, 7, 13]  # in the 3x3 convolution: version 1.5
    assert all(block.reduce.stride == block.expand.stride == 1 for block in network.blocks)
    convolved = sum(t.numel() for t in network.tensors() if t.dim() == 4)
    assert convolved == 23_454_912
    assert convolved + network.classes.numel() + network.class_bias.numel() == 25_503_912


def test_different_pictures_have_different_classes(model: ResNet50, logits: list[Any]) -> None:
    stages = Stages()
    classes, probabilities, first = model.postprocess(logits, stages)
    assert (first.datatype, first.data.tolist()) == ("INT32", classes.data[:, 0].tolist())
    assert (classes.name, classes.datatype, classes.data.shape, classes.data.dtype) == (
        "top5_class",
        "INT32",
        (8, 5),
        np.int32,
    )
    assert (probabilities.name, probabilities.datatype, probabilities.data.dtype) == (
        "top5_probability",
        "FP32",
        np.float32,
    )
    assert len(set(classes.data[:, 0].tolist())) >= 5
    assert list(stages.spans_ns) == ["postprocess.softmax"]


def test_the_five_are_the_likeliest_in_order_and_their_probabilities_those_of_a_softmax(
    model: ResNet50, logits: list[Any]
) -> None:
    classes, probabilities, _ = model.postprocess(logits, Stages())
    for row, raw in enumerate(logits):
        expected = torch.softmax(torch.from_numpy(raw).double(), 0).topk(5)
        assert classes.data[row].tolist() == expected.indices.tolist()
        assert probabilities.data[row] == pytest.approx(expected.values.numpy(), rel=1e-6)


def test_a_picture_has_the_same_logits_in_any_company(model: ResNet50, samples: list[Any], logits: list[Any]) -> None:
    assert np.array_equal(model.forward([samples[5]], Stages())[0], logits[5])
    for raw, i in zip(model.forward([samples[i] for i in (7, 2)], Stages()), (7, 2), strict=True):
        assert np.array_equal(raw, logits[i])
    one, many = (model.postprocess(rows, Stages())[1].data for rows in (logits[:1], logits))
    assert np.array_equal(one[0], many[0])


def test_the_seed_makes_the_model(network: Network) -> None:
    same = build(device="cpu", seed=0, threads=2)._network  # whatever the number of threads
    assert all(torch.equal(a, b) for a, b in zip(network.tensors(), same.tensors(), strict=True))
    assert not torch.equal(network.classes, grow(1).classes)


def test_bytes_are_nearly_right_in_any_company_and_much_faster(
    network: Network, model: ResNet50, samples: list[Any], logits: list[Any]
) -> None:
    """A seeded network's likeliest classes lie close together: the first may change place, the picture's logits keep
    a correlation of 0.95. The ranges are those of the seed's pictures, so another seed's other ranges do worse.
    """
    small = ResNet50(resnet.in_bytes(network, 0), device="cpu", threads=1)
    small.warm_up(8)
    rounded = small.forward(samples, Stages())
    assert np.array_equal(small.forward([samples[5]], Stages())[0], rounded[5])
    plain, *_ = model.postprocess(logits, Stages())
    bytes_, *_ = small.postprocess(rounded, Stages())
    assert all(first in five for first, five in zip(plain.data[:, 0], bytes_.data, strict=True))
    for one, other in zip(logits, rounded, strict=True):
        assert not np.array_equal(one, other)
        assert np.corrcoef(one, other)[0, 1] > 0.95
    seconds = []
    for each in (model, small):
        begun_s = time.thread_time()
        each.forward(samples[:4], Stages())
        seconds.append(time.thread_time() - begun_s)
    assert seconds[1] < 0.7 * seconds[0]


def test_the_bytes_are_the_same_for_any_number_of_threads(network: Network, samples: list[Any]) -> None:
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        made = ResNet50(resnet.in_bytes(network, 0), device="cpu", threads=threads)
        made.warm_up(1)
        found.append(made.forward(samples[:1], Stages())[0])
    torch.set_num_threads(1)
    assert np.array_equal(*found)


def test_a_gpu_computes_no_bytes() -> None:
    with pytest.raises(ConfigError, match="--precision int8: of a CPU"):
        build(device="cuda", seed=0, threads=1, precision="int8")


def test_the_pass_compiles_to_one_graph_and_bfloat16_stays_near(network: Network, samples: list[Any]) -> None:
    """What a GPU does, on the CPU: one graph, and bfloat16 within a tenth of the spread of the logits."""
    batch = torch.from_numpy(np.stack(samples[:2])).permute(0, 3, 1, 2)[:, :, ::7, ::7]
    with torch.inference_mode():
        plain = network(batch)
        assert torch.equal(compiled(network, backend="eager")(batch), plain)
        half = network.moved("cpu", torch.bfloat16)(batch.bfloat16()).float()
    assert (half - plain).std() < 0.1 * plain.std()
    assert [padded_size(n) for n in (1, 2, 3, 4, 5, 9)] == [1, 2, 4, 4, 8, 16]


def test_the_parts_of_preprocessing_are_timed(model: ResNet50) -> None:
    stages = Stages()
    model.preprocess({"image": bytes_tensor("image", [jpeg(picture(1))])}, stages)
    assert list(stages.spans_ns) == ["preprocess.decode", "preprocess.resize", "preprocess.normalise"]
    assert all(ns > 0 for ns in stages.spans_ns.values())


@pytest.mark.parametrize("size", [(250, 190), (190, 250), (1000, 300), (40, 30), (224, 224)])
def test_resizing_is_shorter_side_to_256_then_the_middle_224(size: tuple[int, int]) -> None:
    image = picture(3, *size)
    scale = 256 / min(size)
    whole = image.resize((round(size[0] * scale), round(size[1] * scale)), pillow.Resampling.BILINEAR)
    left, top = (whole.width - 224) / 2, (whole.height - 224) / 2
    expected = np.asarray(whole.crop((round(left), round(top), round(left) + 224, round(top) + 224)), dtype=float)
    found = np.asarray(resnet.resize(image), dtype=float)
    assert found.shape == (224, 224, 3)
    assert np.abs(found - expected).mean() < 2.0  # of 255: cropping first may move the picture by half a pixel


def test_a_larger_picture_costs_more_where_its_size_is_kept(network: Network) -> None:
    """Twice the side is four times the pixels of every layer."""
    model = ResNet50(network, device="cpu", threads=1, side=0)
    model.warm_up(1)
    seconds = []
    for side in (128, 256, 512):
        tensor = bytes_tensor("image", [jpeg(picture(2, side, side))])
        sample = model.preprocess({"image": tensor}, Stages())
        assert sample[0].shape == (side * 224 // 256, side * 224 // 256, 3)
        begun_s = time.thread_time()
        model.forward(sample, Stages())
        seconds.append(time.thread_time() - begun_s)
    assert seconds[1] > 2 * seconds[0]
    assert seconds[2] > 2 * seconds[1]


def test_normalising_takes_mean_and_spread_of_imagenet() -> None:
    flat = pillow.new("RGB", (224, 224), (255, 0, 128))
    found = resnet.normalise(flat)
    assert (found.dtype, found.shape) == (np.float32, (224, 224, 3))
    expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, (128 / 255 - 0.406) / 0.225]
    assert found[0, 0] == pytest.approx(expected, rel=1e-5)


def test_grey_cmyk_progressive_and_base64_files_are_taken() -> None:
    image = picture(2)
    plain = np.asarray(resnet.decode(jpeg(image), "image[0]"))
    in_base64 = resnet.decode(base64.b64encode(jpeg(image)), "image[0]")
    assert np.array_equal(np.asarray(in_base64), plain)
    for other in (jpeg(image.convert("L")), jpeg(image.convert("CMYK")), jpeg(image, progressive=True)):
        decoded = resnet.decode(other, "image[0]")
        assert (decoded.mode, decoded.size) == ("RGB", image.size)


def test_a_strip_of_one_pixel_is_no_bomb() -> None:
    strip = resnet.decode(jpeg(picture(1, 60_000, 1)), "image[0]")
    assert resnet.resize(strip).size == (224, 224)


def of_size(width: int, height: int) -> bytes:
    """A small file whose header claims a size."""
    data = bytearray(jpeg(picture(1, 16, 16)))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "is empty"),
        (b"hello, world", "is no JPEG; it begins with 68 65 6c 6c"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 64, "is no JPEG; it begins with 89 50 4e 47"),
        (b"\xff\xd8\xff", "is no JPEG; it begins with ff d8 ff"),
        (b"/9j/4AAQ!", "looks like base64 and isn't"),
        (jpeg(picture(1))[:-2000], "can't be decoded: image file is truncated"),
        (jpeg(picture(1))[:300], "Send"),
        (of_size(60_000, 60_000), "has 60000 x 60000 pixels, the limit is 32,000,000 in all. Send a smaller one"),
        (jpeg(picture(1)) + b"\xff\xda" * 101, "has more than 100 scans. Save it as a baseline JPEG"),
    ],
)
def test_a_file_that_is_no_good_is_refused_by_its_place(model: ResNet50, data: bytes, part: str) -> None:
    tensor = bytes_tensor("image", [jpeg(picture(1)), data])
    with pytest.raises(RequestError) as caught:
        model.preprocess({"image": tensor}, Stages())
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, "image", "invalid_image")
    assert caught.value.message.startswith("image[1]: ")
    assert part in caught.value.message
