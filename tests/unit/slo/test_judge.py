"""``plimsoll.slo.judge``: one call decides everything, and the same arguments give the same."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.slo.judge import judge
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.verdict.accuracy import Answer, score

MS = 1_000_000
N = 1000


def run(**columns: object) -> Records:
    due = np.arange(N) * 10 * MS
    given: dict[str, object] = {"due_ns": due, "ready_ns": due, "sent_ns": due, "done_ns": due + 5 * MS, "attempts": 1}
    return from_columns(N, **{**given, **columns})  # type: ignore[arg-type]


def facts(**changed: object) -> GeneratorFacts:
    told = {"open_loop": True, "planned": N, "planned_queries": N, "process": "constant", "elapsed_ns": 10**10}
    return GeneratorFacts(**(told | changed))  # type: ignore[arg-type]


def promised(*texts: str) -> Promises:
    return Promises(tuple(parse(text) for text in texts))


def test_one_call_gives_the_verdict_and_all_that_the_records_tell() -> None:
    status = np.where(np.arange(N) % 500 == 0, int(Status.HTTP), int(Status.OK))
    found = judge(run(status=status), facts(), promised("p99(latency) <= 6ms", "latency <= 4ms"))
    assert (found.validity.outcome, found.verdict.outcome) == ("VALID", "PASS")
    assert found.goodput.good.sum() == 0, "no request keeps the limit on a single one"
    assert (found.counts.ok, found.counts.failed) == (N - 2, 2)
    assert [(one.objective, one.budget.bad) for one in found.budgets] == [("p99(latency) <= 6ms", 2)]
    assert found.steadiness is not None
    assert (found.cancelled, found.accuracy, found.anatomy, found.speech) == (None, None, None, None)


def test_the_bounds_of_a_budget_have_the_confidence_of_the_verdict() -> None:
    status = np.where(np.arange(N) % 500 == 0, int(Status.HTTP), int(Status.OK))
    objectives = promised("ratio(error) <= 1%").objectives
    sure, surer = (judge(run(status=status), facts(), Promises(objectives, confidence=c)) for c in ("0.95", "0.99"))
    for found, confidence in ((sure, 0.95), (surer, 0.99)):
        (budgeted,), (one,) = found.budgets, found.verdict.objectives
        assert budgeted.confidence == found.verdict.confidence == confidence
        assert budgeted.budget.burn_interval == pytest.approx([100 * bound for bound in one.interval])
    assert surer.budgets[0].budget.burn_interval[1] > sure.budgets[0].budget.burn_interval[1]


def test_nothing_promised_is_judged_all_the_same() -> None:
    found = judge(run(), facts())
    assert (found.verdict.outcome, found.budgets) == ("PASS", ())


def test_a_generator_that_broke_its_word_makes_the_whole_invalid() -> None:
    found = judge(run(), facts(planned=2 * N), promised("p99(latency) <= 6ms"))
    assert (found.validity.outcome, found.verdict.outcome) == ("INVALID", "INVALID")
    assert found.verdict.reasons == found.validity.reasons


def test_objectives_on_answers_are_judged_by_their_scores_and_are_in_no_budget() -> None:
    scores = score([Answer(text="a")] * N, ["a"] * (N - 1) + ["b"])
    found = judge(run(), facts(), promised("accuracy(exact_match) >= 99%"), scores)
    assert [(one.text, one.outcome) for one in found.verdict.objectives] == [("accuracy(exact_match) >= 99%", "PASS")]
    assert found.objectives == found.budgets == ()
    assert found.accuracy is not None
    assert found.accuracy.scores["exact_match"].right == N - 1


def test_the_same_arguments_give_the_same() -> None:
    one, other = (judge(run(), facts(), promised("p99(latency) <= 6ms")) for _ in range(2))
    assert (one.verdict, one.validity, one.counts, one.budgets[0].budget) == (
        other.verdict,
        other.validity,
        other.counts,
        other.budgets[0].budget,
    )
