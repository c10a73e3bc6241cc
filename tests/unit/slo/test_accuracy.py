"""Accuracy: answers against references, and objectives on them with exact bounds; what is missing is wrong, empty never
passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.metrics.word_errors import fewest_edits
from plimsoll.slo.objectives.objective import ObjectiveError, parse
from plimsoll.slo.records.records import from_columns
from plimsoll.slo.statistics.confidence import clopper_pearson
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.accuracy import Answer, Scores, judge_accuracy, score, split
from plimsoll.slo.verdict.verdict import judge


def texts(*given: str | None) -> list[Answer | None]:
    return [None if text is None else Answer(text) for text in given]


def tensor(values: list[float], shape: tuple[int, ...] | None = None, dtype: str = "<f4") -> Answer:
    numbers = np.array(values, dtype=dtype)
    return Answer(numbers=numbers, shape=shape or numbers.shape)


def outcome(text: str, scores: Scores | None) -> str:
    return judge_accuracy(parse(text), scores, "0.95").outcome


def right(n: int, wrong: int) -> Scores:
    return score(texts(*["no"] * wrong, *["yes"] * (n - wrong)), ["yes"] * n)


def table(a: list[str], b: list[str]) -> int:
    """The textbook's table, cell by cell."""
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
        before = row
    return before[-1]


words = st.lists(st.sampled_from("abc"), max_size=90)


@given(words, words)
def test_word_errors_are_levenshteins_distance(a: list[str], b: list[str]) -> None:
    assert fewest_edits(a, b) == table(a, b) == fewest_edits(b, a)


@pytest.mark.parametrize(
    ("reference", "output", "errors"),
    [
        ("the cat sat", "the cat sat", 0),
        ("the cat sat", "the bat sat", 1),
        ("the cat sat", "the sat", 1),
        ("the cat sat", "the cat cat sat down", 2),
        ("the cat sat", "", 3),
        ("", "some words", 2),
    ],
)
def test_a_word_is_substituted_left_out_or_added(reference: str, output: str, errors: int) -> None:
    assert fewest_edits(reference.split(), output.split()) == errors


def test_the_word_error_rate_pools_all_words() -> None:
    scores = score(texts("a b c d", "x"), ["a b c d", "y"])
    assert scores.observed("wer") == 1 / 5


def test_case_and_punctuation_count() -> None:
    scores = score(texts("Yes.", "yes"), ["yes", "yes"])
    assert scores.observed("exact_match") == 0.5
    assert scores.observed("wer") == 0.5


def test_white_space_around_a_text_does_not_count() -> None:
    assert score(texts(" yes\n"), ["yes"]).observed("exact_match") == 1


def test_tokens_match_place_by_place_and_extra_ones_are_wrong() -> None:
    assert score(texts("a b c"), ["a x c"]).observed("token_match") == 2 / 3
    assert score(texts("a b c d"), ["a b"]).observed("token_match") == 0.5
    assert score(texts("b c"), ["a b c"]).observed("token_match") == 0


@pytest.mark.parametrize(
    ("answer", "label", "is_right"),
    [
        (tensor([0.1, 0.7, 0.2]), 1, True),
        (tensor([0.1, 0.7, 0.2], (1, 3)), 2, False),
        (tensor([0.1, 0.9, 0.8, 0.2], (2, 2)), 1, True),
        (tensor([7], dtype="<i8"), 7, True),
        (tensor([float("nan"), 1.0]), 1, False),
        (tensor([]), 0, False),
        (Answer("3"), 3, True),
        (Answer("4"), 3, False),
    ],
)
def test_top1_is_the_place_of_the_largest_number_or_the_label_itself(
    answer: Answer, label: int, is_right: bool
) -> None:
    scores = score([answer], [label])
    assert scores.metrics == ("exact_match", "top1")
    assert scores.observed("top1") == float(is_right)


def test_a_tensor_matches_exactly_by_all_of_its_numbers() -> None:
    expected: list[Any] = [[0.5, 0.25], [0.5], [0.5, 0.75]]
    scores = score([tensor([0.5, 0.25]) for _ in expected], expected)
    assert scores.right["exact_match"].tolist() == [True, False, False]


def test_a_missing_answer_is_wrong_by_every_metric() -> None:
    scores = score(texts("a b", None), ["a b", "c d"])
    assert scores.observed("exact_match") == 0.5
    assert scores.observed("token_match") == 0.5
    assert scores.observed("wer") == float("inf")
    assert outcome("accuracy(wer) <= 99%", scores) == "FAIL"
    assert not score([None], [3]).observed("top1")


def test_the_share_of_right_answers_has_exact_bounds() -> None:
    verdict = judge_accuracy(parse("accuracy(exact_match) >= 90%"), right(40, 2), "0.95")
    low, high = clopper_pearson(38, 40, "0.95", sides=1)
    assert verdict.interval == pytest.approx((low, high))
    assert (verdict.outcome, verdict.observed, verdict.bad, verdict.n) == ("INCONCLUSIVE", 0.95, 2, 40)
    assert verdict.n_needed is not None
    assert verdict.n_needed > 40


def test_a_share_is_shown_kept_shown_broken_or_neither() -> None:
    assert outcome("accuracy(exact_match) >= 99%", right(298, 0)) == "INCONCLUSIVE"
    assert outcome("accuracy(exact_match) >= 99%", right(299, 0)) == "PASS"
    assert outcome("accuracy(exact_match) >= 99%", right(300, 30)) == "FAIL"


def test_token_match_and_word_errors_are_judged_as_observed() -> None:
    scores = score(texts("a b c d e f g h i x"), ["a b c d e f g h i j"])
    assert outcome("accuracy(token_match) >= 90%", scores) == "PASS"
    assert outcome("accuracy(token_match) > 90%", scores) == "FAIL"
    assert outcome("accuracy(wer) <= 10%", scores) == "PASS"
    assert outcome("accuracy(wer) < 10%", scores) == "FAIL"


@pytest.mark.parametrize("text", ["accuracy(exact_match) >= 1%", "accuracy(wer) <= 99%", "accuracy(top1) >= 1%"])
@pytest.mark.parametrize("scores", [None, score([], [])])
def test_nothing_compared_never_passes(text: str, scores: Scores | None) -> None:
    verdict = judge_accuracy(parse(text), scores, "0.95")
    assert (verdict.outcome, verdict.n) == ("INCONCLUSIVE", 0)
    assert "--mode accuracy" in verdict.detail


def test_a_metric_that_the_references_do_not_allow_is_inconclusive() -> None:
    assert outcome("accuracy(top1) >= 1%", score(texts("yes"), ["yes"])) == "INCONCLUSIVE"
    assert outcome("accuracy(wer) <= 99%", score([tensor([1.0])], [0])) == "INCONCLUSIVE"
    assert outcome("accuracy(token_match) >= 1%", score(texts(""), [""])) == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accuracy(bleu) >= 99%", "accuracy is of exact_match, token_match, top1, wer"),
        ("accuracy(exact_match) <= 99%", "higher is better"),
        ("accuracy(wer) >= 5%", "lower is better"),
        ("accuracy(exact_match) >= 100%", "more than a finite run can show"),
        ("accuracy(exact_match) >= 99", "a bare number does not fit"),
        ("p99(exact_match) >= 99%", "indicator exact_match is not known"),
    ],
)
def test_the_grammar_refuses_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ObjectiveError, match=said):
        parse(text)


def test_an_objective_on_accuracy_is_judged_with_all_others() -> None:
    done = np.arange(1, 501) * 1_000_000
    records = from_columns(500, due_ns=done - 1_000_000, sent_ns=done - 1_000_000, done_ns=done, status=0)
    facts = GeneratorFacts(open_loop=True, planned=500)
    objectives = [parse("p90(latency) <= 1s"), parse("accuracy(exact_match) >= 90%")]
    for wrong, expected in ((0, "PASS"), (200, "FAIL")):
        rest, compared = split(objectives, right(500, wrong))
        verdict = judge(records, rest, assess(records, facts, rest), slos=compared)
        assert verdict.outcome == expected
        assert len(verdict.objectives) == 2
    # Without scores, and by whoever judges without knowing of them: never a pass.
    rest, compared = split(objectives, None)
    assert judge(records, rest, assess(records, facts, rest), slos=compared).outcome == "INCONCLUSIVE"
    assert judge(records, objectives, assess(records, facts, rest)).outcome == "INCONCLUSIVE"


@given(st.lists(st.sampled_from(["yes", "no", None]), min_size=1, max_size=60), st.data())
def test_losing_or_spoiling_an_answer_never_improves_an_outcome(given: list[str | None], data: st.DataObject) -> None:
    rank = {"PASS": 0, "INCONCLUSIVE": 1, "FAIL": 2}
    victim = data.draw(st.integers(0, len(given) - 1))
    worse = [*given]
    worse[victim] = data.draw(st.sampled_from([None, "no"])) if given[victim] else None
    for text in ("accuracy(exact_match) >= 50%", "accuracy(token_match) >= 50%", "accuracy(wer) <= 50%"):
        before = outcome(text, score(texts(*given), ["yes"] * len(given)))
        assert rank[outcome(text, score(texts(*worse), ["yes"] * len(given)))] >= rank[before]
