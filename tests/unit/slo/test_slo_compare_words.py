"""What a comparison says of its numbers, and what it warns of."""

from __future__ import annotations

import dataclasses

from made_arms import arm

from plimsoll.slo.comparison.arms import Arm
from plimsoll.slo.comparison.compare import compare
from plimsoll.slo.comparison.quantity import parse_all

INF = float("inf")
NAN = float("nan")
SPREAD = [100.0, 100.1, 100.2, 100.3, 100.4]
RUNS = [1.0, 1.1, 1.2, 1.3, 1.4]


def test_what_is_said_of_infinite_and_missing_values_reads_well() -> None:
    lost = compare(arm("a", {"p99(ttft)": RUNS}), [arm("b", {"p99(ttft)": [INF] * 5})], parse_all(["p99(ttft)"]))
    assert "interval infinite;" in lost.candidates[0].effects[0].why
    nothing = arm("b", {"p99(ttft)": [NAN] * 5})
    for base, said in ((arm("a", {"p99(ttft)": RUNS}), "the candidate has"), (nothing, "both arms have")):
        [effect] = compare(base, [nothing], parse_all(["p99(ttft)"])).candidates[0].effects
        assert effect.why == f"{said} no value of it in some run. Compare what both measured"


def test_a_run_that_was_never_made_is_no_other_schedule() -> None:
    def planned(name: str, plans: str) -> Arm:
        made = arm(name, {"p50(ttft)": [1.0, 1.1, 1.2]})
        return Arm(
            name,
            tuple(dataclasses.replace(run, plan=plan.strip("-")) for run, plan in zip(made.runs, plans, strict=True)),
        )

    quantity = parse_all(["p50(ttft)"])
    for plans, warned in (("pqr", False), ("pq-", False), ("pqx", True), ("pqq", True), ("px-", True)):
        said = compare(planned("a", "pqr"), [planned("b", plans)], quantity).warnings
        assert any("did not run the same schedules" in text for text in said) is warned


def test_one_warning_tells_of_all_candidates_with_thin_tails() -> None:
    def short(name: str) -> Arm:
        return arm(name, {"p99(ttft)": RUNS}, n=50)

    said = compare(short("a"), [short("b"), short("c")], parse_all(["p99(ttft)"])).warnings
    assert [text.split(" values")[0] for text in said] == ["b, c: p99(ttft): fewer than 10"]


def test_a_significant_change_that_is_surely_small_is_said_to_be_within_the_tolerance() -> None:
    slower = arm("b", {"p99(ttft)": [v * 1.02 for v in SPREAD]})
    for tolerance, said in ((0.05, "2 % more, and within the tolerance of 5 %"), (0.0201, "not shown to be beyond")):
        found = compare(arm("a", {"p99(ttft)": SPREAD}), [slower], parse_all(["p99(ttft)"]), tolerance)
        [effect] = found.candidates[0].effects
        assert effect.adjusted_p < 0.05
        assert said in effect.finding


def test_an_invalid_run_is_named_by_where_it_is() -> None:
    base, made = arm("a", {"p99(ttft)": RUNS}), arm("b", {"p99(ttft)": RUNS})
    broken = dataclasses.replace(made.runs[0], directory="runs/002-b", reasons=("generator lag",))
    [result] = compare(base, [Arm("b", (broken, *made.runs[1:]))], parse_all(["p99(ttft)"])).candidates
    assert result.reasons == ("run runs/002-b of b is invalid: generator lag",)
