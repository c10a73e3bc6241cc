"""Messages of one stream on their way to the client, written one at a time and stamped. Many answers may share a stream.

Whoever makes an answer must not wait for the network, so messages queue here; a client that doesn't read what it asked for is cut off
when too much has queued, and takes no memory beyond that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plimsoll.reference_server.frontends.grpc_.grpc_calls import Call, Context, write
from plimsoll.reference_server.frontends.shared.stream import struck
from plimsoll.reference_server.values.errors import StreamCut

_MAX_UNSENT = 4 << 20


class Outbox:
    """One stream's queue. ``run`` writes it out and must run while anything is put into it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queue: asyncio.Queue[tuple[bytes, Call | None, int] | asyncio.Future[None]] = asyncio.Queue()
        self._unsent = 0
        self._writing: asyncio.Task[None] | None = None

    def put(self, data: bytes, call: Call | None = None, due_ns: int = -1) -> None:
        """Queue a message; with a call it is one of its token events, and stamped as such. Raises StreamCut when too much waits."""
        if self._unsent > _MAX_UNSENT:
            raise StreamCut("the client reads too slowly")
        self._unsent += len(data)
        self._queue.put_nowait((data, call, due_ns))

    async def sent(self) -> None:
        """Return when everything put so far has been written."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(written)
        await written

    async def settled(self) -> None:
        """Once ``run`` was cancelled: return when the write under way is over, which may be when the client reads on, or goes.

        The library must not be told to end a call while it writes: then neither would come to an end.
        """
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def run(self) -> None:
        """Write until cancelled. Raises ConnectionError when the client is gone."""
        while True:
            item = await self._queue.get()
            if isinstance(item, asyncio.Future):
                if not item.done():
                    item.set_result(None)
                continue
            data, call, due_ns = item
            try:
                if call is not None:
                    call.begin_write(due_ns)
                self._writing = asyncio.ensure_future(write(self._context, data))
                self._writing.add_done_callback(_seen)
                await asyncio.shield(self._writing)
            finally:  # a client that leaves at once may have had it
                if call is not None:
                    call.end_write()
            self._writing = None
            self._unsent -= len(data)


def _seen(writing: asyncio.Task[None]) -> None:
    """A write that fails after its stream was cancelled has nobody left to tell: asyncio must not tell stderr."""
    if not writing.cancelled():
        writing.exception()


class TokenSink:
    """Puts the tokens of an answer into an outbox, one message each."""

    def __init__(self, outbox: Outbox, call: Call, render: Callable[[str], bytes], limits: tuple[int, int]) -> None:
        self._outbox = outbox
        self._call = call
        self._render = render
        self._error_at, self._cut_at = limits
        self._n_tokens = 0

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        """Queue one message. Raises StreamFailure or StreamCut when the script has the answer end here."""
        struck(self._n_tokens, self._error_at, self._cut_at)
        self._n_tokens += n_tokens
        if text:  # half a character: nothing to show yet
            self._outbox.put(self._render(text), self._call, due_ns)
