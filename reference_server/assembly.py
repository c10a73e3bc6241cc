"""Builds the models that need torch and starts what drives them. Imported only when one of them is served."""

from __future__ import annotations

import asyncio
import importlib

from reference_server import torch_runner
from reference_server.batcher import Batcher
from reference_server.config import FIXED, ServerConfig
from reference_server.engine import Engine
from reference_server.kv_blocks import KvBlocks
from reference_server.llm import LanguageModel
from reference_server.scheduler import Scheduler
from reference_server.service import Service
from reference_server.startup import WEIGHTS

_MODULES = {"resnet50": "resnet"}
"""Where the module of a fixed-output model is not named like the model."""


async def start(config: ServerConfig, service: Service) -> None:
    """Load, warm up and start every model of the configuration. Raises ConfigError."""
    loop = asyncio.get_running_loop()
    if "llm" in config.models:
        engine = await loop.run_in_executor(None, _engine, config, service)
        service.llm = LanguageModel(engine)
        await engine.start()
    for name in config.models:
        if name in FIXED:
            batcher = await loop.run_in_executor(None, _batcher, name, config, service)
            service.fixed[name] = batcher
            await batcher.start()
    for name in ("recogniser", "synthesiser"):
        if name in config.models:
            module = importlib.import_module(f"reference_server.models.{name}")
            with service.startup.phase(WEIGHTS):
                model = await loop.run_in_executor(None, module.build, config)
            setattr(service, name, model)
            await model.start(service.startup)


def _batcher(name: str, config: ServerConfig, service: Service) -> Batcher:
    module = importlib.import_module(f"reference_server.models.{_MODULES.get(name, name)}")
    with service.startup.phase(WEIGHTS):
        model = module.build(
            device=torch_runner.choose_device(config.device),
            seed=config.seed,
            threads=torch_runner.choose_threads(config.threads),
        )
    return Batcher(
        model,
        max_batch=config.max_batch,
        max_wait_ns=config.max_wait_ns,
        queue_limit=config.queue_limit,
        synchronise=config.synchronise,
        startup=service.startup,
        metrics=service.metrics,
    )


def _engine(config: ServerConfig, service: Service) -> Engine:
    with service.startup.phase(WEIGHTS):
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
    return Engine(scheduler, runner, on_step=service.metrics.step)
