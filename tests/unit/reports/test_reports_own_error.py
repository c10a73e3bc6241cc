"""The generator's own error beside the percentiles: from the calibration in the manifest, and from the run."""

from __future__ import annotations

from typing import Any

import pytest
from made_reports import MANIFEST, SCENARIO, built, facts, records

from plimsoll.reports.documents import words
from plimsoll.reports.format import formats
from plimsoll.reports.report import Report

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
