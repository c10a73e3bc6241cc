"""Which model to ask for when the user named none: the first one that the server lists. Cold; one GET before the run."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request

from harness.client import Target
from harness.dialect import join_path
from harness.http_pool import origin_of
from harness.stream import tls_context

#: What a list of models may weigh at most.
_LIMIT = 4_000_000


async def first_model(target: Target) -> str | None:
    """The first model of ``GET /v1/models``, or None when the server has no such list."""
    return await asyncio.to_thread(_ask, target)


def _ask(target: Target) -> str | None:
    origin = origin_of(target.url)
    scheme = "https" if origin.tls else "http"
    path = join_path(target.url, "/v1/models")
    for ending in ("/chat/completions", "/completions", "/embeddings"):
        path = path.replace(f"{ending}/models", "/models")  # the user gave the whole endpoint URL
    request = urllib.request.Request(f"{scheme}://{origin.authority}{path}", headers=dict(target.headers))
    context = tls_context(target.tls_verify, target.ca_file) if origin.tls else None
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=target.connect_timeout_ns / 1e9) as answer:
            listed = json.loads(answer.read(_LIMIT))
        name = listed["data"][0]["id"]
    except (OSError, ssl.SSLError, ValueError, KeyError, IndexError, TypeError):
        return None  # not every server lists its models; the request then goes without a name
    return name if isinstance(name, str) else None
