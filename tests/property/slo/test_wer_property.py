"""Word errors against an independent library, and what normalisers must keep to."""

from __future__ import annotations

from itertools import pairwise

import jiwer
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.metrics import word_errors
from plimsoll.slo.metrics import word_errors as wer

words = st.lists(st.sampled_from(["a", "b", "c", "dd", "ee"]), max_size=12)
names = st.sampled_from(wer.NAMES)


@given(reference=words.filter(bool), hypothesis=words)
def test_word_errors_are_those_that_jiwer_counts(reference: list[str], hypothesis: list[str]) -> None:
    seen = jiwer.process_words(" ".join(reference), " ".join(hypothesis))
    errors = seen.substitutions + seen.deletions + seen.insertions
    assert wer.word_errors(" ".join(reference), " ".join(hypothesis), "none") == (errors, len(reference))


@given(reference=words, output=words)
def test_the_same_words_are_found_by_an_alignment_of_the_fewest_edits(reference: list[str], output: list[str]) -> None:
    pairs = word_errors.aligned(reference, output)
    assert all(reference[i] == output[j] for i, j in pairs)
    edges = [(-1, -1), *pairs, (len(reference), len(output))]
    gaps = [(after[0] - before[0] - 1, after[1] - before[1] - 1) for before, after in pairwise(edges)]
    assert all(min(gap) >= 0 for gap in gaps)
    assert sum(max(gap) for gap in gaps) == word_errors.fewest_edits(reference, output)


@given(text=st.text(), name=names)
def test_any_text_can_be_normalised_and_is_like_itself(text: str, name: str) -> None:
    errors, count = wer.word_errors(text, text, name)
    assert errors == 0
    assert count == len(wer.words(text, name))


@given(text=st.text())
def test_basic_has_nothing_left_to_do_the_second_time(text: str) -> None:
    once = wer.words(text, "basic")
    assert wer.words(" ".join(once), "basic") == once


@given(reference=st.text(max_size=30), hypothesis=st.text(max_size=30), name=names)
def test_errors_are_between_the_difference_and_the_longer_of_both(reference: str, hypothesis: str, name: str) -> None:
    errors, n = wer.word_errors(reference, hypothesis, name)
    heard = len(wer.words(hypothesis, name))
    assert abs(n - heard) <= errors <= max(n, heard)
