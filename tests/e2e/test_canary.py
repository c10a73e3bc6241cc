"""Canaries: servers that say back what they were given, wherever an answer has room for it, in every spelling that they know; then
every byte that a run leaves or prints is searched. About 20 s, real time.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import base64
import contextlib
import html
import json
import os
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import grpc
import pyarrow.parquet as pq
import pytest
import uvloop

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator import native
from plimsoll.harness.generator.recorder import Columns
from plimsoll.harness.transport.live.dialogue import Message, Script
from tests.e2e.grpc_bench import grpc_bench, unary
from tests.e2e.plimsoll import PLIMSOLL, ROOT
from tests.e2e.test_websocket_transport import Bench, Peer
from tests.fakes.grpc_scripted import Log, scripted_server
from tests.raw_server import answer, raw_server

pytestmark = pytest.mark.e2e

#: The bearer key, a value of a quiet name from the environment, one in the clear, one in the URL, a password in Basic's base64.  # noqa: E501
KEY, QUIET, CLEAR = "sk-Cn4ry/x+Q'7&Zt=Wq~91", "q9uIet-Val<ue>-0041", "cL3ar-session-77120"
QUERY, PASSWORD = "tOk3n/with+odd=signs", "pAss-W0rd-of-basic"
CANARIES = (KEY, QUIET, CLEAR, QUERY, PASSWORD)
SPELLINGS: dict[str, Callable[[str], str]] = {
    "raw": str,
    "percent": lambda text: quote(text, ""),
    "percent, lower": lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, "")),
    "percent, every byte": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "plus": lambda text: quote_plus(text, ""),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64, inside": lambda text: base64.b64encode(f"u:{text}!".encode()).decode(),
    "base64, url, bare": lambda text: base64.urlsafe_b64encode(f"me:{text}".encode()).decode().rstrip("="),
    "json": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "unicode escapes": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "html": html.escape,
    "html, numbers": lambda text: "".join(f"&#x{ord(char):x};" for char in text),
    "bytes": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "json, some": lambda text: "".join(f"\\u{ord(char):04x}" if char in "<>&='+" else char for char in text),
    "html, some": lambda text: html.escape(text).replace("/", "&#x2F;").replace("=", "&#61;"),
    "percent, some": lambda text: quote(text, "/+='"),
    "hex": lambda text: text.encode().hex(),
    "hex, upper": lambda text: text.encode().hex().upper(),
    "utf-16": lambda text: text.encode("utf-16-le").decode("latin-1"),
}


def sse(*events: object, done: bool = True) -> bytes:
    lines = b"".join(b"data: %s\n\n" % (e if isinstance(e, bytes) else json.dumps(e).encode()) for e in events)
    return answer(lines + (b"data: [DONE]\n\n" if done else b""), b"content-type: text/event-stream\r\n")


def delta(text: str, **more: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop", **more}]}


def whole(said: bytes, body: bytes = b"", extra: bytes = b"") -> bytes:
    """A good answer with something in its head."""
    good = b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(delta("fine")).encode()
    return answer(body or good, b"content-type: text/event-stream\r\n" + extra)


def chunked(said: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    body = b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(delta("fine")).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"%x%s\r\n%s\r\n0\r\n%s\r\n" % (len(body), extension, body, trailer)


#: Where a server says it: the answer to one request. ``b`` is what it says as bytes, ``s`` as text.
WAYS: dict[str, Callable[[bytes, str], bytes]] = {
    "reason": lambda b, s: answer(b"no", status=b"418 " + b.replace(b"\0", b"")),
    "body of a 4xx": lambda b, s: answer(b"bad key " + b, status=b"401 Unauthorized"),
    "body of a 5xx": lambda b, s: answer(b"<p>%s</p>" % b, status=b"500 Oops"),
    "across the cut": lambda b, s: answer(b"x" * (300 - len(b) // 2) + b + b"y" * 500, status=b"400 Bad Request"),
    "cut by the peer": lambda b, s: answer(b"bad key " + b[: len(b) // 2], status=b"403 Forbidden"),
    "body, after its length": lambda b, s: answer(b" " * 2390 + b, status=b"400 Bad Request"),
    "retry-after": lambda b, s: answer(b"later", b"retry-after: %s\r\n" % head_safe(b), b"503 Busy"),
    "text of a stream": lambda b, s: sse(delta("the key is " + s)),
    "text in pieces": lambda b, s: sse(delta("it is " + s[:9]), delta(s[9:])),
    "error event": lambda b, s: sse({"error": {"message": f"no {s}", "code": s}}, done=False),
    "broken event": lambda b, s: sse(delta("a"), b'{"a": ' + b.replace(b"\n", b"")),
    "event of another kind": lambda b, s: sse([s]),
    "finish_reason": lambda b, s: sse(delta("a", finish_reason=s)),
    "usage": lambda b, s: sse({**delta("a"), "usage": {"prompt_tokens": s, s: 1}}),
    "id and model": lambda b, s: sse({**delta("a"), "id": s, "model": s, "object": s}),
    "header": lambda b, s: whole(b, extra=b"x-echo: %s\r\n" % head_safe(b)),
    "server-timing": lambda b, s: whole(b, extra=b'server-timing: gpu;dur=1;desc="%s"\r\n' % head_safe(b)),
    "server-timing, name": lambda b, s: whole(b, extra=b"server-timing: %s;dur=2, b;dur=1\r\n" % head_safe(b)),
    "server-timing, huge": lambda b, s: whole(b, extra=b"server-timing: %s\r\n" % b", ".join([head_safe(b) + b";dur=1"] * 90)),  # noqa: E501
    "server_timing, member": lambda b, s: sse(delta("a"), {"choices": [], "server_timing": f"{s};dur=3", "usage": {}}),
    "trailer": lambda b, s: chunked(b, trailer=b"x-t: %s\r\nserver-timing: %s;dur=1\r\n" % (head_safe(b), head_safe(b))),  # noqa: E501
    "chunk extension": lambda b, s: chunked(b, extension=b";e=" + head_safe(b).replace(b" ", b"")),
    "redirect": lambda b, s: answer(b"", b"location: http://h/?k=%s\r\n" % head_safe(b), b"302 Found"),
    "cookie": lambda b, s: whole(b, extra=b"set-cookie: session=%s; path=/\r\n" % head_safe(b)),
    "content-encoding": lambda b, s: whole(b, extra=b"content-encoding: %s\r\n" % head_safe(b)),
    "no JSON": lambda b, s: answer(b"token=" + b, b"content-type: application/json\r\n"),
    "JSON without an answer": lambda b, s: answer(json.dumps({"echo": s}).encode(), b"content-type: application/json\r\n"),  # noqa: E501
    "header line that is none": lambda b, s: b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % head_safe(b),
    "status line that is none": lambda b, s: b"%s\r\n\r\n" % head_safe(b),
    "cut stream": lambda b, s: b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\ndata: " + b,
}  # fmt: skip
#: After these nothing more is read on their connection.
ENDS = ("header line that is none", "status line that is none", "cut stream", "chunk extension")


def head_safe(data: bytes) -> bytes:
    return data.replace(b"\0", b"").replace(b"\r", b"").replace(b"\n", b"")


def ask() -> list[str]:
    """One prompt for each way, spelling and canary: not every product of them, but every pair of a way and a
    spelling.
    """
    pairs = [(way, spelling) for way in range(len(WAYS)) for spelling in range(len(SPELLINGS))]
    return [f"{way} {spelling} {(way + spelling) % len(CANARIES)}" for way, spelling in pairs]


async def echo(request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    if request.startswith(b"GET"):
        writer.write(answer(json.dumps({"data": [{"id": f"model-of-{KEY}"}]}).encode()))
        return
    way, spelling, which = map(int, json.loads(request.split(b"\r\n\r\n", 1)[1])["messages"][0]["content"].split())
    name = list(WAYS)[way]
    said = list(SPELLINGS.values())[spelling](CANARIES[which])
    writer.write(WAYS[name](said.encode("latin-1", "replace"), said))
    if name in ENDS:
        await writer.drain()
        writer.close()


@contextmanager
def echoing() -> Iterator[str]:
    """The server, on a loop of its own."""
    ready, told, stop = threading.Event(), [""], asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with raw_server(echo) as url:
            told[0] = url
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield told[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def needles() -> list[tuple[str, bytes]]:
    """What must be found nowhere: each canary in each spelling, and the first eight characters of each."""
    found = []
    for canary in CANARIES:
        found += [(f"{canary}, its beginning", canary[:8].encode()), (f"{canary}, its end", canary[-8:].encode())]
        for name, spell in SPELLINGS.items():
            piece = spell(canary)
            if name.startswith("base64, "):  # what surrounds it is no secret
                piece = piece[4:-4]
            found.append((f"{canary} as {name}", piece.encode("latin-1", "replace")))
    return found


def every_byte(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content) of all files, compressed columns in the clear."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.name, path.read_bytes()
            if path.suffix == ".parquet":
                rows = pq.read_table(path).to_pylist()
                yield (
                    f"{path.name}, decoded",
                    "\n".join(str(value) for row in rows for value in row.values()).encode("utf-8", "replace"),
                )


def leaks(texts: Iterator[tuple[str, bytes]]) -> list[str]:
    """What was found where, with what stands around it."""
    hits = [(name, what, data, data.find(needle)) for name, data in texts for what, needle in needles()]
    return [f"{what} in {name}: {data[max(0, at - 80) : at + 40]!r}" for name, what, data, at in hits if at >= 0]


def given(url: str, folder: Path, engine: str, mode: str) -> list[str]:
    lines = [json.dumps({"messages": [{"role": "user", "content": text}]}) for text in ask()]
    (folder / "q.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "s.yaml").write_text(
        f"kind: single_stream\nmode: {mode}\nsource: {{kind: jsonl, path: q.jsonl}}\n"
        + f"timeout: 5s\ntarget: {{headers: {{X-Session: {CLEAR}}}, options: {{engine: {engine}}}}}\n"
    )
    return [
        "run", "s.yaml", "--url", f"{url}/v1?auth_token={quote(QUERY, '')}", "--protocol", "openai-chat", "--api-key-env", "THE_KEY",  # noqa: E501
        "--header", "X-Team: ${env:QUIET}", "--header", "Proxy-Authorization: ${env:BASIC}", "--header", f"X-Auth: {CLEAR}",  # noqa: E501
        *(["--queries", str(len(lines))] if mode == "performance" else []), "--out", "r",
        "--live", "0", "--format", "junit=j.xml", "--format", "markdown=m.md", "--format", "csv=c.csv",
    ]  # fmt: skip


ENVIRONMENT = {"THE_KEY": KEY, "QUIET": QUIET, "BASIC": f"Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}"}


def run_and_look(arguments: list[str], folder: Path) -> tuple[str, str, list[bytes]]:
    """(stdout, stderr, what the live page gave while the run went on) of a run."""
    process = subprocess.Popen(
        [*PLIMSOLL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **ENVIRONMENT},
    )  # fmt: skip
    said: list[str] = []
    pages: list[bytes] = []
    followers: list[threading.Thread] = []

    def look() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            place = re.search(r"http://127\.0\.0\.1:\d+/", line)
            if place is not None and not followers:
                followers.append(threading.Thread(target=follow, args=(place[0],), daemon=True))
                followers[0].start()

    def follow(place: str) -> None:
        with contextlib.suppress(OSError):
            while process.poll() is None:
                pages.extend(urllib.request.urlopen(place + name, timeout=5).read() for name in ("", "state.json"))
                time.sleep(0.2)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    assert process.stdout is not None
    stdout = process.stdout.read()
    process.wait(100)
    for thread in (looking, *followers):
        thread.join(10)
    process.stdout.close()
    if process.stderr is not None:
        process.stderr.close()
    return stdout, "".join(said), pages


@pytest.mark.parametrize(
    ("engine", "mode"), [("python", "accuracy"), *([("native", "performance")] if native.available() else [])]
)
def test_no_echo_of_a_secret_is_left_or_printed(tmp_path: Path, engine: str, mode: str) -> None:
    with echoing() as url:
        stdout, stderr, pages = run_and_look(given(url, tmp_path, engine, mode), tmp_path)
    assert (tmp_path / "r" / "report.json").exists(), stderr
    assert pages
    rows = pq.read_table(tmp_path / "r" / "requests.parquet").to_pydict()
    assert len(rows["error"]) >= len(ask())
    assert sum("[redacted]" in str(text) for text in rows["error"]) > 100  # they did echo
    assert sum("[redacted]" in str(text) for text in rows["server_timing"]) > 50
    assert max(len(str(text)) for text in rows["server_timing"]) <= 1024
    if mode == "accuracy":
        texts = pq.read_table(tmp_path / "r" / "outputs.parquet")["text"].to_pylist()
        assert sum("[redacted]" in str(text) for text in texts) > 20
    for name in ("s.yaml", "q.jsonl"):  # the test's own
        (tmp_path / name).unlink()
    printed = [("stdout", stdout.encode()), ("stderr", stderr.encode()), *(("live page", page) for page in pages)]
    assert leaks(iter([*printed, *every_byte(tmp_path)])) == []


def rows_of(exchanges: list[Exchange]) -> Iterator[tuple[str, bytes]]:
    """What rows would hold of these."""
    columns = Columns()
    for exchange in exchanges:
        columns.append(exchange)
    records = columns.to_records(0, 0)
    yield from (("error", text.encode("utf-8", "replace")) for text in records.errors)
    yield from (("server_timing", text.encode("utf-8", "replace")) for text in records.timings)


@pytest.mark.parametrize("transport", ["stamped", "grpcio"])
def test_no_echo_of_a_grpc_server_gets_into_a_row(transport: str) -> None:
    spelt = [spell(canary) for canary in CANARIES for spell in SPELLINGS.values()]

    async def abort(log: Log, requests: Any, context: Any) -> Any:
        said = spelt[int(requests)]
        context.set_trailing_metadata(
            (("server-timing", f"{said.replace(chr(0), '')};dur=1"), ("x-echo-bin", said.encode()))
        )
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"no {said}, nor {'x' * (280 - len(said) // 2)}{said}")

    async def main() -> list[Exchange]:
        headers = tuple((f"x-quiet-{i}", canary) for i, canary in enumerate(CANARIES))
        async with (
            scripted_server(abort) as (address, _, _),
            grpc_bench(f"grpc://{address}", 0, transport, headers=headers) as bench,
        ):
            return [await bench.call(unary(b"%d" % i)) for i in range(len(spelt))]

    found = uvloop.run(main())
    assert [str(exchange.error) for exchange in found if "[redacted]" not in str(exchange.error)] == []
    assert len([text for _, text in rows_of(found)]) > 2
    assert leaks(rows_of(found)) == []


def test_no_echo_of_a_websocket_server_gets_into_a_row() -> None:
    spelt = [spell(canary).replace("\0", "") for canary in CANARIES for spell in SPELLINGS.values()]
    script = Script("/", opening=(Message(b"hi", True),), waits=True)

    async def serve(request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        said = spelt[(number - 1) // 2].encode("latin-1", "replace")
        if number % 2:
            writer.write(answer(b"no " + said, status=b"403 " + said))
        else:
            peer = Peer(reader, writer)
            await peer.accept(request)
            peer.protocol.send_close(4001, said[:100].decode("latin-1"))
            await peer.flush()
        await writer.drain()
        writer.close()

    async def main() -> list[Exchange]:
        headers = tuple((f"x-quiet-{i}", canary) for i, canary in enumerate(CANARIES))
        found = []
        async with raw_server(serve) as url:
            bench = Bench(url, script, headers=headers)
            await bench.client.open(0)
            for _ in range(2 * len(spelt)):
                found.append(await bench.talk())
                bench.client.settle(found[-1])
            await bench.client.close()
            bench.clock.close()
        return found

    found = uvloop.run(main())
    assert all("[redacted]" in text.decode() for _, text in rows_of(found))
    assert leaks(rows_of(found)) == []
