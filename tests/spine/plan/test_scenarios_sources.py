"""Payload sources: exact lengths, honest distributions, every bad line of a file."""

from __future__ import annotations

import json
import os
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.scenarios import spec
from plimsoll.scenarios.plan.lengths import Fixed, Spread, Uniform, draw_lengths
from plimsoll.scenarios.samples import payload_file
from plimsoll.scenarios.samples.payload import Payload, PayloadSource
from plimsoll.scenarios.samples.words import WORDS
from plimsoll.scenarios.sources import sharegpt


def source(seed: int = 5, **params: Any) -> PayloadSource:
    return spec.parse({"kind": "server", "seed": seed, "source": params}).source_object()


def errors_of(**params: Any) -> list[str]:
    with pytest.raises(spec.ScenarioError) as caught:
        source(**params)
    return caught.value.errors


def write(folder: Path, *lines: str) -> str:
    file = folder / "f.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("dist", ["normal", "lognormal"])
def test_mean_and_deviation_are_those_of_the_lengths_themselves(dist: str) -> None:
    drawn = draw_lengths(Spread(dist=dist, mean=500, stdev=100), 3, 50_000)  # type: ignore[arg-type]
    assert drawn.mean() == pytest.approx(500, abs=3)
    assert drawn.std() == pytest.approx(100, abs=3)


def test_limits_hold_even_where_redrawing_cannot_help() -> None:
    drawn = draw_lengths(Spread(dist="normal", mean=10, stdev=10_000, min=9, max=11), 3, 200)
    assert set(drawn.tolist()) <= {9, 10, 11}
    assert draw_lengths(Fixed(dist="fixed", value=7), 3, 3).tolist() == [7, 7, 7]


def test_uniform_lengths_include_both_ends() -> None:
    assert set(draw_lengths(Uniform(dist="uniform", min=3, max=5), 1, 500).tolist()) == {3, 4, 5}


def test_redrawing_keeps_mass_off_the_limits() -> None:
    drawn = draw_lengths(Spread(dist="normal", mean=100, stdev=50, min=50, max=150), 3, 20_000)
    assert (drawn == 50).mean() < 0.02  # clamping alone would put 16 % there


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 17, 1000])
@pytest.mark.parametrize("shared", [0, 3, 500])
def test_byte_lengths_are_exact(length: int, shared: int) -> None:
    made = source(kind="synthetic_text", unit="bytes", prompt_tokens=length, shared_prefix_tokens=shared, count=40)
    for i in range(40):
        payload = made.payload(i)
        assert payload.prompt is not None
        assert len(payload.prompt.encode()) == length == payload.n_in
        assert not payload.prompt.endswith(" ")


def test_token_lengths_are_words_times_tokens_per_word() -> None:
    payload = source(kind="synthetic_text", prompt_tokens=130, output_tokens=None).payload(3)
    assert payload.prompt is not None
    assert len(payload.prompt.split()) == 100
    assert (payload.n_in, payload.max_output_tokens) == (130, -1)


def test_prompts_differ_but_share_the_prefix_asked_for() -> None:
    made = source(kind="synthetic_text", prompt_tokens=65, shared_prefix_tokens=26)
    prompts = [str(made.payload(i).prompt).split() for i in range(50)]
    assert len({tuple(prompt) for prompt in prompts}) == 50
    assert len({tuple(prompt[:20]) for prompt in prompts}) == 1
    assert len({tuple(prompt[20:]) for prompt in prompts}) == 50


def test_another_seed_gives_other_prompts() -> None:
    assert source(1, kind="synthetic_text").payload(0) != source(2, kind="synthetic_text").payload(0)


def test_words_are_plain_and_distinct() -> None:
    assert len(set(WORDS)) == len(WORDS) >= 500
    assert all(word.isascii() and word.isalpha() and word.islower() and 3 <= len(word) <= 9 for word in WORDS)


def test_jsonl_reads_all_three_shapes(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"prompt": "hi", "max_output_tokens": 3, "id": 7}',
        "",
        '{"messages": [{"role": "user", "content": "yo"}]}',
        '{"data": {"x": 1}}',
    )
    made = source(kind="jsonl", path=path, output_tokens=9)
    payloads = [made.payload(i) for i in range(len(made))]
    assert [p.prompt for p in payloads] == ["hi", None, None]
    assert payloads[1].messages == ({"role": "user", "content": "yo"},)
    assert payloads[2].data == {"x": 1}
    assert [p.max_output_tokens for p in payloads] == [3, 9, 9]
    assert len(source(kind="jsonl", path=path, count=2)) == 2


def test_jsonl_reports_every_bad_line_with_its_number(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"prompt": "ok"}',
        "{",
        "[]",
        '{"promt": "x"}',
        '{"prompt": "a", "data": {}}',
        '{"prompt": ""}',
        '{"prompt": "a", "max_output_tokens": true}',
        '{"messages": [{"role": "user"}]}',
        '{"data": 3}',
    )
    errors = errors_of(kind="jsonl", path=path)
    assert [error.split(":")[1] for error in errors] == ["2", "3", "4", "5", "6", "7", "8", "9"]
    assert "Did you mean prompt?" in errors[2]
    assert all(error.endswith(".") for error in errors)


def test_jsonl_caps_the_list_and_counts_the_rest(tmp_path: Path) -> None:
    errors = errors_of(kind="jsonl", path=write(tmp_path, *["{"] * 50))
    assert len(errors) == 21
    assert "and 30 more" in errors[-1]


def test_an_empty_file_is_no_source(tmp_path: Path) -> None:
    assert "no samples in it" in errors_of(kind="jsonl", path=write(tmp_path))[0]


def conversation(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"id": "x", "conversations": [{"from": who, "value": text} for who, text in turns]}


def test_sharegpt_takes_question_answer_length_and_system_text_and_counts_what_it_leaves(tmp_path: Path) -> None:
    words = " ".join(["word"] * 100)
    entries = [
        conversation(("human", words), ("gpt", " ".join(["a"] * 50))),
        conversation(("system", "be nice to all the people"), ("human", words), ("gpt", words)),
        conversation(("human", "hi"), ("gpt", words)),
        conversation(("human", words), ("gpt", "ok")),
        conversation(("human", words)),
        conversation(("gpt", words), ("gpt", words)),
        conversation(("human", "  "), ("gpt", words)),
        conversation(("human", words * 10), ("gpt", words)),
    ]
    file = tmp_path / "s.json"
    file.write_text(json.dumps(entries))
    made: Any = source(kind="sharegpt", path=str(file))
    assert dict(made.filtered) == {"empty": 1, "too long": 1, "too short": 2, "without a question and its answer": 2}
    first, second = made.payload(0), made.payload(1)
    assert (first.prompt, first.n_in, first.max_output_tokens) == (words, 130, 65)
    assert [message["role"] for message in second.messages] == ["system", "user"]
    # With a fixed output length a short recorded answer does not matter.
    assert len(source(kind="sharegpt", path=str(file), output_tokens=20)) == 3
    assert errors_of(kind="sharegpt", path=str(file), min_tokens=2000)[0].endswith(
        "Widen the limits or give another file."
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("{}", "not a list"),
        ('[{"conversations": 3}]', "[0]: has no list"),
        ("[]", "the list is empty"),
    ],
)
def test_a_broken_sharegpt_file_is_reported(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "s.json"
    file.write_text(text)
    assert says in errors_of(kind="sharegpt", path=str(file))[0]


def filed(monkeypatch: pytest.MonkeyPatch, block: int = 50) -> None:
    """Every file is a large one."""
    monkeypatch.setattr(payload_file, "KEPT", -1)
    monkeypatch.setattr(payload_file, "_AT_ONCE", 6)
    monkeypatch.setattr(sharegpt, "_BLOCK", block)


def both(monkeypatch: pytest.MonkeyPatch, **params: Any) -> tuple[list[Payload], list[Payload]]:
    """The payloads of a file that is kept, and those of the same file where none is; these backwards."""
    kept: Any = source(**params)
    with monkeypatch.context() as patched:
        filed(patched)
        read: Any = source(**params)
    n = len(kept)
    assert (n, kept.filtered) == (len(read), read.filtered)
    return [kept.payload(i) for i in range(n)], [read.payload(i) for i in reversed(range(n))][::-1]


def test_a_large_jsonl_file_has_the_samples_of_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        json.dumps({"prompt": f"{i} é {'x' * i}", "id": i, "reference": i}, ensure_ascii=i % 2 > 0) for i in range(20)
    ]
    path = write(tmp_path, "", *lines, '{"data": {"x": 1}}', " ", '{"messages": [{"role": "user", "content": "yo"}]}')
    for count in (None, 3):
        kept, read = both(monkeypatch, kind="jsonl", path=path, count=count)
        assert kept == read
        assert len(read) == (count or 22)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_a_large_sharegpt_file_has_the_samples_of_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    entries = [conversation(("human", "wörd ] , 😀 [ " * (i % 9)), ("gpt", '"a" ' * 20)) for i in range(30)]
    file = tmp_path / "s.json"
    file.write_bytes(json.dumps(entries, ensure_ascii=False, indent=1).encode(encoding))
    kept, read = both(monkeypatch, kind="sharegpt", path=str(file))
    assert kept == read
    assert len(read) == 26


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@settings(max_examples=25)
@given(
    st.lists(_JSON | st.dictionaries(st.text(), _JSON)), st.booleans(), st.sampled_from([None, 1]), st.integers(1, 99)
)
def test_a_list_is_read_in_blocks_as_at_once(entries: list[Any], ascii: bool, indent: int | None, block: int) -> None:
    data = json.dumps(entries, ensure_ascii=ascii, indent=indent).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sharegpt, "_BLOCK", block)
        found = [*sharegpt._entries(BytesIO(data))]
    assert repr([value for _, _, value in found]) == repr(json.loads(data))
    assert repr([json.loads(data[at : at + n]) for at, n, _ in found]) == repr(json.loads(data))


@pytest.mark.parametrize(
    "text",
    [
        "[1.5, 2",
        "[1.5 2]",
        "[1.5,]",
        "[1.5]]",
        "[1.5] x",
        ",1.5]",
        '["a',
        "[nul]",
        '["\\ux"]',
        "[",
        "",
        "[[[3]",
        "-",
        '{"a": [1.5]}',
    ],
)
def test_what_is_wrong_with_a_large_list_is_said_as_of_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "s.json"
    file.write_text("\n" * 70 + text + "\n" * 70)
    filed(monkeypatch)
    try:
        assert isinstance(json.loads(file.read_bytes()), dict)
        wrong = f"{file}: not a list. Give a list of conversations."
    except ValueError as error:
        wrong = f"{file}: not JSON ({error}). Give the whole list as one JSON document."
    assert errors_of(kind="sharegpt", path=str(file)) == [wrong]


@pytest.mark.parametrize("kind", ["jsonl", "sharegpt"])
def test_a_large_file_that_changes_while_it_is_in_use_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    entry = {"prompt": "hi"} if kind == "jsonl" else [conversation(("human", "a b c d"), ("gpt", "e f g h"))]
    file = tmp_path / "f"
    file.write_text(json.dumps(entry))
    filed(monkeypatch)
    made = source(kind=kind, path=str(file))
    made.payload(0)
    os.utime(file, ns=(1, 1))
    with pytest.raises(spec.ScenarioError, match="was changed while it was in use"):
        made.payload(0)


@pytest.mark.parametrize("kind", ["jsonl", "sharegpt"])
def test_memory_does_not_grow_with_a_large_file(tmp_path: Path, kind: str) -> None:
    text = "word " * 2000
    n = payload_file.KEPT // len(text) * 2
    entry = json.dumps({"prompt": text} if kind == "jsonl" else conversation(("human", text), ("gpt", text[:40])))
    file = tmp_path / "f"
    file.write_text("\n".join([entry] * n) if kind == "jsonl" else f"[{','.join([entry] * n)}]")
    limits = {} if kind == "jsonl" else {"max_prompt_tokens": 5000, "max_total_tokens": 5000}
    tracemalloc.start()
    made = source(kind=kind, path=str(file), **limits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(made) == n
    assert peak < payload_file.KEPT // 2


@pytest.mark.parametrize(
    "datatype",
    ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64", "BYTES"],
)
def test_tensors_are_json_of_the_right_size_and_range(datatype: str) -> None:
    made = source(kind="tensors", inputs=[{"name": "x", "datatype": datatype, "shape": [2, 3]}])
    tensor = made.payload(1).data["inputs"][0]
    assert json.loads(json.dumps(tensor)) == tensor
    assert (tensor["name"], tensor["shape"], len(tensor["data"])) == ("x", [2, 3], 6)
    if datatype.startswith(("FP", "INT", "UINT")):
        assert 0 <= min(tensor["data"]) <= max(tensor["data"]) <= (1 if datatype.startswith("FP") else 100)
    assert made.payload(1) != made.payload(2) or datatype == "BOOL"


def test_fp32_values_are_exactly_fp32() -> None:
    data = source(kind="tensors").payload(0).data["inputs"][0]["data"]
    assert np.asarray(data, dtype=np.float32).astype(float).tolist() == data


def test_two_tensors_of_one_name_are_refused() -> None:
    with pytest.raises(spec.ScenarioError, match="'x' twice"):
        source(kind="tensors", inputs=[{"name": "x", "shape": [1]}, {"name": "x", "shape": [2]}])
