"""Answers in pairs: what each comparator takes for a difference, what a bound on their share shows, and times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.comparison.drift import Drift, comparator, drift, later, portion
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.verdict.accuracy import Answer

MS = 1_000_000
RANK = {"FAIL": 0, "INCONCLUSIVE": 1, "PASS": 2}


def tensor(*numbers: float, shape: tuple[int, ...] = ()) -> Answer:
    return Answer(numbers=np.array(numbers, np.float32), shape=shape or (len(numbers),))


def text(said: str) -> Answer:
    return Answer(said)


@pytest.mark.parametrize(
    ("how", "one", "other", "differs"),
    [
        ("exact", text(" Paris\n"), text("Paris"), False),
        ("exact", text("Paris"), text("paris"), True),
        ("exact", text(""), text(""), False),
        ("exact", tensor(1, 2), tensor(1, 2), False),
        ("exact", tensor(1, 2), tensor(1, 2, shape=(2, 1)), True),
        ("exact", tensor(1, 2), text("1 2"), True),
        ("tokens", text("a  b\nc"), text("a b c"), False),
        ("tokens", text("a b c"), text("a b"), True),
        ("tokens:50%", text("a b c d"), text("a b x y"), False),
        ("tokens:0.49", text("a b c d"), text("a b x y"), True),
        ("tokens", tensor(1), tensor(1), None),
        ("wer", text("The Line, is painted!"), text("the line is painted"), False),
        ("wer:20%", text("one two three four five"), text("one two tree four five"), False),
        ("wer:10%", text("one two three four five"), text("one two tree four five"), True),
        ("wer", text(""), text("a word"), True),
        ("numbers", text("it is 3.0 and -1e3"), text("is: 3, -1000."), False),
        ("numbers:1%", text("100"), text("100.9"), False),
        ("numbers:1%", text("100"), text("101.1"), True),
        ("numbers", text("1 2"), text("1"), True),
        ("numbers", text("none"), text("1"), None),
        ("numbers", tensor(1, math.nan), tensor(1, math.nan), False),
        ("json", text('{"a": 1, "b": [1, 2]}'), text('{"b": [1, 2], "a": 1.0}'), False),
        ("json", text('{"a": 1}'), text('{"a": true}'), True),
        ("json", text('{"a": 1}'), text("a is 1"), True),
        ("json", text("prose"), text('{"a": 1}'), None),
        ("json:a,b.0.c", text('{"a": 1, "b": [{"c": 2, "d": 3}]}'), text('{"a": 1, "b": [{"c": 2}]}'), False),
        ("json:b.0.c", text('{"b": [{"c": 2}]}'), text('{"b": [{"c": 3}]}'), True),
        ("json:a", text('{"a": null}'), text("{}"), True),
        ("json:a", text("{}"), text('{"a": 1}'), True),
        ("json:a", text("{}"), text("{}"), None),
        ("json:nmae", text('{"name": 1}'), text('{"name": 2}'), None),
        ("json", text('{"a": 10000000000000000, "b": -0}'), text('{"a": 1e16, "b": 0.0}'), False),
        ("json", text('{"a": 0}'), text('{"a": -0.0}'), False),
        ("json", text("9007199254740993"), text("9007199254740992"), True),
        ("json", text("-" + "9" * 400), text("-" + "9" * 400), False),
        ("top1", tensor(0.1, 0.9, 0.3), tensor(5, 7, 6), False),
        ("top1", tensor(0.1, 0.9), tensor(0.9, 0.1), True),
        ("top1", tensor(7), tensor(7), False),
        ("top1", tensor(1, 2, 9, 9, 2, 1, shape=(2, 3)), tensor(0, 0, 1, 1, 0, 0, shape=(2, 3)), False),
        ("top1", tensor(math.nan, 1), tensor(1, 1), None),
        ("top1", text("cat"), text(" cat"), False),
    ],
)  # fmt: skip
def test_a_comparator_says_what_differs(how: str, one: Answer, other: Answer, differs: bool | None) -> None:
    assert comparator(how).differs(one, other) is differs


@pytest.mark.parametrize(
    "wrong", ["", "same", "exact:1", "top1:2", "tokens:", "tokens:some", "numbers:-1", "json:", "json:,", "json:a,"]
)
def test_what_is_no_comparator_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"Write|no share"):
        comparator(wrong)


def test_a_comparator_that_lets_every_word_be_another_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing would differ"):
        comparator("tokens:100%")


def test_a_share_is_written_both_ways() -> None:
    assert portion("1%") == portion("0.01")


def judged(n: int, differing: Sequence[int] = (), missing: Sequence[int] = (), unknown: Sequence[int] = ()) -> Drift:
    pairs = [
        (
            None if i in unknown else text("a"),
            None if i in missing else text("b" if i in differing else "a"),
        )
        for i in range(n)
    ]  # fmt: skip
    return drift(pairs, comparator("exact"), portion("1%"), "0.95")


def test_a_share_at_most_one_in_a_hundred_takes_299_answers_to_show() -> None:
    assert judged(299).test.outcome == "PASS"
    found = judged(298).test
    assert (found.outcome, found.n_needed) == ("INCONCLUSIVE", 299)
    assert judged(600, differing=range(0, 600, 20)).test.outcome == "FAIL"


def test_an_answer_that_is_missing_differs_and_one_without_a_reference_is_counted_apart() -> None:
    found = judged(400, differing=[3], missing=[5, 7], unknown=[7, 9])
    assert (found.n, found.differing, found.missing, found.unpaired) == (398, 2, 1, 2)
    assert found.places == (3, 5)
    assert judged(5, unknown=range(5)).test.outcome == "INCONCLUSIVE"


@given(
    n=st.integers(1, 400),
    bad=st.sets(st.integers(0, 399), max_size=12),
    fails=st.sets(st.integers(0, 399), max_size=4),
)
def test_nothing_gets_better_by_failing(n: int, bad: set[int], fails: set[int]) -> None:
    before = judged(n, differing=sorted(bad))
    after = judged(n, differing=sorted(bad), missing=sorted(fails))
    assert after.differing >= before.differing
    assert RANK[after.test.outcome] <= RANK[before.test.outcome]


def rows(latencies: Sequence[float], failed: Sequence[int] = ()) -> Records:
    n = len(latencies)
    due = np.arange(n) * 10 * MS
    status = np.where(np.isin(np.arange(n), list(failed)), Status.HTTP, Status.OK)
    return from_columns(
        n, due_ns=due, sent_ns=due, done_ns=due + (np.array(latencies) * MS).astype(np.int64), status=status
    )


def test_pairs_show_a_difference_that_the_noise_of_either_would_hide() -> None:
    random = np.random.default_rng(4)
    shared = random.lognormal(4, 1, 2_000)  # both wait for the same thing: 20 to 150 ms
    found = later("latency", rows(shared), rows(shared + 5 + random.normal(0, 1, 2_000)), "0.95")
    value, low, high = found.quantiles[0]
    assert low < 5 * MS < high
    assert high - low < 0.5 * MS
    assert low < value < high
    assert found.slower[0] > 0.99
    assert (found.n, found.failed, found.unpaired) == (2_000, 0, 0)


def test_a_bound_of_the_median_holds_as_often_as_it_says() -> None:
    """20 planted medians of 0: each bound is wrong in at most one of twenty, 95 % sure; six would be one in 3,000."""
    wrong = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        shared = random.lognormal(3, 0.5, 300)
        low = later("latency", rows(shared + 5), rows(shared + 5 + random.normal(0, 2, 300)), "0.95").quantiles[0][1]
        wrong += low > 0
    assert wrong <= 5


def test_a_failure_of_the_second_is_later_than_any_time_and_one_of_the_first_has_no_pair() -> None:
    found = later("latency", rows([20] * 100, failed=[0, 1]), rows([20] * 100, failed=[1, 2, 3]), "0.95")
    assert (found.n, found.failed, found.unpaired) == (98, 2, 2)
    assert found.quantiles[0][0] == 0
    assert found.quantiles[2][0] == math.inf
    assert found.slower[0] == pytest.approx(2 / 98)


def test_where_all_of_the_second_fail_all_are_later() -> None:
    found = later("latency", rows([20] * 50), rows([20] * 50, failed=range(50)), "0.95")
    assert (found.n, found.failed, found.quantiles[0][0]) == (50, 50, math.inf)


def test_a_second_that_answers_whole_fails_no_first_token_and_one_that_streams_some_does() -> None:
    first = rows([20] * 50)
    streamed = first.with_columns(first_token_ns=first["done_ns"] - MS)
    found = later("ttft", streamed, first, "0.95")
    assert (found.n, found.failed, found.quantiles) == (0, 0, ())
    some = first.with_columns(first_token_ns=np.where(np.arange(50) < 40, first["done_ns"], -1))
    assert later("ttft", streamed, some, "0.95").failed == 10


def test_a_metric_that_nobody_has_has_no_pairs() -> None:
    found = later("ttft", rows([20] * 5), rows([20] * 5), "0.95")
    assert (found.n, found.quantiles) == (0, ())
