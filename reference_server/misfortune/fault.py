"""Faults as users write them, ``NAME=KEY:VALUE,KEY:VALUE``: every kind there is, when one acts, and what it has in
store for a request. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from plimsoll.reference_server.values.durations import parse_duration_ns
from plimsoll.reference_server.values.errors import ConfigError, RequestError

ALWAYS = "always"
"""The value of ``for`` that means: until it is taken away."""
_ENGINE = ("llm",)
_BATCHED = ("resnet50", "dlrm", "embedder")
_WHILE: Mapping[str, str | None] = {"at": "0s", "for": ALWAYS, "every": "0s"}
_DURATIONS = frozenset({"for", "every", "by", "retry_after", "cost", "import", "weights", "warm_up"})
_SIZES = frozenset({"per", "cap"})
_SIZE = re.compile(r"(\d+)(B|KiB|MiB|GiB)")
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MAX_BYTES = 64 << 30
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
_WHOLE = frozenset({"at", "status", "n", "slots", "limit", "bytes", "tokens", "levels"})
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "p": (0, 1),
    "slice": (0, 1),
    "keep": (0, 1),
    "layers": (0, 1),
    "status": (400, 599),
    "n": (1, 1e6),
    "slots": (1, 1e6),
    "bytes": (1, 1e6),
    "tokens": (1, 1e9),
    "levels": (3, 255),
    "factor": (1, 1000),
}


@dataclass(frozen=True, slots=True)
class Window:
    """Nanoseconds after an origin. ``for_ns`` of -1 is without end; ``every_ns`` of 0 is once."""

    at_ns: int = 0
    for_ns: int = -1
    every_ns: int = 0

    def open(self, since_ns: int) -> bool:
        """Does it act that long after the origin? At its start yes, at its end no."""
        into_ns = since_ns - self.at_ns
        if into_ns < 0:
            return False
        if self.for_ns < 0:
            return True
        return (into_ns % self.every_ns if self.every_ns > 0 else into_ns) < self.for_ns

    def next_edge(self, since_ns: int) -> int | None:
        """The next instant after ``since_ns`` at which it opens or closes; None when it never changes again."""
        into_ns = since_ns - self.at_ns
        if into_ns < 0:
            return self.at_ns
        if self.for_ns < 0 or 0 < self.every_ns <= self.for_ns:
            return None
        if self.every_ns <= 0:
            return self.at_ns + self.for_ns if into_ns < self.for_ns else None
        begun_ns = into_ns // self.every_ns * self.every_ns
        return self.at_ns + begun_ns + (self.for_ns if into_ns - begun_ns < self.for_ns else self.every_ns)


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What a fault does and its keys: a key's default is text, or None when it must be given."""

    about: str
    keys: Mapping[str, str | None]
    main_key: str
    """The key meant by a bare value: ``error_rate=0.1`` is ``error_rate=p:0.1``."""
    models: tuple[str, ...] = ()
    """The models it can strike, one of which must be served; () for every one."""
    at_start: bool = False
    """It acts only while the server starts."""

    @property
    def lasts(self) -> bool:
        """Are ``at``, ``for`` and ``every`` times?"""
        return "for" in self.keys


KINDS: dict[str, FaultKind] = {
    "stall": FaultKind(
        "the whole server freezes; with `every` again and again", {"at": "0s", "for": None, "every": "0s"}, "for"
    ),
    "error_rate": FaultKind("a share of requests is answered with an error status", {"p": None, "status": "500"}, "p"),
    "stream_error": FaultKind(
        "a share of answers fails instead of token `at`: an error event under status 200", {"p": "1", "at": "1"}, "p"
    ),
    "cut": FaultKind("a share of connections breaks instead of token `at`", {"p": "1", "at": "1"}, "p"),
    "reset": FaultKind(
        "a share of connections is reset (RST) instead of token `at`; 0: before the first byte",
        {"p": "1", "at": "1"},
        "p",
    ),
    "half_open": FaultKind(
        "a share of requests hears nothing more from token `at` on, and the socket stays open; 0: not a byte",
        {"p": "1", "at": "0"},
        "p",
    ),
    "reject": FaultKind(
        "for a while everything is refused with a status and Retry-After; with `every` in bursts",
        {"at": "0s", "for": None, "every": "0s", "status": "503", "retry_after": "1s"},
        "for",
    ),
    "retry_storm": FaultKind(
        "beyond `limit` requests in flight the rest is shed with Retry-After 0, "
        "and each refusal costs the server `cost`",
        {"limit": None, "cost": "0s", "status": "503", "retry_after": "0s"},
        "limit",
    ),
    "slow_headers": FaultKind("every answer's first byte waits that long", {"by": None}, "by"),
    "slow_drip": FaultKind(
        "the bytes of a share of answers come in pieces of `bytes`, one each `by`",
        {"p": "1", "bytes": "16", "by": "10ms"},
        "by",
    ),
    "content_type": FaultKind(
        "a share of answers is right, and labelled with another content type",
        {"p": "1", "type": "application/json"},
        "p",
    ),
    "stalled_replica": FaultKind(
        "requests go round `n` replicas in turn, and whatever comes to one of them waits that long",
        {"n": "3", "by": None, **_WHILE},
        "by",
    ),
    "memory_leak": FaultKind(
        "every request leaves `per` bytes behind, up to `cap` in all", {"per": "1MiB", "cap": "256MiB"}, "per"
    ),
    "slots": FaultKind(
        "the scripted model serves so many requests at a time, the others wait in order: a known capacity",
        {"n": None},
        "n",
        ("scripted",),
    ),
    "queue_build_up": FaultKind(
        "only `slots` requests are worked on at a time: whatever comes faster than they end waits",
        {"slots": "1", **_WHILE},
        "slots",
        (*_ENGINE, "scripted"),
    ),
    "jitter": FaultKind(
        "tokens come late by exponential waits of that mean", {"by": None, **_WHILE}, "by", (*_ENGINE, "scripted")
    ),
    "slow_stop": FaultKind(
        "spoken answers come at 1x, not ahead of it, and go on for that long after somebody begins to speak over them",
        {"by": None, **_WHILE},
        "by",
        ("synthesiser",),
    ),
    "other_words": FaultKind(
        "a share of the scripted model's answers has other words, at the same times",
        {"p": "0.05", **_WHILE},
        "p",
        ("scripted",),
    ),
    "straggler": FaultKind(
        "a share of sequences or samples is slow, and every step with one of them in it takes that much longer for all",
        {"p": "0.05", "by": None, **_WHILE},
        "by",
        (*_ENGINE, *_BATCHED),
    ),
    "noisy_neighbour": FaultKind(
        "while it is noisy every step takes `factor` times as long",
        {"factor": "3", "at": "0s", "for": "200ms", "every": "1s"},
        "factor",
        (*_ENGINE, *_BATCHED),
    ),
    "batch_window": FaultKind(
        "a batch that is not full waits that much longer before it starts", {"by": None, **_WHILE}, "by", _BATCHED
    ),
    "prefill_stall": FaultKind("prompts are computed whole, and decoding waits for them", {**_WHILE}, "for", _ENGINE),
    "kv_thrash": FaultKind(
        "all but `keep` of the KV blocks are taken away: sequences push each other out and are computed again",
        {"keep": "0.25", **_WHILE},
        "keep",
        _ENGINE,
    ),
    "long_oom": FaultKind(
        "a sequence longer than `tokens` runs out of memory, and everything in its step fails",
        {"tokens": None},
        "tokens",
        _ENGINE,
    ),
    "quality": FaultKind(
        "a slice of prompts is answered by a copy with weights of `levels` values and a share `layers` of the layers: "
        "sooner, and wrongly",
        {"slice": "0.25", "levels": "15", "layers": "0.5"},
        "slice",
        _ENGINE,
    ),
    "slow_start": FaultKind(
        "phases of the cold start take that much longer",
        {"import": "0s", "weights": "0s", "warm_up": "0s"},
        "weights",
        at_start=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One parsed fault: its name and the text of each key."""

    name: str
    values: Mapping[str, str]

    @property
    def kind(self) -> FaultKind:
        return KINDS[self.name]

    @property
    def text(self) -> str:
        """The fault in full, as ``parse_fault`` reads it."""
        return f"{self.name}={','.join(f'{key}:{value}' for key, value in self.values.items())}"

    def duration_ns(self, key: str) -> int:
        """The key as nanoseconds; ``for:always`` is -1."""
        return -1 if key == "for" and self.values[key] == ALWAYS else parse_duration_ns(self.values[key])

    def number(self, key: str) -> float:
        try:
            return float(self.values[key])
        except ValueError:
            raise ValueError(f"{self.values[key]!r} is not a number") from None

    def whole(self, key: str) -> int:
        return int(self.number(key))

    def size(self, key: str) -> int:
        match = _SIZE.fullmatch(self.values[key])
        if match is None:
            raise ValueError(
                f"{self.values[key]!r} is no size. Write a whole number and a unit, e.g. 64KiB; units: B, KiB, MiB, GiB"
            )
        return int(match.group(1)) * _BYTES[match.group(2)]

    def window(self) -> Window:
        if not self.kind.lasts:
            return Window()
        return Window(self.duration_ns("at"), self.duration_ns("for"), self.duration_ns("every"))


def parse_fault(text: str) -> Fault:
    """The fault in ``NAME`` or ``NAME=ARGS``. Raises ConfigError naming what is wrong and what is allowed."""
    name, _, rest = text.partition("=")
    kind = KINDS.get(name)
    if kind is None:
        known = "; ".join(f"{n} ({k.about}; keys {', '.join(k.keys)})" for n, k in KINDS.items())
        raise ConfigError(f"--fault {name}: unknown fault. Known: {known}")
    values = {key: default for key, default in kind.keys.items() if default is not None}
    for part in filter(None, rest.split(",")):
        key, colon, value = part.partition(":")
        if not colon:
            key, value = kind.main_key, part
        if key not in kind.keys or "=" in value:
            what = f"{part!r} is no KEY:VALUE" if "=" in value else f"unknown key {key!r}"
            like = ",".join(f"{one}:{'VALUE' if default is None else default}" for one, default in kind.keys.items())
            raise ConfigError(
                f"--fault {text}: {what}. {name} takes {', '.join(kind.keys)}. Write it like {name}={like}"
            )
        values[key] = value
    missing = [key for key in kind.keys if key not in values]
    if missing:
        raise ConfigError(f"--fault {text}: {name} needs {missing[0]}. Write e.g. {name}={missing[0]}:VALUE")
    fault = Fault(name, values)
    for key in values:
        _check(text, fault, key)
    return fault


def check_models(fault: Fault, served: Collection[str], *, batches: bool = False) -> None:
    """Raises ConfigError when none of the served models can be struck: a fault that is ignored would be believed in.

    ``batches``: the scripted model takes batches, and has no slots.
    """
    if batches and fault.name in ("slots", "queue_build_up"):
        raise ConfigError(f"--fault {fault.name}: batches of scripted times have no slots. Leave one of the two out")
    wanted = fault.kind.models
    if wanted and not set(wanted) & set(served):
        raise ConfigError(
            f"--fault {fault.name}: strikes only {', '.join(wanted)}; served here: {', '.join(served)}. "
            f"Add --model {wanted[0]}, or leave the fault out"
        )


def _check(text: str, fault: Fault, key: str) -> None:
    try:
        problem = _problem(fault, key)
    except ValueError as error:
        raise ConfigError(f"--fault {text}: {key}: {error}. Correct that value") from None
    if problem:
        raise ConfigError(f"--fault {text}: {key} {problem}. Correct that value")


def _problem(fault: Fault, key: str) -> str:
    """What is wrong with a value, or "". Raises ValueError for one that can't be read."""
    if key == "for" and fault.values[key] == ALWAYS and fault.kind.keys[key] is None:
        return f"can't be {ALWAYS} here: write how long"
    if key in _DURATIONS or (key == "at" and fault.kind.lasts):
        fault.duration_ns(key)
        return ""
    if key in _SIZES:
        return "" if 0 < fault.size(key) <= _MAX_BYTES else "must lie between 1B and 64GiB"
    if key == "type":
        return "" if _MEDIA_TYPE.fullmatch(fault.values[key]) else "must be a media type such as text/html"
    number = fault.number(key)
    low, high = _BOUNDS.get(key, (0, 1e9))
    if not low <= number <= high:
        return f"must lie between {low:g} and {high:g}"
    return "must be a whole number" if key in _WHOLE and number != int(number) else ""


class Break(Enum):
    """How an answer breaks off."""

    CLOSE = "close"
    """The connection is closed."""
    RESET = "reset"
    """It is reset: a TCP RST, and what was under way is lost."""
    MUTE = "mute"
    """Nothing more comes, and it stays open until the client gives up."""


@dataclass(frozen=True, slots=True)
class Misfortune:
    """One request's share; token positions are -1 for never."""

    delay_ns: int = 0
    """The first byte waits so long."""
    error_at: int = -1
    cut_at: int = -1
    break_by: Break = Break.CLOSE
    """How the answer breaks off at ``cut_at``."""
    hold_ns: int = 0
    """So long after its arrival the request reaches the model."""
    content_type: str = ""
    """The content type that the answer is labelled with; "" for the true one."""
    drip_bytes: int = 0
    """The answer's bytes come in pieces of so many, 0 for all at once, ..."""
    drip_ns: int = 0
    """... one piece each so many nanoseconds."""

    @property
    def breaks_at_once(self) -> bool:
        """Does not even the first byte come?"""
        return self.cut_at == 0 and self.break_by is not Break.CLOSE


def refusal(status: int, cause: str, retry_after_s: int) -> RequestError:
    """A scripted refusal; Retry-After goes with 429 and 503 only."""
    return RequestError(
        status,
        f"scripted fault: {cause}",
        kind="server_error" if status >= 500 else "invalid_request_error",
        code="scripted_fault",
        retry_after_s=retry_after_s if status in (429, 503) else None,
    )
