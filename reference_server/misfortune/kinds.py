"""Every fault there is: its name, what it does, its keys, and the models it can strike. Holds no behaviour.

A key's default is text, or None when it must be given. ``at``, ``for`` and ``every`` are times wherever the fault lasts for a
while, and ``at`` is the position of a token wherever the fault breaks an answer off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ALWAYS = "always"
"""The value of ``for`` that means: until it is taken away."""
_ENGINE = ("llm",)
_BATCHED = ("resnet50", "dlrm", "embedder")
_WHILE: Mapping[str, str | None] = {"at": "0s", "for": ALWAYS, "every": "0s"}


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
        "the whole server freezes; with `every` again and again",
        {"at": "0s", "for": None, "every": "0s"},
        "for",
    ),
    "error_rate": FaultKind("a share of requests is answered with an error status", {"p": None, "status": "500"}, "p"),
    "stream_error": FaultKind(
        "a share of answers fails instead of token `at`: an error event under status 200",
        {"p": "1", "at": "1"},
        "p",
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
        "beyond `limit` requests in flight the rest is shed with Retry-After 0, and each refusal costs the server `cost`",
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
        "every request leaves `per` bytes behind, up to `cap` in all",
        {"per": "1MiB", "cap": "256MiB"},
        "per",
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
        "tokens come late by exponential waits of that mean",
        {"by": None, **_WHILE},
        "by",
        (*_ENGINE, "scripted"),
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
        "a batch that is not full waits that much longer before it starts",
        {"by": None, **_WHILE},
        "by",
        _BATCHED,
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
