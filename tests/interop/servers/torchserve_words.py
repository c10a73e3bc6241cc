"""A handler of TorchServe: gives the text back, after ``stream`` its words one by one.

``slowly`` takes a while, ``fail`` raises, ``die`` ends the worker.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ts.handler_utils.utils import send_intermediate_predict_response


def obey(word: str) -> None:
    if word == "fail":
        raise ValueError("thirteen is refused")
    if word == "die":
        os._exit(1)
    time.sleep(0.1 if word == "slowly" else 0.02)


def handle(data: list[dict[str, Any]] | None, context: Any) -> list[str] | None:
    """The function that TorchServe calls, once without data."""
    if data is None:
        return None
    body = data[0].get("body") or data[0].get("data")
    text = body.decode() if isinstance(body, (bytes, bytearray)) else str(body)
    first, *words = text.split()
    if first != "stream":
        for word in words:
            obey(word)
        return [text]
    for word in words[:-1]:
        send_intermediate_predict_response([f"{word} "], context.request_ids, "a word", 200, context)
        obey(word)
    return [words[-1]]
