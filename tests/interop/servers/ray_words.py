"""Ray Serve's deployment for the interop tests: ``/whole`` answers JSON, ``/lines`` streams one JSON object a line."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse


@serve.deployment
class Words:
    async def __call__(self, request: Request) -> Any:
        prompt = (await request.json())["prompt"]
        if request.url.path == "/fail":
            return JSONResponse({"detail": "no such words"}, status_code=422)
        words = prompt.split()[:8]
        if request.url.path == "/whole":
            return {"text": " ".join(words), "tokens": len(words)}
        return StreamingResponse(self.lines(words), media_type="application/x-ndjson")

    async def lines(self, words: list[str]) -> AsyncIterator[str]:
        for word in words:
            yield json.dumps({"text": f"{word} "}) + "\n"
            await asyncio.sleep(0.002)
        yield json.dumps({"done": True, "tokens": len(words)}) + "\n"


def main(port: str, metrics_port: str) -> None:
    import ray

    often = {"metrics_report_interval_ms": 500}  # 10 s by itself
    quiet = {"include_dashboard": False, "configure_logging": False, "log_to_driver": False}
    ray.init(num_cpus=2, _metrics_export_port=int(metrics_port), _system_config=often, **quiet)
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
    serve.run(Words.bind(), blocking=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
