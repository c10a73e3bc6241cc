"""A quality regression: a slice of prompts goes to a copy of the model with coarse weights and fewer layers, sooner and wrongly.

The copy has an engine of its own, as a canary beside the release has. Which prompts are in the slice depends on the prompt and the seed
alone, so the same ones are wrong in every run. It refuses to be two copies: one regression at a time.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from plimsoll.reference_server.engine.llm import LanguageModel
from plimsoll.reference_server.misfortune.fault import Fault
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.values.errors import ConfigError


class Canary:
    """The copy, once there is one, and who goes there."""

    def __init__(self, faults: Faults, build: Callable[[Fault], Awaitable[LanguageModel]]) -> None:
        """``build`` makes and starts the copy that a fault describes; it raises ConfigError where there can be none."""
        self._faults = faults
        self._build = build
        self._copy: LanguageModel | None = None
        self._preparing = False

    async def start(self) -> None:
        """Have the copy ready that a fault given at start wants. Raises ConfigError when there are two."""
        wanted = self._faults.named("quality")
        if len(wanted) > 1:
            raise ConfigError("--fault quality: given twice. Give it once")
        for fault in wanted:
            self._copy = await self._build(fault)

    async def prepare(self, fault: Fault) -> None:
        """Have the copy ready before the fault is placed. Raises ConfigError while another one is in force."""
        if self._preparing or self._faults.named("quality"):
            raise ConfigError("--fault quality: one is in force already. Take it away first")
        self._preparing = True
        try:
            copy = await self._build(fault)
            await self.stop()
            self._copy = copy
        finally:
            self._preparing = False

    def model_for(self, prompt: Sequence[int]) -> LanguageModel | None:
        """The copy, for a prompt of the slice while the fault acts; else None."""
        for placed in self._faults.acting("quality", time.monotonic_ns()):
            if self._copy is not None and placed.marks(",".join(map(str, prompt)), "slice"):
                placed.hit()
                return self._copy
        return None

    async def stop(self) -> None:
        """End the copy's engine."""
        if self._copy is not None:
            await self._copy.engine.stop()
            self._copy = None
