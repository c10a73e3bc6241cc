"""What the arguments of a comparison name: replications, like for like, each once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.baseline import Likeness
from plimsoll.harness.series.comparison.interleave import Interleaving, slots
from plimsoll.harness.series.comparison.replications import find, of_interleaving, of_one_side, read, unlike
from plimsoll.slo.comparison.quantity import parse_all
from tests.unit.harness.sealed_runs import sealed_run

TTFT = parse_all(["p99(ttft)", "ratio(error)", "rate(ok)"])


def faults(*texts: str, despite: tuple[str, ...] = ()) -> str:
    with pytest.raises(HarnessFault) as caught:
        unlike(read(find(texts), TTFT, None), despite)
    return "\n".join(caught.value.errors)


def test_a_run_a_folder_of_runs_and_a_glob_are_sides_of_one_or_more_runs(tmp_path: Path) -> None:
    for name in ("a-1", "a-2", "b-1"):
        sealed_run(tmp_path / name)
    (tmp_path / "not-a-run").mkdir()
    for text, runs in ((f"{tmp_path}/a-1", 1), (str(tmp_path), 3), (f"{tmp_path}/a-*", 2)):
        assert [len(side.runs) for side in find([text, f"{tmp_path}/b-1"])] == [runs, 1]
    assert [side.name for side in find([f"{tmp_path}/a-*", f"new={tmp_path}/b-1"])] == ["a", "new"]
    named = find([f"a_*={tmp_path}/a-*", f"[b].={tmp_path}/b-*"])
    assert [side.name for side in named] == ["a_*", "[b]."], "a name that was given is taken as it is"


def test_every_argument_that_names_no_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(HarnessFault) as caught:
        find([f"{tmp_path}/nope", f"{tmp_path}/empty", f"{tmp_path}/x.json", f"{tmp_path}/*-none"])
    assert len(caught.value.errors) == 4
    for part, said in zip(
        ("no such run", "no run directory", "no baseline", "no such run"), caught.value.errors, strict=True
    ):
        assert part in said


def test_a_side_gives_one_value_a_run_and_failures_are_in_it(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1", 50), sealed_run(tmp_path / "a/2", 60)
    sealed_run(tmp_path / "b/1", 50, failed=1)
    base, other = read(find([f"{tmp_path}/a", f"{tmp_path}/b"]), TTFT, None)
    assert sorted(round(value / 1e6, -1) for value in base.arm.values(TTFT[0])) == [50, 60]
    assert other.arm.values(TTFT[0])[0] == math.inf
    assert other.arm.values(TTFT[1])[0] == 1 / 40


def test_the_same_run_given_twice_proves_nothing_and_is_refused(tmp_path: Path) -> None:
    run = str(sealed_run(tmp_path / "a"))
    assert "Give each run once" in faults(run, run)


def test_runs_of_another_load_are_refused_and_every_difference_is_named(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1"), sealed_run(tmp_path / "b/1", prompt_tokens=999, warmup="1s")
    said = faults(f"{tmp_path}/a", f"{tmp_path}/b")
    assert "source.prompt_tokens: " in said
    assert "warmup: " in said
    assert "add --despite source.prompt_tokens" in said


def test_a_difference_that_was_asked_for_is_told_and_not_refused(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1"), sealed_run(tmp_path / "b/1", prompt_tokens=999)
    warnings = unlike(read(find([f"{tmp_path}/a", f"{tmp_path}/b"]), TTFT, None), ("source",))
    assert any("not like for like, as asked: source.prompt_tokens" in text for text in warnings)


def test_runs_of_one_side_that_differ_in_load_are_no_replications(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1"), sealed_run(tmp_path / "a/2", output_tokens=7), sealed_run(tmp_path / "b/1")
    assert "is no replication of" in faults(f"{tmp_path}/a", f"{tmp_path}/b")


def test_runs_of_another_protocol_or_model_option_are_no_replications(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1"), sealed_run(tmp_path / "a/2", options={"stream": False}), sealed_run(tmp_path / "b/1")
    assert "target.options.stream" in faults(f"{tmp_path}/a", f"{tmp_path}/b")


def test_a_run_whose_endpoint_died_before_it_named_its_model_is_a_replication_and_another_model_is_none() -> None:
    runs = [("1", Likeness({}, {}, 1, 1, {}, "", "", model)) for model in ("", "m", "m")]
    assert of_one_side("a", runs) == []
    [said] = of_one_side("a", [*runs, ("other", replace(runs[0][1], model="n"))])
    assert said.startswith("a: other is no replication of 1: target.model")


def test_another_host_and_other_options_are_warnings(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1")
    sealed_run(tmp_path / "b/1", host={"cpu": "c2", "hostname": "other"}, options={"stream": False})
    said = "\n".join(unlike(read(find([f"{tmp_path}/a", f"{tmp_path}/b"]), TTFT, None), ()))
    for part in ("another host: cpu", "target.options"):
        assert part in said
    assert "hostname" not in said


def interleaved(out: Path, repeats: int, states: dict[int, str]) -> None:
    plan = Interleaving(
        {},
        ({"name": "base"}, {"name": "new"}),
        ({"label": ""},),
        repeats,
        "0s",
        slots(("base", "new"), [""], repeats, 1),
    )
    for slot in plan.slots:
        state = states.get(slot.number, "done")
        plan = plan.marked(replace(slot, state=state, error="refused" if state == "unreachable" else ""))  # type: ignore[arg-type]
        if state == "done":
            sealed_run(out / slot.folder, seed=slot.seed)
    interleave.save(out, plan)


def test_an_interleaved_folder_is_its_arms_in_pairs_and_an_unfinished_round_is_left_out(tmp_path: Path) -> None:
    interleaved(tmp_path, 3, {6: "pending"})
    sides = find([str(tmp_path)])
    assert [side.name for side in sides] == ["base", "new"]
    assert [[run.pair for run in side.runs] for side in sides] == [[1, 2], [1, 2]]
    arms = [side.arm for side in read(sides, TTFT, None)]
    assert [arms[0].runs[k].plan == arms[1].runs[k].plan for k in (0, 1)] == [True, True]


def test_a_run_that_nobody_answered_counts_as_the_worst_of_everything(tmp_path: Path) -> None:
    interleaved(tmp_path, 2, {2: "unreachable"})
    new = read(of_interleaving(tmp_path), TTFT, None)[1].arm
    assert [new.values(quantity)[0] for quantity in TTFT] == [math.inf, 1.0, 0.0]
    assert new.runs[0].unstable == "refused"
    assert len(new.runs) == 2


def test_an_interleaved_folder_without_a_whole_round_can_not_be_compared(tmp_path: Path) -> None:
    interleaved(tmp_path, 1, {2: "pending"})
    with pytest.raises(HarnessFault, match="no round is complete"):
        find([str(tmp_path)])


def test_an_interleaved_folder_beside_another_argument_says_what_to_give(tmp_path: Path) -> None:
    interleaved(tmp_path / "ab", 1, {})
    for text in ("ab", "ab/runs"):
        with pytest.raises(HarnessFault, match="it holds the arms base, new"):
            find([str(tmp_path / text), str(tmp_path / "ab/runs/001-base")])


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[2J"])
def test_a_name_that_nobody_could_read_is_refused(tmp_path: Path, name: str) -> None:
    sealed_run(tmp_path / "main/1")
    with pytest.raises(HarnessFault, match="empty or can't be printed"):
        find([f"{name}={tmp_path}/main", str(tmp_path / "main")])


@pytest.mark.parametrize(("file", "text"), [("manifest.json", "{}"), ("manifest.json", "[]"), ("scenario.yaml", "")])
def test_a_run_whose_descriptions_are_damaged_is_one_clear_error(tmp_path: Path, file: str, text: str) -> None:
    sealed_run(tmp_path / "main/1")
    (sealed_run(tmp_path / "new/1") / file).write_text(text)
    assert "damaged" in faults(str(tmp_path / "main"), str(tmp_path / "new"))
