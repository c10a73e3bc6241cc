"""``plimsoll plan``: counts, times and advice for each kind of scenario, and every mistake at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.outlook.outlook import Assumptions, Guesses, Outlook, Question, clock, outlook, outlooks
from plimsoll.harness.outlook.outlook import read as read_question
from plimsoll.harness.outlook.view import tables
from plimsoll.harness.run.job import prepare
from plimsoll.harness.run.promises import Asked, Promises, read_promises
from plimsoll.scenarios.spec import with_flags
from plimsoll.slo.objectives import openslo
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Records, from_columns
from tests.command import invoke

S = 1_000_000_000
P99 = "p99(ttft) <= 200ms"


def seen(*slo: str, latencies: tuple[int, ...] = (), **flags: Any) -> Outlook:
    return outlook(with_flags(None, **flags), promised(*slo), Assumptions(latencies_ns=latencies))


def promised(*slo: str) -> Promises:
    return Promises(tuple(parse(text) for text in slo))


def read(
    name: str | None,
    flags: Any,
    slo: list[str],
    bad_share: str | None = None,
    power: str = "90%",
    design_effect: float = 1.0,
    latencies: tuple[str, ...] = (),
) -> Question:
    return read_question(name, flags, Asked(slo), Guesses(bad_share, power, design_effect, latencies))


def shown(found: Outlook, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    with console.file:
        for part in tables(found):
            console.print(part)
    return console.export_text()


def test_a_p99_at_20_a_second_takes_15_seconds() -> None:
    found = seen(P99, rate=20, arrival="constant", duration="15s")
    need = found.needs[0]
    assert need.sample is not None
    assert (need.requests, need.sample.loadgen, need.sample.loadgen_estimate) == (299, 459, 662)
    assert need.durations_ns[0] == pytest.approx(14.9 * S, abs=1000)  # the first is due at 0
    assert clock(need.durations_ns[0] or 0) == "15 s"
    assert (found.paces[0].requests, need.reached) == (301, (True,))
    assert not any("pass at all" in line for line in found.advice)


def test_a_time_is_rounded_to_what_it_is_about() -> None:
    said = [clock(round(seconds * 1e9)) for seconds in (119, 119.1, 120.2, 150.4, 594, 598, 820, 7_300)]
    assert said == ["119 s", "2 min", "2 min", "2 min 30 s", "9 min 50 s", "10 min", "14 min", "2 h 2 min"]


def test_the_scenario_as_written_is_counted_by_its_own_seed() -> None:
    scenario = with_flags(None, rate=400, arrival="loadgen", seed=42, duration="2s")
    found = outlook(scenario, promised(P99), Assumptions())
    assert found.paces[0].requests == 799  # LoadGen's schedule of that seed
    assert found.paces[0].duration_ns == 2_005_471_926


def test_too_short_a_scenario_says_what_would_do() -> None:
    found = seen(P99, "p99.9(latency) <= 1s", rate=100, arrival="constant", duration="4s")
    assert [need.reached for need in found.needs] == [(True,), (False,)]
    assert found.advice[0] == "to be able to pass at all: --queries 2995 (about 30 s)"
    again = seen("p99.9(latency) <= 1s", rate=100, arrival="constant", queries=2995)
    assert again.needs[0].reached == (True,)


def test_max_queries_and_max_duration_cut_what_is_counted() -> None:
    base = with_flags(None, rate=100, arrival="constant", duration="10s").to_mapping()
    from plimsoll.scenarios.scenario import parse as read_scenario

    base["stop"] |= {"max_queries": 200, "min_queries": 1}
    assert outlook(read_scenario(base, "x"), promised(P99), Assumptions()).paces[0].requests == 200
    cut = seen(P99, rate=100, arrival="constant", queries=2000, duration="1s", max_duration="5s")
    assert cut.paces[0].requests == 501
    assert any("no max_duration before that" in line for line in cut.advice)


def test_a_ramp_is_timed_by_its_own_rate() -> None:
    scenario = with_flags(None, kind="server").to_mapping()
    scenario["params"] = {"rate": {"ramp": {"from": 0, "to": 20, "over": "20s"}}, "arrival": "constant"}
    from plimsoll.scenarios.scenario import parse as read_scenario

    found = outlook(read_scenario(scenario, "x"), promised(P99), Assumptions())
    # 200 in the first 20 s (t^2 / 2), then 98 more at 20/s.
    assert found.needs[0].durations_ns[0] == pytest.approx(24.9 * S, rel=1e-6)


def test_a_closed_loop_is_worked_out_for_assumed_latencies() -> None:
    found = seen(P99, concurrency=8, duration="20s", queries=10, latencies=(2 * S, S // 2))
    assert [(pace.latency_ns, pace.requests) for pace in found.paces] == [(2 * S, 80), (S // 2, 320)]
    assert found.needs[0].durations_ns == (76 * S, 19 * S)  # 38 rounds of 8
    assert found.needs[0].reached == (False, True)
    assert len(seen(P99, concurrency=8).paces) == 3, "without one, three orders of magnitude are shown"


def test_samples_count_where_a_query_has_several() -> None:
    found = seen(P99, kind="multi_stream", queries=100, latencies=(S,))
    assert found.paces[0].requests == 800
    assert found.needs[0].durations_ns == (38 * S,)  # 38 queries of 8
    short = seen("p99.9(latency) <= 1s", kind="multi_stream", queries=100, latencies=(S,))
    assert short.advice[0].startswith("to be able to pass at all: --queries 375 ")
    offline = seen(P99, kind="offline", rate=10, duration="10s", queries=1)
    assert (offline.paces[0].requests, offline.paces[0].duration_ns) == (110, 11 * S)
    assert offline.needs[0].durations_ns[0] == pytest.approx(29.9 * S, abs=1000)


def test_gaps_are_several_a_request_and_the_count_says_it_is_a_floor() -> None:
    found = seen("p99(itl) <= 50ms", rate=5, output_tokens=11)
    assert (found.needs[0].per_request, found.needs[0].requests) == (10, 30)
    assert "floor" in found.needs[0].note


def test_a_fact_is_judged_as_observed_whatever_the_length() -> None:
    found = seen("mean(ttft) <= 1s", "max(latency) <= 5s", "rate(ok) >= 3/s", rate=5)
    assert {need.judged for need in found.needs} == {"as observed"}
    assert all("says nothing about the endpoint" in need.note for need in found.needs)
    assert "any run decides it" in shown(found)
    assert found.advice == ()


def test_a_quotient_of_phases_has_bounds_and_needs_what_they_need() -> None:
    found = seen("retained(good{phase=x3}) >= 80%", "fairness(good) >= 50%", rate=10.0)
    assert all("the more requests in each part, the narrower" in need.note for need in found.needs)


def test_limits_on_single_requests_are_counted_by_their_ratio() -> None:
    found = seen("ttft <= 200ms", "ratio(good) >= 99%", rate=5)
    assert [need.objective for need in found.needs] == ["ratio(good) >= 99%"]
    assert found.needs[0].requests == 299


def test_an_assumed_share_beyond_the_limit_has_no_number() -> None:
    given = Assumptions(bad_share="0.02")
    found = outlook(with_flags(None, rate=5), promised(P99), given)
    assert found.needs[0].requests_with_bad is None
    assert "not below the limit" in found.needs[0].note


def test_where_no_number_is_likely_to_pass_the_last_line_does_not_say_that_there_are_enough() -> None:
    given, most = Assumptions(bad_share="0.02"), "no number of requests is likely to pass p99"
    long = " ".join(shown(outlook(with_flags(None, rate=50, duration="10s"), promised(P99), given)).split())
    assert "enough requests for every objective" not in long
    assert f"enough requests to pass if none of them is bad. If the true share is as assumed, {most}" in long
    short = " ".join(shown(outlook(with_flags(None, rate=50, duration="1s"), promised(P99), given)).split())
    assert "Needs to be able to pass at all: --queries 299" in short
    assert f"If the true share is as assumed, {most}" in short


def test_the_page_fits_100_columns_and_names_every_objective() -> None:
    text = shown(seen(P99, "ratio(error) <= 0.1%", "mean(e2e) <= 1s", concurrency=8))
    assert max(len(line) for line in text.splitlines()) <= 100
    for part in (P99, "ratio(error) <= 0.1%", "mean(e2e) <= 1s", "299", "459 / 662", "--queries 2995", "90 %"):
        assert part in text


def test_json_holds_whole_numbers_and_no_fractions() -> None:
    document = json.loads(json.dumps(seen(P99, rate=20).document()))
    assert document["schema"] == "plimsoll.plan/1"
    need = document["needs"][0]
    assert (need["requests"], need["sample"]["limit"], need["objective"]) == (299, 0.01, P99)
    assert all(isinstance(pace["duration_ns"], int) for pace in document["paces"])


COMPOSITE = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: both}
spec:
  service: chat
  timeWindow: [{duration: 28d, isRolling: true}]
  budgetingMethod: Occurrences
  objectives:
    - target: 0.99
      indicator: {metadata: {name: a}, spec: {ratioMetric: {counter: true,
        bad: {metricSource: {type: plimsoll, spec: {events: errors}}},
        total: {metricSource: {type: plimsoll, spec: {events: requests}}}}}}
    - target: 0.95
      indicator: {metadata: {name: b}, spec: {ratioMetric: {counter: true,
        good: {metricSource: {type: plimsoll, spec: {requests: "ttft <= 500ms"}}},
        total: {metricSource: {type: plimsoll, spec: {events: requests}}}}}}
---
apiVersion: openslo/v1
kind: Service
metadata: {name: chat}
spec: {}
"""


def documents() -> Promises:
    starter = Path(__file__).parents[3] / "slo" / "objectives" / "openslo" / "starter.yaml"
    found, errors = read_promises(Asked([str(starter)]))
    assert errors == []
    return Promises(slos=(*found.slos, *openslo.parse(COMPOSITE, "composite.yaml").slos))


def flawless(n: int, every_ns: int) -> Records:
    due = np.arange(n, dtype=np.int64) * every_ns + every_ns * 9 // 10  # late in its slice, so that the last one counts
    token = due + 10_000_000
    return from_columns(
        n, due_ns=due, ready_ns=due, sent_ns=due, first_token_ns=token, last_token_ns=token, done_ns=token, n_out=1
    )


def test_the_least_of_every_openslo_document_is_what_its_verdict_takes() -> None:
    """With so many flawless requests, or slices, each passes; with one fewer none does."""
    promises = documents()
    found = outlook(with_flags(None, rate=20, arrival="constant"), promises, Assumptions())
    assert [need.entry for need in found.needs] == ["request", "request", "slice", "request"]
    for slo, need in zip(promises.slos, found.needs, strict=True):
        assert need.sample is not None
        least = need.sample.least
        for n, outcome in ((least, "PASS"), (least - 1, "INCONCLUSIVE")):
            records = flawless(n, need.slice_ns or 50_000_000)
            assert slo.judge(records)[0].outcome == outcome, (str(slo.promise), n)


def test_slices_take_their_time_whatever_the_rate() -> None:
    found = outlook(with_flags(None, rate=20, arrival="constant"), documents(), Assumptions())
    sliced = found.needs[2]
    assert sliced.sample is not None
    assert (sliced.sample.least, sliced.slice_ns, sliced.requests) == (29, 15 * S, None)
    assert sliced.durations_ns == (435 * S,)
    assert found.advice[0] == "to be able to pass at all: --duration 435s", "which has requests enough for the others"
    assert "29 slices" in shown(found)
    faster = outlook(with_flags(None, rate=400, arrival="constant"), documents(), Assumptions())
    assert faster.needs[2].durations_ns == sliced.durations_ns


def test_a_composite_without_a_bad_request_is_worked_out_and_nothing_else() -> None:
    need = outlook(with_flags(None, rate=50), documents(), Assumptions()).needs[3]
    # Each of two bounded at 97.5 %: (1 / 0.01 + 1 / 0.05) u <= 1, so 1 - 0.025^(1/n) <= 1/120.
    assert (need.requests, need.requests_with_bad, need.chance) == (441, None, (None,))


def test_alert_windows_beyond_the_run_are_named() -> None:
    found = seen(P99, rate=20, duration="10m")
    minute = 60 * S
    assert found.windows_ns[0] == (5 * minute,)
    assert found.windows_ns[1][:2] == (30 * minute, 60 * minute)
    assert "longer than the run; 5 min fit" in " ".join(shown(found).split())


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(HarnessFault) as caught:
        read("nowhere.yaml", {"rate": -1}, ["p99(tft) <= 1s"], "2", "1", 0.2, ("soon", "0s"))
    said = "\n".join(caught.value.errors)
    for part in ("--bad-share", "--power", "--design-effect", "'soon'", "above 0", "tft", "nowhere.yaml"):
        assert part in said
    assert "'1' is not a share below 1. Write it like 90% or 0.9" in said
    assert "'2' is not a share below 1. Write it like 0.5% or 0.005" in said


def test_without_a_promise_there_is_nothing_to_plan_for() -> None:
    with pytest.raises(HarnessFault, match="nothing is promised"):
        read(None, {"rate": 5}, [])


def test_shares_are_read_exactly() -> None:
    asked = read(None, {"rate": 5}, [P99], "0.1%", "0.95", 1.0, ("200ms",))
    assert (asked.assumptions.bad_share, asked.assumptions.power) == ("0.001", "0.95")
    assert asked.assumptions.latencies_ns == (200_000_000,)
    assert read(None, {"rate": 5}, [P99], "0", "90 %").assumptions.bad_share == "0.0"


def test_the_verb_sends_nothing_writes_nothing_and_exits_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("plan", "--rate", "20", "--duration", "15s", "--slo", P99, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["needs"][0]["requests"] == 299
    assert invoke("plan", "interactive-chat").exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_without_a_budget_no_alert_window_is_spoken_of() -> None:
    assert seen("mean(ttft) <= 1s", rate=20).windows_ns == ((), ())


MIX = """
name: m
stop: {min_queries: 20, min_duration: 30s}
objectives: ["ratio(error) <= 1%", "each class: p90(latency) <= 2s", "worst class: p90(latency) <= 3s"]
mix:
  chat: {kind: server, params: {rate: 40}, objectives: ["p99(ttft) <= 200ms", "ttft <= 1s"]}
  more: {kind: server, params: {rate: 10}}
  bulk: {kind: concurrency, params: {concurrency: 2}, until: others, objectives: ["ratio(good) >= 99%"]}
"""


def test_of_a_mix_each_class_is_planned_by_what_it_promises_and_all_by_the_rest(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(MIX)
    question = read_question(str(tmp_path / "m.yaml"), {}, Asked(), Guesses(latencies=["500ms"]))
    found = outlooks(question)
    assert {name: [need.objective for need in one.needs] for name, one in found.items()} == {
        "chat": ["p90(latency) <= 2s", "p99(ttft) <= 200ms"],
        "more": ["p90(latency) <= 2s"],
        "bulk": ["p90(latency) <= 2s", "ratio(good) >= 99%"],
        "": ["ratio(error) <= 1%", "worst class: p90(latency) <= 3s"],
    }
    chat, more, bulk, whole = (found[name] for name in ("chat", "more", "bulk", ""))
    alone = {name: one.build(1) for name, one in question.scenario.mix.items() if not one.endless}
    assert [one.paces[0].requests for one in (chat, more)] == [alone[name].n_samples for name in ("chat", "more")]
    # Two slots at half a second each, for as long as the others last, which is 30 s and a query.
    assert bulk.paces[0].requests == pytest.approx(120, abs=4)
    assert whole.paces[0].requests == sum(one.paces[0].requests for one in (chat, more, bulk))
    assert "--duration 75s" in bulk.advice[0], "it has no queries of its own that could be asked for"
    assert all("--queries" not in line for line in (*bulk.advice, *whole.advice))
    assert chat.needs[1].requests == 299
    assert (chat.name, chat.kind, whole.kind) == ("m, class chat", "server", "mix")


def test_a_mix_that_only_one_class_promises_something_of_has_one_outlook(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(MIX)
    asked = Asked(["p99(ttft{class=chat}) <= 200ms"])
    assert [*outlooks(read_question(str(tmp_path / "m.yaml"), {}, asked, Guesses()))] == ["chat"]


UNPARSED = """
kind: sessions
params: {rate: 2, thikn: 3s}
target: {url: "ftp://x", options: {nothing: 3, spin: 4s}}
objectives: ["p99(ttft) <= 200"]
"""
UNKEPT = """
kind: sessions
target: {options: {nothing: 3}}
client: {retry: {max: 2, on: [UNAVAILABLE]}}
budget: {gateway: 10ms of client.nothing}
mode: accuracy
reference: nothing.jsonl
objectives: ["ratio(degraded) <= 1%", "p99(ttft{color=red}) <= 3s"]
"""


@pytest.mark.parametrize(("text", "n"), [(UNPARSED, 5), (UNKEPT, 6)])
def test_a_plan_tells_of_every_error_that_a_run_would_tell_of(tmp_path: Path, text: str, n: int) -> None:
    (tmp_path / "s.yaml").write_text(text)
    name = str(tmp_path / "s.yaml")
    with pytest.raises(HarnessFault) as of_run:
        prepare(name, {}, [], [], tmp_path / "out")
    with pytest.raises(HarnessFault) as of_plan:
        read(name, {}, [])
    assert of_plan.value.errors == of_run.value.errors
    assert len(of_plan.value.errors) == n


def test_a_plan_leaves_to_the_run_what_a_flag_or_the_host_decides(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "kind: server\ntarget: {protocol: deepgram-listen, api_key_env: NOT_SET_ANYWHERE}\nsource: {kind: audio}\n"
        "objectives: [p99(latency) <= 1s, max(server.queue) <= 3]\n"
    )
    assert len(read(str(tmp_path / "s.yaml"), {}, []).promises.objectives) == 2
