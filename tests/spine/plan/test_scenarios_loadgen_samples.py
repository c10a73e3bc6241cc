"""LoadGen's samples against what LoadGen 6.0.17 issued when it was run with these seeds."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.plan.sampling import ROWS, LoadgenOrder, _Twister, draw, loaded_set, places
from plimsoll.scenarios.plugins import kinds

ORDER = LoadgenOrder(process="loadgen", sample_index_seed=7, qsl_seed=3)


def test_the_set_is_loaded_in_loadgens_order() -> None:
    assert loaded_set(ORDER, 32).tolist() == [
        29, 26, 27, 25, 11, 6, 28, 30, 18, 4, 23, 2, 9, 0, 13, 16, 14, 5, 21, 12, 15, 31, 3, 1, 17, 24, 10, 8, 19, 22,
        7, 20
    ]  # fmt: skip


def test_a_set_too_large_for_two_swaps_a_draw_is_shuffled_one_by_one() -> None:
    loaded = loaded_set(ORDER, 70_000)
    assert loaded[:8].tolist() == [27548, 48776, 47402, 59265, 12094, 24025, 16343, 62465]
    assert np.array_equal(np.sort(loaded), np.arange(70_000))
    issued = loaded[places(ORDER, 70_000, min_queries=300)(8)]
    assert issued.tolist() == [40859, 38454, 1431, 65593, 67229, 64537, 34139, 45433]


def test_server_and_single_stream_issue_loadgens_samples() -> None:
    issued = draw(ORDER, 99, 2001, 32, min_queries=300)
    assert issued[:12].tolist() == [19, 28, 31, 19, 24, 18, 7, 30, 26, 2, 19, 9]
    assert issued[-1] == 5
    assert int((issued * np.arange(2001)).sum()) == 30_576_637


def test_multi_stream_issues_loadgens_contiguous_samples() -> None:
    rows = plan("multi_stream").payload_ix.reshape(-1, 8)
    assert rows[0].tolist() == [23, 2, 9, 0, 13, 16, 14, 5]
    assert rows[5].tolist() == [24, 10, 8, 19, 22, 7, 20, 29]  # it runs over the end of the set
    assert rows[400].tolist() == [19, 22, 7, 20, 29, 26, 27, 25]
    assert int((rows[:401].sum(axis=1) * np.arange(401)).sum()) == 9_835_982


def test_offline_repeats_the_loaded_set() -> None:
    issued = plan("offline", samples=300).payload_ix
    assert np.array_equal(issued, loaded_set(ORDER, 32)[np.arange(300) % 32])


@pytest.mark.parametrize(
    ("seconds", "rate", "samples"),
    [
        (600, 0.7, 461),
        (600, 1.4, 923),
        (600, 8.2, 5411),
        (600, 500, 330_000),
        (7, 0.3, 2),
        (60, 1.7, 112),
        (0.3, 10, 3),
    ],
)
def test_offline_counts_its_samples_in_loadgens_arithmetic(seconds: float, rate: float, samples: int) -> None:
    """The first three are one more in exact arithmetic; LoadGen multiplies doubles and truncates."""
    found = kinds()["offline"]
    built = found.build(found.params(expected_rate=rate), Stop(1, int(seconds * 1e9)), 32, 42)
    assert built.n_samples == samples


# LoadGen with seed 0 and a set of 32: the first indices depend on min_query_count.
@pytest.mark.parametrize(("min_queries", "first"), [(10, [27, 18, 22]), (100, [18, 12, 20])])
def test_the_sequence_depends_on_the_minimum_as_loadgens_does(min_queries: int, first: list[int]) -> None:
    assert draw("loadgen", 1, 3, 32, min_queries=min_queries).tolist() == first


def test_a_longer_list_begins_with_the_shorter_one() -> None:
    long = places(ORDER, 3, min_queries=1)(100_000)
    assert np.array_equal(places(ORDER, 3, min_queries=1)(777), long[:777])
    assert set(long.tolist()) == {0, 1, 2}


class OneByOne:
    """A draw at a time, as the standard says it."""

    def __init__(self, seed: int) -> None:
        self.bits = np.random.MT19937()
        self.bits._legacy_seeding(seed)

    def below(self, bound: int) -> int:
        while True:
            product = int(self.bits.random_raw()) * bound
            if product & 0xFFFFFFFF >= (1 << 32) % bound:
                return product >> 32

    def swaps(self, n: int) -> list[int]:
        if n > 65_535:
            return [self.below(at + 1) for at in range(1, n)]
        found = [self.below(2)] if n and n % 2 == 0 else []
        for at in range(1 + len(found), n, 2):
            found += divmod(self.below((at + 1) * (at + 2)), at + 2)
        return found


def test_a_draw_that_would_make_some_numbers_likelier_is_replaced_by_the_next() -> None:
    """Below 3 * 2^30 a quarter of all 32-bit draws is rejected; whole blocks and single draws reject the same ones."""
    bounds = [3 << 30, 7, (1 << 31) + 1, 1, 1 << 20] * 3000
    single, block = OneByOne(11), _Twister(11)
    wanted = [single.below(bound) for bound in bounds]
    assert block.below(np.array(bounds, np.uint64)).tolist() == wanted
    assert block.below(np.full(9, 3 << 30, np.uint64)).tolist() == [single.below(3 << 30) for _ in range(9)]


def test_shuffles_one_after_another_draw_what_single_draws_do() -> None:
    single, block = OneByOne(5), _Twister(5)
    for n in (0, 1, 2, 3, 4, 65_535, 10, 65_536, 11, 70_001, 65_534, 2):
        assert block.swaps(n).tolist() == single.swaps(n), n


def test_a_closed_loop_has_rows_for_a_long_run() -> None:
    assert plan("single_stream").n_queries == ROWS
    assert plan("multi_stream").n_queries == ROWS


def plan(kind: str, **params: object) -> Plan:
    found = kinds()[kind]
    return found.build(
        found.params.model_validate({"order": ORDER, **params}), Stop(min_queries=300, min_duration_ns=0), 32, 42
    )
