"""Labels from a data set: keys of its lines, beside what a sample is made of."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.sealing.labelling import of_payloads, read_again
from plimsoll.scenarios import spec
from plimsoll.scenarios.spec import Scenario, ScenarioError

LINES: list[dict[str, Any]] = [
    {"prompt": "a", "tenant": "x", "tier": 1, "even": True, "id": "s1"},
    {"prompt": "b", "tenant": "y\x00", "tier": None, "even": False},
    {"prompt": "c", "tier": 7},
]
LABELS = {"tenant": "source tenant", "tier": "source tier", "even": "source even", "sample": "source id"}


def scenario(path: Path, labels: dict[str, str], lines: list[dict[str, Any]] = LINES) -> Scenario:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return spec.parse({"kind": "server", "source": {"kind": "jsonl", "path": str(path)}, "labels": labels})


def test_each_payload_has_what_its_line_says(tmp_path: Path) -> None:
    made = scenario(tmp_path / "d.jsonl", LABELS)
    source = made.source_object()
    assert [source.payload(i).prompt for i in range(3)] == ["a", "b", "c"]
    found = of_payloads(made, source)
    assert found is not None
    columns = {name: column.tolist() for name, column in found.columns.items()}
    assert columns == {"tenant": [0, 1, -1], "tier": [1, -1, 7], "even": [0, 1, -1], "sample": [0, -1, -1]}
    assert found.texts == {"tenant": ("x", "y?"), "even": ("true", "false"), "sample": ("s1",)}


def test_a_run_that_another_left_gets_the_same_labels_or_says_why_not(tmp_path: Path) -> None:
    made = scenario(tmp_path / "d.jsonl", LABELS)
    again, source, problems = read_again(made.to_mapping())
    assert again is not None
    assert source is not None
    assert len(source) == 3
    assert not problems
    assert again.texts == {"tenant": ("x", "y?"), "even": ("true", "false"), "sample": ("s1",)}
    (tmp_path / "d.jsonl").unlink()
    again, source, (problem,) = read_again(made.to_mapping())
    assert again is None
    assert source is None
    assert problem.startswith("labels of the data set are missing")
    again, source, problems = read_again(spec.parse({"kind": "server"}).to_mapping())
    assert (again, problems) == (None, ())
    assert getattr(source, "shares", None) is False, "which prompts begin alike is known again too"


def test_a_key_that_no_label_names_is_still_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="unknown key 'even'"):
        scenario(tmp_path / "d.jsonl", {"tenant": "source tenant", "tier": "source tier"}).source_object()


def test_what_no_line_has_and_what_is_no_value_is_told(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(tmp_path / "d.jsonl", {**LABELS, "team": "source team"}).source_object()
    assert caught.value.errors == [
        f"{tmp_path / 'd.jsonl'}: no line has the key 'team', which labels takes from the source. Correct its name."
    ]
    with pytest.raises(ScenarioError, match=r"d.jsonl:1: tier is a list, and a label's value is a text or a number"):
        scenario(tmp_path / "d.jsonl", {"tier": "source tier"}, [{"prompt": "a", "tier": [1]}]).source_object()


def test_a_source_without_keys_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(ScenarioError, match=r"labels.a: source synthetic_text has no keys.*Use source .*jsonl"):
        spec.parse({"kind": "server", "labels": {"a": "source tenant"}})


def test_conversations_have_labels_and_those_left_out_move_none(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "one two three four"}, {"from": "gpt", "value": "five six seven eight"}]
    entries = [{"id": "a", "conversations": turns}, {"id": "b", "conversations": []}, {"id": 3, "conversations": turns}]
    (tmp_path / "s.json").write_text(json.dumps(entries))
    source = {"kind": "sharegpt", "path": str(tmp_path / "s.json")}
    made = spec.parse({"kind": "server", "source": source, "labels": {"talk": "source id"}})
    found = of_payloads(made, made.source_object())
    assert found is not None
    assert found.texts == {"talk": ("a", "3")}
    assert found.columns["talk"].tolist() == [0, 1]
    made = spec.parse({"kind": "server", "source": source, "labels": {"talk": "source topic"}})
    with pytest.raises(ScenarioError, match="no line has the key 'topic'"):
        made.source_object()


def test_clips_have_the_labels_of_their_recording(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(
        "".join(f'{{"file": "{name}.wav", "language": "{of}"}}\n' for name, of in (("a", "de"), ("b", "fr")))
    )
    for name in ("a", "b"):
        with wave.open(str(tmp_path / f"{name}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(b"\x00\x10" * 800)
    source = {"kind": "audio", "manifest": str(tmp_path / "m.jsonl"), "paired": True,
              "slices": [{"name": "clean"}, {"name": "quiet", "gain_db": -6}]}  # fmt: skip
    made = spec.parse({"kind": "server", "source": source, "labels": {"language": "source language"}})
    found = of_payloads(made, made.source_object())
    assert found is not None
    assert [found.texts["language"][i] for i in found.columns["language"].tolist()] == ["de", "de", "fr", "fr"]
    made = spec.parse({"kind": "server", "source": {"kind": "audio"}, "labels": {"language": "source language"}})
    with pytest.raises(ScenarioError, match="labels take keys of a manifest's lines"):
        made.source_object()
