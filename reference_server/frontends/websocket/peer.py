"""The seam between a conversation and the client at the other end of its WebSocket. No network here.

A conversation reads messages one after the other and sends its own whole; what a frame is, who pings, and what the faults have in
store for the connection are none of its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from plimsoll.reference_server.seams.truth import TruthRow

NORMAL = 1000
GOING_AWAY = 1001
POLICY = 1008
INTERNAL = 1011
TRY_AGAIN_LATER = 1013


@dataclass(frozen=True, slots=True)
class Ending:
    """How the server closes: a status code of RFC 6455, and a reason of at most 123 bytes."""

    code: int = NORMAL
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Did the conversation end as it should?"""
        return self.code == NORMAL


class Peer(Protocol):
    """A connected client."""

    @property
    def row(self) -> TruthRow:
        """The session's row; every message sent leaves its stamps there."""

    async def receive(self, deadline_ns: int = -1) -> str | bytes | None:
        """The next message: text, binary, or None when the client has closed.

        Raises TimeoutError when none came by that instant of ``time.monotonic_ns()``, ConnectionError when the client vanished,
        and BrokenMessage when what came is no message.
        """

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one JSON text message. Raises StreamFailure or StreamCut when a fault strikes, ConnectionError when nobody is there."""

    def send_audio(self, data: bytes) -> None:
        """Write one binary message. Raises as ``send`` does."""

    async def room(self) -> None:
        """Return when the client has read most of what was sent. Raises StreamCut when it doesn't read."""


class Conversation(Protocol):
    """What happens on one connection, admitted before the handshake was answered."""

    async def hold(self, peer: Peer) -> Ending | None:
        """Talk until one side is done; None when the client closed. Raises RequestError when a model gives up."""

    def close(self) -> None:
        """Give up whatever the conversation holds; finished or not; harmless when repeated."""


class BrokenMessage(Exception):
    """The client broke the WebSocket protocol: a message too big, text that is not UTF-8, a bad frame. The connection is closed."""
