"""A latency budget: hops and what is left add up to the latency, what nobody measures is said so, and the hop that
overspent is named. A stage is a metric like any other.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reports.sections.hops import hops_part, sentence
from plimsoll.slo.metrics import stages
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import ObjectiveError
from plimsoll.slo.objectives.objective import parse as objective
from plimsoll.slo.objectives.objective_verdict import judge_objective
from plimsoll.slo.records.records import Phase, Records, Status, from_columns
from plimsoll.slo.verdict.hops import Budget, parse_hops, spent_of

MS = 1_000_000


def rows(texts: list[str | None], latency_ms: list[int], **columns: object) -> Records:
    done = [ms * MS for ms in latency_ms]
    given = {"due_ns": 0, "ready_ns": 0, "sent_ns": 0, "done_ns": done, "n_out": 1}
    return from_columns(len(done), timings=texts, **(given | columns))  # type: ignore[arg-type]


def spent(records: Records, budget: dict[str, str]) -> Budget:
    found = spent_of(records, parse_hops(budget))
    assert found is not None
    return found


@given(st.text(st.sampled_from('ab;=,dur" \\.019-é'), max_size=40) | st.from_regex(r"(a|b\.c);dur=[0-9.]{1,4}(, )?"))
def test_the_quick_reading_of_stages_is_the_careful_one(text: str) -> None:
    quick = stages._plainly(text)
    assert quick is None or quick == list(stages._carefully(text))
    assert quick is not None or not stages._PLAIN.fullmatch(text)


def test_a_stage_is_a_metric_whose_silence_is_missing_and_whose_failure_is_worst() -> None:
    texts = ["queue;dur=1", "queue;dur=30, prefill;dur=2", "prefill;dur=9", None, "queue;dur=2"]
    records = rows(texts, [40] * 5, status=[Status.OK] * 4 + [Status.TIMEOUT])
    found = measure(catalogue()["stage.queue"], records)
    assert (found.missing, found.failed) == (2, 1)
    assert sorted(found.values.tolist()) == [MS, 30 * MS, np.inf]
    assert objective("p99( stage.queue{turn>1} ) <= 20 ms") == objective("p99(stage.queue{turn>1}) <= 20ms")
    assert str(objective("stage.preprocess.resize <= 5ms")) == "stage.preprocess.resize <= 5ms"
    assert objective("p99(stage.queue-wait) <= 20ms").indicator == "stage.queue-wait"
    well = rows(texts[:4], [40] * 4)
    mistyped = judge_objective(objective("p99(stage.queu) <= 20ms"), well, goodput(well, []), "0.95")
    assert mistyped.outcome == "INCONCLUSIVE"
    assert "Name a stage that the server says" in mistyped.detail


@pytest.mark.parametrize("name", ["stage", "stage.", ".queue", "stages.queue", "ttft.queue"])
def test_no_other_name_is_a_family(name: str) -> None:
    with pytest.raises(ObjectiveError):
        objective(f"p99({name}) <= 20ms")
    assert name not in catalogue()
    assert "stage.queue" in catalogue()
    assert not [one for one in catalogue() if "." in one]


def test_hops_and_what_is_left_are_the_whole_latency_and_the_worst_is_named() -> None:
    rng = np.random.default_rng(5)
    n = 500
    queue, prefill, tokens = rng.integers(1, 30, n), rng.integers(50, 200, n), rng.integers(1, 9, n)
    decode, network = tokens * rng.integers(30, 60, n), rng.integers(1, 50, n)
    texts = [f"queue;dur={q}, prefill;dur={p}, decode;dur={d}" for q, p, d in zip(queue, prefill, decode, strict=True)]
    latency = queue + prefill + decode + network
    records = rows(texts, latency.tolist(), n_out=tokens.tolist())
    found = spent(
        records,
        {"gateway": "10ms", "queue": "20ms", "work": "120ms of prefill", "decode": "50ms/token", "network": "20ms"},
    )
    named = {one.hops: one for one in found.spent}
    assert list(named) == [("queue",), ("work",), ("decode",), ("gateway", "network")]
    assert named["queue",].over == (queue > 20).sum()
    assert named["decode",].over == (decode > 50 * tokens).sum()
    rest = named["gateway", "network"]
    assert (rest.sources, rest.limit_ns, rest.over, rest.n) == ((), 30 * MS, (network > 30).sum(), n)
    assert rest.p99_ns == np.sort(network)[int(np.ceil(0.99 * n)) - 1] * MS
    assert sum(one.slow_ns for one in found.spent) == pytest.approx(found.latency_ns)
    order = np.argsort(latency, kind="stable")
    slow = order[np.ceil(n * 0.99).astype(int) - 1 - 5 : np.ceil(n * 0.99).astype(int) + 5]
    over = [
        max(0.0, (took[slow] - limit[slow]).mean())
        for took, limit in ((queue, queue * 0 + 20), (prefill, prefill * 0 + 120), (decode, 50 * tokens))
    ] + [max(0.0, (network[slow] - 30).mean())]
    assert found.worst == int(np.argmax(over))
    assert found.worst_share == pytest.approx(max(over) / sum(over))


def test_a_server_that_says_nothing_leaves_all_to_what_nobody_measures_but_the_client() -> None:
    records = rows([None] * 20, [100] * 20, sent_ns=5 * MS, first_token_ns=40 * MS, last_token_ns=90 * MS)
    budget = {"held": "1ms of client.held", "first": "50ms of client.first_token", "rest": "10ms"}
    found = spent(records, budget | {"pace": "20ms/token of client.stream"})
    assert [(one.hops, one.p50_ns // MS, one.over) for one in found.spent] == [
        (("held",), 5, 20), (("first",), 35, 0), (("pace",), 50, 20), (("rest",), 10, 0),
    ]  # fmt: skip
    assert spent(records, {"queue": "1ms"}).spent[0].hops == ("queue",)
    assert spent_of(records, ()) is None
    assert spent_of(rows([None], [1], status=[Status.TIMEOUT]), parse_hops(budget)) is None


def test_what_the_server_names_and_no_hop_takes_is_not_laid_on_the_unmeasured_hop() -> None:
    """100 ms: 10 of queue, 70 of a stage that no hop takes (and its part), 15 that nobody names."""
    texts: list[str | None] = ["queue;dur=10, tokenize;dur=70, tokenize.merge;dur=60, tail;dur=5"] * 20
    found = spent(rows(texts, [100] * 20), {"gateway": "20ms", "queue": "20ms"})
    assert [(one.hops, one.sources, one.p50_ns // MS) for one in found.spent] == [
        (("queue",), ("queue",), 10), ((), ("tokenize",), 70), ((), ("tail",), 5), (("gateway",), (), 15),
    ]  # fmt: skip
    assert found.worst is None
    part = hops_part(found)
    assert part is not None
    assert sentence(part) == ("No hop overspent in the slow requests. tokenize took 70.0 ms, which no hop takes.")
    streamed = rows(texts, [100] * 20, first_token_ns=80 * MS, last_token_ns=100 * MS)  # the client's times hold them
    found = spent(streamed, {"gateway": "20ms", "first": "90ms of client.first_token", "rest": "30ms of client.stream"})
    assert [(one.hops, one.p50_ns // MS) for one in found.spent] == [
        (("first",), 80),
        (("rest",), 20),
        (("gateway",), 0),
    ]


def test_what_a_client_waited_before_it_tried_again_is_not_unmeasured() -> None:
    """Sent at 0, refused at once, sent again after 80 ms of back-off and answered in 15, of which the model took 10."""
    phases = [Phase.MEASURE, Phase.ATTEMPT, Phase.ATTEMPT, Phase.MEASURE]
    records = from_columns(
        4, query_id=[5, 5, 5, 6], due_ns=0, sent_ns=[0, 0, 80 * MS, 0], done_ns=[95 * MS, MS, 95 * MS, 15 * MS],
        phase=phases, status=[Status.OK, Status.REFUSED, Status.OK, Status.OK], n_out=1,
        timings=["model;dur=10", None, "model;dur=10", "model;dur=10"],
    )  # fmt: skip
    found = spent(records, {"model": "20ms", "gateway": "20ms"})
    assert [(one.hops, one.sources, one.n, one.p99_ns // MS) for one in found.spent] == [
        (("model",), ("model",), 2, 10), ((), ("client.retries",), 1, 80), (("gateway",), (), 2, 5),
    ]  # fmt: skip
    assert found.worst is None


def test_all_that_is_wrong_with_a_budget_is_said_at_once() -> None:
    budget = {
        "a": "20", "b": "fast", "c": "0ms", "d": "5ms of client.speed", "e": "5ms of a b",
        "f": "5ms of preprocess", "g": "5ms of preprocess.resize", "h": "5ms of queue", "queue": "5ms",
    }  # fmt: skip
    with pytest.raises(ObjectiveError) as caught:
        parse_hops(budget)
    assert [text.split(":")[0] for text in caught.value.errors] == [
        "budget.a", "budget.b", "budget.c", "budget.d", "budget.e", "budget.g", "budget.queue",
    ]  # fmt: skip
