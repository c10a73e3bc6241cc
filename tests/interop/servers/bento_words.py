"""BentoML's service for the interop tests: ``/whole`` answers text, ``/stream`` streams words as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import bentoml


@bentoml.service(workers=1, traffic={"timeout": 10})
class Words:
    @bentoml.api
    def whole(self, prompt: str) -> str:
        if not prompt:
            raise bentoml.exceptions.InvalidArgument("no prompt")
        return " ".join(prompt.split()[:8])

    @bentoml.api
    async def stream(self, prompt: str) -> AsyncGenerator[str, None]:
        for word in prompt.split()[:8]:
            yield f"{word} "
