"""Puts a server together from its configuration and runs it until told to stop. The composition root of the
package.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reference_server.engine import Engine
from reference_server.errors import ConfigError
from reference_server.faults import Faults, parse_fault
from reference_server.frontends.http import HttpFrontEnd
from reference_server.kv_blocks import KvBlocks
from reference_server.llm import LanguageModel
from reference_server.metrics import Metrics
from reference_server.scheduler import Scheduler
from reference_server.scripted import ScriptedModel
from reference_server.service import Service
from reference_server.timetable import DeadlineWheel
from reference_server.truth import Truth

MODELS = ("llm", "scripted")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """All settings of a server. Raises ConfigError for one that can't be honoured."""

    host: str = "127.0.0.1"
    http_port: int = 8000
    models: tuple[str, ...] = ("scripted",)
    device: str = "auto"
    preset: str = "tiny"
    ttft_ns: int = 50_000_000
    itl_ns: int = 10_000_000
    queue_limit: int = 256
    max_batch: int = 32
    kv_blocks: int | None = None
    block_size: int = 16
    step_tokens: int = 256
    prefix_cache: bool = False
    seed: int = 0
    threads: int | None = None
    faults: tuple[str, ...] = ()
    max_body_bytes: int = 4 << 20
    grace_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError(f"--model: name at least one of {', '.join(MODELS)}")
        for model in self.models:
            if model not in MODELS:
                raise ConfigError(f"--model {model}: unknown. Choose from {', '.join(MODELS)}")
        if self.device not in DEVICES:
            raise ConfigError(f"--device {self.device}: unknown. Choose from {', '.join(DEVICES)}")
        if not 0 <= self.http_port <= 65535:
            raise ConfigError(f"--http-port {self.http_port}: choose a port from 0 (any free one) to 65535")
        least = {
            "ttft_ns": 0,
            "itl_ns": 0,
            "queue_limit": 0,
            "max_batch": 1,
            "block_size": 1,
            "step_tokens": 1,
        }
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ConfigError(f"--{_option(name)}: must be at least {low}")
        for name in ("kv_blocks", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{_option(name)}: must be at least 1, or left out")
        for fault in self.faults:
            parse_fault(fault)


@dataclass(frozen=True, slots=True)
class ReadyLine:
    """What the server says once it serves."""

    url: str
    models: tuple[str, ...]
    device: str

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"ready": True, "url": self.url, "models": list(self.models), "device": self.device})


def ready_line(config: ServerConfig, port: int) -> ReadyLine:
    """The line for a server of that configuration listening on ``port``."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return ReadyLine(f"http://{host}:{port}", config.models, _device(config))


async def serve(config: ServerConfig, ready: Callable[[int], None] | None = None) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; ``ready`` is called with the port once requests are
    answered.

    Requests under way get ``config.grace_s`` to finish. Raises ConfigError, and OSError when the port is
    taken.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    wheel = DeadlineWheel(loop)
    service = Service(
        wheel=wheel,
        faults=Faults([parse_fault(text) for text in config.faults], seed=config.seed),
        truth=Truth(),
        metrics=Metrics(),
        max_body_bytes=config.max_body_bytes,
    )
    front_end = HttpFrontEnd(service)
    try:
        with _signals(loop, stopping), _calm_interpreter():
            await _start_models(config, service)
            port = await front_end.start(config.host, config.http_port)
            gc.collect()
            gc.freeze()  # what exists now lives as long as the server: collections need not walk it
            if ready is not None:
                ready(port)
            await stopping.wait()
    finally:
        await front_end.stop(config.grace_s)
        if service.llm is not None:
            await service.llm.engine.stop()
        wheel.close()


async def _start_models(config: ServerConfig, service: Service) -> None:
    if "scripted" in config.models:
        slots = service.faults.named("slots")
        service.scripted = ScriptedModel(
            service.wheel,
            ttft_ns=config.ttft_ns,
            itl_ns=config.itl_ns,
            seed=config.seed,
            n_slots=int(slots[0].number("n")) if slots else None,
            queue_limit=config.queue_limit,
        )
    if "llm" in config.models:
        engine = _engine(config, service.metrics)
        service.llm = LanguageModel(engine)
        await engine.start()


def _engine(config: ServerConfig, metrics: Metrics) -> Engine:
    try:
        from reference_server import torch_runner
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ConfigError(
            "--model llm needs torch, which is missing. Install plimsoll[server] or use --model scripted"
        ) from None
    runner = torch_runner.build(
        config.preset,
        device=config.device,
        block_size=config.block_size,
        n_blocks=config.kv_blocks,
        max_batch=config.max_batch,
        seed=config.seed,
        threads=config.threads,
    )
    scheduler = Scheduler(
        KvBlocks(runner.n_blocks, config.block_size, reuse_prefixes=config.prefix_cache),
        max_batch=config.max_batch,
        queue_limit=config.queue_limit,
        max_context=runner.shape.max_context,
        step_tokens=config.step_tokens,
    )
    return Engine(scheduler, runner, on_step=metrics.step)


def _device(config: ServerConfig) -> str:
    if "llm" not in config.models:
        return "cpu"
    from reference_server import torch_runner

    return torch_runner.choose_device(config.device)


def _option(name: str) -> str:
    return name.removesuffix("_ns").replace("_", "-")


@contextlib.contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event, where this is the main thread and may say so."""
    wanted = (signal.SIGTERM, signal.SIGINT)
    handled = []
    for number in wanted:
        with contextlib.suppress(RuntimeError, ValueError):
            loop.add_signal_handler(number, stopping.set)
            handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _calm_interpreter() -> Iterator[None]:
    """Short waits: the event loop gets the interpreter from a step within 0.5 ms, and full collections are rare.

    A full collection walks every truth row kept, tens of milliseconds in which nothing is written.
    """
    switch_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(0.0005)
    gc.set_threshold(20_000, 50, 1_000)
    try:
        yield
    finally:
        sys.setswitchinterval(switch_s)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
