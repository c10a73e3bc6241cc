"""What a search is asked: every mistake at once and before any load, and the loads that follow from the objectives. A
probe that can only fail is ended, one that can still pass is not, and what it then says of the endpoint.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.recorder import FRESH
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Asked, Promises, keep, read_promises
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.run.watcher import Beginning
from plimsoll.harness.series.one_run import Made
from plimsoll.harness.series.search.probe import PREFIX, Hopeless, among, judged, overdue, progress
from plimsoll.harness.series.search.question import Question, Texts, enough, read
from plimsoll.reports.documents.search import ProbePart
from plimsoll.reports.parts.parts import ObjectiveResult
from plimsoll.scenarios.flags import with_flags
from plimsoll.slo.search.probe import Next
from plimsoll.slo.statistics.confidence import n_needed, sample
from plimsoll.slo.statistics.share import share_test
from tests.command import invoke
from tests.unit.harness.sealed_runs import sealed_run

URL = {"url": "http://127.0.0.1:9"}


def asked(*slo: str, scenario: str | None = None, **texts: object) -> Question:
    return read(scenario, URL, Asked(slo=slo), Texts(**texts))  # type: ignore[arg-type]


def complaints(*slo: str, scenario: str | None = None, **texts: object) -> str:
    with pytest.raises(HarnessFault) as caught:
        asked(*slo, scenario=scenario, **texts)
    assert caught.value.code == 2
    return "\n".join(caught.value.errors)


def test_every_mistake_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = complaints(
        "p99(zz) <= 3ms",
        over="users",
        probe="soon",
        longest="8y",
        cooldown="-1s",
        budget="0s",
        resolution="much",
        gpus=0,
    )
    for part in (
        "zz",
        "--over users",
        "--probe",
        "--longest 8y",
        "--cooldown",
        "--budget 0s",
        "--resolution much",
        "--gpus 0",
    ):
        assert part in said
    assert list(tmp_path.iterdir()) == []


def test_a_search_without_an_objective_is_refused_with_the_way_out() -> None:
    assert "--slo 'p99(ttft) <= 200ms'" in complaints()
    assert "ratio(good) >= 99%" in complaints("ttft <= 200ms")


def test_loads_that_contradict_each_other_are_refused() -> None:
    assert "lowest 50" in complaints("p50(ttft) <= 1s", start=20.0, lowest=50.0, highest=100.0)
    assert "whole number" in complaints("p50(ttft) <= 1s", over="concurrency", start=2.5)


@pytest.mark.parametrize("slo", ["p99.9(ttft) <= 1s", "p99(ttft) <= 1s", "p90(latency) <= 1s", "ratio(good) >= 97%"])
def test_a_search_takes_a_run_to_need_what_plan_and_the_verdict_say(slo: str) -> None:
    promises = asked(slo).promises
    limit = promises.objectives[0].allowed
    assert limit is not None
    least = enough(promises)
    assert least == max(10, sample(limit).least) == max(10, n_needed(0, 0, limit) or 0)
    assert share_test(np.zeros(least, bool), limit).outcome == "PASS"
    assert share_test(np.zeros(least - 1, bool), limit).outcome == "INCONCLUSIVE"


@pytest.mark.parametrize("flag", ["start", "highest"])
def test_one_mistaken_load_is_one_mistake(flag: str) -> None:
    said = complaints("p99(ttft) <= 1s", **{flag: 0.5})
    assert said.startswith(f"--{flag} 0.5: the longest probe that seeks, 80s, brings too few requests")
    assert len(said.splitlines()) == 1


def test_a_lowest_rate_at_which_no_probe_can_show_anything_is_refused() -> None:
    """299 requests, none of them bad, are the fewest that show a 99th percentile at 95 %."""
    said = complaints("p99(ttft) <= 1s", lowest=1.0, start=2.0, probe="10s", longest="10x")
    assert "--lowest 1:" in said
    assert "--start 2:" in said
    assert "299" in said
    assert asked("p99(ttft) <= 1s", lowest=6.0, probe="10s", longest="10x").settings.lowest == 6.0


def test_without_loads_the_search_begins_where_the_shortest_probe_decides() -> None:
    settings = asked("p99(ttft) <= 1s").settings
    assert 299 / 20 < settings.start < 2 * 299 / 20
    assert settings.lowest == pytest.approx(299 / 80, rel=0.1)


def test_the_strictest_share_says_how_many_requests_are_enough() -> None:
    def needed(*slo: str, confidence: str | None = None) -> int:
        return enough(read_promises(Asked(slo=slo, confidence=confidence))[0])

    assert needed("p99(ttft) <= 1s", "p50(ttft) <= 1s") == 299
    assert needed("p99(ttft) <= 1s", confidence="0.99") == 459
    assert needed("ratio(good) >= 99.9%", "ttft <= 1s") == 2995
    assert needed("mean(ttft) <= 1s") == 10


def test_the_kind_of_the_scenario_says_what_is_searched_and_another_kind_is_refused(tmp_path: Path) -> None:
    def kind(text: str) -> str:
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return str(path)

    own = asked("p50(ttft) <= 1s", scenario=kind("kind: server\nparams: {rate: 7}")).settings
    assert (own.variable, own.start) == ("rate", 7.0)
    closed = asked("p50(ttft) <= 1s", scenario=kind("kind: concurrency\nparams: {concurrency: 4}")).settings
    assert (closed.variable, closed.start, closed.lowest) == ("concurrency", 4.0, 1.0)
    single = kind("kind: single_stream")
    assert "--over rate" in complaints("p50(ttft) <= 1s", scenario=single)
    assert asked("p50(ttft) <= 1s", scenario=single, over="rate").settings.variable == "rate"


def test_every_probe_is_of_the_scenario_as_it_was_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "ed.yaml"
    file.write_text("kind: server\ntimeout: 5s\n")
    question = asked("p90(ttft) <= 1s", scenario=str(file))
    file.write_text("kind: server\ntimeout: 7s\n")
    assert question.prepared(30, 1, 1, tmp_path / "run").job.scenario.timeout_ns == 5_000_000_000


def test_a_scenario_that_would_end_the_longest_probe_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: server\nstop: {max_duration: 60s}")
    said = complaints("p50(ttft) <= 1s", scenario=str(path))
    assert "max_duration" in said
    assert "--longest" in said


def test_kind_says_by_what_is_searched_in_the_words_of_run() -> None:
    assert asked("p50(ttft) <= 1s", kind="concurrency").settings.variable == "concurrency"
    assert asked("p50(ttft) <= 1s", kind="server", over="rate").settings.variable == "rate"
    assert "--kind server: that is --over rate, and --over concurrency is given" in complaints(
        "p50(ttft) <= 1s", kind="server", over="concurrency"
    )
    assert "--kind replay: a search sends at a rate (server)" in complaints("p50(ttft) <= 1s", kind="replay")


def test_a_duration_for_the_longest_probe_is_a_multiple_of_the_shortest() -> None:
    assert asked("p50(ttft) <= 1s", probe="20s", longest="1m").settings.longest == 3.0
    assert "--longest 5s: give 1 to 10000 times --probe (20s)" in complaints("p50(ttft) <= 1s", longest="5s")


@pytest.mark.parametrize("longest", ["nanx", "infx", "1e300x", "0x", "-2x", "99999h"])
def test_a_longest_probe_that_is_no_number_of_times_is_a_complaint_and_no_traceback(longest: str) -> None:
    assert f"--longest {longest}" in complaints("p50(ttft) <= 1s", longest=longest)


@pytest.mark.parametrize("resolution", ["nan", "inf%", "0", "-2%", "101%"])
def test_a_resolution_that_is_no_share_is_a_complaint(resolution: str) -> None:
    assert f"--resolution {resolution}" in complaints("p50(ttft) <= 1s", resolution=resolution)


def test_loads_that_are_none_are_told_by_their_own_flag_whatever_else_is_wrong() -> None:
    said = complaints("p99(zz) <= 3ms", over="users", start=float("nan"), lowest=-3.0, highest=1e30, resolution="0%")
    for part in ("zz", "--over users", "--start nan", "--lowest -3", "--highest 1e+30", "--resolution 0%"):
        assert part in said
    assert "--start 1e+30: give a rate above 0" in complaints("p50(ttft) <= 1s", start=1e30)
    assert "--start 100: lies above --highest 50" in complaints("p50(ttft) <= 1s", start=100.0, highest=50.0)


def test_objectives_of_the_scenario_are_searched_for_where_no_flag_names_any(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: server\nobjectives: [p50(ttft) <= 300ms]")
    found = read(str(path), URL, Asked(), Texts())
    assert found.promises.texts == ["p50(ttft) <= 300ms"]
    assert found.name == "s"


def test_the_rate_of_sessions_is_searched_and_they_stay_sessions(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: sessions\nparams: {rate: 7, turns: 4}\nobjectives: [p50(ttft) <= 300ms]")
    for texts in (Texts(), Texts(over="rate")):
        found = read(str(path), URL, Asked(), texts)
        assert (found.settings.variable, found.settings.start) == ("rate", 7)
        scenario = found.prepared(12.5, 1.0, 3, tmp_path / f"run-{texts.over}").job.scenario
        assert scenario.kind == "sessions"
        assert scenario.params.model_dump(include={"rate", "turns"}) == {"rate": 12.5, "turns": 4}
    found = read(str(path), URL, Asked(), Texts(over="concurrency"))
    assert found.prepared(3, 1.0, 3, tmp_path / "slots").job.scenario.kind == "concurrency", "single requests at a time"
    path.write_text("kind: sessions\nparams: {concurrency: 6, turns: 4}\nobjectives: [p50(ttft) <= 300ms]")
    found = read(str(path), URL, Asked(), Texts())
    assert (found.settings.variable, found.settings.start) == ("concurrency", 6)
    scenario = found.prepared(9, 1.0, 3, tmp_path / "many").job.scenario
    assert (scenario.kind, scenario.params.model_dump()["concurrency"]) == ("sessions", 9)


def test_budget_gpus_and_workers_may_change_between_two_attempts_and_nothing_else() -> None:
    base = asked("p50(ttft) <= 1s").identity
    more = read(None, {**URL, "workers": 2}, Asked(slo=["p50(ttft) <= 1s"]), Texts(budget="1h", gpus=8))
    assert more.identity == base
    assert asked("p50(ttft) <= 1s", cooldown="9s").identity != base
    assert asked("p50(ttft) <= 2s").identity != base
    assert read(None, {**URL, "output_tokens": 9}, Asked(slo=["p50(ttft) <= 1s"]), Texts()).identity != base


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--rate", "--start"),
        ("--concurrency", "--over concurrency"),
        ("--duration=9s", "--probe"),
        ("--queries", "--probe"),
        ("--trace", "plimsoll run"),
        ("--mode", "plimsoll run"),
    ],
)
def test_a_flag_of_run_that_a_search_sets_itself_is_refused_with_the_one_that_is_meant(flag: str, meant: str) -> None:
    done = invoke("search", flag, "8")
    said = " ".join(done.output.replace("│", " ").split())
    assert done.exit_code == 2
    assert f"No such option: {flag.partition('=')[0]}." in said
    assert meant in said


# -- runs without hope ----------------------------------------------------------------------------------------------

MS = 1_000_000


def promises(*slo: str) -> Promises:
    made, errors = read_promises(Asked(slo=slo))
    assert errors == []
    return made


def watcher(*slo: str, **flags: Any) -> tuple[Hopeless, Beginning]:
    made = promises(*slo)
    scenario = with_flags(None, **{"kind": "server", "rate": 100, "duration": "10s", **flags})
    found = Hopeless(made.objectives, made.confidence, among(made))
    beginning = Beginning("r", scenario, scenario.blocks(1).survey(), 0, scenario.workers)
    found.begin(beginning)
    return found, beginning


def status(measured: int, in_flight: int = 0, bad: int = 0, **histograms: dict[str, int]) -> dict[str, Any]:
    spreads: dict[str, Any] = {name: histograms.get(name, {}) for name in FRESH}
    return {
        "sent": measured + in_flight, "done": measured, "failed": bad, "measured": measured, "bad": bad,
        "in_flight": in_flight, **spreads,
    }  # fmt: skip


def bin_of(ns: float) -> str:
    return str(round(math.log2(ns) * 32))


def test_a_run_with_more_bad_answers_than_the_whole_of_it_may_have_is_ended_with_the_reason() -> None:
    found, _ = watcher("p99(ttft) <= 100ms")
    found.heard(0, status(150, ttft={bin_of(150 * MS): 150}))
    assert found.enough() is None  # 150 of about 1000: fifteen times as many as may be, and twenty are certain
    found.heard(0, status(300, ttft={bin_of(150 * MS): 100}))
    reason = found.enough()
    assert reason is not None
    assert reason.startswith(PREFIX)
    assert "p99(ttft) <= 100ms: 250 values" in reason


def test_far_beyond_the_limit_fewer_answers_are_enough_and_failures_are_no_answers() -> None:
    found, _ = watcher("p90(ttft) <= 100ms")
    found.heard(0, status(400, ttft={bin_of(190 * MS): 400}))
    assert found.enough() is None  # of a p90 nothing near the limit makes it certain
    found.heard(0, status(500, ttft={bin_of(1700 * MS): 100}))
    assert found.enough() is None  # of about 1000 it takes 126
    found.heard(0, status(550, bad=50, ttft={bin_of(1700 * MS): 50}))
    assert found.enough() is None  # fifty may have failed after their first token
    found.heard(0, status(610, bad=50, ttft={bin_of(1700 * MS): 60}))
    assert "p90(ttft) <= 100ms: 160 values break <= 100ms 16 times over already" in (found.enough() or "")


def test_answers_within_the_limit_end_nothing() -> None:
    found, _ = watcher("p90(ttft) <= 100ms")
    found.heard(0, status(900, ttft={bin_of(90 * MS): 900}))
    assert found.enough() is None


def test_requests_that_have_been_waited_for_too_long_count_before_they_are_answered() -> None:
    found, beginning = watcher("p99(latency) <= 100ms", arrival="constant")
    # Half of the run is sent and nothing came back but the first: all but the last tenth of a second is late already.
    assert beginning.plan.n_samples in (1000, 1001)
    found.heard(0, status(1, in_flight=499))
    assert found.enough() is not None
    ttft, _ = watcher("p99(ttft) <= 100ms", arrival="constant")
    ttft.heard(0, status(1, in_flight=499))
    assert ttft.enough() is None  # the first tokens may all be there


def test_requests_of_two_workers_are_each_judged_by_their_own_schedule() -> None:
    found, _ = watcher("p99(latency) <= 100ms", arrival="constant", workers=2)
    for worker in (0, 1):
        found.heard(worker, status(1, in_flight=120))
    assert found.enough() is not None


@pytest.mark.parametrize("flags", [{"kind": "concurrency", "rate": None, "concurrency": 4}, {"cancel": "10%:1s"}])
def test_a_run_of_no_known_length_is_left_alone(flags: dict[str, Any]) -> None:
    found, _ = watcher("p90(latency) <= 100ms", **flags)
    found.heard(0, status(900, in_flight=90, bad=900))
    assert found.enough() is None


def test_no_more_are_called_overdue_than_there_are() -> None:
    """Against a queue of which everything is known: one server, a constant service time, at any moment."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        n = int(rng.integers(1, 60))
        due = np.sort(rng.integers(0, 1_000, n))
        done = np.maximum.accumulate(due + rng.integers(1, 400, n))
        now, limit = int(rng.integers(0, 1_500)), int(rng.integers(0, 300))
        taken = int((due <= now).sum())
        in_flight = int(((due <= now) & (done > now)).sum())
        certainly = overdue(due, taken, in_flight, limit)
        assert certainly <= int(((due <= now) & (done - due > limit)).sum())


def run(tmp_path: Path, slo: str, ttft_ms: float = 50.0, failed: int = 0, **facts: object) -> ProbePart:
    path = sealed_run(tmp_path / "o/probes/001-bracket", ttft_ms, failed=failed)
    document = json.loads((path / "generator.json").read_text())
    document["facts"] |= facts
    (path / "generator.json").write_text(json.dumps(document))
    made, sealed = promises(slo), open_sealed(path)
    keep(made, sealed.directory)
    return judged(
        Made(sealed, judge(sealed, made), None),
        made,
        Next(1, "bracket", 10.0, 1.0, 7),
        20 * 10**9,
        "probes/001-bracket",
        1,
    )


@pytest.mark.parametrize("slo", ["p99(ttft) <= 10ms", "p50(ttft) <= 2ms"])
def test_a_run_that_was_cut_is_a_fail_that_says_so(tmp_path: Path, slo: str) -> None:
    part = run(tmp_path, slo, aborted=PREFIX + "it is hopeless", planned=45, planned_queries=45, min_queries=45)
    assert (part.outcome, part.cut) == ("FAIL", True)
    assert part.objectives[0].outcome == "FAIL"
    assert part.objectives[0].observed == pytest.approx(50 * MS, rel=0.05)  # of what was sent
    assert "already" in part.reasons[0]


def test_a_cut_that_the_records_do_not_bear_out_is_no_fail(tmp_path: Path) -> None:
    part = run(tmp_path, "p50(ttft) <= 80ms", aborted=PREFIX + "it is hopeless", planned=90, planned_queries=90)
    assert (part.outcome, part.cut) == ("INVALID", True)
    assert "records do not show" in part.reasons[0]


def test_a_cut_that_only_the_generators_lateness_bears_out_is_no_fail(tmp_path: Path) -> None:
    """40 requests of 50 ms, 45 ms of them ours: over 10 ms as measured, and by far not without it."""
    whole = open_sealed(sealed_run(tmp_path / "o/probes/001-bracket"))
    facts = replace(whole.facts, open_loop=True, planned=45, planned_queries=45, min_queries=45, aborted=PREFIX + "x")
    for late_ms, outcome in ((0, "FAIL"), (20, "FAIL"), (45, "INVALID")):
        late = {name: whole.records.columns[name] + late_ms * MS for name in ("ready_ns", "sent_ns")}
        rows = replace(whole.records, columns={**whole.records.columns, **late})
        made = promises("p99(ttft) <= 10ms")
        sealed = replace(whole, records=rows, facts=facts)
        ran = Made(sealed, judge(sealed, made), None)
        part = judged(ran, made, Next(1, "bracket", 10.0, 1.0, 7), 20 * 10**9, "r", 1)
        assert part.outcome == outcome, late_ms
    assert "whatever the generator did" in part.reasons[0]


def test_a_cut_run_whose_generator_was_at_fault_says_nothing_of_the_endpoint(tmp_path: Path) -> None:
    part = run(tmp_path, "p99(ttft) <= 10ms", aborted=PREFIX + "x", planned=45, worker_faults=["worker 0 was killed"])
    assert part.outcome == "INVALID"
    assert "worker 0 was killed" in part.reasons[0]


def test_a_run_that_was_given_up_says_fail_only_where_what_was_sent_shows_it(tmp_path: Path) -> None:
    slow = run(tmp_path / "a", "p99(ttft) <= 10ms", aborted="more than 10 outstanding", planned=45)
    assert (slow.outcome, slow.cut) == ("FAIL", False)
    assert run(tmp_path / "b", "p50(ttft) <= 80ms", aborted="more than 10 outstanding", planned=45).outcome == "INVALID"


def test_a_run_says_what_its_verdict_says(tmp_path: Path) -> None:
    assert run(tmp_path / "a", "p50(ttft) <= 80ms").outcome == "PASS"
    assert run(tmp_path / "b", "p50(ttft) <= 10ms").outcome == "FAIL"
    undecided = run(tmp_path / "c", "p99(ttft) <= 80ms")
    assert (undecided.outcome, undecided.n, undecided.n_needed) == ("INCONCLUSIVE", 40, 299)


def test_failures_that_reach_a_percentile_are_null_and_not_nan(tmp_path: Path) -> None:
    part = run(tmp_path, "p90(ttft) <= 80ms", failed=20)
    assert part.objectives[0].observed is None
    assert part.outcome == "FAIL"


def test_the_objective_with_farthest_to_go_says_how_long_the_next_probe_is() -> None:
    def result(outcome: str, n: int, needed: int | None) -> ObjectiveResult:
        return ObjectiveResult(objective="p99(x) <= 1ms", outcome=outcome, n=n, n_needed=needed)  # type: ignore[arg-type]

    assert progress([result("PASS", 50, 0), result("INCONCLUSIVE", 100, 300), result("INCONCLUSIVE", 1000, 2000)]) == (
        100,
        300,
    )
    assert progress([result("INCONCLUSIVE", 100, None)]) == (100, None)
    assert progress([result("PASS", 80, 0), result("PASS", 70, 0)]) == (70, None)


def test_an_endpoint_that_did_not_keep_up_has_failed_whatever_its_percentiles_were(tmp_path: Path) -> None:
    from plimsoll.harness.series.search.probe import of_endpoint
    from plimsoll.reports.parts.parts import Check, Validity, Verdict
    from plimsoll.reports.report import Report

    def report(*broken: str) -> Report:
        checks = [
            Check(name=name, ok=False, detail=f"{name} is broken", cause="generator" if "lag" in name else "endpoint")
            for name in broken
        ]
        validity = Validity(outcome="VALID" if broken == ("steady",) else "INVALID", checks=checks)
        return Report(validity=validity, verdict=Verdict(outcome="INVALID", reasons=["it did not keep up"]))

    assert of_endpoint(report("steady"), stopped=False) == ("FAIL", ["it did not keep up"])
    assert (
        of_endpoint(report("steady", "not aborted", "all sent"), stopped=False)[0] == "FAIL"
    )  # so many were outstanding
    assert of_endpoint(report("steady", "lag p99"), stopped=False) == ("INVALID", ["lag p99 is broken"])


MIX = """
name: both
objectives: [p90(ttft) <= 1s]
mix:
  chat: {kind: server, params: {rate: 30}}
  more: {kind: server, params: {rate: 10}}
  bulk: {kind: concurrency, params: {concurrency: 4}, until: others}
"""


def test_of_a_mix_one_class_is_searched_or_all_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(MIX)
    one, every = (asked(scenario=str(path), over=over) for over in ("rate{class=chat}", "rate"))
    assert (one.settings.start, every.settings.start) == (30, 40)

    def rates(question: Question) -> list[object]:
        scenario = question.prepared(60.0, 1.0, 7, tmp_path / str(question.settings.start)).job.scenario
        return [part.params.model_dump().get("rate") for part in scenario.mix.values()]

    assert rates(one) == [60, 10, None]
    assert rates(every) == [45, 15, None]
    assert one.identity != every.identity
    bulk = asked(scenario=str(path), over="concurrency{class=bulk}")
    assert bulk.settings.start == 4


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (None, "it is a mix of chat, more, bulk. Say what of it is searched: --over rate (of all together), or of one"),
        ("rate{class=no}", "both has no class no. Give one of chat, more, bulk"),
        ("rate{class=bulk}", "class bulk has no rate that is one number. Name a class of kind server"),
        ("concurrency", "slots of several classes"),
    ],
)
def test_what_of_a_mix_can_not_be_searched_is_said(tmp_path: Path, over: str | None, said: str) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(MIX)
    assert said in complaints(scenario=str(path), over=over)
    if over == "rate{class=no}":
        assert "is no mix" in complaints(scenario="smoke", over="rate{class=a}")
