"""A probe that can only fail is ended, one that can still pass is not, and what it then says of the endpoint."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.generator.recorder import FRESH
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Asked, Promises, keep, read_promises
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.run.watcher import Beginning
from plimsoll.harness.series.one_run import Made
from plimsoll.harness.series.search.probe import PREFIX, Hopeless, among, judged, overdue, progress
from plimsoll.reports.documents.search import ProbePart
from plimsoll.reports.parts.parts import ObjectiveResult
from plimsoll.scenarios.flags import with_flags
from plimsoll.slo.search.probe import Next
from tests.unit.harness.sealed_runs import sealed_run

MS = 1_000_000


def promises(*slo: str) -> Promises:
    made, errors = read_promises(Asked(slo=slo))
    assert errors == []
    return made


def watcher(*slo: str, **flags: Any) -> tuple[Hopeless, Beginning]:
    made = promises(*slo)
    scenario = with_flags(None, **{"kind": "server", "rate": 100, "duration": "10s", **flags})
    found = Hopeless(made.objectives, made.confidence, among(made))
    beginning = Beginning("r", scenario, scenario.build(1), 0, scenario.workers)
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
