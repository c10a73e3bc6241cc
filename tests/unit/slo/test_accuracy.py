"""Accuracy: answers against references, and objectives on them with exact bounds; what is missing is wrong, empty
never passes. Normalisers with a name and a version, word errors under them, and the pooled rate of a run with its
slices.
"""

from __future__ import annotations

import builtins
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sessions import listened, spoke

from plimsoll.slo.metrics import word_errors as wer
from plimsoll.slo.metrics.word_errors import MOST_SLICES, by_slice, fewest_edits, word_error_rate
from plimsoll.slo.objectives.objective import ObjectiveError, parse
from plimsoll.slo.records.records import Records, Status, concat, from_columns
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


# -- word errors ----------------------------------------------------------------------------------------------------

# -- normalisers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reference", "hypothesis", "errors", "words"),
    [
        ("none", "Hello, world", "hello world", 1, 2),
        ("basic", "Hello, world!", "hello world", 0, 2),
        ("basic", "well-known  don't", "Well known DON’T", 0, 3),
        ("basic", "it is twenty one", "it is 21", 2, 4),
        ("whisper-english", "It is twenty-one dollars.", "it is $21", 0, 3),
        ("whisper-english", "the colour", "the color", 0, 2),
        ("basic", "a b c", "", 3, 3),
        ("basic", "", "noise heard", 2, 0),
        ("basic", "...", "", 0, 0),
        ("basic", "a b c", "a x b c", 1, 3),
    ],
)
def test_word_errors_under_a_normaliser(name: str, reference: str, hypothesis: str, errors: int, words: int) -> None:
    assert wer.word_errors(reference, hypothesis, name) == (errors, words)


def test_basic_keeps_the_letters_of_every_language() -> None:
    assert wer.words("Straße — ÉTÉ; ２１ ㎒ हिन्दी: 日本語。") == ("strasse", "été", "21", "mhz", "हिन्दी", "日本語")


def test_every_normaliser_says_its_name_and_its_version() -> None:
    for name in wer.NAMES:
        made = wer.normaliser(name)
        assert made.text.startswith(name)
        assert wer.normaliser(name) is made
    assert wer.normaliser("whisper-english").text == "whisper-english: whisper-normalizer 0.1.15"
    assert wer.normaliser("basic").text.startswith("basic 1")


def test_an_unknown_normaliser_is_helped_along() -> None:
    with pytest.raises(wer.NormaliserError, match=r"'whisper' is not known. Write one of none, basic, whisper-english"):
        wer.word_errors("a", "a", "whisper")


def test_a_library_that_is_missing_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("whisper_normalizer"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    wer.normaliser.cache_clear()
    with pytest.raises(wer.NormaliserError, match=r"whisper_normalizer\S*\). Run `pip install plimsoll-slo\[speech\]`"):
        wer.normaliser("whisper-english")
    monkeypatch.undo()
    assert wer.normaliser("whisper-english").name == "whisper-english"


def test_without_the_english_normaliser_its_library_is_not_imported() -> None:
    code = (
        "import sys; from plimsoll.slo.metrics.word_errors import word_errors; word_errors('A b.', 'a b'); "
        "print([m for m in ('jiwer', 'whisper_normalizer', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"


# -- the rate of a run ----------------------------------------------------------------------------------------


def heard(errors: list[int], words: list[int], **columns: Any) -> Records:
    return listened(len(words), word_errors=errors, words=words, **columns)


def test_the_rate_is_pooled_and_the_mean_of_sessions_is_another_number() -> None:
    found = word_error_rate(heard([1, 0], [2, 98]))
    assert found is not None
    assert (found.sessions, found.errors, found.words) == (2, 1, 100)
    assert (found.rate, found.mean) == (0.01, 0.25)


def test_a_failed_session_got_no_word_across() -> None:
    found = word_error_rate(heard([1, 1, 12], [10, 10, 10], status=[0, int(Status.TIMEOUT), int(Status.PROTOCOL)]))
    assert found is not None
    assert (found.errors, found.words, found.failed, found.guessed) == (1 + 10 + 12, 30, 2, 0)


def test_a_session_that_failed_before_its_words_were_counted_counts_as_many_as_the_others() -> None:
    unsent = from_columns(1, due_ns=0, status=int(Status.UNSENT))
    found = word_error_rate(concat([heard([0, 0], [8, 12]), unsent]))
    assert found is not None
    assert (found.errors, found.words, found.failed, found.guessed) == (10, 30, 1, 1)


def test_failing_a_session_never_makes_the_rate_better() -> None:
    rng = np.random.default_rng(5)
    errors, words = rng.integers(0, 9, 30).tolist(), rng.integers(0, 12, 30).tolist()
    before = word_error_rate(heard(errors, words))
    assert before is not None
    for at in range(30):
        status = [int(Status.TIMEOUT) if i == at else 0 for i in range(30)]
        after = word_error_rate(heard(errors, words, status=status))
        assert after is not None
        assert after.rate >= before.rate


def test_words_invented_in_noise_are_errors_without_words() -> None:
    found = word_error_rate(heard([0, 5], [100, 0]))
    assert found is not None
    assert (found.rate, found.sessions) == (0.05, 2)
    assert found.mean == 0.0


def test_warm_up_and_sessions_without_a_reference_are_not_in_it() -> None:
    assert word_error_rate(from_columns(3)) is None
    assert word_error_rate(spoke()) is None
    found = word_error_rate(concat([heard([1], [10]), heard([9], [10], phase=1), heard([-1], [-1]), spoke()]))
    assert found is not None
    assert (found.errors, found.words) == (1, 10)


def test_each_slice_has_its_own_rate() -> None:
    some = heard([0, 2, 4, 1], [10, 10, 10, 10], slices=["clean", "noisy", "noisy", None])
    found = by_slice(some)
    assert {name: (one.errors, one.words) for name, one in found.items()} == {
        "": (1, 10),
        "clean": (0, 10),
        "noisy": (6, 20),
    }
    assert list(found) == ["", "clean", "noisy"]
    assert by_slice(from_columns(2)) == {}


def test_words_of_one_session_are_no_independent_trials() -> None:
    """The same share of errors, spread evenly or all in a tenth of the sessions."""
    even = word_error_rate(heard([1] * 100, [10] * 100))
    lumped = word_error_rate(heard([10] * 10 + [0] * 90, [10] * 100))
    assert even is not None
    assert lumped is not None
    assert even.design_effect == 1.0
    assert lumped.design_effect == pytest.approx(10.1, abs=0.1)
    assert lumped.interval[0] < even.interval[0] < 0.1 < even.interval[1] < lumped.interval[1]


def test_bounds_hold_the_rate_and_lie_in_range() -> None:
    for errors, words in (([0], [5]), ([5], [5]), ([9, 9], [5, 3]), ([0] * 50, [10] * 50), ([0, 3], [0, 30])):
        found = word_error_rate(heard(errors, words))
        assert found is not None
        low, high = found.interval
        assert 0 <= low <= found.rate <= high
    assert word_error_rate(heard([0] * 50, [10] * 50)).interval[1] == pytest.approx(0.0056, abs=2e-4)  # type: ignore[union-attr]


def test_by_simulation_each_bound_holds_nearly_as_often_as_it_says() -> None:
    rng, rate, held = np.random.default_rng(11), 0.1, np.zeros(2)
    for _ in range(400):
        words = rng.poisson(12, 60) + 1
        errors = rng.binomial(words, rng.beta(rate * 4, (1 - rate) * 4, 60))
        found = word_error_rate(heard(errors.tolist(), words.tolist()))
        assert found is not None
        held += (found.interval[0] <= rate, found.interval[1] >= rate)
    assert (held / 400 > 0.9).all()


# -- objectives on it -----------------------------------------------------------------------------------------


def judged(text: str, records: Records) -> tuple[str, float, str]:
    rest, compared = split([parse(text)], None)
    facts = GeneratorFacts(open_loop=False, planned=len(records))
    found = judge(records, rest, assess(records, facts), "0.95", compared)
    (one,) = found.objectives
    return one.outcome, one.observed, one.detail


def test_the_pooled_rate_of_a_load_run_is_judged_as_observed() -> None:
    some = heard([1, 0, 1], [10, 10, 20])
    assert judged("accuracy(wer) <= 5%", some)[:2] == ("PASS", 0.05)
    outcome, _, detail = judged("accuracy(wer) < 5%", some)
    assert outcome == "FAIL"
    assert "5 %: 2 errors in 40 words of 3 sessions; judged as observed" in detail


def test_a_run_that_counted_no_words_is_no_pass() -> None:
    outcome, observed, detail = judged("accuracy(wer) <= 5%", spoke(3))
    assert (outcome, observed != observed) == ("INCONCLUSIVE", True)
    assert "no answers were compared" in detail


def test_other_objectives_on_answers_still_need_answers() -> None:
    assert judged("accuracy(exact_match) >= 90%", heard([0], [10]))[0] == "INCONCLUSIVE"


def test_of_very_many_slices_those_with_fewest_words_are_taken_together() -> None:
    n = 3 * MOST_SLICES
    words = np.arange(n) % 7 + np.where(np.arange(n) < MOST_SLICES - 1, 100, 1)
    found = by_slice(heard([1] * n, words.tolist(), slices=[f"s{i}" for i in range(n)]))
    assert len(found) == MOST_SLICES
    assert set(found) == {f"s{i}" for i in range(MOST_SLICES - 1)} | {"2,001 more slices"}
    assert sum(one.words for one in found.values()) == int(words.sum())
    assert sum(one.sessions for one in found.values()) == n
