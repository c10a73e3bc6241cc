"""Builds the models that need torch and starts what drives them. Imported only when one of them is served."""

from __future__ import annotations

import asyncio
import functools
import importlib
import time

import torch

from plimsoll.reference_server.config import FIXED, ServerConfig
from plimsoll.reference_server.device import torch_runner
from plimsoll.reference_server.engine.batcher import Batcher
from plimsoll.reference_server.engine.engine import Engine
from plimsoll.reference_server.engine.kv_blocks import KvBlocks
from plimsoll.reference_server.engine.llm import Bounds, LanguageModel
from plimsoll.reference_server.engine.scheduler import Scheduler
from plimsoll.reference_server.engine.shelf import Shelved
from plimsoll.reference_server.misfortune.fault import Fault
from plimsoll.reference_server.misfortune.levers import (
    MisfortuneModel,
    MisfortuneRunner,
    SchedulerLever,
    SlowedSteps,
    window_lever,
)
from plimsoll.reference_server.models.tone_bank import ToneBank
from plimsoll.reference_server.service.service import Canary, Service
from plimsoll.reference_server.speech.listening import Hearing, Recogniser
from plimsoll.reference_server.speech.speaking import Synthesiser
from plimsoll.reference_server.values.durations import WARM_UP, WEIGHTS, Startup
from plimsoll.reference_server.values.errors import ConfigError

_MODULES = {"resnet50": "resnet"}
"""Where the module of a fixed-output model is not named like the model."""


def gpu_bytes() -> dict[str, float]:
    """Bytes by kind on the current CUDA device: ``allocated`` in tensors, ``reserved`` by torch's allocator, ``free``
    for anybody on the device, and ``total``."""
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "free": free,
        "total": total,
    }


async def start(config: ServerConfig, service: Service) -> None:
    """Load, warm up and start every model of the configuration. Raises ConfigError."""
    loop = asyncio.get_running_loop()
    if torch_runner.choose_device(config.device) == "cuda":
        service.metrics.gpu_memory(gpu_bytes)
    if "llm" in config.models:
        llm = await loop.run_in_executor(None, _language_model, config, service)
        service.llm = llm
        await _warm_up(llm.engine, service.startup)
        service.canary = Canary(service.faults, functools.partial(_coarse_copy, config))
        llm.detour = service.canary.model_for
        await service.canary.start()
    for name in config.models:
        if name in FIXED:
            batcher = await loop.run_in_executor(None, _batcher, name, config, service)
            service.fixed[name] = batcher
            service.levers.attach(window_lever(batcher, service.faults))
            await batcher.start()
    if "recogniser" in config.models:
        with service.startup.phase(WEIGHTS):
            service.recogniser = await loop.run_in_executor(None, recogniser, config)
        await service.recogniser.start(service.startup)
    if "synthesiser" in config.models:
        service.synthesiser = Synthesiser(limit=config.max_batch + config.queue_limit)
        await service.synthesiser.start(service.startup)


def recogniser(config: ServerConfig) -> Recogniser:
    """The recogniser, not yet started: it hears as many streams at once as a batch holds and a queue may."""
    bank = ToneBank(torch_runner.choose_device(config.device))
    return Recogniser(Hearing(bank, config.max_batch + config.queue_limit), max_batch=config.max_batch)


async def _warm_up(engine: Engine, startup: Startup) -> None:
    """Start an engine; what its runner doesn't note as a phase of its own is warm-up."""
    begun_ns, noted_ns = time.monotonic_ns(), sum(startup.phases.spans_ns.values())
    await engine.start()
    noted_ns = sum(startup.phases.spans_ns.values()) - noted_ns
    startup.phases.add(WARM_UP, time.monotonic_ns() - begun_ns - noted_ns)


def _batcher(name: str, config: ServerConfig, service: Service) -> Batcher:
    try:
        module = importlib.import_module(f"plimsoll.reference_server.models.{_MODULES.get(name, name)}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "PIL":
            raise
        raise ConfigError(f"--model {name} needs Pillow, which is missing. Install plimsoll-slo[server]") from None
    build = functools.partial(
        module.build,
        device=torch_runner.choose_device(config.device),
        seed=config.seed,
        threads=torch_runner.choose_threads(config.threads),
        **({"side": config.image_side, "precision": config.precision} if name == "resnet50" else {}),
    )
    with service.startup.phase(WEIGHTS):
        model = Shelved(service.shelf, build)
    return Batcher(
        MisfortuneModel(model, SlowedSteps(service.faults)),
        max_batch=config.max_batch,
        max_wait_ns=config.max_wait_ns,
        queue_limit=config.queue_limit,
        synchronise=config.synchronise,
        window=config.window,
        startup=service.startup,
        metrics=service.metrics,
    )


def _language_model(config: ServerConfig, service: Service) -> LanguageModel:
    with service.startup.phase(WEIGHTS):
        loaded = _load(config, service.startup)
    scheduler = _scheduler(config, loaded)
    SchedulerLever(scheduler, service.faults)
    engine = Engine(
        scheduler, MisfortuneRunner(loaded.runner, SlowedSteps(service.faults)), on_step=service.metrics.step
    )
    bounds = Bounds(config.max_prompt, config.max_output)
    return LanguageModel(engine, loaded.tokenizer, bounds=bounds, metrics=service.metrics)


async def _coarse_copy(config: ServerConfig, fault: Fault) -> LanguageModel:
    """The copy that a quality regression answers with. Raises ConfigError for a preset that can't be made coarse."""

    def build() -> LanguageModel:
        loaded = _load(config, Startup())
        if not isinstance(loaded.runner, torch_runner.TorchRunner):
            raise ConfigError(f"--fault {fault.name}: this model can't be made coarse. Use --preset tiny or small")
        loaded.runner.coarsen(fault.whole("levels"), fault.number("layers"))
        bounds = Bounds(config.max_prompt, config.max_output)
        return LanguageModel(Engine(_scheduler(config, loaded), loaded.runner), loaded.tokenizer, bounds=bounds)

    copy = await asyncio.get_running_loop().run_in_executor(None, build)
    await copy.engine.start()
    return copy


def _load(config: ServerConfig, startup: Startup) -> torch_runner.Loaded:
    return torch_runner.build(
        config.preset,
        weights=config.weights,
        device=config.device,
        block_size=config.block_size,
        n_blocks=config.kv_blocks,
        max_batch=config.max_batch,
        seed=config.seed,
        threads=config.threads,
        startup=startup,
    )


def _scheduler(config: ServerConfig, loaded: torch_runner.Loaded) -> Scheduler:
    runner = loaded.runner
    return Scheduler(
        KvBlocks(runner.n_blocks, runner.block_size, reuse_prefixes=config.prefix_cache),
        max_batch=config.max_batch,
        queue_limit=config.queue_limit,
        max_context=runner.shape.max_context,
        step_tokens=config.step_tokens,
        continuous=config.batching == "continuous",
        kv_cache=config.kv_cache,
        eos=loaded.tokenizer.eos,
    )
