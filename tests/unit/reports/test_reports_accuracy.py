"""Answers against references stand in every format for people, with what they were counted from."""

from __future__ import annotations

import pytest

from plimsoll.reports.format import formats
from plimsoll.reports.report import Report
from plimsoll.reports.sections.accuracy import Accuracy, AccuracyScore

SCORES = Accuracy(
    samples=40,
    answered=39,
    scores={
        "exact_match": AccuracyScore(value=0.9, right=36, of=40, interval=(0.77, 0.97)),
        "token_match": AccuracyScore(value=0.95, right=190, of=200),
        "wer": AccuracyScore(value=None, of=200, errors=12),
    },
)


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_the_scores_are_shown_with_their_counts(name: str) -> None:
    page = formats()[name].render(Report(accuracy=SCORES)).decode().replace("\\_", "_")
    for text in (
        "39 of 40 samples answered",
        "36 of 40 samples right",
        "190 of 200 words right",
        "12 errors in 200 words",
    ):
        assert text in page, text
    assert "∞" in page
    assert "samples answered" not in formats()[name].render(Report()).decode()
