"""Runs a server from its configuration until it is told to stop. The composition root of the package."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from plimsoll.reference_server.config import WITH_TORCH, ReadyLine, ServerConfig
from plimsoll.reference_server.engine.batch_clock import BatchClock
from plimsoll.reference_server.engine.batch_queue import BatchQueue
from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.engine.scripted import ScriptedModel
from plimsoll.reference_server.engine.shelf import Shelf
from plimsoll.reference_server.http_server import HttpFrontEnd
from plimsoll.reference_server.misfortune.fault import parse_fault
from plimsoll.reference_server.misfortune.faults import Faults, linger
from plimsoll.reference_server.misfortune.levers import slots_lever
from plimsoll.reference_server.seams.truth import Truth
from plimsoll.reference_server.service.limit import parse_limit
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.durations import IMPORT, Startup, batch_times
from plimsoll.reference_server.values.errors import ConfigError
from plimsoll.reference_server.values.timetable import DeadlineWheel

if TYPE_CHECKING:
    from plimsoll.reference_server.grpc_server import GrpcFrontEnd

_log = logging.getLogger(__name__)


async def serve(config: ServerConfig, ready: Callable[[ReadyLine], None] | None = None) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; ``ready`` is called once requests are answered.

    The front-ends listen from the start, so that readiness can be asked for; what is not ready yet answers 503. At the
    end they take nothing new, and requests under way get ``config.grace_s`` to finish; a second signal cuts that short.
    A start that is told to stop ends when what it is loading is loaded, which nothing can interrupt; a second signal
    then kills the process. Raises ConfigError, also for models that can't be started, and OSError when a port is taken.
    """
    loop = asyncio.get_running_loop()
    stopping, hurrying = asyncio.Event(), asyncio.Event()
    wheel = DeadlineWheel(loop)
    service = Service(
        wheel=wheel,
        faults=Faults([parse_fault(text) for text in config.faults], seed=config.seed),
        truth=Truth(),
        metrics=Metrics(),
        max_body_bytes=config.max_body_bytes,
        startup=Startup(),
        read_timeout_s=config.read_timeout_s,
        max_connections=config.max_connections,
        version=config.version,
        served_by=config.served_by,
        shelf=Shelf(config.resident),
        response_cache=config.response_cache,
        limit=parse_limit(config.in_flight),
    )
    http = HttpFrontEnd(service)
    grpc = _grpc(service) if config.grpc_port is not None else None
    with _signals(loop, stopping, hurrying), _calm_interpreter():
        try:
            port = await http.start(config.host, config.http_port)
            grpc_port = await grpc.start(config.host, config.grpc_port or 0) if grpc is not None else None
            starting = asyncio.create_task(_start_models(config, service))
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting  # raises what it raised
                gc.collect()
                gc.freeze()  # what exists now lives as long as the server: collections need not walk it
                service.startup.ready = True
                if ready is not None:
                    ready(_ready_line(config, service, port, grpc_port))
            else:
                starting.cancel()
                _second_signal_kills(loop)
                await asyncio.gather(starting, return_exceptions=True)
            await stopped
        finally:
            service.startup.draining = True
            await _drain([http] if grpc is None else [http, grpc], config.grace_s, hurrying)
            await service.stop()
            wheel.close()


async def _drain(front_ends: Sequence[HttpFrontEnd | GrpcFrontEnd], grace_s: float, hurrying: asyncio.Event) -> None:
    """Let what is under way finish within the grace, or until somebody is in a hurry."""
    done = asyncio.gather(*(front_end.stop(grace_s) for front_end in front_ends))
    hurry = asyncio.create_task(hurrying.wait())
    await asyncio.wait((done, hurry), return_when=asyncio.FIRST_COMPLETED)
    if not done.done():
        await asyncio.gather(*(front_end.stop(0.0) for front_end in front_ends))
    hurry.cancel()
    await done


def _ready_line(config: ServerConfig, service: Service, port: int, grpc_port: int | None) -> ReadyLine:
    host = f"[{config.host}]" if ":" in config.host else config.host
    grpc = None if grpc_port is None else f"{host}:{grpc_port}"
    device = "cpu" if set(config.models) == {"scripted"} else _device(config)
    return ReadyLine(f"http://{host}:{port}", config.models, device, grpc, service.startup.seconds())


def _grpc(service: Service) -> GrpcFrontEnd:
    try:
        from plimsoll.reference_server.grpc_server import GrpcFrontEnd
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("grpc", "google", "grpc_health", "grpc_reflection"):
            raise
        raise ConfigError(f"--grpc-port needs {error.name}, which is missing. Install plimsoll-slo[server]") from None
    return GrpcFrontEnd(service)


async def _start_models(config: ServerConfig, service: Service) -> None:
    unwanted = threading.Event()
    try:
        await asyncio.get_running_loop().run_in_executor(None, linger, service.faults, service.startup, unwanted.wait)
    finally:
        unwanted.set()  # told to stop, nobody waits for the rest of it
    if "scripted" in config.models:
        batches = None
        if (times := batch_times(config.service)) is not None:
            queue = BatchQueue(
                max_batch=config.max_batch,
                max_wait_ns=config.max_wait_ns,
                queue_limit=config.queue_limit,
                window=config.window,
            )

            def counted(n_samples: int, seconds: float) -> None:
                service.metrics.batch("scripted", n_samples, config.max_batch, seconds)

            batches = BatchClock(service.wheel.at, queue, fixed_ns=times[0], each_ns=times[1], on_batch=counted)
        service.scripted = ScriptedModel(
            service.wheel,
            ttft_ns=config.ttft_ns,
            itl_ns=config.itl_ns,
            seed=config.seed,
            n_slots=config.slots,
            service=config.service,
            queue_limit=config.queue_limit,
            late_ns=service.faults.late_ns,
            rewords=service.faults.rewords,
            batches=batches,
        )
        service.levers.attach(slots_lever(service.scripted, service.faults))
    if any(name in WITH_TORCH for name in config.models):
        # Imports and weights take seconds: health is answered meanwhile.
        await asyncio.get_running_loop().run_in_executor(None, _import_torch, service.startup, config.models)
        from plimsoll.reference_server import assembly

        try:
            await assembly.start(config, service)
        except (OSError, RuntimeError, MemoryError) as error:  # torch's are RuntimeErrors, lack of memory among them
            _log.debug("the models can't be started", exc_info=True)
            reason = (str(error).strip().splitlines() or ["no reason given"])[0]
            raise ConfigError(
                f"the models can't be started: {type(error).__name__}: {reason}. "
                "If it is memory, choose a smaller --preset or --kv-blocks"
            ) from error


def _import_torch(startup: Startup, models: Sequence[str]) -> None:
    try:
        with startup.phase(IMPORT):
            importlib.import_module("plimsoll.reference_server.device.torch_runner")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        wanting = [name for name in models if name in WITH_TORCH]
        raise ConfigError(
            f"{' and '.join(wanting)} can't be served without torch, which is missing. "
            "Install plimsoll-slo[server], or serve --model scripted, which needs none"
        ) from None


def _device(config: ServerConfig) -> str:
    from plimsoll.reference_server.device import torch_runner

    return torch_runner.choose_device(config.device)


@contextlib.contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event, hurrying: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the first event, and the second when they come again, where this is the main thread."""

    def told() -> None:
        (hurrying if stopping.is_set() else stopping).set()

    handled = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(RuntimeError, ValueError):
            loop.add_signal_handler(number, told)
            handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def _second_signal_kills(loop: asyncio.AbstractEventLoop) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        if loop.remove_signal_handler(number):
            signal.signal(number, signal.SIG_DFL)


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
