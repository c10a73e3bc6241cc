"""A CI log is annotated by outcome, and nothing in a text can end a line or a property of it."""

from __future__ import annotations

from plimsoll.reports.formats.annotations import FORMAT
from plimsoll.reports.parts.parts import Counts, ObjectiveResult, Outcome, Run, Scenario, Validity, Verdict
from plimsoll.reports.report import Report


def result(outcome: Outcome, text: str = "p99(ttft) <= 200ms") -> ObjectiveResult:
    return ObjectiveResult(
        objective=text, outcome=outcome, observed=250_000_000, threshold=200_000_000, unit="ns", interval=(1, 2), n=9
    )


def lines(**parts: object) -> list[str]:
    run = Run(scenario=Scenario(name="a:b, 100%\nc"))
    return FORMAT.render(Report(run=run, counts=Counts(ok=9), **parts)).decode().splitlines()  # type: ignore[arg-type]


def test_each_objective_is_a_line_at_the_level_of_its_outcome() -> None:
    results = [result("FAIL"), result("INCONCLUSIVE"), result("PASS")]
    found = lines(verdict=Verdict(outcome="FAIL", objectives=results))
    assert [line.split(" ")[0] for line in found] == ["::error", "::warning", "::notice"]


def test_an_invalid_run_is_one_error_whatever_its_objectives_say() -> None:
    verdict = Verdict(outcome="INVALID", reasons=["too late"], objectives=[result("INVALID")])
    (line,) = lines(verdict=verdict, validity=Validity(outcome="INVALID", reasons=["too late"]))
    assert line.startswith("::error title=a%3Ab%2C 100%25%0Ac%3A INVALID::")
    assert line.endswith("Too late.")


def test_a_run_without_objectives_is_a_notice_and_one_that_answered_nothing_an_error() -> None:
    assert lines()[0].startswith("::notice")
    assert lines(verdict=Verdict(outcome="FAIL", reasons=["not one succeeded"]))[0].startswith("::error")
