"""The steadiness part: what it proposes, what it says in words, and that it changes nothing else. The generator's own
error beside the percentiles: from the calibration in the manifest, and from the run.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from made_reports import MANIFEST, SCENARIO, built, facts, records

from plimsoll.reports.documents import words
from plimsoll.reports.format import formats
from plimsoll.reports.parts.parts import MAX_CURVE_POINTS
from plimsoll.reports.report import Report
from plimsoll.reports.sections.steadiness import SteadinessPart, steadiness_part
from plimsoll.slo.records.records import FloatArray, Phase, Records, Status, concat, from_columns
from plimsoll.slo.verdict.steadiness import steadiness

MS = 1_000_000
S = 1_000 * MS


def _steadiness(records: Records, constant_load: bool = True) -> SteadinessPart | None:
    return steadiness_part(steadiness(records, constant_load))


def run_of(took_ns: FloatArray, failed: object = False, streams: bool = True) -> Records:
    n = len(took_ns)
    due, took = np.arange(n, dtype=np.int64) * 50 * MS, took_ns.astype(np.int64)
    status = np.where(np.broadcast_to(np.asarray(failed), n), int(Status.TIMEOUT), int(Status.OK))
    first = due + took if streams else -1
    return from_columns(
        n, due_ns=due, ready_ns=due, sent_ns=due, first_token_ns=first, done_ns=due + 2 * took, status=status
    )


def level(n: int = 2000, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).lognormal(0, 0.2, n) * 120 * MS


def cold(values: FloatArray, over: int = 80) -> FloatArray:
    return np.asarray(values * (1 + 2 * np.exp(-np.arange(len(values)) / (over / 2))))


def part_of(records: Records) -> SteadinessPart:
    found = _steadiness(records)
    assert found is not None
    return found


def test_a_cold_start_is_put_into_one_line_with_the_flag_that_removes_it() -> None:
    found = part_of(run_of(cold(level())))
    assert found.warmup is not None
    assert found.warmup.proposed
    assert found.warmup.until_ns == found.warmup.drop * 50 * MS
    seconds = -(-found.warmup.until_ns // S)
    assert found.warmup.suggested_warmup_ns == seconds * S
    assert len(found.notes) == 1
    assert found.notes[0].startswith("the first ")
    assert f"({found.warmup.drop} requests) look like warm-up (median ttft " in found.notes[0]
    assert found.notes[0].endswith(f"run again with --warmup {seconds}s")


def test_drift_and_plateau_are_of_what_comes_after_the_warm_up() -> None:
    found = part_of(run_of(cold(level())))
    assert found.warmup is not None
    assert found.edges_ns[0] == found.warmup.until_ns
    assert {drift.direction for drift in found.drift} == {"none"}
    assert found.steady is not None
    assert (found.steady.verdict, found.steady.since_ns) == ("steady", found.warmup.until_ns)


def test_a_steady_run_has_nothing_to_say() -> None:
    found = part_of(run_of(level()))
    assert found.notes == []
    assert found.warmup is not None
    assert not found.warmup.proposed
    assert found.warmup.suggested_warmup_ns is None


def test_the_warm_up_that_a_run_had_is_counted_in() -> None:
    measured = run_of(cold(level()))
    early = -np.arange(60, 0, -1, dtype=np.int64) * 50 * MS  # 3 s
    before = from_columns(60, due_ns=early, first_token_ns=early + MS, done_ns=early + MS, phase=int(Phase.WARMUP))
    alone, both = part_of(measured).warmup, part_of(concat([before, measured])).warmup
    assert alone is not None
    assert both is not None
    assert (both.drop, both.until_ns) == (alone.drop, alone.until_ns)
    assert both.suggested_warmup_ns == (alone.suggested_warmup_ns or 0) + 3 * S


def test_a_run_that_slows_down_is_said_to_depend_on_its_length() -> None:
    found = part_of(run_of(level() * np.linspace(1, 2, 2000)))
    assert any("rises by" in note and "depends on how long the run was" in note for note in found.notes)
    assert found.steady is not None
    assert (found.steady.verdict, found.steady.since_ns) == ("drifting_up", None)


def test_without_tokens_it_is_the_latency() -> None:
    assert part_of(run_of(level(), streams=False)).metric == "latency"
    assert part_of(run_of(level())).metric == "ttft"


def test_failures_take_part_as_slow_ones_and_show_as_null() -> None:
    failed = np.zeros(2000, np.bool_)
    failed[1500:1800] = True
    found = part_of(run_of(level(), failed))
    p90 = next(drift for drift in found.drift if drift.percentile == "p90")
    assert None in p90.value_ns
    assert found.n == 2000
    json.loads(found.model_dump_json())  # no infinity, no NaN


def test_a_beginning_with_failures_or_a_stall_is_told_and_not_advised_away() -> None:
    failures = part_of(run_of(level(), np.arange(2000) < 100))
    stood = cold(level())
    stood[20:60] = np.maximum(stood[20:60], (3 * S - np.arange(20, 60) * 50 * MS).astype(np.float64))
    stall = part_of(run_of(stood))
    for found, said in ((failures, "100 requests failed there"), (stall, "nothing was answered from 1.28 s to 3.00 s")):
        assert found.warmup is not None
        assert (found.warmup.proposed, found.warmup.suggested_warmup_ns) == (False, None)
        assert found.warmup.drop > 0
        assert said in found.warmup.incident
        (note,) = [note for note in found.notes if "the first " in note]
        assert "slower than the rest" in note
        assert note.endswith("that is no warm-up to leave out. Find out what happened then")
        assert "--warmup" not in " ".join(found.notes)
    assert failures.warmup is not None
    assert failures.warmup.before_ns is None
    assert "half of it failed" in failures.notes[0]


def test_the_curve_is_bounded_and_its_minimum_is_on_it() -> None:
    found = part_of(run_of(cold(level(20_000), 800)))
    assert found.warmup is not None
    assert len(found.warmup.curve) == len(found.warmup.curve_at_ns) <= MAX_CURVE_POINTS
    least = min(range(len(found.warmup.curve)), key=found.warmup.curve.__getitem__)
    assert found.warmup.curve_at_ns[least] == found.warmup.until_ns
    assert found.warmup.curve[0] == 1.0


def test_nothing_is_said_of_a_changing_load_of_few_requests_or_of_one_moment() -> None:
    assert _steadiness(run_of(cold(level())), constant_load=False) is None
    assert _steadiness(run_of(level(99))) is None
    assert _steadiness(run_of(level(), True)) is None
    at_once = from_columns(500, due_ns=0, done_ns=np.arange(500) + 1)
    assert _steadiness(at_once) is None
    assert _steadiness(from_columns(0)) is None


def test_between_a_hundred_and_two_hundred_requests_there_is_a_cut_and_no_drift() -> None:
    found = part_of(run_of(level(150)))
    assert found.warmup is not None
    assert (found.drift, found.edges_ns, found.steady) == ([], [], None)


def test_still_falling_at_the_half_asks_for_a_longer_run() -> None:
    found = part_of(run_of(level() * np.linspace(10, 1, 2000)))
    assert found.warmup is not None
    assert (found.warmup.too_short, found.warmup.proposed) == (True, False)
    assert "still falls at the half of the run" in found.notes[0]
    assert found.notes[0].endswith("Run for longer")


def test_a_queue_that_grows_to_the_end_is_not_called_warm_up() -> None:
    found = part_of(run_of(level() * np.linspace(0.1, 10, 2000)))
    assert found.warmup is not None
    assert not found.warmup.proposed
    assert not any("warm-up" in note for note in found.notes)


def test_a_million_requests_take_no_second() -> None:
    import time

    records = run_of(level(1_000_000))
    began = time.process_time()
    assert _steadiness(records) is not None
    assert time.process_time() - began < 1.5


# -- the generator's own error --------------------------------------------------------------------------------------

ADDED = {
    "ttft_error_ns": {"p50": 9_000, "p99": 80_000},
    "itl_error_ns": {"p50": 500, "p99": 30_000},
    "token_events_per_s": 52_000.0,
    "kernel_share": 1.0,
}
TABLE = {"measured_at": "2026-11-21T10:00:00Z", "host": {"engine": "native"}, "added": ADDED}
SHOWN = ("text", "markdown", "html")


def report(table: Any = TABLE, note: str = "", beyond: Any = (), engine_cpu: Any = (0.4,), **manifest: Any) -> Report:
    made = records(400)
    told = {"calibration": {"table": table, "note": note, "beyond": list(beyond)}, "foreseen": list(beyond)}
    return built({**MANIFEST, **told, **manifest}, SCENARIO, made, facts(made, engine_cpu=engine_cpu), [])


def test_a_calibrated_run_states_its_error_with_the_lag_and_stamps_of_the_run() -> None:
    made = report()
    error = made.validity.generator_error
    assert error.added_ttft_ns is not None
    assert error.added_itl_ns is not None
    assert (error.added_ttft_ns.p99, error.added_itl_ns.p99) == (80_000, 30_000)
    assert (error.calibrated_at, error.engine, error.at_token_events_per_s) == (TABLE["measured_at"], "native", 52_000)
    assert (error.lag_p99_ns, error.stamp, error.note) == (made.validity.generator_lag_ns.p99, "kernel", "")
    assert words.own_error(made) == (
        "Generator's own error: p99 of TTFT 80.0 µs, ITL 30.0 µs (calibrated 2026-11-21 at 52.0k token events/s); in "
        "this run lag p99 29.7 µs, kernel stamps."
    )


@pytest.mark.parametrize("kind", SHOWN)
def test_every_report_for_people_shows_it(kind: str) -> None:
    page = " ".join(formats()[kind].render(report()).decode().split())
    assert "own error: p99 of TTFT 80.0 µs, ITL 30.0 µs" in page


@pytest.mark.parametrize("kind", SHOWN)
def test_a_report_without_calibration_says_so_and_what_to_do(kind: str) -> None:
    made = records(400)
    page = formats()[kind].render(built(MANIFEST, SCENARIO, made, facts(made), [])).decode().replace("\\", "")
    typed = "<code>plimsoll calibrate</code>" if kind == "html" else "`plimsoll calibrate`"
    assert f"not calibrated on this machine: run {typed}; in this run lag p99" in " ".join(page.split())


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"table": None, "note": "the calibration is old: run it again"}, "the calibration is old: run it again"),
        ({"table": {**TABLE, "added": None}}, "too busy when it was calibrated"),
        ({"engine_cpu": ()}, "calibrated with the native engine, and this run used the python one"),
        ({"beyond": ["9,000 requests/s is beyond"]}, "the calibration covers less load than this run's"),
    ],
)
def test_a_calibration_that_does_not_cover_the_run_gives_no_number(changed: dict[str, Any], note: str) -> None:
    error = report(**changed).validity.generator_error
    assert error.added_ttft_ns is error.added_itl_ns is None
    assert note in error.note
    assert error.lag_p99_ns is not None


def test_userland_stamps_are_not_covered_by_a_calibration_with_kernel_stamps() -> None:
    made = records(400)
    columns = {**made.columns, "stamp": made["stamp"] + 1}
    user = type(made)(columns, made.chunk_ns, made.chunk_offsets, made.errors, made.timings)
    told = {"calibration": {"table": TABLE, "note": "", "beyond": []}}
    error = built({**MANIFEST, **told}, SCENARIO, user, facts(user, engine_cpu=(0.4,)), []).validity.generator_error
    assert error.added_ttft_ns is None
    assert "userland" in error.note


def test_what_was_foreseen_is_among_the_warnings() -> None:
    assert report(beyond=["9,000 requests/s is beyond"]).warnings[0] == "9,000 requests/s is beyond"
