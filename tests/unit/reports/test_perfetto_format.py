"""The timeline of a run, asked in SQL by a second reader: every slice, lane, counter and arrow against its rows. The
processor of Perfetto's own page confirms the reader (tests/e2e/test_perfetto_itself.py).
"""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_reports import MANIFEST, built, facts, records
from made_timelines import MS, TRACED, attempts, failed, rendered, sessions, streams

from plimsoll.reports.formats import perfetto
from plimsoll.reports.formats.perfetto import lanes_of
from plimsoll.reports.sections.server import ServerPart
from plimsoll.slo.records.records import Phase, Records, Status, from_columns
from plimsoll.slo.records.trace_ids import TraceIds
from tests.trace_events import read


def asked(rows: Records, manifest: dict[str, Any] = TRACED, **more: Any) -> sqlite3.Connection:
    return read(rendered(rows, manifest, **more))


def test_a_request_stands_on_the_lowest_free_lane_with_its_stages_to_the_nanosecond() -> None:
    db = asked(streams([0, 5, 10.5, 12], [10, 30, 4, 1]))
    found = db.execute(
        "select t.name, s.ts, s.dur from slice s join thread t using (tid) where s.name = 'request' order by s.ts"
    ).fetchall()
    assert found == [
        ("lane 000", 0, 10 * MS), ("lane 001", 5 * MS, 30 * MS), ("lane 000", 10_500_000, 4 * MS),
        ("lane 002", 12 * MS, MS),
    ]  # fmt: skip
    stages = db.execute(
        "select s.name, s.ts, s.dur from slice s join slice p on s.parent_id = p.id where p.ts = 5000000 order by s.ts"
    ).fetchall()
    assert stages == [
        ("generator late", 5_000_000, 101),
        ("waits for a connection", 5_000_101, 4_902),
        ("to the first token", 5_005_003, 7_494_997),
        ("tokens", 12_500_000, 22_499_923),
        ("to the end", 34_999_923, 77),
    ]
    assert db.execute("select name from process where pid = 2").fetchall() == [("requests (all 4)",)]
    ids = TraceIds.of("run7", 0.5).texts(streams([0, 5, 10.5, 12], [10, 30, 4, 1]))
    assert [one for (one,) in db.execute("select value from args where key = 'trace_id' order by slice_id")] == ids
    assert asked(streams([0], [1]), {}).execute("select count(*) from args where key = 'trace_id'").fetchone() == (0,)


def test_what_failed_says_how_in_its_name_and_has_its_colour() -> None:
    db = asked(failed())
    found = db.execute("select name, cname from slice where depth = 0 order by ts").fetchall()
    assert found == [
        ("request", None), ("request: TIMEOUT", "terrible"), ("request: CANCELLED 200", "grey"),
        ("request: HTTP 500", "terrible"),
    ]  # fmt: skip
    errors = [text for (text,) in db.execute("select value from args where key = 'error' order by slice_id")]
    assert errors[1] == "no"
    assert "secret" not in errors[0]
    assert errors[0].isprintable()


def test_the_servers_own_stages_stand_in_the_wait_as_far_as_they_fit() -> None:
    said = "queue;dur=1.5, prefill;dur=1, prefill.pad;dur=0.5, decode;dur=6, post;dur=0.1"
    db = asked(streams([0], [12], timings=[said]))
    found = db.execute(
        "select s.name, s.ts, s.dur from slice s join slice p on s.parent_id = p.id where p.name = 'to the first token'"
    ).fetchall()
    assert found == [("server: queue", 5_003, 1_500_000), ("server: prefill", 1_505_003, MS)]


def test_a_connection_that_a_request_opened_is_in_its_wait_for_one() -> None:
    db = asked(streams([0], [12], connect_ns=[4_000]))
    found = db.execute(
        "select s.ts, s.dur, p.name from slice s join slice p on s.parent_id = p.id where s.name = 'connects'"
    )
    assert found.fetchall() == [(1_003, 4_000, "waits for a connection")]


def test_attempts_stand_in_their_request_and_those_that_overlap_beside_it() -> None:
    db = asked(attempts())
    inner = "select s.name, s.ts, s.dur from slice s join slice p on s.parent_id = p.id where p.name = 'request'"
    assert db.execute(f"{inner} order by s.ts").fetchall() == [
        ("attempt 0: HTTP", 0, 4 * MS), ("attempt 1", 6 * MS, 4 * MS), ("attempt 0", 20 * MS, 10 * MS),
    ]  # fmt: skip
    beside = db.execute("select name, ts, dur from slice where pid = 3").fetchall()
    assert beside == [("hedge 1: CANCELLED", 23 * MS, 5 * MS)]
    assert db.execute("select count(*) from slice where name = 'request'").fetchone() == (2,)


def test_an_arrow_leads_from_each_turn_of_a_session_to_the_next() -> None:
    db = asked(sessions())
    found = db.execute(
        "select a.ts, b.ts from flow f join slice a on a.id = slice_out join slice b on b.id = slice_in order by a.ts"
    ).fetchall()
    # Out of what was the last stage, into the next request; session 8 has no turn 1 here.
    assert [into for _, into in found] == [20 * MS, 50 * MS]
    assert [out > at * MS for (out, _), at in zip(found, (0, 20), strict=True)] == [True, True]


def test_the_counters_are_of_all_requests() -> None:
    db = asked(
        streams(
            [0, 5, 10.5, 12],
            [100, 300, 40, 10],
            ready_ns=np.array([0, 8, 10.5, 12]) * MS,
            sent_ns=np.array([0, 8, 10.5, 12]) * MS,
        )
    )
    most = dict(db.execute("select name, max(value) from counter group by name"))
    assert most == {"requests in flight": 4, "sent per second": 40, "failed per second": 0, "generator lag ms": 3}
    steps = db.execute("select ts, value from counter where name = 'requests in flight' order by ts").fetchall()
    assert steps == [(0, 1), (10 * MS, 2), (20 * MS, 4), (30 * MS, 3), (60 * MS, 2), (100 * MS, 1), (310 * MS, 0)]


def test_what_the_server_said_of_itself_is_a_counter_on_the_same_axis() -> None:
    rows = records(50)
    made = built(MANIFEST, {}, rows, facts(rows), [])
    drawn = made.charts.timeline
    assert drawn is not None
    told: dict[str, Any] = {"title": "queue", "kind": "gauge", "engine": "ours", "families": [], "sources": []}
    told |= {"unit": "requests", "series": 1, "samples": 4, "by_bucket": [None, 2.0, 2.0, 5.0]}
    served = ServerPart.model_validate({"sources": {}, "names": {"server.queue": told}})
    db = asked(rows, charts=made.charts, server=served)
    found = db.execute("select ts, value from counter where name = 'server.queue requests'").fetchall()
    assert found == [(drawn.start_ns + at * drawn.bucket_ns, value) for at, value in ((1, 2.0), (3, 5.0))]


def test_of_a_large_run_a_part_is_drawn_with_what_matters_and_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST", 1_000), ("FAILED", 250), ("SLOWEST", 250)):
        assert getattr(perfetto, name) == most * 20
        monkeypatch.setattr(perfetto, name, most)
    n = 3_000
    random = np.random.default_rng(5)
    rows = streams(np.arange(n).tolist(), random.uniform(5, 50, n).tolist())
    rows = rows.with_columns(status=np.where(np.arange(n) % 300 == 0, int(Status.TIMEOUT), 0))
    db = asked(rows)
    drawn = {query for (query,) in db.execute("select value from args where key = 'query_id'")}
    assert len(drawn) == 1_000
    assert set(range(0, n, 300)) <= drawn
    good = np.flatnonzero(rows.ok)
    took = (rows["done_ns"] - rows["due_ns"])[good]
    slowest = set(good[np.argsort(-took)[:250]].tolist())
    assert slowest <= drawn
    (name,) = db.execute("select name from process where pid = 2").fetchone()
    assert name == "requests (1,000 of 3,000: all 10 that failed, the slowest 250, a sample of the others)"
    sample = np.array(sorted(drawn - slowest))
    assert abs(np.mean(sample < n / 2) - 0.5) < 5 * 0.5 / 750**0.5  # it is of the whole run
    again = rows.with_columns(status=np.where(np.arange(n) % 3 == 0, int(Status.TIMEOUT), 0))
    (name,) = asked(again).execute("select name from process where pid = 2").fetchone()
    assert name.startswith("requests (1,000 of 3,000: 250 of 1,000 that failed, ")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), max_size=60))
def test_no_two_requests_share_a_lane_at_once_and_there_are_no_more_lanes_than_needed(
    given_spans: list[tuple[int, int]],
) -> None:
    spans = sorted((begin, begin + took) for begin, took in given_spans)
    lanes = lanes_of(spans)
    for (begin, end), lane in zip(spans, lanes, strict=True):
        others = [span for span, other in zip(spans, lanes, strict=True) if other == lane and span != (begin, end)]
        assert all(last <= begin or first >= end or first == last or begin == end for first, last in others)
    most = max((sum(first <= at < max(last, first + 1) for first, last in spans) for at in range(80)), default=0)
    assert max(lanes, default=-1) + 1 <= most


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_rows_are_read_without_a_slice_that_is_dropped(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 12))
    stamps = ("ready_ns", "sent_ns", "first_byte_ns", "first_token_ns", "first_answer_ns", "last_token_ns", "done_ns")
    columns: dict[str, Any] = {"due_ns": data.draw(st.lists(st.integers(0, 50), min_size=n, max_size=n))}
    for name in (*stamps, "connect_ns"):
        columns[name] = data.draw(st.lists(st.integers(-1, 90), min_size=n, max_size=n))
    columns |= {name: data.draw(st.lists(st.integers(0, most), min_size=n, max_size=n)) for name, most in
                (("status", 9), ("phase", 3), ("query_id", 3))}  # fmt: skip
    rows = from_columns(n, **columns)
    drawn = asked(rows).execute("select count(*) from slice where name like 'request%'").fetchone()[0]
    assert drawn == int(rows.planned.sum())


def test_of_a_run_with_retries_only_the_drawn_requests_attempts_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 600
    monkeypatch.setattr(perfetto, "MOST", 60)
    monkeypatch.setattr(perfetto, "SLOWEST", 20)
    phase = np.where(np.arange(2 * n) % 2, int(Phase.ATTEMPT), int(Phase.MEASURE))
    rows = streams([at // 2 for at in range(2 * n)], [9.0] * (2 * n), query_id=np.arange(2 * n) // 2, phase=phase)
    drawing = perfetto._Drawing(rows, "run7", None)
    drawn = perfetto.chosen(rows, np.flatnonzero(rows.planned))[0]
    events = drawing.events(drawn)
    assert len(drawing._attempts) == len(drawn) == 60
    assert sum(event.get("name", "").startswith("attempt") for event in events) == 60


@pytest.mark.parametrize("n", [0, 1, 40])
def test_a_run_of_which_all_failed_or_nothing_was_sent_is_read(n: int) -> None:
    made = streams([float(at) for at in range(n)], [3.0] * n, sent_ns=-1, first_byte_ns=-1, first_token_ns=-1)
    rows = made.with_columns(
        status=np.full(n, int(Status.UNSENT)), done_ns=np.full(n, -1), last_token_ns=np.full(n, -1)
    )
    db = asked(rows)
    assert db.execute("select count(*) from slice where name = 'request: UNSENT 200'").fetchone() == (n,)
    assert db.execute("select count(*) from counter").fetchone() == (0,)


def test_a_report_without_its_rows_has_a_timeline_of_none() -> None:
    made = built(MANIFEST, {}, rows := records(50), facts(rows), [])
    db = read(perfetto.FORMAT.render(made))
    assert db.execute("select count(*) from slice").fetchone() == (0,)
    assert db.execute("select name from process where pid = 2").fetchall() == [
        ("requests (none: the run's rows are not here)",)
    ]


@pytest.mark.parametrize("name", ["t.json.gz", "t.json"])
def test_plimsoll_report_writes_it_and_packs_it_by_its_name(name: str, tmp_path: Any) -> None:
    import gzip

    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.verbs.gate import _judge_again
    from tests.unit.harness.sealed_runs import sealed_run

    run = sealed_run(tmp_path / "r")
    _judge_again(run, Asked(), [f"perfetto={tmp_path / name}"], as_json=False, rewrite=True, quiet=True)
    data = (tmp_path / name).read_bytes()
    db = read(gzip.decompress(data) if name.endswith(".gz") else data)
    assert db.execute("select count(*), min(dur) > 0 from slice where name = 'request'").fetchone() == (40, 1)
