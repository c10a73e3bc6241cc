"""What there is in a recording: the same figures as counted by hand, whatever the pieces, in memory that stays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from plimsoll.scenarios.samples import census as counting
from plimsoll.scenarios.samples import reshaping
from plimsoll.scenarios.samples.census import census, cut
from plimsoll.scenarios.samples.recording import FILE, Recording
from plimsoll.scenarios.samples.reshaping import Shape
from plimsoll.scenarios.samples.traces import read
from plimsoll.scenarios.text.document import ScenarioError

S = 1_000_000_000
MOONCAKE = Path(__file__).parents[2] / "traces" / "mooncake_conversation_excerpt.jsonl"
LONG = 2**61


def trace(path: Path, n: int = 900, seed: int = 1, big: int = 0) -> Path:
    """Conversations that grow by a block a turn, at irregular times."""
    numbers = np.random.default_rng(seed)
    at = np.sort(numbers.integers(0, 700_000, n))
    talks = numbers.integers(0, 60, n)
    turns = np.zeros(60, int)
    lines = []
    for when, talk in zip(at.tolist(), talks.tolist(), strict=True):
        turns[talk] += 1
        ids = [big, *(big + 1 + 1000 * int(talk) + place for place in range(int(turns[talk])))]
        entry = {"timestamp": when, "input_length": 512 * len(ids) - 5, "output_length": int(talk), "hash_ids": ids}
        lines.append(json.dumps(entry))
    path.write_text("\n".join(lines))
    return path


def by_hand(rows: list[dict[str, object]]) -> float:
    seen: set[int] = set()
    known = total = 0
    for row in rows:
        ids: list[int] = row["hash_ids"]  # type: ignore[assignment]
        n = next((i for i, one in enumerate(ids) if one not in seen), len(ids))
        known, total = known + min(512 * n, row["input_length"]), total + row["input_length"]  # type: ignore[operator,call-overload]
        seen |= {*ids}
    return known / total


@pytest.mark.parametrize("big", [0, LONG])
def test_the_hit_share_is_what_a_cache_without_limits_knows(
    tmp_path: Path, big: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trace(tmp_path / "t.jsonl", big=big)
    right = by_hand([json.loads(line) for line in path.read_text().splitlines()])
    whole = census(read(path, "x"))
    assert whole.hit_share == pytest.approx(right, abs=0.001 if big else 1e-12)
    monkeypatch.setattr(reshaping, "BLOCK", 41)
    assert census(read(path, "x")) == whole


def test_counts_of_windows_and_lengths_are_numpys(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.jsonl")
    rows = read(path, "x").rows()
    found = census(read(path, "x"))
    for seconds in (1, 30, 300):
        counts = np.bincount(rows.at_ns // (seconds * S))[: rows.at_ns[-1] // (seconds * S)]
        assert found.dispersion[f"{seconds}s"] == pytest.approx(counts.var(ddof=1) / counts.mean())
    assert found.peak == np.bincount(rows.at_ns // S).max()
    assert found.n_in is not None
    lengths = np.sort(rows.n_in)
    assert [found.n_in.p50, found.n_in.p90, found.n_in.p99] == [lengths[-(-900 * p // 100) - 1] for p in (50, 90, 99)]
    assert (found.n_in.max, found.n_in.total, found.requests) == (lengths[-1], lengths.sum(), 900)
    assert found.rate_per_s == pytest.approx(899 / (rows.at_ns[-1] / S))


def test_an_even_clock_has_no_dispersion_and_a_burst_has_much(tmp_path: Path) -> None:
    # 22 windows of 30 and one of 330: a variance of 300^2 / 23 over a mean of 990 / 23.
    for name, at, right in (("even", [*range(1000)], 0), ("burst", [5] * 300 + [*range(700)], 90_000 / 990)):
        (tmp_path / name).write_text("time\n" + "\n".join(map(str, sorted(at))))
        found = census(read(tmp_path / name, "x"))
        assert found.dispersion["30s"] == pytest.approx(right)
        assert found.n_in is None


def test_thrice_the_load_shares_within_a_copy_and_not_with_the_recorded_ones(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.jsonl", n=2000)
    recorded = census(read(path, "x"))
    for depth, least, most in ((512, 0, 0.002), (1 << 20, 0.02, 1)):
        more = census(read(path, "x"), Shape(load=3, share_tokens=depth, seed=4))
        assert more.requests == 3 * recorded.requests
        assert least <= (more.hit_share or 0) - (recorded.hit_share or 0) <= most


def test_sessions_that_a_window_cuts_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    #      0  10 20 30 40 50 60
    talk = [1, 2, 3, 1, 2, 4, 3]
    made = Recording(FILE, ["session"])
    made.add({"at_ns": np.arange(7) * 10 * S, "n_in": 1, "n_out": 1, "session": talk})
    found = made.sealed()
    monkeypatch.setattr(counting, "BLOCK", 2)
    assert cut(found, 15 * S, 45 * S) == (2, 1)  # 1 and 2 began before, 3 goes on
    assert cut(found, 0, 1 << 62) == (0, 0)
    assert census(found).sessions == 4


def test_the_excerpt_of_mooncakes_trace_is_told_apart_by_its_ticks() -> None:
    found = reshaping.clock(read(MOONCAKE, "x"))
    assert found.ticks
    assert 2_900_000_000 <= found.grain_ns <= 3_100_000_000


def test_a_full_disk_is_an_error_with_a_remedy_and_not_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(counting.os, "posix_fallocate", full)
    with pytest.raises(ScenarioError, match=r"has no room for \d.*No space left.*set TMPDIR"):
        census(read(trace(tmp_path / "t.jsonl", n=50), "x"))
