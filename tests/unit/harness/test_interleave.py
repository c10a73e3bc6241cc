"""The order and the seeds of an interleaved comparison, and the file that makes it resumable."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.interleave import Interleaving, go_on, order, read, round_seed, save, slots

ARMS = ("base", "new")


def plan(repeats: int = 3, scenario: dict[str, object] | None = None) -> Interleaving:
    return Interleaving(
        scenario=scenario or {"kind": "server", "params": {"rate": 10.0}},
        arms=tuple({"name": name, "target": {"url": f"http://{name}:1"}} for name in ARMS),
        levels=({"label": ""},),
        repeats=repeats,
        cooldown="2s",
        slots=slots(ARMS, [""], repeats, 42),
    )


def test_two_arms_run_a_b_b_a() -> None:
    assert ["".join(turn) for turn in order("AB", 4)] == ["AB", "BA", "AB", "BA"]


def test_three_arms_run_in_an_order_and_its_reverse_and_then_the_order_rotates() -> None:
    assert ["".join(turn) for turn in order("ABC", 6)] == ["ABC", "CBA", "BCA", "ACB", "CAB", "BAC"]


@given(st.integers(2, 6))
def test_over_a_whole_cycle_every_arm_is_as_often_at_each_place(n: int) -> None:
    arms = "ABCDEF"[:n]
    rounds = order(arms, 2 * n)
    for place in range(n):
        assert set(Counter(turn[place] for turn in rounds).values()) == {2}


@given(st.integers(2, 6), st.integers(1, 6))
def test_a_linear_drift_falls_on_all_arms_alike_after_an_even_number_of_rounds(n: int, pairs: int) -> None:
    arms = "ABCDEF"[:n]
    sums: Counter[str] = Counter()
    for when, arm in enumerate(arm for turn in order(arms, 2 * pairs) for arm in turn):
        sums[arm] += when
    assert len(set(sums.values())) == 1


def test_all_arms_of_a_round_have_one_seed_and_each_round_another() -> None:
    made = slots(ARMS, [""], 5, 42)
    by_round = {n: {slot.seed for slot in made if slot.round == n} for n in range(1, 6)}
    assert all(len(seeds) == 1 for seeds in by_round.values())
    assert len(set.union(*by_round.values())) == 5
    assert {slot.seed for slot in made}.isdisjoint(slot.seed for slot in slots(ARMS, [""], 5, 43))


def test_the_seeds_are_pinned_and_exact_in_every_json_reader() -> None:
    assert [round_seed(42, n) for n in (1, 2)] == [3273383037331995, 1988138206546521]
    assert all(0 <= round_seed(root, n) < 2**53 for root in (0, 42, 2**64 - 1) for n in range(50))


def test_more_repeats_only_add_runs_at_the_end() -> None:
    assert slots(ARMS, ["a", "b"], 5, 1)[:12] == slots(ARMS, ["a", "b"], 3, 1)


def test_levels_go_up_in_one_round_and_down_in_the_next() -> None:
    made = slots(ARMS, ["1", "2"], 2, 1)
    assert [(slot.level, slot.arm) for slot in made] == [
        ("1", "base"), ("1", "new"), ("2", "base"), ("2", "new"), ("2", "new"), ("2", "base"), ("1", "new"), ("1",
            "base"),
    ]  # fmt: skip
    assert len({slot.folder for slot in made}) == 8


def test_the_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    made = plan()
    marked = made.marked(replace(made.slots[0], state="done", outcome="PASS"))
    save(tmp_path / "ab", marked)
    assert read(tmp_path / "ab") == marked
    assert [slot.number for slot in marked.pending()] == [2, 3, 4, 5, 6]
    assert json.loads((tmp_path / "ab/interleave.json").read_text())["schema"] == "plimsoll.interleave/1"


def test_a_finished_comparison_is_never_taken_for_a_new_one_unasked(tmp_path: Path) -> None:
    save(tmp_path, plan())
    with pytest.raises(HarnessFault, match="0 of 6 runs made"):
        go_on(tmp_path, plan(), resume=False)


def test_resuming_repeats_nothing_that_is_done_and_may_ask_for_more(tmp_path: Path) -> None:
    made = plan()
    save(tmp_path, made.marked(replace(made.slots[1], state="done")))
    longer = go_on(tmp_path, plan(5), resume=True)
    assert [slot.number for slot in longer.pending()] == [1, 3, 4, 5, 6, 7, 8, 9, 10]


def test_an_arm_that_was_unreachable_is_a_result_and_not_tried_again(tmp_path: Path) -> None:
    made = plan()
    save(tmp_path, made.marked(replace(made.slots[0], state="unreachable", error="refused")))
    assert go_on(tmp_path, made, resume=True).slots[0].error == "refused"
    assert len(go_on(tmp_path, made, resume=True).pending()) == 5


def test_resuming_another_comparison_is_refused_and_every_difference_is_named(tmp_path: Path) -> None:
    save(tmp_path, plan(4))
    other = replace(plan(3, {"kind": "server", "params": {"rate": 20.0}}), cooldown="5s")
    with pytest.raises(HarnessFault) as caught:
        go_on(tmp_path, other, resume=True)
    said = "\n".join(caught.value.errors)
    for part in (
        "scenario.params.rate: 10.0 there, 20.0 now",
        "cooldown: '2s' there, '5s' now",
        "repeats: 4 there, 3 now",
    ):
        assert part in said


def test_resume_where_nothing_was_begun_and_a_folder_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match="Leave --resume out"):
        go_on(tmp_path / "new", plan(), resume=True)
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(HarnessFault, match="not empty"):
        go_on(tmp_path, plan(), resume=False)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "plimsoll.interleave/1"}', '{"schema": "other/1"}'])
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / interleave.FILE).write_text(text)
    with pytest.raises(HarnessFault, match=r"interleave\.json"):
        read(tmp_path)
