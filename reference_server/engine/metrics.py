"""The server's own counters in a registry of its own, for the metrics endpoint. The only importer of prometheus_client.

Whoever does the work says what happened; gauges are read when the page is asked for. It refuses to know torch: GPU
memory comes from a callback.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from plimsoll.reference_server.engine.engine import Engine, StepNews
from plimsoll.reference_server.engine.scripted import ScriptedModel
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.values.durations import Stages, Startup

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_STAGE_SECONDS = (0.0001, 0.0002, 0.0005, *_SECONDS, 20.0, 60.0)
_FILL = (0.0625, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
_RATE_S = 5
"""The rate gauge looks back over so many whole seconds."""


class Rate:
    """What was counted in the last whole seconds, per second. ``now_s`` may be any clock that never goes back."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic, seconds: int = _RATE_S) -> None:
        self._now_s = now_s
        self._seconds = seconds
        self._counts: dict[int, int] = {}

    def add(self, n: int) -> None:
        second = int(self._now_s())
        self._counts[second] = self._counts.get(second, 0) + n
        if len(self._counts) > self._seconds + 1:
            self._counts = {at: count for at, count in self._counts.items() if at >= second - self._seconds}

    def per_s(self) -> float:
        """The mean rate of the last whole seconds; the running second is left out, since it isn't over."""
        second = int(self._now_s())
        return sum(self._counts.get(second - back, 0) for back in range(1, self._seconds + 1)) / self._seconds


class Tally:
    """A histogram by labels that is cheap to feed, for one thread; bounds are inclusive and ascend."""

    def __init__(
        self, name: str, about: str, labels: Sequence[str], bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._about, self._labels, self._bounds = name, about, labels, bounds
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def observe(self, value: float, *labels: str) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for labels, counts in self._counts.items():
            family.add_metric(labels, list(zip(names, accumulate(counts), strict=True)), self._sums[labels])
        yield family


class Metrics:
    """Counters kept as things happen; gauges read when asked for."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._registry = CollectorRegistry()
        self._rate = Rate(now_s)
        self._now_s, self._watched_s = now_s, now_s()
        self._scripted_s = 0.0
        self._models: set[str] = set()
        self._cached_seen = 0
        self._gpu_memory_read: Callable[[], Mapping[str, float]] | None = None
        self._make_request_metrics()
        self._make_queue_metrics()
        self._make_step_metrics()
        self._make_process_metrics()

    def request(self, model: str, status: int, outcome: str) -> None:
        self._requests_of(model, status, outcome).inc()

    def answer(self, model: str, row: TruthRow, n_new: int, first_ns: int) -> None:
        """Count one answer's tokens and, unless ``first_ns`` is -1, its time to first token."""
        self._tokens_of(model).inc(n_new)
        if first_ns >= 0:
            self._ttft.observe((first_ns - row.received_ns) / 1e9, model)

    def stage(self, model: str, stages: Stages) -> None:
        for name, ns in stages.spans_ns.items():
            self._stages.observe(ns / 1e9, model, name)

    def rejected(self, model: str, reason: str) -> None:
        """Count one request that was turned away with 429 or 503; ``reason`` is the code of its error. Front-ends call
        it: every refusal passes through one."""
        self._rejected.labels(model, reason).inc()

    def deadline_missed(self, model: str) -> None:
        """Count one admitted request whose deadline passed before its answer was whole."""
        self._missed.labels(model).inc()

    def queue(self, model: str, depth: Callable[[], int], age_s: Callable[[], float]) -> None:
        """Have the depth of a model's queue, and how long its oldest member waits, read with every page."""
        self._depth.labels(model).set_function(depth)
        self._age.labels(model).set_function(age_s)
        self._models.add(model)

    def limit(self, read: Callable[[], float]) -> None:
        """Have the limit of requests under way read with every page."""
        Gauge("reference_in_flight_limit", "Most requests under way", registry=self._registry).set_function(read)

    def cached(self, result: str) -> None:
        """Count one request that an answer was kept of (``hit``) or not (``miss``)."""
        self._cache.labels(result).inc()

    def batch(self, model: str, n_samples: int, max_batch: int, seconds: float) -> None:
        """Count one batch or step, how full it was, and how long it was computed."""
        self._fill.observe(n_samples / max_batch, model)
        self._sizes_of(model, n_samples).inc()
        self._batched_of(model).inc(n_samples)
        self._busy.labels(model).inc(seconds)

    def step(self, news: StepNews) -> None:
        self._step.observe(news.seconds)
        self._computed.inc(news.n_computed)
        self._gap.observe(news.gap_s)
        self._rate.add(news.n_new)
        self.batch("llm", news.n_sequences, news.max_batch, news.seconds)

    def gpu_memory(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Have GPU memory read with every page: bytes by kind, such as ``allocated`` and ``free``."""
        self._gpu_memory_read = read

    def render(self, engine: Engine | None, scripted: ScriptedModel | None, startup: Startup | None = None) -> bytes:
        """The text exposition, gauges as of now."""
        if engine is not None:
            self._read_engine(engine)
        if scripted is not None:
            self._running.labels("scripted").set(scripted.n_busy)
            self._waiting.labels("scripted").set(scripted.n_waiting)
            self._depth.labels("scripted").set(scripted.n_waiting)
            self._models.add("scripted")
            busy_s = scripted.busy_s
            self._busy.labels("scripted").inc(busy_s - self._scripted_s)
            self._scripted_s = busy_s
        now_s = self._now_s()
        for model in self._models:
            self._busy.labels(model)
            self._watched.labels(model).inc(now_s - self._watched_s)
        self._watched_s = now_s
        if startup is not None:
            self._ready.set(startup.ready and not startup.draining)
            for phase, seconds in startup.seconds().items():
                self._startup.labels(phase).set(seconds)
        if self._gpu_memory_read is not None:
            for kind, n_bytes in self._gpu_memory_read().items():
                self._gpu_memory.labels(kind).set(n_bytes)
        return generate_latest(self._registry)

    def _read_engine(self, engine: Engine) -> None:
        scheduler, blocks = engine.scheduler, engine.scheduler.blocks
        self._running.labels("llm").set(scheduler.n_running)
        self._waiting.labels("llm").set(scheduler.n_waiting)
        self._kv_used.set(blocks.used)
        self._kv_total.set(blocks.n_blocks)
        self._kv_usage.set(blocks.used / blocks.n_blocks)
        self._kv_waste.set(scheduler.kv_waste)
        self._preempted.set(scheduler.n_preempted)
        self._cached.inc(scheduler.n_cached - self._cached_seen)
        self._cached_seen = scheduler.n_cached
        self._tokens_per_s.labels("llm").set(self._rate.per_s())

    def _make_request_metrics(self) -> None:
        counter, tally = partial(Counter, registry=self._registry), partial(Tally, registry=self._registry)
        self._requests = counter("reference_requests", "Requests answered", ("model", "status", "outcome"))
        # Every request asks for these, and looking one up costs as much as counting.
        self._requests_of = cache(self._requests.labels)
        self._tokens = counter("reference_output_tokens", "Tokens generated", ("model",))
        self._tokens_of = cache(self._tokens.labels)
        about = "From the request's last byte to the first token's write"
        self._ttft = tally("reference_ttft_seconds", about, ("model",), _SECONDS)
        about = "Time of an answer by stage"
        self._stages = tally("reference_stage_seconds", about, ("model", "stage"), _STAGE_SECONDS)
        self._rejected = counter("reference_rejected", "Requests turned away with 429 or 503", ("model", "reason"))
        self._cache = counter("reference_response_cache", "Requests by what the cache had of them", ("result",))
        about = "Admitted requests whose deadline passed before the end of the answer"
        self._missed = counter("reference_deadlines_missed", about, ("model",))

    def _make_queue_metrics(self) -> None:
        gauge = partial(Gauge, labelnames=("model",), registry=self._registry)
        self._running = gauge("reference_running", "Requests being answered")
        self._waiting = gauge("reference_waiting", "Requests in the queue")
        self._depth = gauge("reference_queue_depth", "Requests or samples in the queue")
        self._age = gauge("reference_queue_age_seconds", "How long the oldest in the queue waits")
        about = "Members of a step or batch / most it may have"
        self._fill = Tally("reference_batch_fill", about, ("model",), _FILL, self._registry)
        counter = partial(Counter, registry=self._registry)
        self._sizes_of = cache(counter("reference_batch_size", "Batches by their size", ("model", "size")).labels)
        self._batched_of = cache(counter("reference_batched", "Members of all batches", ("model",)).labels)
        # A step or batch counts when it ends.
        self._busy = counter("reference_busy_seconds", "Time in which a model worked at something", ("model",))
        self._watched = counter("reference_watched_seconds", "Time in which it might have", ("model",))

    def _make_step_metrics(self) -> None:
        gauge, counter = partial(Gauge, registry=self._registry), partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._computed = counter("reference_computed_tokens", "Tokens computed in steps, prompts included")
        self._cached = counter("reference_prefix_hit_tokens", "Prompt tokens found in the cache")
        about = f"Tokens generated per second, over the last {_RATE_S} s"
        self._tokens_per_s = gauge("reference_tokens_per_second", about, ("model",))
        self._step = histogram("reference_step_seconds", "Duration of a step", buckets=_SECONDS)
        about = "From the end of a step to the start of the next while there is work"
        self._gap = histogram("reference_step_gap_seconds", about, buckets=_STAGE_SECONDS)
        self._kv_used = gauge("reference_kv_blocks_used", "KV blocks in use")
        self._kv_total = gauge("reference_kv_blocks", "KV blocks there are")
        self._kv_usage = gauge("reference_kv_usage_ratio", "Share of the KV blocks in use")
        self._kv_waste = gauge("reference_kv_waste_ratio", "Share of what sequences hold in which nothing is")
        self._preempted = gauge("reference_preempted", "Sequences sent back so far")

    def _make_process_metrics(self) -> None:
        gauge = partial(Gauge, registry=self._registry)
        self._ready = gauge("reference_ready", "1 while requests are answered")
        self._startup = gauge("reference_startup_seconds", "Duration of the cold start by phase", ("phase",))
        gauge("reference_resident_bytes", "Memory of the process").set_function(_resident_bytes)
        self._gpu_memory = gauge("reference_gpu_memory_bytes", "Memory of the GPU by kind", ("kind",))


def _resident_bytes() -> float:
    """As Linux counts it: pages that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
