"""The client of a live protocol, from what makes its dialogue. The transport is imported when a client is made, not to list protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.harness.transport.client import Client, Target
from plimsoll.harness.transport.live.dialogue import Dialogue


def websocket_built(dialogue: Callable[[Target], Dialogue]) -> Callable[[Target, Any], Client]:
    """A protocol's ``build``."""

    def build(target: Target, clock: Any) -> Client:
        from plimsoll.harness.transport.live.websocket_pool import WebSocketClient

        return WebSocketClient(target, clock, dialogue(target))

    return build
