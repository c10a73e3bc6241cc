"""Anthropic's, Ollama's and Hugging Face's SDKs against servers at the given addresses; prints one JSON object.

``http_llm.py ANTHROPIC OLLAMA TGI``: whole and streamed answers, thought, errors before and within a stream; the fakes'
header ``x-fake`` says how each answer goes. Run by tests/e2e/test_fakes_by_sdk.py in .venv-vendors; not imported by the
suite.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import anthropic
import ollama
from huggingface_hub import AsyncInferenceClient
from huggingface_hub.errors import GenerationError, HfHubHTTPError, OverloadedError
from typed import show, wrong

ASK: Any = [{"role": "user", "content": "hi"}]


def fake(**script: Any) -> dict[str, str]:
    return {"x-fake": json.dumps(script)}


def failure(call: Callable[[], Any], *kinds: type[Exception]) -> list[Any]:
    """[class, status, message] of what a call fails with."""
    try:
        call()
    except kinds as error:
        return [type(error).__name__, getattr(error, "status_code", None), str(error)]
    return []


def messages(url: str) -> dict[str, Any]:
    """Anthropic's Messages: whole, streamed with thought, refused, failing in the middle."""
    client = anthropic.Anthropic(base_url=url, api_key="key", max_retries=0, timeout=10)
    ask: dict[str, Any] = {"model": "claude", "max_tokens": 64, "messages": ASK}
    whole = client.messages.create(**ask)
    faults = wrong(whole)
    with client.messages.stream(**ask, extra_headers=fake(reasoning=2)) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    raw = client.messages.create(**ask, stream=True, extra_headers=fake(reasoning=2))
    faults += [fault for event in raw for fault in wrong(event)]

    def broken() -> None:
        list(client.messages.create(**ask, stream=True, extra_headers=fake(error_at=2)))

    return {
        "whole": [whole.content[0].text, whole.stop_reason, whole.usage.output_tokens],
        "kinds": [kind for i, kind in enumerate(kinds) if not i or kinds[i - 1] != kind],
        "thought": final.content[0].thinking,
        "text": final.content[1].text,
        "usage": [final.usage.input_tokens, final.usage.cache_read_input_tokens, final.usage.output_tokens],
        "wrong": faults,
        "overloaded": failure(
            lambda: client.messages.create(**ask, extra_headers=fake(status=529)), anthropic.APIStatusError
        ),
        "limited": failure(
            lambda: client.messages.create(**ask, extra_headers=fake(status=429)), anthropic.RateLimitError
        ),
        "broken": failure(broken, anthropic.APIStatusError),
    }


def llama(url: str) -> dict[str, Any]:
    """Ollama's two routes, streamed and whole, and its error in a line of a stream."""
    client = ollama.Client(host=url)
    options = {"num_predict": 3}
    generated = list(client.generate(model="m", prompt="hi", stream=True, options=options))
    chatted = list(ollama.Client(host=url, headers=fake(reasoning=2)).chat("m", messages=ASK, stream=True, think=True))
    whole = client.chat("m", messages=ASK)
    last = generated[-1]
    return {
        "generated": [part.response for part in generated],
        "counts": [last.done, last.done_reason, last.prompt_eval_count, last.eval_count, (last.load_duration or 0) > 0],
        "chatted": [[part.message.content, part.message.thinking] for part in chatted],
        "whole": [whole.message.content, whole.done],
        "wrong": [fault for part in [*generated, *chatted, whole] for fault in wrong(part)],
        "busy": failure(
            lambda: ollama.Client(host=url, headers=fake(status=503)).generate("m", "hi"), ollama.ResponseError
        ),
        "broken": failure(
            lambda: list(ollama.Client(host=url, headers=fake(error_at=2)).generate("m", "hi", stream=True)),
            ollama.ResponseError,
        ),
    }


async def tgi(url: str) -> dict[str, Any]:
    """Text Generation Inference by its publisher's client: the server's own routes, not the OpenAI-like ones."""

    def client(**script: Any) -> AsyncInferenceClient:
        return AsyncInferenceClient(model=url, headers=fake(**script), timeout=10)

    async def parts(client: AsyncInferenceClient, **more: Any) -> list[Any]:
        return [part async for part in await client.text_generation("hi", stream=True, details=True, **more)]

    async def failed(call: Awaitable[Any]) -> list[Any]:
        try:
            await call
        except (GenerationError, OverloadedError, HfHubHTTPError) as error:
            return [type(error).__name__, str(error)]
        return []

    whole = await client().text_generation("hi", details=True, max_new_tokens=3)
    return {
        "streamed": [asdict(part) for part in await parts(client(), max_new_tokens=3)],
        "whole": [whole.generated_text, asdict(whole)["details"]["generated_tokens"]],
        "busy": await failed(client(status=429).text_generation("hi")),
        "broken": await failed(parts(client(error_at=2))),
    }


def main(anthropic_url: str, ollama_url: str, tgi_url: str) -> None:
    show({"anthropic": messages(anthropic_url), "ollama": llama(ollama_url), "tgi": asyncio.run(tgi(tgi_url))})


if __name__ == "__main__":
    main(*sys.argv[1:])
