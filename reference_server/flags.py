"""The flags of the reference server and the settings that they make: one function per theme. Reads nothing, starts nothing."""

from __future__ import annotations

import argparse
from typing import NoReturn

from reference_server.config import DEVICES, MODELS, ServerConfig
from reference_server.durations import parse_duration_ns
from reference_server.models import presets

EXIT_USAGE = 2


def config(given: argparse.Namespace) -> ServerConfig:
    """The settings that the flags make. Raises ConfigError."""
    return ServerConfig(
        host=given.host,
        http_port=given.http_port,
        grpc_port=given.grpc_port,
        models=tuple(dict.fromkeys(given.model or ("scripted",))),
        device=given.device,
        preset=given.preset,
        weights=given.weights,
        ttft_ns=given.ttft,
        itl_ns=given.itl,
        queue_limit=given.queue_limit,
        max_batch=given.max_batch,
        max_wait_ns=given.max_wait,
        synchronise=given.synchronise,
        max_prompt=given.max_prompt,
        max_output=given.max_output,
        kv_blocks=given.kv_blocks,
        block_size=given.block_size,
        step_tokens=given.step_tokens,
        prefix_cache=given.prefix_cache,
        seed=given.seed,
        threads=given.threads,
        faults=tuple(given.fault or ()),
        max_body_bytes=given.max_body,
        grace_s=given.grace / 1e9,
        max_connections=given.max_connections,
        read_timeout_s=given.read_timeout / 1e9,
    )


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line without the usage text: the line already says what to change."""
        self.exit(EXIT_USAGE, f"reference_server: {message}. See --help\n")


def parser() -> argparse.ArgumentParser:
    """All flags."""
    made = _OneLineParser(prog="reference_server", description="A small, honest inference server.")
    for add_flags in (_listening, _models, _batching, _misfortune):
        add_flags(made)
    return made


def _listening(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    add("--http-port", type=int, default=8000, help="0 picks a free port (default %(default)s)")
    add("--grpc-port", type=int, default=None, help="also serve gRPC; 0 picks a free port (default: no gRPC)")
    add("--max-body", type=int, default=4 << 20, help="largest request body in bytes (default %(default)s)")
    add("--max-connections", type=int, default=8192, help="most at a time; an idle one gives way (default %(default)s)")
    add(
        "--read-timeout",
        type=_duration,
        default="30s",
        help="longest for the head of a request, and for its body (default %(default)s)",
    )
    add(
        "--grace",
        type=_duration,
        default="2s",
        help="time for requests under way at the end (default %(default)s)",
    )
    add("--until-stdin-closes", action="store_true", help="stop when standard input ends")
    add("--ready-fd", type=int, default=None, help="also write the ready line to this descriptor")


def _models(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", action="append", metavar="|".join(MODELS), help="may be given again (default scripted)")
    add("--device", default="auto", metavar="|".join(DEVICES), help="for all but scripted (default %(default)s)")
    add("--preset", default="tiny", help=f"size of llm, in weights: {presets.listing()} (default %(default)s)")
    add("--weights", metavar="DIR", default=None, help="of llm: a local folder with a Llama-architecture model")
    add(
        "--ttft",
        type=_duration,
        default="50ms",
        help="of scripted: time to first token (default %(default)s)",
    )
    add("--itl", type=_duration, default="10ms", help="of scripted: time between tokens (default %(default)s)")
    add("--seed", type=int, default=0, help="of weights, words and faults (default %(default)s)")
    add("--threads", type=int, default=None, help="CPU threads of llm (default: by cores)")


def _batching(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--queue-limit", type=int, default=256, help="most requests that wait (default %(default)s)")
    add(
        "--max-batch",
        type=int,
        default=32,
        help="most sequences in a step, or samples in a batch (default %(default)s)",
    )
    add(
        "--max-wait",
        type=_duration,
        default="2ms",
        help="longest that a batch of a fixed-output model fills (default %(default)s)",
    )
    add(
        "--synchronise", type=int, default=1, metavar="N", help="batches of N samples of one request each (MultiStream)"
    )
    add("--max-prompt", type=int, default=None, help="most tokens of a prompt (default: by the context)")
    add("--max-output", type=int, default=None, help="most tokens of an answer (default: by the context)")
    add("--kv-blocks", type=int, default=None, help="blocks of the KV cache (default: by memory)")
    add("--block-size", type=int, default=16, help="tokens in a block (default %(default)s)")
    add("--step-tokens", type=int, default=256, help="most tokens in a step (default %(default)s)")
    add("--prefix-cache", action="store_true", help="reuse the KV blocks of equal prompt beginnings")


def _misfortune(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--fault",
        action="append",
        metavar="NAME[=ARGS]",
        help="scripted misbehaviour, e.g. stall=at:5s,for:2s",
    )


def _duration(text: str) -> int:
    try:
        return parse_duration_ns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
