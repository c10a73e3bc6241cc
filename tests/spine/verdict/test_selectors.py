"""Selectors: which rows a promise is about. They partition, and a promise about a part is one about its rows alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.judge import judge as judge_run
from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.objective import ObjectiveError, parse
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict
from plimsoll.slo.objectives.selector import NONE, rows_of, selected, split
from plimsoll.slo.objectives.sentence import named
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.labels import sent_by
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.accuracy import Answer, Compared, score
from plimsoll.slo.verdict.verdict import Verdict, judge

MS = 1_000_000
Label = list[str | None]


def run(latency_ms: object, labels: dict[str, list[str | int | None]] | None = None, **columns: object) -> Records:
    latency = (np.asarray(latency_ms, float) * MS).astype(np.int64)
    due = np.arange(len(latency)) * MS
    given = {"due_ns": due, "ready_ns": due, "sent_ns": due, "first_byte_ns": due + latency, "done_ns": due + latency}
    return from_columns(len(latency), labels=labels, **(given | columns))  # type: ignore[arg-type]


def verdict(some: Records, *objectives: str) -> Verdict:
    facts = GeneratorFacts(open_loop=True, planned=len(some), elapsed_ns=10**15)
    valid = dataclasses.replace(assess(some, facts), outcome="VALID", reasons=())
    return judge(some, [parse(text) for text in objectives], valid)


def one(some: Records, objective: str) -> ObjectiveVerdict:
    (found,) = verdict(some, objective).objectives
    return found


#: Chat is quick and batch slow; one in three is batch.
def mixed(n: int = 3000) -> Records:
    batch = np.arange(n) % 3 == 0
    return run(np.where(batch, 500, 20), {"class": ["batch" if one else "chat" for one in batch]})


# -- the grammar -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("p99(ttft{class=chat}) <= 200ms", "p99(ttft{class=chat}) <= 200ms"),
        ("p95( latency { turn > 1 , tenant = a } ) <= 2s", "p95(latency{tenant=a,turn>1}) <= 2s"),
        ("ratio(error{phase=during}) <= 5%", "ratio(error{phase=during}) <= 5%"),
        ("ttft{class=chat} <= 200ms", "ttft{class=chat} <= 200ms"),
        ("p99(ttft{prompt_tokens>=08000.0}) <= 1s", "p99(ttft{prompt_tokens>=8000}) <= 1s"),
        ('p99(ttft{tenant="a b, {c}"|d}) <= 1s', 'p99(ttft{tenant="a b, {c}"|d}) <= 1s'),
        ("p99(ttft{class=b|a|b}) <= 1s", "p99(ttft{class=a|b}) <= 1s"),
        ("each class : p99(ttft) <= 200ms over 28d", "each class: p99(ttft) <= 200ms over 28d"),
        ("worst backend: p99(latency{class!=bulk}) <= 1s", "worst backend: p99(latency{class!=bulk}) <= 1s"),
        ("accuracy(wer{slice=street}) <= 10%", "accuracy(wer{slice=street}) <= 10%"),
        ("p99(latency{admitted}) <= 1s", "p99(latency{admitted}) <= 1s"),
        ("ratio(refused) <= 5%", "ratio(refused) <= 5%"),
    ],
)
def test_an_objective_has_one_text(written: str, canonical: str) -> None:
    assert str(parse(written)) == canonical
    assert parse(canonical) == parse(written)


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("p99(ttft{class}) <= 1s", "class is no condition; write class=VALUE, or one of admitted, refused"),
        ("p99(ttft{}) <= 1s", "'nothing' is no condition"),
        ("p99(ttft{class=chat,}) <= 1s", "ends with a comma"),
        ("p99(ttft{class=chat bulk}) <= 1s", "'class=chat bulk' is no condition"),
        ("p99(ttft{turn>one}) <= 1s", "> takes one number; write turn>8000"),
        ("p99(ttft{turn>1|2}) <= 1s", "> takes one number"),
        ("p99(ttft{Class=chat}) <= 1s", "label 'Class': write lower-case letters"),
        ("each class: ttft <= 1s", "each class: takes a promise over the run"),
        ("each Class: p99(ttft) <= 1s", "label 'Class': write lower-case letters"),
        ("ratio(refused) >= 5%", "lower is better"),
        ("p99(output_rate{class=a}) >= 5/s", r"write p1\(output_rate{class=a}\) >= 5/s"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(written: str, error: str) -> None:
    with pytest.raises(ObjectiveError, match=error):
        parse(written)


# -- which rows ------------------------------------------------------------------------------------------------------

TEXTS = st.lists(st.sampled_from(["a", "b", "a b", 'q"\\', None]), min_size=1, max_size=30)
NUMBERS = st.lists(st.sampled_from([0, 1, 2, 7, None]), min_size=1, max_size=30)


@given(TEXTS)
def test_the_values_of_a_label_partition_the_rows(values: Label) -> None:
    some = run(np.ones(len(values)), {"tenant": list(values)})
    parts = [rows_of(where, some) for where in split("tenant", some).conditions]
    assert not parts or np.array_equal(np.sum(parts, axis=0), np.ones(len(values)))
    for where in split("tenant", some).conditions:
        (condition,) = where
        other = dataclasses.replace(condition, operator="!=")
        assert np.array_equal(~rows_of((other,), some), rows_of(where, some))
        assert selector.parse(selector.text(where)[1:-1]) == where


@given(NUMBERS, st.integers(0, 8))
def test_numbers_partition_too(values: list[int | None], edge: int) -> None:
    some = run(np.ones(len(values)), {"turn": list(values)})
    parts = [rows_of(where, some) for where in split("turn", some).conditions]
    if any(value is not None for value in values):
        assert np.array_equal(np.sum(parts, axis=0), np.ones(len(values)))
    above, below = (rows_of(selector.parse(f"turn{operator}{edge}"), some) for operator in (">", "<="))
    assert above.tolist() == [value is not None and value > edge for value in values]
    assert (above | below).tolist() == [value is not None for value in values]


@given(st.lists(st.integers(-1, 100_000), min_size=1, max_size=40))
def test_bands_of_tokens_partition(tokens: list[int]) -> None:
    some = run(np.ones(len(tokens)), n_in=np.array(tokens))
    found = split("prompt_tokens", some)
    parts = [rows_of(where, some) for where in found.conditions]
    assert np.array_equal(np.sum(parts, axis=0), np.ones(len(tokens)))
    assert (NONE in found.values) == (-1 in tokens)


def test_a_text_that_is_a_number_compares_as_one() -> None:
    some = run(np.ones(4), {"version": ["9", "10", "x", None]})
    assert rows_of(selector.parse("version>=10"), some).tolist() == [False, True, False, False]
    assert rows_of(selector.parse('version=""|x'), some).tolist() == [False, False, True, True]


def test_too_many_values_are_refused_with_the_reason() -> None:
    some = run(np.ones(1001), {"user": [f"u{i}" for i in range(1001)]})
    assert split("user", some).problem == "label user has 1,001 values, and at most 1,000 are told apart"
    (found,) = verdict(some, "each user: p99(latency) <= 1s").objectives
    assert (found.outcome, found.n) == ("INCONCLUSIVE", 0)
    assert "1,001 values" in found.detail


# -- verdicts --------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 400), st.booleans()), min_size=1, max_size=300))
def test_a_verdict_on_a_part_is_that_of_its_rows_alone(rows: list[tuple[str, int, bool]]) -> None:
    status = [int(Status.HTTP) if failed else 0 for _, _, failed in rows]
    some = run([ms for _, ms, _ in rows], {"class": [name for name, _, _ in rows]}, status=status)
    alone = selected(some, selector.parse("class=a")).labelled(None)
    for text in ("p90(latency) <= 200ms", "mean(latency) <= 100ms", "ratio(error) <= 30%", "rate(ok) >= 1/s"):
        part = one(some, text.replace(")", "{class=a})", 1))
        whole = one(alone, text) if len(alone) else None
        if whole is None:
            assert (part.outcome, part.n) == ("INCONCLUSIVE", 0)
        else:
            assert (part.outcome, part.bad, part.n) == (whole.outcome, whole.bad, whole.n)
            assert part.interval == whole.interval
            assert part.observed == whole.observed


#: Of each agent its region and its workers; who is in no list sent for nobody who is known.
SITES = (("east-1", "east", (0, 1)), ("west-1", "west", (2,)), ("east-2", "east", (4, 5)), ("home", "", (6,)))


@given(st.lists(st.integers(-1, 9), min_size=1, max_size=40), st.permutations(SITES))
def test_who_sent_them_partitions_the_rows_and_regions_are_unions_of_agents(
    workers: list[int], order: list[tuple[str, str, tuple[int, ...]]]
) -> None:
    plain = run(np.ones(len(workers)), {"tenant": ["a"] * len(workers)}, worker=np.array(workers, np.int16))
    some = plain.labelled(sent_by(plain.labels, plain["worker"], order))
    of = {worker: (name, region) for name, region, mine in SITES for worker in mine}
    for place, label in enumerate(("agent", "region")):
        found = split(label, some)
        parts = {value: rows_of(where, some) for value, where in zip(found.values, found.conditions, strict=True)}
        assert np.array_equal(np.sum([*parts.values()], axis=0), np.ones(len(workers)))
        for value, rows in parts.items():
            told = "" if value == NONE else value
            assert rows.tolist() == [of.get(worker, ("", ""))[place] == told for worker in workers]
    east, both = (rows_of(selector.parse(text), some) for text in ("region=east", "agent=east-2|east-1"))
    assert np.array_equal(east, both)
    turned = (rows_of(selector.parse(text), some) for text in ("tenant=a,agent=home", "agent=home,tenant=a"))
    assert np.array_equal(*turned)
    assert bool(rows_of(selector.parse("tenant=a"), some).all()), "other labels are as they were"


def test_a_label_of_the_scenario_is_not_taken_over_by_who_sent() -> None:
    own = run([1, 1], {"region": ["here", "there"]}, worker=np.array([0, 1], np.int16))
    told = own.labelled(sent_by(own.labels, own["worker"], SITES))
    assert [rows_of(selector.parse(text), told).tolist() for text in ("region=here", "agent=east-1")] == [
        [True, False], [True, True],
    ]  # fmt: skip


def test_order_of_labels_means_nothing() -> None:
    assert parse("p9(ttft{turn>1,class=a}) <= 1s") == parse("p9(ttft{class=a,turn>1}) <= 1s")


def test_a_union_is_judged_by_the_rows_of_its_parts() -> None:
    some = mixed()
    both = one(some, "p90(latency{class=chat|batch}) <= 100ms")
    parts = [one(some, f"p90(latency{{class={name}}}) <= 100ms") for name in ("chat", "batch")]
    assert (both.n, both.bad) == (sum(p.n for p in parts), sum(p.bad or 0 for p in parts))


def test_one_class_passes_where_all_together_fail() -> None:
    found = verdict(mixed(), "p99(latency) <= 100ms", "p99(latency{class=chat}) <= 100ms")
    assert [one.outcome for one in found.objectives] == ["FAIL", "PASS"]
    assert found.objectives[1].n == 2000


def test_each_value_has_a_verdict_of_its_own_and_none_is_dropped() -> None:
    labels: list[str | int | None] = ["a"] * 2000 + ["b"] * 3 + [None] * 997
    some = run([10] * 3000, {"backend": labels})
    found = verdict(some, "each backend: p99(latency) <= 100ms").objectives
    assert [(str(one.objective), one.outcome, one.n) for one in found] == [
        ("p99(latency{backend=a}) <= 100ms", "PASS", 2000),
        ("p99(latency{backend=b}) <= 100ms", "INCONCLUSIVE", 3),
        ('p99(latency{backend=""}) <= 100ms', "PASS", 997),
    ]


def test_what_no_value_could_have_is_not_asked_for() -> None:
    """Refusals come from no backend, so admitted requests all have one."""
    labels: list[str | int | None] = [None if i % 50 == 0 else f"b{i % 2}" for i in range(4000)]
    status = np.where(np.arange(4000) % 50 == 0, int(Status.REFUSED), 0)
    some = run([10] * 4000, {"backend": labels}, status=status)
    found = verdict(some, "each backend: p99(latency{admitted}) <= 100ms")
    assert (found.outcome, len(found.objectives)) == ("PASS", 2)
    assert len(verdict(some, "each backend: p99(latency) <= 100ms").objectives) == 3


def test_the_worst_value_decides_for_all() -> None:
    n = 3000
    backend: list[str | int | None] = [f"b{i % 3}" for i in range(n)]
    some = run([300 if i % 3 == 2 and i % 30 < 15 else 10 for i in range(n)], {"backend": backend})
    found = one(some, "worst backend: p99(latency) <= 100ms")
    assert (found.outcome, found.n, found.among_values) == ("FAIL", 1000, ("b2", 3))
    assert named(found).startswith("worst backend: p99(latency) <= 100ms: b2, of 3: ")
    kept = one(some, "worst backend: p99(latency) <= 20s")
    assert (kept.outcome, kept.among_values, kept.observed) == ("PASS", ("b2", 3), 300e6), "b2 shows how well all do"


def test_a_family_of_values_is_corrected_for_their_number() -> None:
    """Eleven of 500 break a limit that 1 % may: on its own a FAIL, as one of forty it may be chance."""
    n = 20_000
    host = np.arange(n) % 40
    bad = (host == 7) & (np.arange(n) // 40 % 45 == 0)
    some = run(np.where(bad, 500, 10), {"host": [f"h{i}" for i in host]})
    assert one(some, "p99(latency{host=h7}) <= 100ms").outcome == "FAIL"
    assert one(some, "worst host: p99(latency) <= 100ms").outcome == "INCONCLUSIVE"
    assert verdict(some, "each host: p99(latency) <= 100ms").outcome == "INCONCLUSIVE"


def test_a_value_that_only_the_plan_knows_is_inconclusive() -> None:
    some = mixed()
    assert some.labels is not None
    table = dataclasses.replace(some.labels, texts={"class": (*some.labels.texts["class"], "live")})
    found = verdict(some.labelled(table), "each class: p99(latency) <= 1s").objectives
    assert [(one.outcome, one.n) for one in found] == [("PASS", 1000), ("PASS", 2000), ("INCONCLUSIVE", 0)]
    assert found[2].detail.startswith("no measured request is {class=live}: class is batch, chat, live")


def test_refusals_are_judged_apart() -> None:
    n = 4000
    refused = np.arange(n) % 40 == 0
    some = run(np.where(refused, 2, 20), status=np.where(refused, int(Status.REFUSED), 0))
    assert one(some, "p99(latency) <= 100ms").outcome == "FAIL"
    assert one(some, "p99(latency{admitted}) <= 100ms").outcome == "PASS"
    shed = one(some, "ratio(refused) <= 5%")
    assert (shed.outcome, shed.bad, shed.n) == ("PASS", 100, n)
    assert "100 of 4,000 requests were turned away where 5 % may" in named(shed)
    quick = one(some, "p50(latency{refused}) <= 5ms")
    assert (quick.outcome, quick.observed, quick.n) == ("PASS", 2 * MS, 100)


def test_a_limit_on_the_requests_of_one_class_asks_nothing_of_others() -> None:
    some = mixed()
    found = verdict(some, "latency{class=chat} <= 100ms", "ratio(good) >= 99%")
    assert found.outcome == "PASS"
    facts = GeneratorFacts(open_loop=True, planned=len(some), elapsed_ns=10**15)
    judged = judge_run(some, facts, Promises((parse("latency{class=batch} <= 100ms"), parse("ratio(good) >= 9%"))))
    (met,) = judged.goodput.attainment
    assert (met.met, met.n) == (0, 1000)


def test_budgets_are_of_the_rows_that_a_promise_is_about() -> None:
    some = mixed()
    facts = GeneratorFacts(open_loop=True, planned=len(some), elapsed_ns=10**15)
    promises = Promises(
        tuple(map(parse, ("each class: p90(latency) <= 100ms", "worst class: p90(latency) <= 1s"))),
        production_per_s=9.0,
    )
    found = judge_run(some, facts, promises).budgets
    assert [(one.name, one.budget.n, one.budget.bad) for one in found] == [
        ("p90(latency{class=batch}) <= 100ms", 1000, 1000.0),
        ("p90(latency{class=chat}) <= 100ms", 2000, 0.0),
    ]


def test_accuracy_of_a_slice() -> None:
    answers = [Answer("yes"), Answer("no"), None, Answer("yes")] * 200
    keys = np.stack([np.arange(800), np.zeros(800, np.int64)], axis=1)
    scores = score(answers, ["yes"] * 800, keys)
    some = run(np.ones(800), {"tenant": ["good", "bad", "bad", "good"] * 200})
    texts = ["accuracy(exact_match{tenant=good}) >= 95%", "each tenant: accuracy(exact_match) >= 95%"]
    found = Compared(tuple(map(parse, texts)), scores).judge(some, "0.95")
    assert [(one.outcome, one.n, one.bad) for one in found] == [("PASS", 400, 0), ("FAIL", 400, 400), ("PASS", 400, 0)]


def test_retries_and_fallbacks_are_shares() -> None:
    tries: list[str | int | None] = [2 if i % 50 == 0 else 1 for i in range(2000)]
    fallback: list[str | int | None] = [int(i % 400 == 7) for i in range(2000)]
    some = run([10] * 2000, {"tries": tries, "hedges": [0] * 2000, "degraded": fallback})
    again, degraded = verdict(some, "ratio(retried) <= 1%", "ratio(degraded) <= 2%").objectives
    assert (again.outcome, again.bad, again.n) == ("FAIL", 40, 2000)
    assert "40 of 2,000 requests were sent again where 1 % may" in named(again)
    assert (degraded.outcome, degraded.bad, degraded.n) == ("PASS", 5, 2000)
    nobody = one(run([10] * 2000), "ratio(retried) <= 1%")
    assert (nobody.outcome, nobody.n) == ("INCONCLUSIVE", 0)
    assert "client.retry" in nobody.detail
