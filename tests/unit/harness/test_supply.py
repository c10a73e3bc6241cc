"""Requests that a process of its own encodes: the same ones in the same order, and what is late is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator import supply
from plimsoll.harness.generator.issuer import Issuer, Load
from plimsoll.harness.generator.native import NativeRun, available
from plimsoll.harness.generator.recorder import Recorder
from plimsoll.harness.generator.segments import read_segments
from plimsoll.harness.protocols._discovery import protocol
from plimsoll.harness.protocols.null import NullClient
from plimsoll.harness.run.coordinator import worker_spec
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.endpoint import Endpoint
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.spec import parse
from plimsoll.slo.records.records import Phase, Records, concat
from tests.e2e.both_engines import closed, opened
from tests.e2e.plimsoll import ROOT
from tests.virtual_time import VirtualClient, VirtualClock

MS = 1_000_000


def scenario_of(kind: str, **changes: Any) -> Any:
    source = {"kind": "synthetic_text", "count": 70, "prompt_tokens": 20}
    return parse({"name": "one", "kind": kind, "source": source, "stop": {"min_duration": "0s"}} | changes)


def spec_of(scenario: Any, protocol: str = "openai-chat", shard: int = 0, shards: int = 1) -> dict[str, Any]:
    target = Target("http://127.0.0.1:1", protocol, "m")
    made = worker_spec(scenario, target, "run", Path("/nowhere"), shard, shards, "turns")
    return dict(json.loads(json.dumps(made)))


def taken(fed: supply.Fed, most: int) -> Iterator[tuple[Plan, list[Any]]]:
    """So many portions, waited for."""
    until = time.monotonic() + 20
    while fed.next is not None and most:
        assert time.monotonic() < until, "no portion comes"
        portion = fed.take()
        if portion is None:
            time.sleep(0.001)
        else:
            most -= 1
            yield portion


@pytest.mark.parametrize(
    ("kind", "shard", "shards"), [("server", 1, 3), ("offline", 0, 1), ("offline", 1, 2), ("concurrency", 1, 2)]
)
def test_requests_come_in_the_lanes_order_and_are_those_of_the_source(kind: str, shard: int, shards: int) -> None:
    scenario = scenario_of(kind, stop={"min_queries": 150, "min_duration": "0s"})
    spec = spec_of(scenario, shard=shard, shards=shards)
    source = scenario.source_object()
    client = protocol("openai-chat").build(Target(**{**spec["target"], "headers": (), "secrets": ()}), VirtualClock())
    plan, _ = supply.lanes(spec, scenario, len(source))
    mine = plan.shard(shard, shards, "turns")
    fed = supply.Fed(spec, mine, False, 16)
    fed.wait()
    found = [*taken(fed, 40)]
    assert fed.close() == []
    wanted = mine.whole()
    rows = [piece for piece, _ in found]
    assert max(piece.n_samples for piece in rows) == 16
    n = sum(piece.n_samples for piece in rows)
    assert n == (wanted.n_samples if wanted.open_loop else 40 * 16)
    payload = np.concatenate([piece.payload_ix for piece in rows])
    if wanted.cyclic:  # query k has row k modulo their number, and this shard every second one
        queries = np.arange(n) * wanted.id_step + wanted.first_id
        assert payload.tolist() == wanted.payload_ix[queries % wanted.n_queries].tolist()
    else:
        assert payload.tolist() == wanted.payload_ix.tolist()
        assert np.concatenate([piece.sample_ix for piece in rows]).tolist() == wanted.sample_ix.tolist()
        query = np.concatenate([np.repeat(piece.query_id, np.diff(piece.offsets)) for piece in rows])
        assert query.tolist() == np.repeat(wanted.query_id, np.diff(wanted.offsets)).tolist()
    requests = [request for _, some in found for request in some]
    assert requests == [client.encode(source.payload(int(ix))) for ix in payload]


def test_a_request_that_cannot_be_made_is_said_before_anything_is_sent() -> None:
    scenario = scenario_of("server")
    spec = spec_of(scenario, protocol="openai-transcriptions")  # a text is no recording
    plan, _ = supply.lanes(spec, scenario, 70)
    fed = supply.Fed(spec, plan, False, 16)
    with pytest.raises(HarnessFault, match="audio"):
        fed.wait()
    fed.close()


def test_a_process_that_dies_leaves_a_fault_and_not_a_shorter_plan() -> None:
    scenario = scenario_of("concurrency")
    spec = spec_of(scenario)
    plan, _ = supply.lanes(spec, scenario, 70)
    fed = supply.Fed(spec, plan, False, 16)
    fed.wait()
    fed._process.kill()
    until = time.monotonic() + 20
    while not fed.failed:
        assert time.monotonic() < until
        fed.take()
    assert "the process that encodes requests was killed by SIGKILL before it had encoded all" in fed.close()[0]


@pytest.mark.parametrize(
    ("number", "why"),
    [(signal.SIGKILL, "encodes requests was killed by SIGKILL"), (signal.SIGSTOP, "gave none for 0.3 s")],
)
def test_a_process_that_ends_or_stands_still_before_the_run_is_a_fault_in_words(
    monkeypatch: pytest.MonkeyPatch, number: int, why: str
) -> None:
    monkeypatch.setattr(supply, "PATIENCE_NS", 300 * MS)
    scenario = scenario_of("concurrency")
    spec = spec_of(scenario)
    fed = supply.Fed(spec, supply.lanes(spec, scenario, 70)[0], False, 16)
    fed._process.send_signal(number)
    with pytest.raises(HarnessFault, match=f"nothing was sent: .*{why}"):
        fed.wait()
    assert fed._process.wait(20) == -signal.SIGKILL, "nothing stays"
    fed.close()


def test_few_or_light_requests_are_shared_and_others_come_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    source = scenario_of("server").source_object()
    client, needed = NullClient(VirtualClock()), np.ones(70, np.bool_)
    assert supply.portion_of(client, source, needed) is None
    monkeypatch.setattr(supply, "FEW", 69)
    assert supply.portion_of(client, source, needed) is None
    monkeypatch.setattr(supply, "HELD", 70 * 50)
    assert supply.portion_of(client, source, needed) == supply.PORTION
    monkeypatch.setattr(supply, "PORTION_BYTES", 100)
    assert supply.portion_of(client, source, needed) == 1
    needed[1:] = False
    assert supply.portion_of(client, source, needed) is None
    monkeypatch.setattr(supply, "LISTED", 69)
    assert supply.portion_of(client, source, needed) == 1
    needed[0] = False
    assert supply.portion_of(client, source, needed) is None


_FED = (
    "import runpy; from plimsoll.harness.generator import supply; supply.FEW = supply.HELD = 0; supply.PORTION = 16; "
    "runpy.run_module('plimsoll.harness.generator.worker', run_name='__main__', alter_sys=True)"
)


def worked(code: str, spec: dict[str, Any]) -> tuple[dict[str, Any], Records]:
    """What a worker that runs by this code says at the end, and its rows."""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(spec), file=process.stdin, flush=True)
        ready = json.loads(process.stdout.readline())
        assert ready["type"] == "ready", ready
        go = {"type": "go", "t0_ns": time.monotonic_ns() + 400 * MS}
        print(json.dumps(go), file=process.stdin, flush=True)
        done = next(found for line in process.stdout if (found := json.loads(line))["type"] == "done")
    parts, faults = read_segments([Path(spec["segments"])])
    assert faults == []
    return done, concat(parts)


@pytest.mark.parametrize("kind", ["server", "concurrency"])
def test_a_worker_whose_requests_are_fed_sends_what_one_that_holds_them_sends(tmp_path: Path, kind: str) -> None:
    stop = {"min_queries": 120, "max_queries": 120, "min_duration": "0s"}
    params = {"rate": 400.0} if kind == "server" else {"concurrency": 2}
    scenario = scenario_of(kind, stop=stop, params=params, warmup="200ms")
    found = {}
    for name, code in (("fed", _FED), ("held", _FED.replace("supply.HELD = 0", "supply.HELD = 1 << 30"))):
        (tmp_path / name).mkdir()
        done, rows = worked(code, {**spec_of(scenario, protocol="null"), "segments": str(tmp_path / name)})
        told = [fault for fault in done["faults"] if "payloads were not ready" not in fault]
        assert told == [], "an endpoint that answers at once may be faster than whoever encodes"
        order = np.lexsort((rows["query_id"], rows["phase"]))
        measured = order[rows["phase"][order] == Phase.MEASURE]
        found[name] = {
            column: rows[column][measured].tolist() for column in ("query_id", "payload_ix", "n_in", "status")
        }
        assert len(rows) > len(measured) == 120
    assert found["fed"] == found["held"]


class Slow:
    """Portions that are handed over by the test."""

    def __init__(self, plan: Plan, portion: int, request: Any) -> None:
        self.portions = [*zip(supply.portions(cut(plan), portion), range(99), strict=False)]
        self.request, self.ready, self.late_ns, self.waits_ns = request, 1, list[int](), list[int]()

    @property
    def next(self) -> Plan | None:
        return self.portions[0][0] if self.portions else None

    def take(self) -> tuple[Plan, list[Any]] | None:
        if not self.ready or not self.portions:
            return None
        self.ready -= 1
        piece = self.portions.pop(0)[0]
        return piece, [self.request] * piece.n_samples

    def unready(self, late_ns: int, came: bool) -> None:
        (self.late_ns if came else self.waits_ns).append(late_ns)


def test_without_a_free_slot_no_request_is_late() -> None:
    plan, clock, finished = opened([0, 0, 0, 0], limit=2), VirtualClock(), list[Any]()
    slow = Slow(plan, 2, None)
    client = VirtualClient(clock, lambda exchange: 5 * MS)
    issuer = Issuer(Load(cut(plan), None, [], "run", fed={0: slow}), client, clock, finished.append)
    t0 = clock.now_ns()
    issuer.start(t0)
    clock.run(t0 + 3 * MS)
    slow.ready = 1
    issuer.feed()
    clock.run(t0 + 12 * MS)
    assert (len(finished), slow.late_ns) == (4, [])
    assert [exchange.ready_ns - t0 for exchange in client.sent] == [0, 0, 5 * MS, 5 * MS]
    slow = Slow(plan, 2, None)
    client.sent.clear()
    issuer = Issuer(Load(cut(plan), None, [], "run", fed={0: slow}), client, clock, finished.append)
    t0 = clock.now_ns()
    issuer.start(t0)
    clock.run(t0 + 9 * MS)
    slow.ready = 1
    issuer.feed()
    clock.run()
    assert (len(finished), slow.late_ns) == (8, [4 * MS]), "slots came free at 5 ms"


@pytest.mark.parametrize("plan", [opened([0, 1, 2, 3]), closed(3, slots=1)])
def test_queries_whose_requests_were_late_leave_at_once_as_due_and_the_supply_hears_of_it(plan: Plan) -> None:
    clock, sent = VirtualClock(), list[Any]()
    slow = Slow(plan, 2, protocol("null").build(Target("", "null"), VirtualClock()).encode(None))  # type: ignore[arg-type]
    client = NullClient(clock)
    client.settle = lambda exchange: None  # type: ignore[method-assign]
    issuer = Issuer(Load(cut(plan), None, [], "run", fed={0: slow}), client, clock, sent.append)
    t0 = clock.now_ns()
    issuer.start(t0)
    clock.run(t0 + 10 * MS)
    assert (len(sent), issuer.issued_all, slow.late_ns) == (2, False, [])
    slow.ready = 1
    issuer.feed()
    clock.run()
    late_ns = 8 * MS if plan.open_loop else 10 * MS
    assert slow.late_ns == [late_ns]
    assert [exchange.ready_ns - t0 for exchange in sent[2:]] == [10 * MS] * (2 if plan.open_loop else 1)
    if plan.open_loop:
        assert [exchange.due_ns - t0 for exchange in sent] == [0, MS, 2 * MS, 3 * MS]
    assert issuer.issued_all


@pytest.mark.parametrize(
    ("plan", "since_ms"), [(opened([0, 1, 2, 3]), 2), (opened([0, 0, 0, 0], limit=2), 5), (closed(3, slots=2), 5)]
)
def test_the_supply_hears_how_long_a_lane_has_waited_though_nothing_comes(plan: Plan, since_ms: int) -> None:
    clock, finished = VirtualClock(), list[Any]()
    slow = Slow(plan, 2, None)
    client = VirtualClient(clock, lambda exchange: 5 * MS)
    issuer = Issuer(Load(cut(plan), None, [], "run", fed={0: slow}), client, clock, finished.append)
    t0 = clock.now_ns()
    issuer.start(t0)
    for ms in (1, 10, 20, 10_020):
        clock.run(t0 + ms * MS)
        issuer.feed()
    assert slow.waits_ns[-3:] == [(ms - since_ms) * MS for ms in (10, 20, 10_020)]
    assert (len(finished), slow.late_ns, issuer.issued_all) == (2, [], False)


def test_a_warm_up_ends_at_t0_though_no_requests_come_for_it() -> None:
    clock, sent, plan = VirtualClock(), list[Any](), closed(3, slots=2)
    slow, main = Slow(plan, 1, None), Slow(plan, 3, None)
    client = VirtualClient(clock, lambda exchange: 5 * MS)
    issuer = Issuer(Load(cut(plan), cut(plan), [], "run", fed={0: main, 1: slow}), client, clock, sent.append)
    t0 = clock.now_ns() + 50 * MS
    issuer.start(t0)
    for ms in (-40, -1, 1, 100):
        clock.run(t0 + ms * MS)
        issuer.feed()
    assert (len(sent), slow.late_ns, slow.waits_ns) == (4, [], [10 * MS, 49 * MS])
    assert issuer.issued_all


@pytest.mark.parametrize("kind", ["server", "concurrency"])
def test_a_worker_whose_supply_stands_still_ends_in_order_and_keeps_what_it_measured(tmp_path: Path, kind: str) -> None:
    stop = {"min_queries": 30_000, "max_queries": 30_000, "min_duration": "0s"}
    scenario = scenario_of(kind, stop=stop, params={"rate": 5000.0} if kind == "server" else {"concurrency": 2})
    stopped = (
        "import os; from plimsoll.harness.generator import supply; supply.PATIENCE_NS = 500_000_000; supply.AHEAD = 4; "
        "wait = supply.Fed.wait; supply.Fed.wait = lambda fed: wait(fed) or os.kill(fed._process.pid, 19); "
    )
    done, rows = worked(stopped + _FED, {**spec_of(scenario, protocol="null"), "segments": str(tmp_path)})
    late, why = done["faults"]
    assert "payloads were not ready: 1 times" in late
    assert "payloads were not ready: the process that encodes requests gave none for 0.5 s" in why
    assert 16 <= len(rows) == done["account"]["sent"] < 30_000


def nobody_there() -> Any:
    """A client of an address at which nobody listens."""
    target = Target("http://127.0.0.1:1", "http", "m", options={"body_text": "x"}, connect_timeout_ns=MS)
    return protocol("http").build(target, VirtualClock())


def begun(client: Any, plan: Plan, slow: Slow) -> tuple[NativeRun, Recorder]:
    """The compiled engine, sending what a slow supply gives, and who keeps its rows."""
    run = NativeRun(
        client, Endpoint("127.0.0.1", 1, ((2, ("127.0.0.1", 1)),)), Load(cut(plan), None, [], "r", fed={0: slow})
    )
    recorder = Recorder(VirtualClock(), client.settle, lambda: 1 << 62, lambda records: None, 0)
    run._engine.open(0)
    run.start(time.monotonic_ns())
    return run, recorder


@pytest.mark.skipif(not available(), reason="the extension is not compiled here")
@pytest.mark.parametrize("plan", [opened([0, 1, 2, 3]), closed(3, slots=1)])
def test_the_compiled_engine_tells_of_late_requests_too(plan: Plan) -> None:
    client = nobody_there()
    slow = Slow(plan, 2, client.encode(scenario_of("server").source_object().payload(0)))
    run, recorder = begun(client, plan, slow)
    until = time.monotonic() + 10
    while run.sent < 2 or run.in_flight or not run._engine.used(0)[1]:
        assert time.monotonic() < until
        run.work(recorder)
    run.feed()
    assert (slow.late_ns, run.issued_all) == ([], False)
    time.sleep(0.01)
    run.feed()
    assert slow.waits_ns[-1] > 5 * MS, "nothing has come yet"
    slow.ready = 1
    run.feed()
    while not run.issued_all or run.in_flight:
        assert time.monotonic() < until
        run.work(recorder)
    run.finish(recorder)
    run.close()
    assert len(slow.late_ns) == 1
    assert slow.late_ns[0] > 5 * MS
    assert run._known == {}
    assert recorder.rows == (4 if plan.open_loop else 3)


@pytest.mark.skipif(not available(), reason="the extension is not compiled here")
def test_the_compiled_engine_asks_for_more_though_the_last_piece_is_far_larger_than_the_first() -> None:
    client = nobody_there()
    plan = opened([0] * 40)
    slow = Slow(plan, 40, client.encode(scenario_of("server").source_object().payload(0)))
    slow.portions = [(plan.select(np.arange(*rows), None), 0) for rows in ((0, 1), (1, 30), (30, 40))]
    slow.ready = 3
    run, recorder = begun(client, plan, slow)
    until = time.monotonic() + 10
    while not run.issued_all or run.in_flight:
        assert time.monotonic() < until, "the engine waits for rows that are ready"
        run.feed()
        run.work(recorder)
    run.finish(recorder)
    run.close()
    assert recorder.rows == 40
