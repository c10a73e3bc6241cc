"""A recording in another shape: spread inside its clock's ticks, more or less of it, and what came before a window."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios import spec
from plimsoll.scenarios.kinds.replay import KIND, ReplayParams
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.plugins import Warmup
from plimsoll.scenarios.samples import reshaping
from plimsoll.scenarios.samples.reshaping import REACH_NS, Shape, clock, placed
from plimsoll.scenarios.samples.traces import read
from plimsoll.scenarios.sources.trace import SOURCE, TraceSource

S = 1_000_000_000
#: Conversations of three turns each, told by the blocks of their prompts: all begin with block 0.
ROWS = [
    {"timestamp": 3000 * tick + tick % 2, "input_length": 512 * (2 + turn), "output_length": 5,
     "hash_ids": [0, *(100 * talk + n for n in range(1, 2 + turn))]}
    for tick in range(60) for talk, turn in [(tick + lane * 7, lane) for lane in range(3)]
]  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


def built(path: Path, n_samples: int, **params: Any) -> Plan:
    return KIND.build(ReplayParams.model_validate({"trace": str(path), **params}), Stop(), n_samples, 5)


def all_of(path: Path, shape: Shape, *part: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = [*placed(read(path, "x"), shape, *part)]
    row, copy, at = (np.concatenate([getattr(one, name) for one in found]) for name in ("row", "copy", "at_ns"))
    return row, copy, at


def test_ticks_are_told_from_bursts_and_from_a_fine_clock(trace: Path, tmp_path: Path) -> None:
    found = clock(read(trace, "x"))
    assert (found.grain_ns, found.instants, found.ticks) == (3_001_000_000, 60, True)
    gaps = np.random.default_rng(3).exponential(3000, 60).cumsum().astype(int).repeat(3)
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({**ROWS[0], "timestamp": int(at)}) for at in gaps))
    bursts = clock(read(tmp_path / "b.jsonl", "x"))
    assert (bursts.grain_ns, bursts.ticks) == (1_000_000, False)


def test_spread_keeps_each_request_in_its_tick_and_in_the_files_order(trace: Path) -> None:
    grain = clock(read(trace, "x")).grain_ns
    recorded = read(trace, "x").rows().at_ns
    plain, spread = built(trace, len(ROWS)), built(trace, len(ROWS), spread=True)
    at = spread.due_ns + all_of(trace, Shape(spread=True, tick_ns=grain, seed=5))[2][0]
    assert spread.payload_ix.tolist() == plain.payload_ix.tolist() == [*range(len(ROWS))]
    assert (at >= recorded).all()
    assert (at - recorded < grain).all()
    assert len(set(at.tolist())) == len(ROWS), "no two at one time"
    assert 0.4 < np.mean((at - recorded) / grain) < 0.6
    assert (built(trace, len(ROWS), spread=True).due_ns == spread.due_ns).all()
    other = KIND.build(ReplayParams(trace=str(trace), spread=True), Stop(), len(ROWS), 6)
    assert (other.due_ns != spread.due_ns).any()


@pytest.mark.parametrize("shape", [{"spread": True}, {"load": 3}, {"load": 0.5}, {"load": 2.5, "spread": True}])
def test_pieces_of_any_size_make_one_plan(trace: Path, shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    n = len(ROWS) * int(np.ceil(shape.get("load", 1)))
    window = {"start": "20s", "end": "100s"}
    whole = built(trace, n, window=window, **shape)
    monkeypatch.setattr(reshaping, "BLOCK", 7)
    assert built(trace, n, window=window, **shape).fingerprint() == whole.fingerprint()
    assert whole.due_ns[0] == 0
    assert (np.diff(whole.due_ns) >= 0).all()


def conversations(row: np.ndarray, copy: np.ndarray, at: np.ndarray) -> dict[tuple[int, int], list[tuple[int, int]]]:
    found = defaultdict(list)
    for one, number, when in zip(row.tolist(), copy.tolist(), at.tolist(), strict=True):
        found[ROWS[one]["hash_ids"][1], number].append((one, when))  # type: ignore[index]
    return found


def test_more_load_is_whole_conversations_again_a_little_later(trace: Path) -> None:
    recorded = read(trace, "x").rows().at_ns
    found = conversations(*all_of(trace, Shape(load=3, seed=2)))
    talks = {talk for talk, _ in found}
    assert set(found) == {(talk, copy) for talk in talks for copy in range(3)}
    for (talk, copy), turns in found.items():
        assert len(turns) == len(found[talk, 0])
        late = {when - int(recorded[row]) for row, when in turns}
        assert len(late) == 1, "the gaps of a conversation stay"
        assert (late == {0}) if not copy else (0 <= late.pop() <= min(REACH_NS, recorded[-1] // 100))


@pytest.mark.parametrize("load", [0.5, 1.25])
def test_a_fraction_of_the_load_is_a_fraction_of_the_conversations_each_whole(trace: Path, load: float) -> None:
    row, copy, at = all_of(trace, Shape(load=load, seed=2))
    found, every = conversations(row, copy, at), conversations(*all_of(trace, Shape()))
    last = int(np.ceil(load)) - 1
    some = {talk for talk, number in found if number == last}
    assert all(len(found[talk, last]) == len(every[talk, 0]) for talk in some)
    assert 0.3 < len(some) / len(every) / (load - last) < 1.7
    other = conversations(*all_of(trace, Shape(load=load, seed=3)))
    assert {talk for talk, number in other if number == last} != some


def test_a_copys_prompt_is_as_long_and_alike_up_to_the_depth_that_is_shared(trace: Path) -> None:
    n = len(ROWS)
    for depth, blocks in ((0, 0), (512, 1), (1100, 2)):
        source = SOURCE.build(TraceSource(path=str(trace), unit="bytes", copies=3, share_depth=depth), 1)
        assert len(source) == 3 * n
        first, again = source.payload(2), source.payload(n + 2)
        assert first.prompt is not None
        assert again.prompt is not None
        assert (again.n_in, len(again.prompt), again.max_output_tokens) == (first.n_in, len(first.prompt), 5)
        alike = next((i for i, (a, b) in enumerate(zip(first.prompt, again.prompt, strict=True)) if a != b), n)
        assert 512 * blocks <= alike < 512 * blocks + 30
        later, other = source.payload(n + 26), source.payload(2 * n + 2)
        assert other.prompt != again.prompt
        assert later.prompt is not None
    plan = built(trace, 3 * n, load=3)
    assert sorted(plan.payload_ix.tolist()) == [*range(3 * n)]


def test_copies_share_with_each_other_what_the_recorded_ones_shared(trace: Path) -> None:
    n, source = len(ROWS), SOURCE.build(TraceSource(path=str(trace), unit="bytes", copies=2), 1)
    row, after = next(
        (i, j) for i, a in enumerate(ROWS) for j, b in enumerate(ROWS) if i < j and a["hash_ids"][1] == b["hash_ids"][1]  # type: ignore[index]
    )  # fmt: skip
    a, b = (source.payload(n + each).prompt or "" for each in (row, after))
    assert a[:1024] == b[:1024]


def test_what_came_before_the_window_is_its_warm_up(trace: Path) -> None:
    recorded = read(trace, "x").rows().at_ns
    scenario = spec.with_flags(trace=str(trace), window="60s..90s", prehistory="30s", speed=2.0)
    assert scenario.warmup_ns == 15 * S
    plan, before = scenario.build(len(ROWS)), scenario.build_warmup(len(ROWS))
    assert isinstance(before, Blocks)
    warmup, first = before.whole(), int(recorded[int(plan.payload_ix[0])])
    kept = np.flatnonzero((recorded >= first - 30 * S) & (recorded < 60 * S))
    assert warmup.payload_ix.tolist() == kept.tolist()
    assert (warmup.due_ns == np.rint((recorded[kept] - first) / 2)).all()
    assert -15 * S <= warmup.due_ns[0] <= warmup.due_ns[-1] < 0
    assert plan.due_ns[0] == 0
    assert spec.parse(scenario.to_mapping()) == scenario


def test_prehistory_is_refused_where_there_is_none_and_may_be_empty(trace: Path) -> None:
    with pytest.raises(spec.ScenarioError, match=r"prehistory 1h is longer than what comes before the window.* at 10s"):
        spec.with_flags(trace=str(trace), prehistory="1h", window="10s..20s")
    params = ReplayParams.model_validate({"trace": str(trace), "prehistory": "500ms", "window": {"start": "100s"}})
    before = KIND.warmup(params, Warmup(S, len(ROWS), 1))
    assert isinstance(before, Blocks)
    assert before.whole().n_queries == 0


def test_a_warm_up_of_two_kinds_and_a_load_that_repeats_prompts_are_refused(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(spec.ScenarioError, match=r"params.prehistory is the warm-up already.*Leave one"):
        spec.with_flags(trace=str(trace), window="30s..", prehistory="30s", warmup="10s")
    source = {"kind": "trace", "path": str(trace)}
    with pytest.raises(spec.ScenarioError, match=r"source has copies 1 and share_depth 512.* need 3 and 512"):
        spec.parse({"kind": "replay", "params": {"trace": str(trace), "load": 2.5}, "source": source})
    several = spec.with_flags(trace=str(trace), load=3.0)
    assert spec.with_flags(several, load=0.5).source.copies == 1  # type: ignore[attr-defined]
    with pytest.raises(spec.ScenarioError, match=r"--load.*0"):
        spec.with_flags(trace=str(trace), load=0.0)


def test_flags_give_the_source_what_the_load_needs(trace: Path) -> None:
    scenario = spec.with_flags(trace=str(trace), load=2.5, share_depth=1024)
    assert isinstance(scenario.source, TraceSource)
    assert (scenario.source.copies, scenario.source.share_depth, scenario.params.share_depth) == (3, 1024, 1024)  # type: ignore[attr-defined]
    assert scenario.build(len(scenario.source_object())).payload_ix.max() >= 2 * len(ROWS)
    assert spec.with_flags(trace=str(trace), load=0.5).source.copies == 1  # type: ignore[attr-defined]
