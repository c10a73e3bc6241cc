"""What the metrics page says is what happened. A request's account: whatever becomes of it, one row, one place in
flight, one count. The truth keeps what it was told, within its bounds.
"""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.engine import Engine, StepNews
from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import LanguageModel
from plimsoll.reference_server.engine.metrics import Metrics, Rate
from plimsoll.reference_server.engine.scheduler import Scheduler
from plimsoll.reference_server.misfortune.fault import Break, Misfortune, parse_fault
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.seams.models import Script
from plimsoll.reference_server.seams.truth import Truth, TruthRow
from plimsoll.reference_server.service.limit import Limit
from plimsoll.reference_server.service.service import Account, Service, accounted, obey
from plimsoll.reference_server.values.durations import Stages, Startup
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.timetable import DeadlineWheel
from tests.scripted_runner import ScriptedRunner


def page(metrics: Metrics, engine: Engine | None = None, startup: Startup | None = None) -> dict[str, float]:
    rows = metrics.render(engine, None, startup).decode().splitlines()
    return {row.rpartition(" ")[0]: float(row.rpartition(" ")[2]) for row in rows if not row.startswith("#")}


def test_a_queue_is_read_when_the_page_is_asked_for() -> None:
    metrics, waiting = Metrics(), [1.5, 0.5]
    metrics.queue("m", lambda: len(waiting), lambda: max(waiting, default=0.0))
    seen = page(metrics)
    assert seen['reference_queue_depth{model="m"}'] == 2
    assert seen['reference_queue_age_seconds{model="m"}'] == 1.5
    waiting.clear()
    seen = page(metrics)
    assert seen['reference_queue_depth{model="m"}'] == seen['reference_queue_age_seconds{model="m"}'] == 0


def test_batches_stages_refusals_and_missed_deadlines_are_counted_by_model() -> None:
    metrics = Metrics()
    for n_samples in (1, 4, 8):
        metrics.batch("m", n_samples, 8, 0.25)
    metrics.stage("m", Stages({"queue": 3_000_000, "preprocess.resize": 40_000_000}))
    metrics.rejected("m", "queue_full")
    metrics.rejected("m", "queue_full")
    metrics.deadline_missed("m")
    seen = page(metrics)
    fill = [seen[f'reference_batch_fill_bucket{{le="{le}",model="m"}}'] for le in ("0.125", "0.5", "0.875", "1.0")]
    assert fill == [1, 2, 2, 3]
    assert seen['reference_stage_seconds_sum{model="m",stage="queue"}'] == pytest.approx(0.003)
    assert seen['reference_stage_seconds_sum{model="m",stage="preprocess.resize"}'] == pytest.approx(0.04)
    assert seen['reference_rejected_total{model="m",reason="queue_full"}'] == 2
    assert seen['reference_deadlines_missed_total{model="m"}'] == 1


def test_a_duty_cycle_is_time_worked_over_time_watched_and_sizes_are_exact() -> None:
    """Two models, of which one never worked; a model is watched from when it is there."""
    now = [100.0]
    metrics = Metrics(now_s=lambda: now[0])
    for model in ("m", "idle"):
        metrics.queue(model, lambda: 0, lambda: 0.0)
    before = page(metrics)
    for n_samples in (4, 4, 1):
        metrics.batch("m", n_samples, 8, 0.5)
    now[0] += 6
    seen = page(metrics)
    for model, busy in (("m", 1.5), ("idle", 0.0)):
        names = [f'reference_{what}_seconds_total{{model="{model}"}}' for what in ("busy", "watched")]
        assert [seen[name] - before[name] for name in names] == [busy, 6.0]
    assert [seen[f'reference_batch_size_total{{model="m",size="{size}"}}'] for size in (1, 4)] == [1, 2]
    assert seen['reference_batched_total{model="m"}'] == 9
    assert seen['reference_batch_fill_count{model="m"}'] == 3


def test_steps_are_counted() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.step(StepNews(0.004, 0.0003, n_computed=20, n_new=3, n_sequences=4, max_batch=8))
    seen = page(metrics)
    assert seen["reference_step_seconds_sum"] == pytest.approx(0.008)
    assert seen["reference_step_gap_seconds_sum"] == pytest.approx(0.0006)
    assert seen["reference_computed_tokens_total"] == 40
    assert seen['reference_batch_fill_bucket{le="0.5",model="llm"}'] == 2


def test_start_up_phases_readiness_and_gpu_memory_are_told() -> None:
    metrics, startup = Metrics(), Startup()
    with startup.phase("weights"):
        pass
    memory = {"allocated": 3e9, "free": 1e9}
    metrics.gpu_memory(lambda: memory)
    assert page(metrics, startup=startup)["reference_ready"] == 0
    startup.ready = True
    seen = page(metrics, startup=startup)
    assert seen["reference_ready"] == 1
    assert 0 <= seen['reference_startup_seconds{phase="weights"}'] < 1
    assert 'reference_startup_seconds{phase="compile"}' not in seen
    assert seen['reference_gpu_memory_bytes{kind="allocated"}'] == 3e9
    memory["allocated"] = 2e9
    startup.draining = True
    seen = page(metrics, startup=startup)
    assert (seen["reference_ready"], seen['reference_gpu_memory_bytes{kind="allocated"}']) == (0, 2e9)


def test_the_engine_is_read_as_it_stands_and_counted_as_it_goes() -> None:
    metrics = Metrics()

    async def main() -> None:
        blocks = KvBlocks(16, 4, reuse_prefixes=True)
        scheduler = Scheduler(blocks, max_batch=2, queue_limit=8, max_context=64)
        engine = Engine(scheduler, ScriptedRunner(), on_step=metrics.step)
        LanguageModel(engine, metrics=metrics)
        tickets = [engine.submit([1] * 9, max_new=3, ignore_eos=True) for _ in range(3)]
        assert page(metrics, engine)['reference_queue_depth{model="llm"}'] == 3
        assert page(metrics, engine)['reference_queue_age_seconds{model="llm"}'] > 0
        scheduler.plan()
        seen = page(metrics, engine)
        assert (seen['reference_running{model="llm"}'], seen['reference_waiting{model="llm"}']) == (2, 1)
        assert (seen["reference_kv_blocks"], seen["reference_kv_blocks_used"]) == (16, 6)
        assert seen["reference_kv_usage_ratio"] == 6 / 16
        assert seen["reference_prefix_hit_tokens_total"] == 0
        for ticket in tickets:
            engine.cancel(ticket)
        await engine.start()
        for _ in range(2):
            ticket = engine.submit([2] * 9, max_new=3, ignore_eos=True)
            while not (await ticket.steps.get()).finish:
                pass
        await asyncio.sleep(0)
        for _ in range(2):  # read twice, counted once
            seen = page(metrics, engine)
            assert seen["reference_prefix_hit_tokens_total"] == 8
        assert seen["reference_kv_blocks_used"] == 0
        await engine.stop()
        assert page(metrics)["reference_computed_tokens_total"] == 9 + 2 + 1 + 2

    asyncio.run(asyncio.wait_for(main(), 10))


@given(
    counts=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), max_size=60),
    seconds=st.integers(1, 5),
    later=st.floats(0, 10),
)
def test_the_rate_is_the_mean_of_the_last_whole_seconds(
    counts: list[tuple[float, int]], seconds: int, later: float
) -> None:
    now_s, events = 100.0, []
    rate = Rate(lambda: now_s, seconds)
    for gap_s, n in counts:
        now_s += gap_s
        rate.add(n)
        events.append((int(now_s), n))
    now_s += later
    second = int(now_s)
    assert rate.per_s() == sum(n for at, n in events if second - seconds <= at < second) / seconds


# -- accounts -------------------------------------------------------------------------------------------------------


def made(*, ready: bool = True, limit: Limit | None = None) -> Service:
    startup = Startup()
    startup.ready = ready
    faults = Faults([parse_fault("slow_headers=by:1ms")], seed=0)
    return Service(cast(DeadlineWheel, None), faults, Truth(), Metrics(), 1 << 20, startup=startup, limit=limit)


def counted(service: Service) -> list[str]:
    text = service.render_metrics().decode()
    return [line for line in text.splitlines() if line.startswith("reference_requests_total{")]


def test_a_request_is_in_flight_for_as_long_as_its_account_is_open() -> None:
    service = made()
    with accounted(service, "a", 5, service.closed()) as account:
        assert service.n_in_flight == 1
        assert account.row.outcome == "open"
        account.row.model, account.row.status, account.outcome = "m", 200, "ok"
    assert service.n_in_flight == 0
    row = service.truth.get("a")
    assert row is not None
    assert (row.outcome, row.received_ns) == ("ok", 5)
    (line,) = counted(service)
    assert line.endswith(" 1.0")
    assert '"ok"' in line


def test_what_raises_leaves_its_row_and_its_place_too() -> None:
    service = made()
    with pytest.raises(ZeroDivisionError), accounted(service, "a", 5, service.closed()):
        raise ZeroDivisionError
    assert service.n_in_flight == 0
    row = service.truth.get("a")
    assert row is not None
    assert row.outcome == "error"


def test_a_request_that_a_closed_server_refuses_does_not_start_the_clock_of_the_faults() -> None:
    service = made(ready=False)
    with accounted(service, "early", 5, service.closed()) as account, pytest.raises(RequestError, match="starting"):
        account.draw()
    service.startup.ready = True
    assert service.faults.first(7), "the next request should be the first"
    assert service.n_in_flight == 0


def test_a_request_beyond_the_limit_is_turned_away_and_a_session_is_not() -> None:
    service = made(limit=Limit(1))
    with accounted(service, "a", 5, service.closed()) as first:
        first.draw()
        with accounted(service, "b", 5, service.closed()) as second, pytest.raises(RequestError) as refused:
            second.draw()
        second.refused(refused.value)
        with accounted(service, "c", 5, service.closed()) as third:
            third.draw(session=True)
    assert (refused.value.status, refused.value.code, refused.value.retry_after_s) == (503, "overloaded", 1)
    with accounted(service, "d", 5, service.closed()) as fourth:
        fourth.draw()
    page = service.render_metrics().decode()
    assert "reference_in_flight_limit 1.0" in page
    assert 'reason="overloaded"} 1.0' in page


def test_a_request_s_own_wish_comes_before_the_faults() -> None:
    account = Account(made(), TruthRow("r", "m", 0))
    account.misfortune = Misfortune(error_at=3, cut_at=4, break_by=Break.RESET)
    assert account.limits(Script()) == (3, 4)
    assert account.break_by is Break.RESET
    assert account.limits(Script(error_at=1, cut_at=2)) == (1, 2)
    assert account.break_by is Break.CLOSE


def test_only_refusals_for_want_of_room_count_as_rejected() -> None:
    service = made()
    account = Account(service, TruthRow("r", "m", 0))
    account.refused(RequestError(400, "wrong", code="invalid_value"))
    assert b'reason="' not in service.render_metrics()
    account.refused(RequestError(429, "full", code="queue_full"))
    assert b'reason="queue_full"' in service.render_metrics()


def test_a_request_may_ask_for_its_own_refusal() -> None:
    obey(Script())
    with pytest.raises(RequestError) as refused:
        obey(Script(status=418))
    assert refused.value.status == 418


# -- ground truth ---------------------------------------------------------------------------------------------------


def test_the_oldest_requests_are_forgotten_first() -> None:
    truth = Truth(max_requests=3)
    for number in range(5):
        truth.open(f"r{number}", "scripted", number)
    assert [row.request_id for row in truth.since(0)] == ["r2", "r3", "r4"]
    assert truth.get("r0") is None


def test_stamps_are_bounded_too() -> None:
    truth = Truth(max_stamps=10)
    for number in range(4):
        row = truth.open(f"r{number}", "scripted", number)
        for stamp in range(2):
            row.before_ns.append(stamp)
            row.after_ns.append(stamp)
        truth.close(row, "ok", number)
    assert [row.request_id for row in truth.since(0)] == ["r2", "r3"]


def test_a_repeated_id_replaces_the_row_and_a_late_end_of_the_old_one_harms_nothing() -> None:
    truth = Truth(max_stamps=4)
    old = truth.open("r", "scripted", 1)
    old.before_ns.extend([1, 2, 3])
    old.after_ns.extend([1, 2, 3])
    new = truth.open("r", "scripted", 2)
    truth.close(old, "cancelled", 3)
    assert truth.get("r") is new
    assert (new.outcome, len(truth)) == ("open", 1)


def test_the_first_ending_counts() -> None:
    truth = Truth()
    row = truth.open("r", "scripted", 1)
    truth.close(row, "cut", 5)
    truth.close(row, "ok", 6)
    assert (row.outcome, row.done_ns) == ("cut", 5)


def test_since_selects_by_arrival() -> None:
    truth = Truth()
    for number in range(4):
        truth.open(f"r{number}", "scripted", number * 10)
    assert [row.request_id for row in truth.since(15)] == ["r2", "r3"]
    truth.clear()
    assert list(truth.since(0)) == []
