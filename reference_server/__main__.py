"""``python -m reference_server``: the server as a process of its own. Prints one JSON line when it serves."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from reference_server.durations import parse_duration_ns
from reference_server.errors import ConfigError
from reference_server.server import DEVICES, MODELS, ServerConfig, ready_line, serve

_EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a server until it is told to stop; returns the exit code."""
    given = _parser().parse_args(arguments)
    if given.until_stdin_closes:
        threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    try:
        config = _config(given)
        asyncio.run(serve(config, lambda port: _announce(config, port, given.ready_fd)))
    except ConfigError as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(
            f"can't listen on {given.host}:{given.http_port}: {error.strerror}. Choose another --http-port"
        )
    except KeyboardInterrupt:  # before the signal handlers were in place
        return 0
    return 0


def _end_with_stdin() -> None:
    """Whoever started us holds the other end: when it is gone, however it went, so are we."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _announce(config: ServerConfig, port: int, ready_fd: int | None) -> None:
    line = ready_line(config, port).as_json() + "\n"
    sys.stdout.write(line)
    sys.stdout.flush()
    if ready_fd is not None:
        with os.fdopen(ready_fd, "w") as pipe:
            pipe.write(line)


def _config(given: argparse.Namespace) -> ServerConfig:
    return ServerConfig(
        host=given.host,
        http_port=given.http_port,
        models=tuple(dict.fromkeys(given.model or ("scripted",))),
        device=given.device,
        preset=given.preset,
        ttft_ns=given.ttft,
        itl_ns=given.itl,
        queue_limit=given.queue_limit,
        max_batch=given.max_batch,
        kv_blocks=given.kv_blocks,
        block_size=given.block_size,
        step_tokens=given.step_tokens,
        prefix_cache=given.prefix_cache,
        seed=given.seed,
        threads=given.threads,
        faults=tuple(given.fault or ()),
        max_body_bytes=given.max_body,
        grace_s=given.grace / 1e9,
    )


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line without the usage text: the line already says what to change."""
        self.exit(_EXIT_USAGE, f"reference_server: {message}. See --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="reference_server", description="A small, honest inference server.")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    add("--http-port", type=int, default=8000, help="0 picks a free port (default %(default)s)")
    add("--model", action="append", metavar="|".join(MODELS), help="may be given again (default scripted)")
    add("--device", default="auto", metavar="|".join(DEVICES), help="for llm (default %(default)s)")
    add("--preset", default="tiny", help="size of llm: tiny, small or 8b (default %(default)s)")
    add(
        "--ttft",
        type=_duration,
        default="50ms",
        help="of scripted: time to first token (default %(default)s)",
    )
    add("--itl", type=_duration, default="10ms", help="of scripted: time between tokens (default %(default)s)")
    add("--queue-limit", type=int, default=256, help="most requests that wait (default %(default)s)")
    add("--max-batch", type=int, default=32, help="most sequences in a step (default %(default)s)")
    add("--kv-blocks", type=int, default=None, help="blocks of the KV cache (default: by memory)")
    add("--block-size", type=int, default=16, help="tokens in a block (default %(default)s)")
    add("--step-tokens", type=int, default=256, help="most tokens in a step (default %(default)s)")
    add("--prefix-cache", action="store_true", help="reuse the KV blocks of equal prompt beginnings")
    add("--seed", type=int, default=0, help="of weights, words and faults (default %(default)s)")
    add("--threads", type=int, default=None, help="CPU threads of llm (default: by cores)")
    add(
        "--fault",
        action="append",
        metavar="NAME[=ARGS]",
        help="scripted misbehaviour, e.g. stall=at:5s,for:2s",
    )
    add("--max-body", type=int, default=4 << 20, help="largest request body in bytes (default %(default)s)")
    add(
        "--grace",
        type=_duration,
        default="2s",
        help="time for requests under way at the end (default %(default)s)",
    )
    add("--until-stdin-closes", action="store_true", help="stop when standard input ends")
    add("--ready-fd", type=int, default=None, help="also write the ready line to this descriptor")
    return parser


def _duration(text: str) -> int:
    try:
        return parse_duration_ns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _complain(message: str) -> int:
    sys.stderr.write(f"reference_server: {message}\n")
    return _EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
