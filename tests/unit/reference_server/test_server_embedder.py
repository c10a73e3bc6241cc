"""The text encoder: unit vectors, likeness of spelling, the same vector in any company, and texts that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from plimsoll.reference_server.models.embedder import MAX_BYTES, MAX_WORDS, pieces_of, words_of
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import bytes_tensor

torch = pytest.importorskip("torch", reason="the encoder needs torch")

from plimsoll.reference_server.models.embedder import DIM, Embedder, _groups, build  # noqa: E402

PAIRS = [
    ("The ship is safe when she is loaded to the line.", "A ship is safe if loaded only to her line."),
    (
        "Quarterly revenue grew by twelve percent in Europe.",
        "In Europe, the revenue of the quarter grew twelve percent.",
    ),
    ("How do I bake a chocolate cake at home?", "baking chocolate cakes at home"),
    ("The harbour sleeps under a grey fog", "harbours are sleeping under grey fogs"),
    ("请在周五之前提交报告", "请在周五之前提交报告草稿"),
]


@pytest.fixture(scope="module")
def model() -> Embedder:
    made = build(device="cpu", seed=0, threads=1)
    made.warm_up(4)
    return made


def samples_of(model: Embedder, texts: list[str]) -> list[Any]:
    return list(model.preprocess({"text": bytes_tensor("text", [text.encode() for text in texts])}, Stages()))


def embed(model: Embedder, texts: list[str]) -> npt.NDArray[np.float32]:
    (tensor,) = model.postprocess(model.forward(samples_of(model, texts), Stages()), Stages())
    assert (tensor.name, tensor.datatype, tensor.data.dtype) == ("embedding", "FP32", np.float32)
    return tensor.data


def test_vectors_are_one_long(model: Embedder) -> None:
    vectors = embed(model, [text for pair in PAIRS for text in pair])
    assert vectors.shape == (2 * len(PAIRS), DIM)
    assert np.linalg.norm(vectors.astype(np.float64), axis=1) == pytest.approx(1.0, abs=1e-6)


def test_a_text_is_closer_to_its_paraphrase_than_to_any_other_text(model: Embedder) -> None:
    left, right = (embed(model, [pair[side] for pair in PAIRS]) for side in (0, 1))
    likeness = left @ right.T
    own = likeness.diagonal()
    others = likeness[~np.eye(len(PAIRS), dtype=bool)]
    assert own.min() > 0.4
    assert others.max() < 0.35
    assert own.min() > others.max()


def test_words_in_context_are_not_words_alone_and_their_order_counts(model: Embedder) -> None:
    one, other, same = embed(model, ["man bites dog", "dog bites man", "man bites dog"])
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert one @ other > 0.9


def test_a_text_has_the_same_vector_in_any_company(model: Embedder) -> None:
    rng = np.random.default_rng(2)
    known = [
        "ship",
        "line",
        "load",
        "safe",
        "cargo",
        "port",
        "fog",
        "tide",
        "crew",
        "anchor,",
        "hull!",
        "storm-proof",
        "42",
    ]
    texts = [" ".join(rng.choice(known, size)) for size in rng.integers(1, 70, 60)]
    samples = samples_of(model, texts)
    alone = [model.forward([sample], Stages())[0] for sample in samples]
    for size in (2, 7, 32, 60):
        together = [row for at in range(0, 60, size) for row in model.forward(samples[at : at + size], Stages())]
        assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
    assert np.abs(alone).max() < 2**24


def test_a_batch_of_long_texts_is_computed_in_groups_of_like_length(model: Embedder) -> None:
    lengths = [500, 3, 512, 40, 512, 7, 512, 512, 512, 512, 512, 512]
    groups = _groups(sorted(range(12), key=lengths.__getitem__), lengths)
    assert sorted(i for group in groups for i in group) == list(range(12))
    assert all(len(group) * max(lengths[i] for i in group) ** 2 <= 8 * 512 * 512 for group in groups)
    assert len(groups) == 2
    texts = ["ship " * 300] * 25 + ["cargo"]
    assert len(_groups(range(25), [300] * 25)) == 2
    together = model.forward(samples_of(model, texts), Stages())
    assert np.array_equal(together[25], model.forward(samples_of(model, ["cargo"]), Stages())[0])
    assert all(np.array_equal(row, together[0]) for row in together[:25])


def test_sums_stay_exact_at_the_longest_text(model: Embedder) -> None:
    long, short = samples_of(model, ["ship " * MAX_WORDS, "a short text"])
    (alone,) = model.forward([long], Stages())
    together = model.forward([short, long, short], Stages())
    assert np.array_equal(alone, together[1])
    assert np.abs(alone).max() < 2**24
    with pytest.raises(RequestError, match=f"has {MAX_WORDS + 1} words, the limit is {MAX_WORDS}"):
        samples_of(model, ["ship " * (MAX_WORDS + 1)])


def test_the_seed_makes_the_model(model: Embedder) -> None:
    texts = ["one text", "another"]
    assert np.array_equal(embed(model, texts), embed(build(device="cpu", seed=0, threads=1), texts))
    assert not np.array_equal(embed(model, texts), embed(build(device="cpu", seed=1, threads=1), texts))


def test_the_parts_of_the_stages_are_timed(model: Embedder) -> None:
    stages = Stages()
    samples = model.preprocess({"text": bytes_tensor("text", [b"a", b"b"])}, stages)
    model.postprocess(model.forward(samples, Stages()), stages)
    assert list(stages.spans_ns) == ["preprocess.split", "preprocess.hash", "postprocess.normalise"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "text[1]: holds no words. Send some text"),
        (b" \n\t", "text[1]: holds no words. Send some text"),
        (b"ab\xff", "text[1]: is not UTF-8 at byte 2. Send UTF-8"),
        (b"a" * (MAX_BYTES + 1), f"text[1]: has {MAX_BYTES + 1} bytes, the limit is {MAX_BYTES}. Send it in parts"),
    ],
)
def test_what_is_no_text_is_refused_by_its_place(model: Embedder, data: bytes, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        model.preprocess({"text": bytes_tensor("text", [b"fine", data])}, Stages())
    assert (caught.value.status, caught.value.message, caught.value.param) == (400, message, "text")


def test_words_are_runs_of_letters_in_lower_case_and_marks_are_words_of_their_own() -> None:
    assert words_of("Ships, STRAẞE and ﬁsh: 3.5!".encode(), "x") == [
        "ships",
        ",",
        "straße",
        "and",
        "fish",
        ":",
        "3",
        ".",
        "5",
        "!",
    ]
    assert words_of(b"z" * 50, "x") == ["z" * 24, "z" * 24, "zz"]


def test_words_that_look_alike_share_pieces_and_hashing_is_the_same_in_every_process() -> None:
    ship, ships, cargo = (set(pieces_of(word, 1 << 16)) for word in ("ship", "ships", "cargo"))
    assert len(ship & ships) >= 4
    assert not ship & cargo
    assert list(pieces_of("a", 1 << 16)) == [33451, 33451]
