"""Messages of a stream leave in order, one at a time and stamped; a client that reads nothing costs a bounded amount of
memory.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, cast

import grpc
import pytest

from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Account, Service
from plimsoll.reference_server.transports.grpc_calls import Call, Context, Outbox, TokenSink
from plimsoll.reference_server.values.errors import StreamCut, StreamFailure


class FakeContext:
    """A client that reads when it is let."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.n_under_way = 0
        self.is_gone = False

    async def write(self, data: bytes) -> None:
        self.n_under_way += 1
        assert self.n_under_way == 1
        await self.reads.wait()
        if self.is_gone:
            raise grpc.aio.InternalError("execute_batch")
        self.written.append(data)
        self.n_under_way -= 1


def made() -> tuple[FakeContext, Outbox, Call]:
    context = FakeContext()
    return context, Outbox(cast(Context, context)), Call(Account(cast(Service, None), TruthRow("r", "m", 0)))


def run(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(case, 10))


def test_messages_leave_in_order_and_token_events_are_stamped() -> None:
    async def case() -> None:
        context, outbox, call = made()
        writer = asyncio.create_task(outbox.run())
        outbox.put(b"a", call, 5)
        outbox.put(b"b")
        outbox.put(b"c", call, 7)
        await outbox.sent()
        writer.cancel()
        assert context.written == [b"a", b"b", b"c"]
        row = call.row
        assert row.due_ns.tolist() == [5, 7]
        (first, second), (first_after, second_after) = row.before_ns, row.after_ns
        assert 0 <= row.first_write_ns <= first <= first_after <= second <= second_after

    run(case())


def test_what_a_client_does_not_read_is_bounded() -> None:
    async def case() -> None:
        context, outbox, call = made()
        context.reads.clear()
        writer = asyncio.create_task(outbox.run())
        for _ in range(5):
            outbox.put(bytes(1 << 20), call)
        with pytest.raises(StreamCut, match="reads too slowly"):
            outbox.put(b"", call)
        writer.cancel()

    run(case())


def test_a_write_under_way_is_finished_before_the_call_is_ended() -> None:
    async def case() -> None:
        context, outbox, call = made()
        context.reads.clear()
        writer = asyncio.create_task(outbox.run())
        outbox.put(b"a", call)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.cancel()
        settled = asyncio.create_task(outbox.settled())
        await asyncio.wait({settled, writer}, return_when=asyncio.FIRST_COMPLETED)
        assert not settled.done()
        context.reads.set()
        await settled
        assert context.written == [b"a"]

    run(case())


def test_a_client_that_is_gone_is_a_broken_connection_and_no_error_of_the_library() -> None:
    async def case() -> None:
        context, outbox, _ = made()
        context.is_gone = True
        outbox.put(b"a")
        with pytest.raises(ConnectionError):
            await outbox.run()

    run(case())


def test_a_write_that_fails_after_its_stream_was_cancelled_says_nothing_on_stderr() -> None:
    async def case() -> None:
        said: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: said.append(about))
        context, outbox, _ = made()
        context.reads.clear()
        writer = asyncio.create_task(outbox.run())
        outbox.put(b"a")
        while not context.n_under_way:
            await asyncio.sleep(0)
        writer.cancel()
        context.is_gone = True
        context.reads.set()
        await outbox.settled()
        del outbox, writer
        gc.collect()
        assert said == []

    run(case())


def test_a_sink_sends_text_only_and_ends_where_the_script_says() -> None:
    async def case() -> None:
        context, outbox, call = made()
        writer = asyncio.create_task(outbox.run())
        sink = TokenSink(outbox, call, str.encode, (4, -1))
        for text in ("a", "", "b", "c"):
            sink.token(text, 1, -1)
        with pytest.raises(StreamFailure):
            sink.token("d", 1, -1)
        with pytest.raises(StreamCut):
            TokenSink(outbox, call, str.encode, (-1, 0)).token("x", 1, -1)
        await outbox.sent()
        writer.cancel()
        assert context.written == [b"a", b"b", b"c"]
        assert len(call.row.due_ns) == 0

    run(case())
