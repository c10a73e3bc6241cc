"""What comes over a socket from the wrong sort of client: it gets a refusal or a closed connection, never a 500, and
the next client is served as if nothing had been.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import select
import signal
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.test_reference_server import CHAT, Server, running

pytestmark = pytest.mark.e2e

BODY = json.dumps({**CHAT, "max_tokens": 1}).encode()
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
GOOD = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running("--ttft", "5ms", "--itl", "1ms", "--read-timeout", "400ms", "--max-body", "200000") as started:
        yield started


@contextmanager
def plain(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        yield connection


def said(connection: socket.socket) -> bytes:
    """Everything up to the end of the connection."""
    got = bytearray()
    try:
        while piece := connection.recv(65536):
            got += piece
    except ConnectionResetError:
        pass
    return bytes(got)


def exchange(server: Server, data: bytes) -> bytes:
    """What comes back for bytes that are sent at once; our half stays open."""
    with plain(server) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all was read
            connection.sendall(data)
        return said(connection)


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer)]


def still_serves(server: Server) -> None:
    response, raw = server.call("/v1/chat/completions", {**CHAT, "max_tokens": 2}, content_type="application/json")
    assert response.status == 200, raw
    assert json.loads(raw)["choices"][0]["message"]["content"] == " the line"


NO_HTTP = {
    "garbage": b"\x00\x01\x02 what is this\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100dc010000d80303") + b"x" * 64,
    "an unknown version": b"GET /health HTTP/7.3\r\nHost: x\r\n\r\n",
    "a header without a colon": b"GET /health HTTP/1.1\r\nHost x\r\n\r\n",
    "a control character in a header": b"GET /health HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "a length that is no number": POST + b"Content-Length: -5\r\n\r\n",
    "a length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks that are none": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
    "a chunk too long for a number": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n",
    "an unknown transfer encoding": POST + b"Transfer-Encoding: rot13\r\n\r\nabc",
    "a giant header": b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
    "a giant URL": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "ten thousand headers": b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 10_000 + b"\r\n",
}


@pytest.mark.parametrize("data", NO_HTTP.values(), ids=NO_HTTP.keys())
def test_what_is_no_http_is_refused_in_json_and_the_connection_ends(server: Server, data: bytes) -> None:
    answer = exchange(server, data)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] in (b"400", b"431"), answer[:200]
    error = json.JSONDecoder().raw_decode(body.decode())[0]["error"]
    assert error["type"] == "invalid_request_error"
    assert "Traceback" not in error["message"]
    assert len(error["message"]) < 400
    still_serves(server)


BODIES: dict[str, tuple[bytes, int]] = {
    "half of JSON": (b'{"model": "scripted", ', 400),
    "nothing": (b"", 400),
    "a list": (b"[1, 2]", 400),
    "deep lists": (b"[" * 150_000, 400),
    "deep objects": (b'{"a":' * 30_000, 400),
    "deep enough to be read": (b'{"messages":' + b"[" * 400 + b"]" * 400 + b', "model": "scripted"}', 400),
    "a number of 5,000 digits": (b'{"model": "scripted", "max_tokens": 1' + b"0" * 5000 + b"}", 400),
    "a float beyond floats": (b'{"model": "scripted", "messages": [{"role": "user"}], "temperature": 1e999}', 400),
    "NaN": (b'{"model": "scripted", "messages": [{"role": "user"}], "temperature": NaN}', 400),
    "no UTF-8": (b'{"model": "\xff\xfe"}', 400),
    "half a surrogate": (b'{"model": "\\ud800"}', 404),
    "a model with a giant name": (b'{"model": "' + b"x" * 150_000 + b'"}', 404),
    "no messages": (b'{"model": "scripted", "messages": []}', 400),
    "max_tokens beyond everything": (json.dumps({**CHAT, "max_tokens": 2**63}).encode(), 400),
    "max_tokens beyond the context": (json.dumps({**CHAT, "max_tokens": 2**31 - 1}).encode(), 400),
    "a giant field name": (json.dumps({**CHAT, "plimsoll": {"x" * 150_000: 1}}).encode(), 400),
}


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES.keys())
def test_a_body_that_is_no_request_is_refused_briefly(server: Server, body: bytes, status: int) -> None:
    for path in (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/audio/speech",
        "/api/chat",
    ):
        response, raw = server.call(path, body, content_type="application/json")
        assert response.status == status if path == "/v1/chat/completions" else response.status < 500, (path, raw[:200])
        assert len(raw) < 10_000
    still_serves(server)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code"),
    [
        ("/v1/chat/completions", BODY, {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        (
            "/v1/chat/completions",
            BODY,
            {"content-type": "application/json; charset=utf-16"},
            415,
            "unsupported_media_type",
        ),
        ("/v1/chat/completions", BODY, {"content-type": ";;;"}, 415, "unsupported_media_type"),
        ("/v1/chat/completions", BODY, {"content-encoding": "gzip"}, 400, None),
        ("/v1/audio/transcriptions", BODY, {"content-type": "application/json"}, 415, "unsupported_media_type"),
        (
            "/v1/audio/transcriptions",
            b"--x\r\n",
            {"content-type": "multipart/form-data; boundary=x"},
            400,
            "invalid_multipart",
        ),
        ("/v1/audio/transcriptions", b"", {"content-type": "multipart/form-data"}, 400, "invalid_multipart"),
        ("/v1/chat/completions", BODY, {"x-request-timeout-ms": "soon"}, 400, "invalid_value"),
        ("/v1/chat/completions", BODY, {"x-request-timeout-ms": "0"}, 400, "invalid_value"),
        ("/v1/chat/completions", b" " * 200_001, {}, 413, "body_too_large"),
        (
            "/v1/chat/completions",
            zlib.compress(b" " * 50_000_000),
            {"content-encoding": "deflate"},
            413,
            "body_too_large",
        ),
        ("/%ff%00/../..", BODY, {}, 404, "not_found"),
    ],
)
def test_wrong_types_of_body_and_header_have_their_own_statuses(
    server: Server, path: str, body: bytes, headers: dict[str, str], status: int, code: str | None
) -> None:
    response, raw = server.call(path, body, **headers)
    error = json.loads(raw)["error"]
    assert response.status == status, raw
    assert code is None or error["code"] == code
    still_serves(server)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_an_unknown_method_says_which_are_known(server: Server, method: str) -> None:
    response, raw = server.call("/v1/chat/completions", b"", method=method)
    assert response.status in (400, 405), raw
    assert response.status == 400 or response.headers["allow"] == "POST"
    still_serves(server)


@pytest.mark.parametrize("since", ["-1", "x", "1.5", "9" * 5000, "%00", "%ff"])
def test_an_instant_that_is_none_is_refused(server: Server, since: str) -> None:
    assert server.call(f"/truth?since={since}")[0].status == 400
    still_serves(server)


def test_a_giant_body_is_refused_before_it_is_sent(server: Server) -> None:
    with plain(server) as connection:
        connection.sendall(POST + b"Content-Length: 50000000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    still_serves(server)


def test_a_giant_body_in_chunks_is_refused_when_it_passes_the_limit(server: Server) -> None:
    with plain(server) as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        sent = 0
        while not select.select([connection], [], [], 0.001)[0] and sent < 100 * len(chunk):
            connection.sendall(chunk)
            sent += len(chunk)
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert sent < 100 * len(chunk)
    still_serves(server)


def trickle(server: Server, first: bytes, piece: bytes, every_s: float = 0.05) -> tuple[bytes, float]:
    """What is answered to somebody who sends a bit now and then, and how long that took."""
    with plain(server) as connection:
        connection.sendall(first)
        begun = time.monotonic()
        connection.settimeout(every_s)
        answer = b""
        while time.monotonic() - begun < 4:
            try:
                connection.sendall(piece)
                got = connection.recv(65536)
                answer += got
                if not got:
                    break
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
        return answer, time.monotonic() - begun


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (POST, b"X: y\r\n"),
        (b"POST /v1/", b"x"),
        (POST + b"Content-Length: 1000\r\n\r\n", b" "),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (HEALTH + POST, b"X: y\r\n"),  # behind a request that was answered
    ],
)
def test_a_request_that_trickles_in_is_ended_in_time(server: Server, first: bytes, piece: bytes) -> None:
    answer, took_s = trickle(server, first, piece)
    assert 408 in statuses(answer) or not answer
    assert 0.3 < took_s < 3
    still_serves(server)


def test_a_body_that_comes_slowly_but_well_is_read(server: Server) -> None:
    padded = BODY + b" " * 4000
    with plain(server) as connection:
        connection.sendall(POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(padded))
        for at in range(0, len(padded), 512):  # a second in all: longer than the limit, faster than the floor
            connection.sendall(padded[at : at + 512])
            time.sleep(0.1)
        assert statuses(said(connection)) == [200]


@contextmanager
def standstill(server: Server) -> Iterator[None]:
    """The server stands still, having read what was sent to it before."""
    still_serves(server)
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("at", [20, GOOD.index(b"\r\n\r\n") + 4, len(GOOD) - 1])
def test_a_client_is_not_slow_because_the_server_stood_still(server: Server, at: int) -> None:
    request = GOOD.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n")
    at += len(request) - len(GOOD) if at > 20 else 0
    with plain(server) as connection:
        connection.sendall(request[:at])
        with standstill(server):
            connection.sendall(request[at:])
            time.sleep(0.6)  # beyond the limit
        assert statuses(said(connection)) == [200]


def test_a_connection_that_is_silent_may_stay(server: Server) -> None:
    with plain(server) as quiet, plain(server) as idle:
        idle.sendall(HEALTH)
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        time.sleep(0.6)
        for connection in (quiet, idle):
            connection.sendall(HEALTH)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    last = GOOD.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n")
    assert statuses(exchange(server, HEALTH + GOOD * 40 + last)) == [200] * 42


def test_garbage_behind_a_good_request_leaves_its_answer_alone(server: Server) -> None:
    assert statuses(exchange(server, GOOD + b"\x00\x00\r\n\r\n"))[:1] in ([200], [400])
    still_serves(server)


def test_http_1_0_gets_a_stream_without_chunks(server: Server) -> None:
    body = json.dumps({**CHAT, "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = exchange(server, head + body)
    assert answer.startswith(b"HTTP/1.0 200") or answer.startswith(b"HTTP/1.1 200")
    assert b"chunked" not in answer.lower().split(b"\r\n\r\n")[0]
    assert answer.endswith(b"data: [DONE]\n\n")


def test_a_client_that_closes_its_half_counts_as_gone(server: Server) -> None:
    body = json.dumps({**CHAT, "stream": True, "plimsoll": {"itl_ms": 200}}).encode()
    head = POST + b"x-request-id: half\r\nContent-Length: %d\r\n\r\n" % len(body)
    with plain(server) as connection:
        connection.sendall(head + body)
        connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        said(connection)
    assert server.truth("half")["outcome"] == "cancelled"
    with plain(server) as connection:
        connection.sendall(POST[:20])
        connection.shutdown(socket.SHUT_WR)
        assert said(connection) == b""
    still_serves(server)


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_a_body_that_turns_out_not_to_be_compressed_is_refused(server: Server, encoding: bytes) -> None:
    with plain(server) as connection:
        connection.sendall(
            POST + b"Connection: close\r\nContent-Encoding: %b\r\nContent-Length: 3000\r\n\r\n" % encoding
        )
        time.sleep(0.05)
        connection.sendall(b"x" * 1500)
        time.sleep(0.05)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
    still_serves(server)


def test_an_upload_that_breaks_off_leaves_nothing_behind(server: Server) -> None:
    with plain(server) as connection:
        connection.sendall(POST + b"Content-Length: 100000\r\n\r\n{")
    still_serves(server)


def test_a_client_that_reads_nothing_does_not_hold_the_others(server: Server) -> None:
    words = json.dumps(
        {**CHAT, "max_tokens": 100_000, "stream": True, "plimsoll": {"ttft_ms": 0, "itl_ms": 0}}
    ).encode()
    with plain(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(POST + b"x-request-id: deaf\r\nContent-Length: %d\r\n\r\n" % len(words) + words)
        time.sleep(0.2)
        still_serves(server)
        assert server.truth("deaf")["outcome"] == "cut"


def test_an_idle_connection_gives_way_and_when_all_are_busy_the_next_is_told() -> None:
    slow = json.dumps({**CHAT, "stream": True, "plimsoll": {"ttft_ms": 700}}).encode()
    ask = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(slow) + slow
    with running("--max-connections", "3") as server:
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(3)]
        busy = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(3)]
        try:
            for connection in idle:
                assert said(connection) == b""  # it gave way
            for connection in busy:
                connection.sendall(ask)
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            refused = exchange(server, GOOD)
            assert statuses(refused) == [503]
            assert b"Retry-After: 1" in refused
            assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_many_connections"
            for connection in busy:
                assert said(connection).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        finally:
            for connection in (*idle, *busy):
                connection.close()
        still_serves(server)


def mutated(data: bytes, dice: random.Random) -> bytes:
    """The bytes with some of them lost, doubled, turned or replaced."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at, n = dice.randrange(len(changed)), dice.randint(1, 12)
        piece = changed[at : at + n]
        changed[at : at + n] = dice.choice(
            [b"", piece * 2, piece[::-1], dice.randbytes(n), b"9" * n, b"\r\n", b'"', b"{["]
        )
    return bytes(changed)


def test_requests_with_broken_bytes_are_never_answered_with_a_500(server: Server) -> None:
    dice = random.Random(7)
    paths = (
        b"/v1/chat/completions",
        b"/v1/responses",
        b"/v1/audio/speech",
        b"/api/generate",
        b"/v2/models/scripted/infer",
    )
    good = [GOOD.replace(b"/v1/chat/completions", path) for path in paths]
    good.append(HEALTH.replace(b"/health", b"/truth?since=0"))
    form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nscripted\r\n--x--\r\n'
    head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    good.append(head + b"Content-Length: %d\r\n\r\n" % len(form) + form)
    for _ in range(5):
        with contextlib.ExitStack() as stack:
            open_ones = [stack.enter_context(plain(server)) for _ in range(100)]
            for connection in open_ones:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(mutated(dice.choice(good), dice))
            time.sleep(0.2)
            for connection in select.select(open_ones, [], [], 0)[0]:
                with contextlib.suppress(ConnectionResetError):
                    found = statuses(connection.recv(65536))
                    assert all(status < 500 for status in found), found
    still_serves(server)


def test_a_thousand_wrong_requests_leave_no_connection_and_no_request_behind(server: Server) -> None:
    wrong = [*NO_HTTP.values(), *(POST + b"Content-Length: %d\r\n\r\n" % len(b) + b for b, _ in BODIES.values())]
    files = Path(f"/proc/{server.process.pid}/fd")
    before = len(list(files.iterdir()))
    for start in range(0, 1000, 100):
        with contextlib.ExitStack() as stack:
            for i in range(start, start + 100):
                connection = stack.enter_context(plain(server))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(wrong[i % len(wrong)][:20_000])
    still_serves(server)
    for _ in range(100):
        after = len(list(files.iterdir()))
        if after <= before + 2:
            break
        time.sleep(0.05)
    assert after <= before + 2
    rows = [json.loads(line) for line in server.call("/truth")[1].splitlines()]
    assert {row["outcome"] for row in rows} <= {"ok", "error", "cancelled", "cut"}
    assert not [row for row in rows if row["status"] >= 500]
