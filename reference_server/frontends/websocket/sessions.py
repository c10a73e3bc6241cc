"""One WebSocket session from its handshake to its outcome: admission, stamps, faults, refusals, counters, and the end of the server.

The WebSocket counterpart of ``frontends/http/calls.py``: whatever a session comes to, it leaves one true row, and whoever is refused is
told before the upgrade, in the dialect of the route. A session counts as one request in flight for as long as it lasts (``accounting``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from plimsoll.reference_server.frontends.http.calls import request_id
from plimsoll.reference_server.frontends.http.ordeal import break_off, ordeal
from plimsoll.reference_server.frontends.websocket.connection import ConnectedPeer, upgrade
from plimsoll.reference_server.frontends.websocket.peer import (
    GOING_AWAY,
    INTERNAL,
    TRY_AGAIN_LATER,
    BrokenMessage,
    Conversation,
    Ending,
)
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.accounting import Account, accounted
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError, StreamCut, StreamFailure
from plimsoll.reference_server.values.stages import Stages


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the sessions of a route say when something is wrong."""

    refuse: Callable[[RequestError, str], web.Response]
    """The reply to a handshake that is refused; the text is the request id."""
    failed: Callable[[RequestError], Mapping[str, Any]]
    """The message that says why the session ends before its time."""
    protocols: tuple[str, ...]
    """Subprotocols that clients may offer; the first that fits is chosen."""


Admit = Callable[[web.Request, TruthRow], Conversation]
"""Checks what a handshake asks for and reserves it. Raises RequestError. Sets the model of the row."""


@dataclass(slots=True, eq=False)
class Sessions:
    """All sessions of one server, so that its end can be told to each."""

    service: Service
    open: set[ConnectedPeer] = field(default_factory=set)

    def route(self, dialect: Dialect, admit: Admit) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler of a WebSocket route."""

        async def handle(request: web.Request) -> web.StreamResponse:
            service, received_ns = self.service, time.monotonic_ns()
            with accounted(service, request_id(service, request), received_ns, service.closed()) as account:
                return await _Session(self, request, account, dialect).run(admit)

        return handle

    def count_stages(self, row: TruthRow) -> Callable[[Stages], None]:
        """What has stages of a session's answers counted in the metrics."""
        return lambda stages: self.service.metrics.stage(row.model, stages)

    async def end(self, _app: web.Application) -> None:
        """Close what is still open: the server goes away."""
        ending = Ending(GOING_AWAY, "the server is shutting down")
        await asyncio.gather(*(peer.close(ending) for peer in self.open), return_exceptions=True)


@dataclass(slots=True, eq=False)
class _Session:
    sessions: Sessions
    request: web.Request
    account: Account
    dialect: Dialect
    over: bool = False
    """All was said: whether the client waits for the close frame is its own affair."""

    async def run(self, admit: Admit) -> web.StreamResponse:
        """From the faults' draw to the close frame. Raises CancelledError and ConnectionError when the client is gone."""
        account, request = self.account, self.request
        conversation: Conversation | None = None
        try:
            async with ordeal(request, account.draw(), account.service.wheel, account.row.received_ns):
                if not web.WebSocketResponse().can_prepare(request):
                    message = f"{request.path} is a WebSocket. Connect with a WebSocket handshake, version 13"
                    raise RequestError(426, message, code="no_upgrade")
                conversation = admit(request, account.row)
                await account.hold()
                return await self._upgraded(conversation)
        except RequestError as error:
            await account.hold()
            return await self._refuse(error)
        except StreamCut:
            account.outcome = "cut"
            if conversation is not None:
                conversation.close()
            await break_off(request, account.break_by)
            raise asyncio.CancelledError from None
        except (asyncio.CancelledError, ConnectionError):
            if not self.over:
                account.outcome = "cancelled"
            raise
        finally:
            if conversation is not None:
                conversation.close()

    async def _upgraded(self, conversation: Conversation) -> web.StreamResponse:
        peer, response = await upgrade(
            self.request,
            self.account.row,
            self.account.misfortune,
            protocols=self.dialect.protocols,
            max_message=self.sessions.service.max_body_bytes,
        )
        self.sessions.open.add(peer)
        try:
            ending = await conversation.hold(peer)
            self.account.outcome = "ok" if ending is None or ending.ok else "error"
        except BrokenMessage:
            return response  # closed already, with the status code of what was wrong
        except RequestError as error:
            peer.last_words(self.dialect.failed(error))
            ending = Ending(TRY_AGAIN_LATER if error.status == 503 else INTERNAL, error.message)
        except StreamFailure as failure:
            peer.last_words(
                self.dialect.failed(RequestError(500, str(failure), kind="server_error", code=failure.code))
            )
            ending = Ending(INTERNAL, str(failure))
        finally:
            self.sessions.open.discard(peer)
        self.over = True
        if ending is not None:
            await peer.close(ending)
        return response

    async def _refuse(self, error: RequestError) -> web.StreamResponse:
        """Answer the handshake with a refusal."""
        row = self.account.row
        self.account.refused(error)
        response = self.dialect.refuse(error, row.request_id)
        response.headers["x-request-id"] = row.request_id
        if error.retry_after_s is not None:
            response.headers["Retry-After"] = str(error.retry_after_s)
        if error.status == 426:
            response.headers["Upgrade"] = "websocket"
        row.status = error.status
        row.first_write_ns = time.monotonic_ns()
        await response.prepare(self.request)
        await response.write_eof()
        return response


def quiet_subprotocols() -> None:
    """Keep aiohttp from warning on stderr about every client that offers a subprotocol unknown here: it is answered with none, as RFC 6455 has it."""
    logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)
