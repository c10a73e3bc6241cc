"""The flags of the reference server and the settings that they make: one function per theme. Reads nothing, starts nothing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from plimsoll.reference_server.assembly.config import DEVICES, MODELS, SERVICES, ServerConfig
from plimsoll.reference_server.models import presets
from plimsoll.reference_server.values.durations import parse_duration_ns
from plimsoll.reference_server.values.errors import ConfigError

EXIT_USAGE = 2
_OF_THE_PROCESS = ("until_stdin_closes", "ready_fd")


@dataclass(frozen=True, slots=True)
class Unread:
    """A value that can't be read, kept until all of them are known. ``why`` ends with the next step."""

    why: str


def config(given: argparse.Namespace) -> ServerConfig:
    """The settings that the flags make. Raises ConfigError with a line for each that can't be honoured."""
    flags = dict(vars(given))
    mistakes = [
        f"--{name.replace('_', '-')}: {value.why}" for name, value in flags.items() if isinstance(value, Unread)
    ]
    try:
        made = ServerConfig(**_settings({k: v for k, v in flags.items() if not isinstance(v, Unread)}))
    except ConfigError as error:
        mistakes.append(str(error))
    else:
        if not mistakes:
            return made
    raise ConfigError("\n".join(mistakes))


def _settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags by the names and in the units of ``ServerConfig``; what is not there keeps its default."""
    renamed = {
        "model": "models",
        "fault": "faults",
        "ttft": "ttft_ns",
        "itl": "itl_ns",
        "max_wait": "max_wait_ns",
        "max_body": "max_body_bytes",
        "grace": "grace_s",
        "read_timeout": "read_timeout_s",
    }
    settings = {renamed.get(name, name): value for name, value in flags.items() if name not in _OF_THE_PROCESS}
    settings["models"] = tuple(dict.fromkeys(settings["models"] or ("scripted",)))
    settings["faults"] = tuple(settings["faults"] or ())
    for name in ("grace_s", "read_timeout_s"):
        if name in settings:
            settings[name] /= 1e9
    return settings


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
    add("--http-port", type=_whole, default=8000, help="0 picks a free port (default %(default)s)")
    add("--grpc-port", type=_whole, default=None, help="also serve gRPC; 0 picks a free port (default: no gRPC)")
    add("--max-body", type=_whole, default=4 << 20, help="largest request body in bytes (default %(default)s)")
    add(
        "--max-connections",
        type=_whole,
        default=8192,
        help="most at a time; an idle one gives way (default %(default)s)",
    )
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
    add("--ready-fd", type=_whole, default=None, help="also write the ready line to this descriptor")


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
    add("--slots", type=_whole, default=None, help="of scripted: answers at a time; the others wait (default: all)")
    add(
        "--service",
        default="constant",
        metavar="|".join(SERVICES),
        help="of scripted: all times of a request as given, or drawn with that mean (default %(default)s)",
    )
    add("--seed", type=_whole, default=0, help="of weights, words and faults (default %(default)s)")
    add("--threads", type=_whole, default=None, help="CPU threads of all but scripted (default: by cores)")


def _batching(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--queue-limit", type=_whole, default=256, help="most requests that wait (default %(default)s)")
    add(
        "--max-batch",
        type=_whole,
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
        "--synchronise",
        type=_whole,
        default=1,
        metavar="N",
        help="batches of N samples of one request each (MultiStream)",
    )
    add("--max-prompt", type=_whole, default=None, help="most tokens of a prompt (default: by the context)")
    add("--max-output", type=_whole, default=None, help="most tokens of an answer (default: by the context)")
    add("--kv-blocks", type=_whole, default=None, help="blocks of the KV cache (default: by memory)")
    add("--block-size", type=_whole, default=16, help="tokens in a block (default %(default)s)")
    add("--step-tokens", type=_whole, default=256, help="most tokens in a step (default %(default)s)")
    add("--prefix-cache", action="store_true", help="reuse the KV blocks of equal prompt beginnings")


def _misfortune(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--fault",
        action="append",
        metavar="NAME[=ARGS]",
        help="scripted misbehaviour, e.g. stall=at:5s,for:2s",
    )


def _duration(text: str) -> int | Unread:
    try:
        return parse_duration_ns(text)
    except ValueError as error:
        return Unread(str(error))


def _whole(text: str) -> int | Unread:
    try:
        return int(text)
    except ValueError:
        return Unread(f"{text!r} is no whole number. Write digits")
