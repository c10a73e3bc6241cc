"""Our gRPC transport and grpcio's client against grpcio's server: every kind of call, every way in which one can end.

The transport that is ours and the client of grpcio (``tests/grpcio_client.py``) pass the same tests. Real sockets, real
time, each test short.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
import uvloop

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING
from plimsoll.harness.transport.rpc.call import GrpcRequest
from plimsoll.reference_server.protos import inference_pb2
from plimsoll.slo.records.records import Stamp, Status
from tests.e2e.grpc_bench import PARENT, GrpcBench, bidi, grpc_bench, messages, stream, unary
from tests.e2e.test_reference_server import running
from tests.fakes.grpc_scripted import Log, scripted_server

pytestmark = pytest.mark.e2e
MS = 1_000_000
both = pytest.mark.parametrize("transport", ["stamped", "grpcio"])


async def echo(log: Log, requests: Any, context: Any) -> Any:
    """Answers each message with itself; a server stream with three copies."""
    if isinstance(requests, bytes):
        log.received.append((time.monotonic_ns(), requests))
        if context.code() is None and "ServerStream" not in log.method:
            return b"re:" + requests
        for i in range(3):
            await log.write(context, b"%d:" % i + requests)
        return None
    got = []
    async for message in requests:
        log.received.append((time.monotonic_ns(), message))
        got.append(message)
        if "Bidi" in log.method:
            await log.write(context, b"re:" + message)
    log.half_closed_ns.append(time.monotonic_ns())
    return b"".join(got) if "ClientStream" in log.method else None


def play(
    body: Callable[[GrpcBench, Log, grpc.aio.Server], Awaitable[None]],
    script: Any = echo,
    transport: str = "stamped",
    ahead: int = 0,
    server: tuple[tuple[str, Any], ...] = (),
    **options: Any,
) -> Log:
    """Run one test body against one scripted server."""

    async def main() -> Log:
        async with scripted_server(script, options=server) as (address, log, running):
            async with grpc_bench(f"grpc://{address}", ahead, transport, **options) as bench:
                await body(bench, log, running)
            return log

    return uvloop.run(main())


@both
def test_every_kind_of_call_brings_its_messages_with_one_mark_each(transport: str) -> None:
    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        await asyncio.sleep(0.05)  # Linux begins to stamp in the background
        for request, answers in [
            (unary(b"hi"), [b"re:hi"]),
            (stream(b"x"), [b"0:x", b"1:x", b"2:x"]),
            (GrpcRequest("/fake.Svc/ClientStream", (b"a", b"", b"c"), client_streaming=True), [b"ac"]),
            (bidi(b"a", b"", b"c"), [b"re:a", b"re:", b"re:c"]),
        ]:
            exchange = await bench.call(request)
            assert (exchange.status, exchange.error, exchange.code) == (Status.OK, None, 0)
            assert messages(exchange) == answers
            assert len(exchange.mark_ns) == len(answers)
            assert exchange.sent_ns <= exchange.first_byte_ns <= exchange.mark_ns[0] <= exchange.done_ns
            assert exchange.stamp == (Stamp.USER if transport == "grpcio" else Stamp.KERNEL)
            assert log.metadata[-1]["x-request-id"] == "run-0-0"
            assert transport == "grpcio" or log.metadata[-1]["traceparent"] == PARENT.decode()

    play(body, transport=transport)


def test_messages_arrive_when_the_server_wrote_them() -> None:
    async def slow(log: Log, requests: Any, context: Any) -> None:
        for i in range(5):
            await asyncio.sleep(0.01)
            await log.write(context, b"%d" % i)

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        exchange = await bench.call(stream())
        # The server's time is taken before its library writes: what is recorded comes after it, and before the next
        # one.
        for i, (sent, came) in enumerate(zip(log.sent_ns, exchange.mark_ns, strict=True)):
            assert sent <= came < (log.sent_ns[i + 1] if i < 4 else exchange.done_ns + 1)

    play(body, slow)


@both
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, Status.GRPC),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Status.REFUSED),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Status.TIMEOUT),
        (grpc.StatusCode.UNAVAILABLE, Status.GRPC),
        (grpc.StatusCode.CANCELLED, Status.GRPC),
    ],
)
def test_an_error_status_is_kept_with_its_message_and_what_came_before(
    transport: str, code: grpc.StatusCode, status: Status
) -> None:
    async def fails(log: Log, requests: Any, context: Any) -> None:
        await log.write(context, b"before")
        context.set_trailing_metadata((("retry-after", "3"), ("detail-bin", b"\x00\xff")))
        await context.abort(code, "no room: 100% füll\n")

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        exchange = await bench.call(stream())
        assert (exchange.status, exchange.code) == (status, code.value[0])
        assert exchange.error == f"gRPC {code.name}: no room: 100% füll"
        assert messages(exchange) == [b"before"]
        assert (b"retry-after", b"3") in exchange.headers
        assert (b"detail-bin", b"\x00\xff") in exchange.headers

    play(body, fails, transport)


@both
def test_a_method_that_is_not_there_is_a_grpc_error(transport: str) -> None:
    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        exchange = await bench.call(GrpcRequest("/fake.Svc/Nope", (b"",)))
        assert (exchange.status, exchange.code) == (Status.GRPC, 12)
        assert exchange.error is not None
        assert exchange.error.startswith("gRPC UNIMPLEMENTED")

    play(body, transport=transport)


@both
def test_metadata_and_the_deadline_reach_the_server(transport: str) -> None:
    request = unary(metadata=(("x-key", "v, w"), ("raw-bin", b"\x00\x01\xfe")), deadline_ns=700 * MS)

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        await bench.call(request)
        seen = log.metadata[0]
        assert (seen["x-key"], seen["raw-bin"], seen["authorization"]) == ("v, w", b"\x00\x01\xfe", "Bearer k")
        assert log.deadlines_s[0] is not None
        assert 0.3 < log.deadlines_s[0] < 0.75

    play(body, transport=transport, headers=(("Authorization", "Bearer k"),))


@both
def test_a_call_that_takes_longer_than_its_deadline_times_out_and_is_cancelled_at_the_server(transport: str) -> None:
    async def never(log: Log, requests: Any, context: Any) -> None:
        await log.write(context, b"first")
        await asyncio.sleep(5)

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        exchange = await bench.call(stream(deadline_ns=150 * MS))
        assert exchange.status == Status.TIMEOUT
        assert messages(exchange) == [b"first"]
        assert 140 * MS < exchange.done_ns - exchange.ready_ns < 400 * MS
        await until(lambda: log.ended == 1)

    play(body, never, transport)


async def until(what: Callable[[], bool], seconds: float = 2.0) -> None:
    give_up = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.005)


@both
def test_cancellation_leaves_nothing_open_at_the_server_and_keeps_what_came(transport: str) -> None:
    async def forever(log: Log, requests: Any, context: Any) -> None:
        while True:
            await log.write(context, b"tick")
            await asyncio.sleep(0.005)

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        exchange, done = bench.start(stream())
        await until(lambda: len(exchange.mark_ns) >= 3)
        bench.client.cancel(exchange, int(Status.CANCELLED), "dropped")
        assert (await done).status == Status.CANCELLED
        bench.client.settle(exchange)
        assert exchange.error == "dropped"
        assert set(messages(exchange)) == {b"tick"}
        await until(lambda: log.ended == 1)
        assert log.cancelled == 1
        again = await bench.call(GrpcRequest("/fake.Svc/Nope", (b"",)))  # the connection lives on
        assert again.code == 12
        assert bench.client.stats()["connections_opened"] == 1

    play(body, forever, transport)


@both
def test_frames_leave_on_their_schedule_and_say_how_late_they_were(transport: str) -> None:
    request = bidi(
        b"config", b"f0", b"f1", b"f2", due_ns=(0, 20 * MS, 40 * MS, 60 * MS), opening=1, closing_due_ns=80 * MS
    )

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        exchange = await bench.call(request)
        assert messages(exchange) == [b"re:config", b"re:f0", b"re:f1", b"re:f2"]
        session = exchange.session
        assert session is not None
        assert session.open_ns == exchange.sent_ns
        assert session.input_end_ns == exchange.sent_ns + 80 * MS
        assert len(session.frame_lag_ns) == 3
        for i, lag in enumerate(session.frame_lag_ns):
            assert lag >= 0
            assert log.received[i + 1][0] >= exchange.sent_ns + (i + 1) * 20 * MS + lag
        assert log.half_closed_ns[0] >= session.input_end_ns

    play(body, transport=transport, ahead=1)


@both
def test_an_endpoint_ends_the_input_and_done_ends_the_call(transport: str) -> None:
    due = tuple(i * 10 * MS for i in range(50))
    frames = bidi(*(b"f%d" % i for i in range(50)), due_ns=due, needed=3)

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        bench.dialect.said = lambda message: ENDPOINT if message == b"re:f5" else NOTHING
        exchange = await bench.call(frames)
        assert exchange.status == Status.OK
        assert b"re:f5" in messages(exchange)
        assert len(exchange.mark_ns) < 20
        bench.dialect.said = lambda message: DONE if message == b"1:x" else NOTHING
        exchange = await bench.call(stream(b"x"))
        assert (exchange.status, messages(exchange)) == (Status.OK, [b"0:x", b"1:x"])

    play(body, transport=transport)


@both
def test_large_messages_pass_the_windows_in_both_directions(transport: str) -> None:
    large = bytes(range(256)) * 4 * 1024 * 3  # 3 MiB: far over every initial window

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        exchange = await bench.call(unary(large))
        assert exchange.error is None
        assert messages(exchange) == [b"re:" + large]

    play(
        body,
        transport=transport,
        server=(("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)),
    )


@both
def test_a_message_over_the_limit_is_refused(transport: str) -> None:
    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        exchange = await bench.call(unary(b"x" * 100))
        assert exchange.status in (Status.PROTOCOL, Status.REFUSED)
        assert "larger than" in str(exchange.error)

    play(body, transport=transport, max_message=50)


def test_a_compressed_message_is_refused_by_name() -> None:
    async def squeezed(log: Log, requests: Any, context: Any) -> bytes:
        context.set_compression(grpc.Compression.Gzip)
        return b"a" * 1000

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        exchange = await bench.call(unary())
        # A server that honours grpc-accept-encoding sends it plain; grpcio's does.
        assert exchange.status == Status.OK

    play(body, squeezed)


@both
def test_a_server_that_stops_lets_calls_finish_and_new_ones_find_the_next_server(transport: str) -> None:
    async def slow(log: Log, requests: Any, context: Any) -> None:
        for i in range(8):
            await log.write(context, b"%d" % i)
            await asyncio.sleep(0.03)

    async def body(bench: GrpcBench, log: Log, server: grpc.aio.Server) -> None:
        exchange, done = bench.start(stream())
        await until(lambda: len(exchange.mark_ns) >= 2)
        stopping = asyncio.ensure_future(server.stop(2))  # GOAWAY now, the call goes on
        assert (await asyncio.wait_for(done, 3)).status == Status.OK
        assert len(exchange.mark_ns) == 8
        await stopping
        late = await bench.call(stream())
        assert late.status == Status.CONNECT

    play(body, slow, transport)


@both
def test_a_server_that_is_killed_in_the_middle_leaves_what_came(transport: str) -> None:
    async def slow(log: Log, requests: Any, context: Any) -> None:
        for i in range(100):
            await log.write(context, b"%d" % i)
            await asyncio.sleep(0.01)

    async def body(bench: GrpcBench, log: Log, server: grpc.aio.Server) -> None:
        exchange, done = bench.start(stream())
        await until(lambda: len(exchange.mark_ns) >= 2)
        await server.stop(0)
        await asyncio.wait_for(done, 3)
        bench.client.settle(exchange)
        assert exchange.status in (Status.PROTOCOL, Status.GRPC)
        assert exchange.error
        assert messages(exchange)[:2] == [b"0", b"1"]

    play(body, slow, transport)


@both
def test_nobody_at_the_address_is_a_connect_failure(transport: str) -> None:
    async def main() -> None:
        async with grpc_bench("127.0.0.1:1", 0, transport, connect_timeout_ns=1_000 * MS) as bench:
            exchange = await bench.call(unary())
            assert exchange.status == Status.CONNECT
            assert "refused" in str(exchange.error)

    uvloop.run(main())


def credentials(authority: trustme.CA, *names: str) -> grpc.ServerCredentials:
    cert = authority.issue_cert(*names)
    chain = b"".join(pem.bytes() for pem in cert.cert_chain_pems)
    return grpc.ssl_server_credentials([(cert.private_key_pem.bytes(), chain)])


@both
def test_tls_is_spoken_and_the_certificate_checked(transport: str, tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    stranger.cert_pem.write_to_path(str(tmp_path / "other.pem"))

    async def main() -> None:
        async with scripted_server(echo, credentials(authority, "127.0.0.1", "localhost")) as (address, _, _server):
            async with grpc_bench(f"grpcs://{address}", 1, transport, ca_file=str(tmp_path / "ca.pem")) as bench:
                exchange = await bench.call(unary())
                assert (exchange.error, messages(exchange)) == (None, [b"re:hi"])
            limit = 1_000 * MS
            async with grpc_bench(
                f"https://{address}", 0, transport, ca_file=str(tmp_path / "other.pem"), connect_timeout_ns=limit
            ) as bench:
                exchange = await bench.call(unary())
                assert exchange.status == Status.CONNECT
                assert "certificate" in str(exchange.error).lower() or "CERTIFICATE" in str(exchange.error)

    uvloop.run(main())


def test_several_channels_share_the_calls_in_turn() -> None:
    peers: set[str] = set()

    async def who(log: Log, requests: Any, context: Any) -> bytes:
        peers.add(context.peer())
        return b""

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        for _ in range(8):
            assert (await bench.call(unary())).status == Status.OK
        assert len(peers) == 4
        assert bench.client.stats()["connections_opened"] == 4

    play(body, who, channels=4, ahead=1)


def test_with_own_connections_each_call_in_flight_has_one_and_they_are_used_again() -> None:
    peers: list[str] = []

    async def who(log: Log, requests: Any, context: Any) -> bytes:
        peers.append(context.peer())
        await asyncio.sleep(0.05)
        return b""

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        for _ in range(2):
            calls = [bench.start(unary())[1] for _ in range(3)]
            assert [exchange.status for exchange in await asyncio.gather(*calls)] == [Status.OK] * 3
        assert len(set(peers)) == 3

    play(body, who, own_connection=True)


def test_calls_over_the_servers_limit_wait_and_are_counted() -> None:
    running = most = 0

    async def slow(log: Log, requests: Any, context: Any) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return b""

    async def body(bench: GrpcBench, log: Log, _: Any) -> None:
        calls = [bench.start(unary())[1] for _ in range(6)]
        finished: list[Exchange] = await asyncio.wait_for(asyncio.gather(*calls), 3)
        assert [exchange.status for exchange in finished] == [Status.OK] * 6
        assert most == 2
        stats = bench.client.stats()
        assert (stats["pool_waits"], stats["stream_waits"]) == (4, 4)

    play(body, slow, server=(("grpc.max_concurrent_streams", 2),), ahead=1)


@both
def test_a_finished_call_leaves_nothing_for_the_garbage_collector_which_is_off_in_a_run(transport: str) -> None:
    kinds = {"Call", "Flight", "MessageReader", "Sending", "Player", "Exchange"}
    due = tuple(i * 2 * MS for i in range(5))

    async def body(bench: GrpcBench, log: Log, server: grpc.aio.Server) -> None:
        async def calls() -> None:
            for request in (unary(), stream(), bidi(*[b"f"] * 5, due_ns=due, opening=1), stream(b"x" * 5)):
                await bench.call(request)
            exchange, done = bench.start(bidi(*[b"f"] * 5, due_ns=due, closing_due_ns=50 * MS))
            await asyncio.sleep(0.005)
            bench.client.cancel(exchange, int(Status.CANCELLED), "dropped")
            await done

        await calls()
        gc.collect()
        before = Counter(type(each).__name__ for each in gc.get_objects())  # what other tests of this process keep
        gc.disable()
        try:
            for _ in range(3):
                await calls()
            await asyncio.sleep(0.1)
            left = Counter(type(each).__name__ for each in gc.get_objects()) - before
            assert {name: left[name] for name in kinds if left[name]} == {}
        finally:
            gc.enable()

    play(body, transport=transport)


@both
def test_the_reference_server_wrote_each_message_before_it_arrived(transport: str) -> None:
    request = inference_pb2.ModelInferRequest(model_name="scripted")
    tensor = request.inputs.add(name="text", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(b"hi")
    request.parameters["max_tokens"].int64_param = 6
    call = GrpcRequest(
        "/inference.GRPCInferenceService/ModelStreamInfer",
        (request.SerializeToString(),),
        client_streaming=True,
        server_streaming=True,
    )

    async def main(server: Any) -> None:
        async with grpc_bench(server.ready["grpc"], 1, transport) as bench:
            exchange = await bench.call(call, b"truth-1")
        assert (exchange.status, exchange.error) == (Status.OK, None)
        answers = [inference_pb2.ModelStreamInferResponse.FromString(text) for text in messages(exchange)]
        assert not any(answer.error_message for answer in answers)
        written = server.truth("truth-1")["tokens"]
        assert len(written) == 6
        for (before, _), came in zip(written, exchange.mark_ns, strict=False):
            assert before - 100_000 <= came

    with running("--grpc-port", "0", "--ttft", "20ms", "--itl", "3ms") as server:
        uvloop.run(main(server))
