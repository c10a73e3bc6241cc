"""A promise on word errors needs no accuracy mode where the source has audio with transcripts; elsewhere it is an error
before any load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from plimsoll.harness.run.job import check_accuracy
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.slo.objectives.objective import parse


@dataclass
class Source:
    payloads: list[Payload]

    def __len__(self) -> int:
        return len(self.payloads)

    def payload(self, index: int) -> Payload:
        return self.payloads[index]


@dataclass
class Run:
    """The parts of a scenario that are looked at."""

    source: Source | None
    mode: str = "performance"
    reference: str | None = None

    def source_object(self) -> Source:
        if self.source is None:
            raise ScenarioError(["source.path: no such file"])
        return self.source


def errors(run: Run, *texts: str) -> list[str]:
    return check_accuracy(cast(Scenario, cast(Any, run)), [parse(text) for text in texts])


CLIP = Payload(media_ns=10**9, reference="hello world")


def test_a_load_run_of_speech_counts_its_words() -> None:
    assert errors(Run(Source([CLIP])), "accuracy(wer) <= 5%", "p95(finalization) <= 800ms") == []


@pytest.mark.parametrize(
    "source", [Source([Payload(prompt="hi", reference="ho")]), Source([Payload(media_ns=5)]), Source([]), None]
)
def test_without_audio_and_a_transcript_it_needs_accuracy_mode(source: Source | None) -> None:
    (error,) = errors(Run(source), "accuracy(wer) <= 5%")
    assert "accuracy(wer) <= 5%: the run keeps no answers" in error


def test_other_objectives_on_answers_still_need_accuracy_mode() -> None:
    (error,) = errors(Run(Source([CLIP])), "accuracy(wer) <= 5%", "accuracy(exact_match) >= 90%")
    assert error.startswith("accuracy(exact_match) >= 90%: the run keeps no answers")
