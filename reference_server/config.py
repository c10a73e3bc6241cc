"""All settings of a server, and what it says once it serves. Holds no behaviour beyond checking them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from reference_server.errors import ConfigError
from reference_server.misfortune.fault import check_models, parse_fault

MODELS = ("llm", "scripted", "resnet50", "dlrm", "embedder", "recogniser", "synthesiser")
FIXED = ("resnet50", "dlrm", "embedder")
"""Models of fixed outputs, which a dynamic batcher serves."""
WITH_TORCH = tuple(name for name in MODELS if name != "scripted")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """All settings of a server. Raises ConfigError for one that can't be honoured."""

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
    queue_limit: int = 256
    max_batch: int = 32
    max_wait_ns: int = 2_000_000
    """Longest that a batch of a fixed-output model waits to fill."""
    synchronise: int = 1
    """MultiStream: a batch starts when this many samples of a request are there, and holds nothing else; 1 is dynamic batching."""
    max_prompt: int | None = None
    max_output: int | None = None
    kv_blocks: int | None = None
    block_size: int = 16
    step_tokens: int = 256
    prefix_cache: bool = False
    seed: int = 0
    threads: int | None = None
    faults: tuple[str, ...] = ()
    max_body_bytes: int = 4 << 20
    max_connections: int = 8192
    read_timeout_s: float = 30.0
    """Longest for the head of a request, and for its body."""
    grace_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError(f"--model: name at least one of {', '.join(MODELS)}")
        for model in self.models:
            if model not in MODELS:
                raise ConfigError(f"--model {model}: unknown. Choose from {', '.join(MODELS)}")
        if self.device not in DEVICES:
            raise ConfigError(f"--device {self.device}: unknown. Choose from {', '.join(DEVICES)}")
        for name in ("http_port", "grpc_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                raise ConfigError(f"--{_option(name)} {port}: choose a port from 0 (any free one) to 65535")
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
        }
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ConfigError(f"--{_option(name)}: must be at least {low}")
        if self.read_timeout_s <= 0:
            raise ConfigError("--read-timeout: must be longer than nothing")
        for name in ("kv_blocks", "threads", "max_prompt", "max_output"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{_option(name)}: must be at least 1, or left out")
        for fault in self.faults:
            check_models(parse_fault(fault), self.models)


@dataclass(frozen=True, slots=True)
class ReadyLine:
    """What the server says once it serves. ``startup_s`` are the phases of the cold start, in seconds."""

    url: str
    models: tuple[str, ...]
    device: str
    grpc: str | None = None
    startup_s: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> str:
        """One line of JSON."""
        line: dict[str, object] = {"ready": True, "url": self.url, "models": list(self.models), "device": self.device}
        if self.grpc is not None:
            line["grpc"] = self.grpc
        return json.dumps(line | {"startup_s": {name: round(s, 4) for name, s in self.startup_s.items()}})


def _option(name: str) -> str:
    return name.removesuffix("_ns").removesuffix("_bytes").removesuffix("_s").replace("_", "-")
