"""The server's own counters in a registry of its own, for the metrics endpoint. The only importer of
prometheus_client.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from reference_server.engine import Engine
from reference_server.scripted import ScriptedModel

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """Counters kept as things happen; gauges read when asked for."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "reference_requests",
            "Requests answered",
            ("model", "status", "outcome"),
            registry=self._registry,
        )
        self._tokens = Counter("reference_output_tokens", "Tokens generated", ("model",), registry=self._registry)
        self._computed = Counter(
            "reference_computed_tokens", "Tokens computed in steps, prompts included", registry=self._registry
        )
        self._ttft = Histogram(
            "reference_ttft_seconds",
            "From the request's last byte to the first token's write",
            ("model",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._step = Histogram(
            "reference_step_seconds", "Duration of a step", buckets=_SECONDS, registry=self._registry
        )
        self._running = Gauge("reference_running", "Requests being answered", ("model",), registry=self._registry)
        self._waiting = Gauge("reference_waiting", "Requests in the queue", ("model",), registry=self._registry)
        self._kv_used = Gauge("reference_kv_blocks_used", "KV blocks in use", registry=self._registry)
        self._kv_total = Gauge("reference_kv_blocks", "KV blocks there are", registry=self._registry)
        self._preempted = Gauge("reference_preempted", "Sequences sent back so far", registry=self._registry)

    def request(self, model: str, status: int, outcome: str) -> None:
        """Count one request."""
        self._requests.labels(model, str(status), outcome).inc()

    def answer(self, model: str, n_new: int, ttft_s: float) -> None:
        """Count one answer's tokens; a negative time to first token is not counted."""
        self._tokens.labels(model).inc(n_new)
        if ttft_s >= 0:
            self._ttft.labels(model).observe(ttft_s)

    def step(self, seconds: float, n_tokens: int) -> None:
        """Count one step."""
        self._step.observe(seconds)
        self._computed.inc(n_tokens)

    def render(self, engine: Engine | None, scripted: ScriptedModel | None) -> bytes:
        """The text exposition, gauges as of now."""
        if engine is not None:
            scheduler = engine.scheduler
            self._running.labels("llm").set(scheduler.n_running)
            self._waiting.labels("llm").set(scheduler.n_waiting)
            self._kv_used.set(scheduler.blocks.used)
            self._kv_total.set(scheduler.blocks.n_blocks)
            self._preempted.set(scheduler.n_preempted)
        if scripted is not None:
            self._running.labels("scripted").set(scripted.n_busy)
            self._waiting.labels("scripted").set(scripted.n_waiting)
        return generate_latest(self._registry)
