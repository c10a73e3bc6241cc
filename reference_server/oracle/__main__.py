"""``python -m plimsoll.reference_server.oracle``: the command line and the socket of the compiled loop.

Everything that can be wrong is found here, before the socket listens: one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import signal
import socket
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from plimsoll.reference_server.values.durations import parse_duration_ns

_EXIT_USAGE = 2
_MAX_TOKENS = 131_072
_N_JITTER = 4096
_MAX_DURATION_NS = 86_400_000_000_000
_MAX_SPIN_US = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        from plimsoll.reference_server import _oracle
    except ImportError as error:
        return _complain(
            f"it is written in C and was not built ({error}). Install a C compiler (gcc or clang) and the Python "
            "headers, then run: python setup.py build_ext --inplace"
        )
    _raise_descriptor_limit()
    try:
        listener = _listen(given.host, given.port)
    except OSError as error:
        return _complain(
            f"can't listen on {given.host}:{given.port}: {error.strerror or error}. Choose another --host or --port"
        )
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _interrupt)
        with listener:
            sys.stdout.write(json.dumps({"url": _url(listener), "pid": os.getpid()}) + "\n")
            sys.stdout.flush()
            _oracle.serve(
                listener.fileno(),
                created_s=int(time.time()),
                ttft_ns=given.ttft,
                itl_ns=given.itl,
                tokens=given.tokens,
                jitter=given.jitter,
                service=given.service,
                seed=given.seed,
                stalls=array("q", [edge for stall in given.stall for edge in stall]).tobytes(),
                spin_ns=given.spin * 1000,
                n_rows=given.truth,
                stamp_bytes=given.truth_mb << 20,
            )
    except KeyboardInterrupt:
        return 0
    except MemoryError:
        return _complain("there is no memory for the truth. Choose a smaller --truth or --truth-mb")
    except OSError as error:
        return _complain(f"the loop broke: {error.strerror or error}. Raise the limit of open files and start again")


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _raise_descriptor_limit() -> None:
    """A stream is a descriptor: take as many as the hard limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _listen(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it. Reno is always there and paces nothing: bytes leave within the send that is stamped.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        listener.bind(address)
        listener.listen(4096)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line without the usage text: the line already says what to change."""
        self.exit(_EXIT_USAGE, f"plimsoll.reference_server.oracle: {message}. See --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="plimsoll.reference_server.oracle",
        allow_abbrev=False,
        description="A scripted SSE server that stamps its writes.",
    )

    def add(flag: str, about: str, default: object, kind: Callable[[str], object] = str, **more: Any) -> None:
        parser.add_argument(
            flag, help=about.replace("(default", "(default %(default)s"), default=default, type=kind, **more
        )

    add("--host", "address to listen on (default)", "127.0.0.1")
    add("--port", "0 picks a free port (default)", 0, _integer(0, 65_535))
    add("--ttft", "from request to first token (default)", "50ms", _duration)
    add("--itl", "between tokens (default)", "10ms", _duration)
    add("--tokens", "of a stream whose request doesn't say (default)", 128, _integer(1, _MAX_TOKENS))
    drawn = "added to the time to first token, drawn from seed and request id (default)"
    add("--jitter", drawn, "none", _jitter, metavar="none|exp:MEAN")
    queue = "queue requests before one server that takes so long for each (default: no queue)"
    add("--service", queue, "none", _service, metavar="none|D|exp:MEAN")
    add("--seed", "of jitter and service (default)", 1, _integer(0, 2**63 - 1))
    stall = "write nothing for DURATION, from AT after the first request; may be given again"
    parser.add_argument("--stall", type=_stall, action="append", default=[], metavar="AT=DURATION", help=stall)
    spin = "wait busily for the last microseconds before a due time (default: don't)"
    add("--spin", spin, 0, _integer(0, _MAX_SPIN_US), metavar="US")
    add("--truth", "requests to remember (default)", 200_000, _integer(0, 10_000_000), metavar="N")
    stamps = "memory for stamps of ended streams, 16 bytes a token (default)"
    add("--truth-mb", stamps, 256, _integer(1, 65_536), metavar="MIB")
    return parser


def _integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not between {low} and {high}")
        return value

    return read


def _duration(text: str) -> int:
    try:
        value = parse_duration_ns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if value > _MAX_DURATION_NS:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than a day")
    return value


def _stall(text: str) -> tuple[int, int]:
    at, equals, duration = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not AT=DURATION, e.g. 5s=2s")
    begin = _duration(at)
    return begin, begin + _duration(duration)


def _jitter(text: str) -> bytes:
    """The inverse distribution in equal steps, for the loop to draw from; empty: no jitter."""
    if text == "none":
        return b""
    name, _, mean = text.partition(":")
    if name != "exp" or not mean:
        raise argparse.ArgumentTypeError(f"{text!r} is not none or exp:MEAN, e.g. exp:5ms")
    return _exponential(_duration(mean))


def _service(text: str) -> bytes:
    """As of the jitter; a constant time is a distribution too. Empty: no queue."""
    if text == "none" or text.startswith("exp:"):
        return _jitter(text)
    return array("q", [_duration(text)] * _N_JITTER).tobytes()


def _exponential(mean_ns: int) -> bytes:
    steps = (1 - (i + 0.5) / _N_JITTER for i in range(_N_JITTER))
    return array("q", [round(-mean_ns * math.log(step)) for step in steps]).tobytes()


def _complain(message: str) -> int:
    sys.stderr.write(f"plimsoll.reference_server.oracle: {message}\n")
    return _EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
