"""What the metrics page says is what happened."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.engine.engine import Engine, StepNews
from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import LanguageModel
from plimsoll.reference_server.engine.metrics import Metrics, Rate
from plimsoll.reference_server.engine.scheduler import Scheduler
from plimsoll.reference_server.values.durations import Stages, Startup
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
        metrics.batch("m", n_samples, 8)
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
