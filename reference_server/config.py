"""All settings of a server, the flags that make them, and what it says once it serves. Starts nothing."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from plimsoll.reference_server.engine.batch_queue import WINDOWS
from plimsoll.reference_server.misfortune.fault import check_models, parse_fault
from plimsoll.reference_server.models import presets
from plimsoll.reference_server.service.limit import parse_limit
from plimsoll.reference_server.values.durations import batch_times, parse_duration_ns
from plimsoll.reference_server.values.errors import ConfigError

MODELS = ("llm", "scripted", "resnet50", "dlrm", "embedder", "recogniser", "synthesiser")
FIXED = ("resnet50", "dlrm", "embedder")
"""Models of fixed outputs, which a dynamic batcher serves."""
WITH_TORCH = tuple(name for name in MODELS if name != "scripted")
SERVICES = ("constant", "exponential")
PRECISIONS = ("float32", "int8")
KV_CACHES = ("paged", "asked", "longest")
DEVICES = ("auto", "cpu", "cuda")
MAX_THREADS = 256
"""torch dies of many thousands."""
MAX_SEED = 2**63 - 1
"""What a random generator of torch takes."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """All settings of a server. Raises ConfigError for those that can't be honoured: a line for each."""

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int | None = None
    """None: no gRPC. 0: any free port."""
    models: tuple[str, ...] = ("scripted",)
    device: str = "auto"
    preset: str = "tiny"
    weights: str | None = None
    """A folder with a Llama-architecture model (config.json, *.safetensors), in place of a preset."""
    ttft_ns: int = 50_000_000
    itl_ns: int = 10_000_000
    slots: int | None = None
    """Answers of scripted under way at a time; None: no limit."""
    service: str = "constant"
    """Of scripted: whether a request's times are as given or drawn with that mean, or how long a batch takes."""
    queue_limit: int = 256
    in_flight: str = ""
    """Most requests under way, or the p99 that as many as are taken keep; "": no limit."""
    max_batch: int = 32
    max_wait_ns: int = 2_000_000
    """Longest that a batch of a fixed-output model, or of scripted times, waits to fill."""
    window: str = "dynamic"
    """What it waits for."""
    synchronise: int = 1
    """MultiStream: a batch is this many samples of one request and holds nothing else; 1 is dynamic batching."""
    max_prompt: int | None = None
    max_output: int | None = None
    kv_blocks: int | None = None
    block_size: int = 16
    step_tokens: int = 256
    kv_cache: str = "paged"
    """Of llm: whether a sequence's blocks come as it grows, or at once for all that it asked for or ever could."""
    prefix_cache: bool = False
    resident: int = 0
    """Most models of fixed outputs in memory at a time; 0: all."""
    response_cache: int = 0
    """Answers over HTTP that are kept for the same request; 0: none."""
    batching: str = "continuous"
    """Of llm: static runs each batch to its end before the next begins."""
    image_side: int = 224
    """Of resnet50: the side of the square that is computed; 0: as large as the picture, up to 512."""
    precision: str = "float32"
    """Of resnet50 on a CPU: int8 computes in bytes."""
    seed: int = 0
    threads: int | None = None
    faults: tuple[str, ...] = ()
    max_body_bytes: int = 4 << 20
    max_connections: int = 8192
    read_timeout_s: float = 30.0
    """Longest for the head of a request, and for its body."""
    grace_s: float = 2.0
    version: str = "1"
    """Of the models, as answers say it."""
    served_by: str = ""
    """The name that every answer carries; "" for none."""

    def __post_init__(self) -> None:
        if mistakes := [*self._choices(), *self._numbers(), *self._faults()]:
            raise ConfigError("\n".join(mistakes))

    def _choices(self) -> Iterator[str]:
        if not self.models:
            yield f"--model: name at least one of {', '.join(MODELS)}"
        for model in self.models:
            if model not in MODELS:
                yield f"--model {model}: unknown. Choose from {', '.join(MODELS)}"
        if self.device not in DEVICES:
            yield f"--device {self.device}: unknown. Choose from {', '.join(DEVICES)}"
        if self.service not in SERVICES and batch_times(self.service) is None:
            yield f"--service {self.service}: unknown. Choose from {', '.join(SERVICES)}, or a sum like 5ms+0.6ms*B"
        elif self.service not in SERVICES and self.slots is not None:
            yield f"--slots {self.slots}: a batch's time leaves no slots. Set --max-batch, or leave one of the two out"
        if self.batching not in ("continuous", "static"):
            yield f"--batching {self.batching}: unknown. Choose from continuous, static"
        if self.image_side and not presets.SIDES[0] <= self.image_side <= presets.SIDES[1]:
            low, high = presets.SIDES
            yield f"--image-side {self.image_side}: choose {low} to {high}, or 0: as large as the picture"
        if self.kv_cache not in KV_CACHES:
            yield f"--kv-cache {self.kv_cache}: unknown. Choose from {', '.join(KV_CACHES)}"
        elif self.kv_cache != KV_CACHES[0] and "llm" not in self.models:
            yield f"--kv-cache {self.kv_cache}: only llm has one. Leave it out, or add --model llm"
        if self.precision not in PRECISIONS:
            yield f"--precision {self.precision}: unknown. Choose from {', '.join(PRECISIONS)}"
        elif self.precision != PRECISIONS[0] and "resnet50" not in self.models:
            yield f"--precision {self.precision}: only resnet50 takes it (dlrm and embedder are 8-bit). Leave it out"
        if self.window not in WINDOWS:
            yield f"--window {self.window}: unknown. Choose from {', '.join(WINDOWS)}, or how long it is, like 10ms"
        for name, given in (("slots", self.slots is not None), ("service", self.service != "constant")):
            if given and "scripted" not in self.models:
                yield f"--{name}: only scripted takes it. Add --model scripted, or leave the flag out"
        for name in ("version", "served_by"):
            if re.fullmatch(r"[\w.+-]{0,64}", getattr(self, name), re.ASCII) is None or not self.version:
                yield f"--{_option(name)} {getattr(self, name)}: letters, digits and . + - _, at most 64 of them"
        if self.preset not in presets.sizes():
            yield f"--preset {self.preset}: unknown. Choose from {', '.join(presets.sizes())}"
        if self.weights is not None and "llm" not in self.models:
            yield f"--weights {self.weights}: only llm takes weights. Add --model llm, or leave the flag out"
        elif self.weights is not None and not Path(self.weights).is_dir():
            wanted = "config.json, tokenizer.json and *.safetensors files"
            yield f"--weights {self.weights}: no such folder. Name one with {wanted}"

        try:
            parse_limit(self.in_flight)
        except ValueError as error:
            yield f"--in-flight: {error}"

    def _numbers(self) -> Iterator[str]:
        for name in ("http_port", "grpc_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                yield f"--{_option(name)} {port}: choose a port from 0 (any free one) to 65535"
        if self.grpc_port and self.grpc_port == self.http_port:
            yield f"--grpc-port {self.grpc_port}: that is the HTTP port too. Choose another, or 0 for any free one"
        least = {
            "ttft_ns": 0,
            "itl_ns": 0,
            "queue_limit": 0,
            "max_batch": 1,
            "max_wait_ns": 0,
            "synchronise": 1,
            "block_size": 1,
            "step_tokens": 1,
            "max_body_bytes": 1,
            "max_connections": 1,
            "response_cache": 0,
            "resident": 0,
        }
        for name, low in least.items():
            if getattr(self, name) < low:
                yield f"--{_option(name)}: must be at least {low}"
        if not 0 <= self.seed <= MAX_SEED:
            yield f"--seed {self.seed}: must lie between 0 and {MAX_SEED}"
        if self.read_timeout_s <= 0:
            yield "--read-timeout: must be longer than nothing"
        for name in ("kv_blocks", "threads", "max_prompt", "max_output", "slots"):
            value = getattr(self, name)
            if value is not None and value < 1:
                yield f"--{_option(name)}: must be at least 1, or left out"

        if self.threads is not None and self.threads > MAX_THREADS:
            yield f"--threads {self.threads}: at most {MAX_THREADS}. More than the cores of this machine gain nothing"

    def _faults(self) -> Iterator[str]:
        for fault in self.faults:
            try:
                check_models(parse_fault(fault), self.models, batches=self.service not in SERVICES)
            except ConfigError as error:
                yield str(error)


@dataclass(frozen=True, slots=True)
class ReadyLine:
    """What the server says once it serves. ``startup_s`` are the phases of the cold start, in seconds."""

    url: str
    models: tuple[str, ...]
    device: str
    grpc: str | None = None
    startup_s: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> str:
        line: dict[str, object] = {"ready": True, "url": self.url, "models": list(self.models), "device": self.device}
        if self.grpc is not None:
            line["grpc"] = self.grpc
        return json.dumps(line | {"startup_s": {name: round(s, 4) for name, s in self.startup_s.items()}})


def _option(name: str) -> str:
    return name.removesuffix("_ns").removesuffix("_bytes").removesuffix("_s").replace("_", "-")


EXIT_USAGE = 2
_OF_FLEETS = ("replicas", "route", "replica", "admin_port", "breaker")
_OF_THE_PROCESS = ("until_stdin_closes", "ready_fd", *_OF_FLEETS)


@dataclass(frozen=True, slots=True)
class Unread:
    """A value that can't be read, kept until all of them are known. ``why`` ends with the next step."""

    why: str


def unread(given: argparse.Namespace) -> list[str]:
    """A line for each flag whose value can't be read, and for those of a fleet where there is none."""
    lines = [f"--{_option(name)}: {value.why}" for name, value in vars(given).items() if isinstance(value, Unread)]
    if getattr(given, "replicas", 0) is None:
        needing = [name for name in _OF_FLEETS if getattr(given, name) is not None]
        lines += [f"--{_option(name)}: only a fleet takes it. Add --replicas N, or leave it out" for name in needing]
    return lines


def configure(given: argparse.Namespace) -> ServerConfig:
    """The settings that the flags make. Raises ConfigError with a line for each that can't be honoured."""
    flags = dict(vars(given))
    mistakes = unread(given)
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
    if settings.get("window", "").endswith("s"):
        with contextlib.suppress(ValueError):
            settings |= {"max_wait_ns": parse_duration_ns(settings["window"]), "window": "dynamic"}
    settings["models"] = tuple(dict.fromkeys(settings["models"] or ("scripted",)))
    settings["faults"] = tuple(settings["faults"] or ())
    for name in ("grace_s", "read_timeout_s"):
        if name in settings:
            settings[name] /= 1e9
    return settings


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line without the usage text: it already says what to change. Raises ConfigError."""
        raise ConfigError(f"{message}. See --help")


def parser() -> argparse.ArgumentParser:
    """Every flag, those of a fleet too. Parsing raises ConfigError."""
    return _parser(_listening, _limits, _models, _batching, _fleet)


def fleet_parser() -> argparse.ArgumentParser:
    """The flags that a fleet itself takes: what it leaves over is for its replicas. Parsing raises ConfigError."""
    return _parser(_listening, _fleet)


def _parser(*groups: Callable[..., None]) -> argparse.ArgumentParser:
    made = _OneLineParser(prog="reference_server", description="A small, honest inference server.", allow_abbrev=False)

    def add(flag: str, about: str, default: object = None, kind: Callable[[str], object] = str, **more: Any) -> None:
        about = about if default is None else f"{about} (default %(default)s)"
        made.add_argument(flag, help=about, default=default, type=kind, **more)

    for add_flags in groups:
        add_flags(add, made.add_argument)
    about = "scripted misbehaviour, e.g. stall=at:5s,for:2s; N:NAME for one replica"
    made.add_argument("--fault", action="append", metavar="NAME[=ARGS]", help=about)
    return made


def _fleet(add: Callable[..., None], switch: Callable[..., object]) -> None:
    add("--replicas", "serve by so many of these behind one port (default: one, without a router)", None, _whole)
    add("--route", "of a fleet: round-robin, random, least-requests, power-of-two, weighted=3,1, sticky, prefix-hash")
    switch("--replica", action="append", metavar="N:FLAGS", help="flags of one replica, e.g. '2:--ttft 200ms'")
    add("--admin-port", "of a fleet: where /fleet answers; 0 picks a free port", None, _whole)
    add("--breaker", "of a fleet: leave a replica out for D after N failures in a row, e.g. 5:2s", metavar="N[:D]")


def _listening(add: Callable[..., None], switch: Callable[..., object]) -> None:
    add("--host", "address to listen on", "127.0.0.1")
    add("--http-port", "0 picks a free port", 8000, _whole)
    add("--grpc-port", "also serve gRPC; 0 picks a free port (default: no gRPC)", None, _whole)
    add("--grace", "time for requests under way at the end", "2s", _duration)
    switch("--until-stdin-closes", action="store_true", help="stop when standard input ends")
    add("--ready-fd", "also write the ready line to this descriptor", None, _whole)


def _limits(add: Callable[..., None], _switch: Callable[..., object]) -> None:
    add("--max-body", "largest request body in bytes", 4 << 20, _whole)
    add("--max-connections", "most at a time; an idle one gives way", 8192, _whole)
    add("--read-timeout", "longest for the head of a request, and for its body", "30s", _duration)


def _models(add: Callable[..., None], switch: Callable[..., object]) -> None:
    switch("--model", action="append", metavar="|".join(MODELS), help="may be given again (default scripted)")
    add("--device", "for all but scripted", "auto", metavar="|".join(DEVICES))
    add("--preset", f"size of llm, in weights: {presets.listing()}", "tiny")
    add("--weights", "of llm: a local folder with a Llama-architecture model", metavar="DIR")
    add("--ttft", "of scripted: time to first token", "50ms", _duration)
    add("--itl", "of scripted: time between tokens", "10ms", _duration)
    add("--slots", "of scripted: answers at a time; the others wait (default: all)", None, _whole)
    times = "of scripted: all times of a request as given, or drawn with that mean; or a batch's time, 5ms+0.6ms*B"
    add("--service", times, "constant", metavar="|".join(SERVICES))
    add("--seed", "of weights, words and faults", 0, _whole)
    add("--version", "of the models, as answers say it", "1")
    add("--served-by", "a name that every answer carries as x-served-by", "")
    add("--threads", "CPU threads of all but scripted (default: by cores)", None, _whole)


def _batching(add: Callable[..., None], switch: Callable[..., object]) -> None:
    add("--resident", "models of fixed outputs in memory at a time; others are loaded when asked; 0: all", 0, _whole)
    add("--response-cache", "answers over HTTP to keep for the same request", 0, _whole)
    add("--in-flight", "requests at a time, others get 503; D: as many as keep p99 within it", "", metavar="N|D")
    add("--queue-limit", "most requests that wait", 256, _whole)
    add("--max-batch", "most sequences in a step, or samples in a batch", 32, _whole)
    add("--max-wait", "longest that a batch of a fixed-output model fills", "2ms", _duration)
    add("--window", "what it waits for; D: dynamic, for so long", "dynamic", metavar="|".join((*WINDOWS, "D")))
    multi_stream = "batches of N samples of one request each (MultiStream)"
    switch("--synchronise", default=1, type=_whole, metavar="N", help=multi_stream)
    add("--batching", "of llm: static runs a batch to its end", "continuous", metavar="continuous|static")
    add("--image-side", "of resnet50: pixels a side that are computed; 0: the picture's own", 224, _whole)
    add("--precision", "of resnet50 on a CPU: numbers it computes in", "float32", metavar="|".join(PRECISIONS))
    add("--max-prompt", "most tokens of a prompt (default: by the context)", None, _whole)
    add("--max-output", "most tokens of an answer (default: by the context)", None, _whole)
    add("--kv-blocks", "blocks of the KV cache (default: by memory)", None, _whole)
    kept = "of llm: blocks as tokens come, or at once for all asked for, or for a whole context"
    add("--kv-cache", kept, KV_CACHES[0], metavar="|".join(KV_CACHES))
    add("--block-size", "tokens in a block", 16, _whole)
    add("--step-tokens", "most tokens in a step", 256, _whole)
    switch("--prefix-cache", action="store_true", help="reuse the KV blocks of equal prompt beginnings")


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
