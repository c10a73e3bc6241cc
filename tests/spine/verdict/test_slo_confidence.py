"""Bounds and sample sizes against published tables, LoadGen's own output, and brute force."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from bisect import bisect_left
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from plimsoll.slo.statistics.confidence import (
    CLUSTERED,
    binomial_at_least,
    binomial_at_most,
    clopper_pearson,
    failing,
    max_failures,
    mean_interval,
    most_bad_allowed,
    n_needed,
    n_required,
    order_statistic_bounds,
    shows_few,
    shows_many,
)

T = (0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
TABLE_99 = {
    "0.50": (7, 11, 14, 17, 22, 35, 59, 128, 237, 451, 1078, 2108),
    "0.90": (44, 64, 81, 97, 127, 197, 325, 681, 1246, 2337, 5518, 10722),
    "0.95": (90, 130, 165, 198, 259, 398, 656, 1372, 2504, 4691, 11064, 21483),
    "0.97": (152, 219, 277, 332, 433, 667, 1097, 2293, 4182, 7831, 18458, 35831),
    "0.99": (459, 662, 838, 1001, 1307, 2010, 3304, 6898, 12571, 23527, 55427, 107569),
    "0.999": (4603, 6636, 8403, 10042, 13105, 20140, 33097, 69058, 125826, 235427, 554510, 1076032),
    "0.9999": (46050, 66381, 84057, 100448, 131081, 201442, 331025, 690663, 1258374),
}
TABLE_95 = {
    "0.90": {0: 29, 1: 46, 2: 61, 3: 76, 10: 167},
    "0.99": {0: 299, 1: 473, 2: 628, 3: 773, 10: 1693},
    "0.999": {0: 2995, 1: 4742, 2: 6294, 3: 7752, 10: 16959},
}


@pytest.mark.parametrize("p", TABLE_99)
def test_early_stopping_needs_the_published_number_of_queries(p: str) -> None:
    assert tuple(n_required(t, p) for t in T[: len(TABLE_99[p])]) == TABLE_99[p]


@pytest.mark.parametrize("p", TABLE_95)
def test_early_stopping_at_95_percent_needs_fewer_queries(p: str) -> None:
    assert {t: n_required(t, p, "0.95") for t in TABLE_95[p]} == TABLE_95[p]


@pytest.mark.parametrize(
    ("p", "n", "t"),
    [
        ("0.90", 64, 1), ("0.90", 662, 48), ("0.90", 866, 66), ("0.90", 1000, 78), ("0.90", 10_000, 930),
        ("0.90", 24_576, 2348), ("0.99", 459, 0), ("0.99", 458, -1), ("0.99", 662, 1), ("0.99", 866, 2),
        ("0.99", 1000, 2), ("0.99", 2000, 9), ("0.99", 5000, 33), ("0.99", 10_000, 77), ("0.99", 24_576, 209),
        ("0.99", 60_000, 543), ("0.99", 100_000, 927), ("0.99", 270_336, 2583), ("0.999", 6636, 1),
        ("0.999", 10_000, 2), ("0.999", 100_000, 77), ("0.999", 270_336, 232),
    ],
)  # fmt: skip
def test_largest_over_latency_count_that_stops_early(p: str, n: int, t: int) -> None:
    assert max_failures(n, p) == t


def test_loadgen_leaves_out_one_less_than_may_be_over() -> None:
    assert [max_failures(866, p) - 1 for p in ("0.9", "0.99")] == [65, 1]
    assert [max_failures(n, "0.99") for n in (661, 662)] == [0, 1]


@pytest.mark.parametrize(
    ("n", "ranks"),
    [
        (100, [(40, 61), (84, 96), (90, 100), (97, 101)]),
        (368, [(165, 204), (320, 343), (341, 358), (360, 368)]),
        (1000, [(469, 532), (881, 919), (936, 964), (983, 997), (997, 1001)]),
        (5000, [(2431, 2570), (4458, 4542), (4719, 4781), (4936, 4964), (4990, 5000)]),
        (10_000, [(4902, 5099), (8941, 9059), (9457, 9543), (9880, 9920), (9983, 9997)]),
        (100_000, [(49690, 50311), (89814, 90187), (94864, 95136), (98938, 99062), (99880, 99920)]),
    ],
)
def test_order_statistic_ranks_are_the_tabulated_ones(n: int, ranks: list[tuple[int, int]]) -> None:
    ps = ("0.5", "0.9", "0.95", "0.99", "0.999")
    assert [order_statistic_bounds(n, p) for p, _ in zip(ps, ranks, strict=False)] == ranks


@pytest.mark.parametrize(
    ("p", "confidence", "sides", "n"),
    [
        ("0.9", "0.95", 1, 29), ("0.9", "0.99", 1, 44), ("0.99", "0.95", 1, 299), ("0.99", "0.99", 1, 459),
        ("0.999", "0.95", 1, 2995), ("0.999", "0.99", 1, 4603), ("0.95", "0.95", 1, 59), ("0.99", "0.95", 2, 368),
        ("0.99", "0.99", 2, 528), ("0.999", "0.95", 2, 3688), ("0.9", "0.95", 2, 36),
    ],
)  # fmt: skip
def test_an_upper_bound_exists_from_exactly_the_tabulated_sample_size(
    p: str, confidence: str, sides: int, n: int
) -> None:
    assert order_statistic_bounds(n, p, confidence, sides)[1] == n
    assert order_statistic_bounds(n - 1, p, confidence, sides)[1] == n


def test_one_sided_bounds_cover_a_known_percentile_as_often_as_they_say() -> None:
    rng = np.random.default_rng(3)
    n, runs = 1000, 4000
    lower, upper = order_statistic_bounds(n, "0.99", "0.95", sides=1)
    samples = np.sort(rng.random((runs, n)), axis=1)
    for covered in (samples[:, upper - 1] >= 0.99, samples[:, lower - 1] <= 0.99):
        assert 0.95 - 3 * math.sqrt(0.05 * 0.95 / runs) <= covered.mean() < 0.99


def test_clopper_pearson_gives_the_published_interval() -> None:
    low, high = clopper_pearson(480, 240_000)
    assert (round(low * 100, 4), round(high * 100, 4)) == (0.1825, 0.2187)


def test_clopper_pearson_reaches_the_ends_and_knows_nothing_without_data() -> None:
    assert clopper_pearson(0, 10)[0] == 0.0
    assert clopper_pearson(10, 10)[1] == 1.0
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    # The rule of three: 0 of n is below 1 - alpha^(1/n).
    assert clopper_pearson(0, 299, sides=1)[1] == pytest.approx(1 - 0.05 ** (1 / 299))


def test_binomial_tails_add_up_to_one_and_match_direct_sums() -> None:
    n, q = 30, 0.1
    pmf = [math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)]
    for k in range(n + 1):
        assert binomial_at_most(k, n, q) == pytest.approx(sum(pmf[: k + 1]))
        assert binomial_at_least(k, n, q) == pytest.approx(sum(pmf[k:]))


def test_mean_interval_is_students_t() -> None:
    # t(0.975, 4) = 2.7764; sd of 1..5 is 1.5811
    low, high = mean_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert (low, high) == (pytest.approx(3 - 1.96324, abs=1e-4), pytest.approx(3 + 1.96324, abs=1e-4))
    assert mean_interval(np.array([1.0])) == (-math.inf, math.inf)
    assert mean_interval(np.array([1.0, math.inf])) == (math.inf, math.inf)


@pytest.mark.parametrize(
    ("bad", "n", "needed"), [(0, 458, 459), (0, 459, 0), (0, 0, 459), (77, 10_000, 0), (459, 459, 0)]
)
def test_n_needed_at_99_percent(bad: int, n: int, needed: int) -> None:
    assert n_needed(bad, n, "0.01", "0.99") == needed


def test_no_number_of_requests_decides_a_share_that_is_exactly_on_the_limit() -> None:
    assert n_needed(10, 1000, "0.01") is None


@pytest.mark.parametrize(("bad", "n"), [(1, 40), (2, 60), (3, 50), (7, 60), (9, 80), (12, 100), (5, 70), (6, 50)])
def test_from_n_needed_on_nine_runs_of_ten_decide_by_brute_force(bad: int, n: int) -> None:
    """Over every n, and so not for a lucky tooth of the saw: the binomial chance to decide never falls below 90 %
    again.
    """
    limit, share = "0.1", bad / n
    found = n_needed(bad, n, limit)
    assert found is not None
    if found == 0:
        assert shows_few(bad, n, limit) or shows_many(bad, n, limit)
        return

    def decides(total: int) -> float:
        most = most_bad_allowed(total, limit)
        few = binom.cdf(most, total, share) if most >= 0 else 0.0
        least = bisect_left(range(total + 1), True, key=lambda k: shows_many(k, total, limit))
        return float(few + binom.sf(least - 1, total, share))

    exact = max((total for total in range(1, found + 1) if decides(total) < 0.9), default=0) + 1
    assert all(decides(total) >= 0.9 for total in range(found, found + 40))
    assert 1.0 <= found / max(math.ceil(exact * CLUSTERED), n + 1) <= 1.01


def test_ten_million_requests_are_judged_at_once() -> None:
    began = time.process_time()
    n = 10_000_000
    lower, upper = order_statistic_bounds(n, "0.999", "0.95", sides=1)
    assert lower < 9_990_000 < upper
    assert most_bad_allowed(n, "0.001") == n - upper
    assert n_required(max_failures(n, "0.99"), "0.99") <= n < n_required(max_failures(n, "0.99") + 1, "0.99")
    needed = n_needed(9_990, n, "0.001")
    assert needed is not None
    assert needed > n
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    "call", [lambda: n_required(-1, "0.9"), lambda: n_required(0, "1"), lambda: clopper_pearson(3, 2)]
)
def test_nonsense_is_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=r"lies|at least"):
        call()


@pytest.mark.parametrize(
    ("limit", "share"), [(Fraction(1, 2), Fraction(938, 1000)), (Fraction(1, 10), Fraction(95, 100))]
)
def test_a_fail_takes_as_many_as_show_it_however_bad_they_are(limit: Fraction, share: Fraction) -> None:
    """One bad one of one shows nothing against a limit of a half, and 'one more would decide' is no advice."""
    n = failing(limit, share, "0.95", "0.9")
    assert n is not None
    least = next(k for k in range(n + 1) if shows_many(k, n, limit))
    assert binomial_at_least(least, n, share) >= 0.9


def test_the_special_functions_are_scipys_own_and_load_no_more_of_it() -> None:
    code = (
        "import sys; from plimsoll.slo.statistics.confidence import clopper_pearson as c; print(c(3, 10)); "
        "print('scipy.special' in sys.modules, 'numpy.f2py' in sys.modules); "
        "from plimsoll.slo.statistics import special as ours; import scipy.special as theirs; "
        "names = [name for name in vars(ours) if hasattr(theirs, name) and hasattr(getattr(ours, name), 'ntypes')]; "
        "print(len(names), all(getattr(ours, name) is getattr(theirs, name) for name in names))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out[1:] == ["False False", "7 True"]
    assert out[0] == str(clopper_pearson(3, 10))
