"""Child seeds and sample choice."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from plimsoll.scenarios.plan.sampling import choose
from plimsoll.scenarios.plan.seeds import SEED_MAX, child, mixed, stream, uniforms


def test_paths_do_not_collide_by_concatenation() -> None:
    seeds = [child(7, *path) for path in (("ab", "c"), ("a", "bc"), ("abc",), ("a", "b", "c"), ("", "abc"), ())]
    assert len(set(seeds)) == len(seeds)


def test_child_seeds_never_change() -> None:
    assert child(42, "samples") == 8210316168421840403
    assert child(0, "arrival") == child(0, "arrival") != child(1, "arrival")


@pytest.mark.parametrize("root", [-1, SEED_MAX + 1])
def test_a_root_that_is_no_64_bit_number_is_refused(root: int) -> None:
    with pytest.raises(ValueError, match="2\\^64"):
        child(root, "x")


def test_uniforms_are_uniform_and_below_one() -> None:
    drawn = uniforms(stream(3), 20_000)
    assert 0 <= drawn.min() <= drawn.max() < 1
    assert stats.kstest(drawn, "uniform").pvalue > 0.01


@pytest.mark.parametrize("n_samples", [1, 2, 3, 7, 1000, 2**31 - 1])
def test_random_choice_stays_in_range(n_samples: int) -> None:
    chosen = choose("random", 5, 5000, n_samples)
    assert 0 <= chosen.min() <= chosen.max() < n_samples


def test_random_choice_is_uniform_with_replacement() -> None:
    counts = np.bincount(choose("random", 5, 50_000, 50), minlength=50)
    assert stats.chisquare(counts).pvalue > 0.01


def test_permutation_uses_every_sample_once_a_pass() -> None:
    chosen = choose("permutation", 5, 35, 10)
    for start in (0, 10, 20):
        assert sorted(chosen[start : start + 10].tolist()) == list(range(10))
    assert chosen[:10].tolist() != chosen[10:20].tolist()
    assert len(set(chosen[30:].tolist())) == 5


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        choose("random", 5, 10, 0)


def test_mixed_numbers_are_those_of_splitmix64() -> None:
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]
    assert mixed(0, np.arange(5)).tolist() == known
    assert mixed(0, np.array([3, 0])).tolist() == [known[3], known[0]]
