"""Plimsoll beside its peers, in one run: which comparisons there are, who takes part, what is printed and where it is
kept.

Contestants take turns, the server has one core and the client the other. A peer that isn't installed is left out with a
line that says how to get it. It judges by the targets of ``table.py`` and fails nobody: a busy machine is no defect.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench import contestants as who
from tests.bench import machine, pinned, servers, table
from tests.bench.loopback import TOKENS
from tests.bench.rounds import Comparison, alternate

PAGE = pinned.ROOT / "docs" / "evidence" / "performance.md"
ROUNDS = 5
SECONDS = 2.0
PACED_STREAMS, FULL_STREAMS, WHOLE_STREAMS = 1000, 64, 16

Contestants = dict[str, Callable[[], who.Round]]


def run(rounds: int = ROUNDS, seconds: float = SECONDS, save_doc: bool = False, raw: Path | None = None) -> None:
    """Take all comparisons and print the tables; write them into docs/evidence/performance.md, the rounds into ``raw``,
    if asked.
    """
    bench = who.Bench(pinned.two_cores(), seconds)
    load = machine.load()
    stolen, all_ticks = machine.busy_ticks()
    comparisons = [*_over_http(bench, rounds), *_issue_loops(bench, rounds)]
    stolen_after, all_after = machine.busy_ticks()
    text = table.render(comparisons, machine.facts(load, (stolen_after - stolen) / max(1, all_after - all_ticks)))
    print(f"\n{text}\n", flush=True)
    if save_doc:
        PAGE.write_text(table.replace_between_markers(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
        print(f"written to {PAGE.relative_to(pinned.ROOT)}")
    if raw is not None:
        raw.write_text(json.dumps({one.key: one.rounds for one in comparisons}, indent=1) + "\n", encoding="utf-8")


def _say(text: str) -> None:
    print(text, flush=True)


def _present(peers: Contestants) -> tuple[Contestants, list[str]]:
    """Those who are installed, and how to get the others."""
    reasons = {name: who.missing(name) for name in peers}
    left_out = [reason for reason in reasons.values() if reason is not None]
    for reason in left_out:
        _say(f"left out: {reason}")
    return {name: peer for name, peer in peers.items() if reasons[name] is None}, left_out


def _over_http(bench: who.Bench, rounds: int) -> Iterator[Comparison]:
    core = bench.cores.server
    with servers.oracle(core, "--ttft", "20ms", "--itl", "10ms", "--tokens", str(TOKENS)) as server:
        yield _small(bench, rounds, server, "small")
        yield _sse(bench, rounds, server, "sse-paced", PACED_STREAMS, who.CHAT_PATH)
    with servers.oracle(core, "--ttft", "0ms", "--itl", "0ms", "--tokens", str(TOKENS)) as server:
        yield _sse(bench, rounds, server, "sse-full", FULL_STREAMS, who.CHAT_PATH)
    with servers.whole_streams(core) as server:
        yield _sse(bench, rounds, server, "sse-whole", WHOLE_STREAMS, "/stream")
    reason = who.missing("nginx")
    if reason is None:
        with servers.nginx(core) as server:
            yield _small(bench, rounds, server, "small-nginx", baseline=False)
    else:
        _say(f"left out: {reason}")
        yield Comparison("small-nginx", {}, (reason,))


def _small(bench: who.Bench, rounds: int, server: servers.Server, key: str, baseline: bool = True) -> Comparison:
    peers: Contestants = {
        "wrk": partial(who.wrk_small, bench, server),
        "Plimsoll": partial(who.plimsoll_small, bench, server),
    }
    if baseline:
        peers["aiohttp"] = partial(who.aiohttp_small, bench, server)
    present, left_out = _present(peers)
    return alternate(key, present, rounds, left_out, _say)


def _sse(bench: who.Bench, rounds: int, server: servers.Server, key: str, streams: int, path: str) -> Comparison:
    size = stream_bytes(server.url, path)
    present, left_out = _present(
        {
            "wrk": partial(who.wrk_sse, bench, server, streams, path, size),
            "Plimsoll": partial(who.plimsoll_sse, bench, server, streams, path),
            "aiohttp": partial(who.aiohttp_sse, bench, server, streams, path),
        }
    )
    return alternate(key, present, rounds, left_out, _say)


def _issue_loops(bench: who.Bench, rounds: int) -> Iterator[Comparison]:
    for key, theirs, ours in (("issue-single", "SingleStream", "single_stream"), ("issue-server", "Server", "server")):
        present, left_out = _present(
            {"LoadGen": partial(who.loadgen, bench, theirs), "Plimsoll": partial(who.plimsoll_null, bench, ours)}
        )
        yield alternate(key, present, rounds, left_out, _say)


def stream_bytes(url: str, path: str) -> int:
    """The bytes of one stream on the wire, head and chunk sizes too: wrk counts bytes, and we want events."""
    with _connected(url) as (sock, host):
        body = who.CHAT.encode()
        head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        got = b""
        while not got.endswith(b"\r\n0\r\n\r\n"):
            data = sock.recv(65536)
            if not data:
                raise RuntimeError(f"{url} ended a stream early. Run the benchmark again")
            got += data
    return len(got)


@contextmanager
def _connected(url: str) -> Iterator[tuple[socket.socket, str]]:
    where = urlsplit(url)
    with socket.create_connection((str(where.hostname), where.port or 80), 10) as sock:
        yield sock, where.netloc
