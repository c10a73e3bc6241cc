"""The compiled engine's loops against the issuer's in virtual time: the same plan, the same queries in the same order.

Random small plans against the cheapest server there is; about ten seconds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from unittest import mock

import numpy as np
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.harness.generator.issuer import Issuer, Load
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Phase
from tests.e2e.both_engines import MS, Way, closed, drive, stocks
from tests.e2e.plimsoll import ROOT
from tests.virtual_time import VirtualClient, VirtualClock

pytestmark = pytest.mark.e2e
pytest.importorskip("plimsoll.harness.generator._engine", reason="the extension is not compiled here")

Sent = list[tuple[int, int, int, int]]
_EXAMPLES = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.loopback"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


@st.composite
def open_plans(draw: st.DrawFn, warmup: bool = False) -> Plan:
    """Up to 40 queries of one to three samples in 40 ms (a warm-up: before t0), some at the same moment."""
    due = sorted(draw(st.lists(st.integers(0, 40), max_size=40)))
    sizes = draw(st.lists(st.integers(1, 3), min_size=len(due), max_size=len(due)))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(due), max_size=len(due)))
    n = sum(sizes)
    payload = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    return Plan(
        due_ns=np.array([at * MS - (45 * MS if warmup else 0) for at in due], np.int64),
        query_id=np.cumsum(np.array(gaps, np.int64)) if due else np.empty(0, np.int64),
        offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        sample_ix=np.array([ix for size in sizes for ix in range(size)], np.int64),
        payload_ix=np.array(payload, np.int64),
        after=np.full(len(due), -1),
        stop=Stop(min_queries=0, min_duration_ns=0),
        seed=1,
        open_loop=True,
        max_in_flight=draw(st.none() | st.integers(1, 4)),
    )


closed_plans = (
    st.builds(
        closed,
        queries=st.integers(1, 40),
        slots=st.integers(1, 5),
        samples=st.integers(1, 4),
        payloads=st.integers(1, 5),
    )
    .flatmap(lambda plan: st.tuples(st.just(plan), st.integers(1, min(3, plan.max_in_flight or 1))))
    .map(lambda pair: pair[0].shard(pair[1] - 1, pair[1]))
)


def by_the_issuer(plan: Plan, warmup: Plan | None) -> tuple[Sent, list[int]]:
    """(query, sample, payload, phase) in the order sent, and the due times relative to t0, in virtual time."""
    clock = VirtualClock()
    client = VirtualClient(clock, lambda exchange: 300_000)
    before = None if warmup is None else cut(warmup)
    load = Load(cut(plan), before, [Payload()] * 6, "run", fed=stocks(plan, warmup, Payload))
    issuer = Issuer(load, client, clock, lambda exchange: None)  # type: ignore[arg-type]
    t0 = clock.now_ns() + 60 * MS
    issuer.start(t0)
    clock.run()
    assert issuer.issued_all
    sent = [(x.query_id, x.sample_ix, x.payload_ix, x.phase) for x in client.sent]
    return sent, [x.due_ns - t0 for x in client.sent]


def by_the_engine(url: str, plan: Plan, warmup: Plan | None) -> tuple[Sent, list[int], list[int]]:
    """The same of the compiled engine, in the order of ``ready_ns``, and how late each query was taken up."""
    ran = uvloop.run(drive("native", url, Way(plan, warmup, lead_ms=60)))
    rows = sorted(ran.rows, key=lambda row: row["ready_ns"])
    sent = [(row["query_id"], row["sample_ix"], row["payload_ix"], row["phase"]) for row in rows]
    return sent, [row["due_ns"] for row in rows], [row["ready_ns"] - row["due_ns"] for row in rows]


@contextmanager
def in_pieces() -> Iterator[None]:
    """Plans come in pieces of five rows, and few of them are ready ahead of time."""
    few = {"harness.generator.issuer.AHEAD": 4, "harness.generator.issuer.SLICE": 2, "scenarios.plan.blocks.BLOCK": 5}
    few |= {"harness.generator.issuer.AT_HAND": 6, "harness.generator.native.AHEAD": 7}
    with ExitStack() as stack:
        for name, value in few.items():
            stack.enter_context(mock.patch(f"plimsoll.{name}", value))
        yield


@contextmanager
def fed() -> Iterator[None]:
    """The same, and requests come with their rows, two samples at a time."""
    with in_pieces(), mock.patch("tests.e2e.both_engines.PORTION", 2):
        yield


in_any_pieces = pytest.mark.parametrize("pieces", [nullcontext, in_pieces, fed])
Pieces = Callable[[], AbstractContextManager[None]]


@in_any_pieces
@_EXAMPLES
@given(plan=open_plans(), warmup=st.none() | open_plans(warmup=True))
def test_an_open_loop_sends_the_issuers_queries_in_its_order_at_its_times(
    url: str, pieces: Pieces, plan: Plan, warmup: Plan | None
) -> None:
    wanted, due = by_the_issuer(plan, warmup)
    with pieces():
        assert by_the_issuer(plan, warmup) == (wanted, due)
        found, found_due, late = by_the_engine(url, plan, warmup)
    # With a ceiling on samples in flight the warm-up may reach into the run, when is the server's doing.
    for phase in (Phase.MEASURE, Phase.WARMUP):
        chosen = [at for at, row in enumerate(found) if row[3] == phase]
        expected = [at for at, row in enumerate(wanted) if row[3] == phase]
        assert [found[at] for at in chosen] == [wanted[at] for at in expected]
        assert [found_due[at] for at in chosen] == [due[at] for at in expected]
    assert all(ns >= 0 for ns in late), "nothing leaves before it is due"


@in_any_pieces
@_EXAMPLES
@given(plan=closed_plans)
def test_a_closed_loop_sends_the_issuers_queries_in_its_order(url: str, pieces: Pieces, plan: Plan) -> None:
    wanted, _ = by_the_issuer(plan, None)
    with pieces():
        assert by_the_issuer(plan, None)[0] == wanted
        found, due, late = by_the_engine(url, plan, None)
    assert found == wanted
    assert due == sorted(due)
    assert all(ns >= 0 for ns in late)


def test_a_closed_warm_up_counts_on_its_own_and_the_run_begins_with_its_first_query(url: str) -> None:
    plan, warmup = closed(50, slots=3), closed(10**6, slots=3)
    begun = time.monotonic()
    found, _, _ = by_the_engine(url, plan, warmup)
    assert time.monotonic() - begun < 5
    ids = {phase: [row[0] for row in found if row[3] == phase] for phase in Phase}
    assert ids[Phase.MEASURE] == list(range(50))
    assert ids[Phase.WARMUP] == list(range(len(ids[Phase.WARMUP])))
    assert len(ids[Phase.WARMUP]) > 100
