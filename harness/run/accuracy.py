"""From a run directory's outputs to scores, and what must be right before an accuracy run starts. It sends nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.outputs import FILE
from plimsoll.harness.run.rundir import RunDirectory
from plimsoll.scenarios.samples.reference import references
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.text.errors import ScenarioError
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.verdict.accuracy import Answer, Scores, score


def check(scenario: Scenario, objectives: Sequence[Objective]) -> list[str]:
    """Every error of the mode, its references and the objectives on them, before anything is sent."""
    asked = [str(one) for one in objectives if one.statistic == "accuracy"]
    if scenario.mode != "accuracy":
        if any(one.indicator == "wer" for one in objectives) and _speaks(scenario):
            asked = [str(one) for one in objectives if one.statistic == "accuracy" and one.indicator != "wer"]
        errors = [f"{text}: the run keeps no answers. Add --mode accuracy, or drop the objective" for text in asked]
        if scenario.reference is not None:
            errors.append("reference: only an accuracy run compares answers. Add --mode accuracy, or leave it out")
        return errors
    if scenario.target.protocol == "null":
        return ["mode: the null protocol answers nothing. Use another protocol, or --mode performance"]
    try:
        expected = references(scenario.source_object(), scenario.reference)
    except ScenarioError as error:
        return error.errors
    if expected is None and asked:
        return [
            f"{text}: there is nothing to compare with. Give --reference FILE, or reference in each row of the source"
            for text in asked
        ]
    return []


def _speaks(scenario: Scenario) -> bool:
    """Whether the source has audio with a transcript: then every session counts its word errors, in any mode."""
    try:
        source = scenario.source_object()
        first = source.payload(0) if len(source) else None
    except ScenarioError:
        return False  # said by whoever opens the source for the run
    return first is not None and first.media_ns >= 0 and isinstance(first.reference, str)


def scores_of(directory: RunDirectory) -> Scores | None:
    """The scores of a run directory; None: it kept no answers, or knows no references.

    Raises HarnessFault for a file that can't be read.
    """
    path = directory.file(FILE)
    if not path.is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, columns=["text", "data", "datatype", "shape", "expected"]).to_pylist()
        expected = [None if row["expected"] is None else json.loads(row["expected"]) for row in rows]
        answers = [_answer(row) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise HarnessFault(f"{path}: damaged or from another version ({error}). Run again") from None
    return score(answers, expected) if all(one is not None for one in expected) else None


def _answer(row: dict[str, Any]) -> Answer | None:
    if row["data"] is not None:
        numbers = np.frombuffer(row["data"], dtype=row["datatype"])
        return Answer(numbers=numbers, shape=tuple(row["shape"] or ()))
    return None if row["text"] is None else Answer(row["text"])
