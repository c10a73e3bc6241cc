"""Named, scripted misbehaviour: parsed from ``NAME=KEY:VALUE,KEY:VALUE`` and drawn from a seed, so a run can
be repeated.

Times count from the first inference request, which makes them independent of how long the start took. It
refuses unknown names and keys, and it never misbehaves unasked.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reference_server.durations import parse_duration_ns
from reference_server.errors import ConfigError, RequestError


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What a fault does and its keys: a key's default is text, or None when it must be given."""

    about: str
    keys: Mapping[str, str | None]
    main_key: str
    """The key meant by a bare value: ``error_rate=0.1`` is ``error_rate=p:0.1``."""


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
    "reject": FaultKind(
        "for a while everything is refused with a status and Retry-After",
        {"at": "0s", "for": None, "status": "503", "retry_after": "1s"},
        "for",
    ),
    "slow_headers": FaultKind("every answer's first byte waits that long", {"by": None}, "by"),
    "slots": FaultKind(
        "the scripted model serves so many requests at a time, the others wait in order: a known capacity",
        {"n": None},
        "n",
    ),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One parsed fault: its name and the text of each key."""

    name: str
    values: Mapping[str, str]

    def duration_ns(self, key: str) -> int:
        """The key as nanoseconds."""
        return parse_duration_ns(self.values[key])

    def number(self, key: str) -> float:
        """The key as a number."""
        return float(self.values[key])


_DURATIONS = frozenset({"for", "every", "by", "retry_after"})


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
        if key not in kind.keys:
            raise ConfigError(f"--fault {text}: unknown key {key!r}. {name} takes {', '.join(kind.keys)}")
        values[key] = value
    missing = [key for key in kind.keys if key not in values]
    if missing:
        raise ConfigError(f"--fault {text}: {name} needs {missing[0]}. Write e.g. {name}={missing[0]}:VALUE")
    fault = Fault(name, values)
    for key in values:
        _check(text, fault, key)
    return fault


def _check(text: str, fault: Fault, key: str) -> None:
    try:
        if key in _DURATIONS or (key == "at" and fault.name in ("stall", "reject")):
            fault.duration_ns(key)
            return
        number = fault.number(key)
    except ValueError as error:
        raise ConfigError(f"--fault {text}: {key}: {error}. Correct that value") from None
    low, high = {"p": (0, 1), "status": (400, 599), "n": (1, 1e6)}.get(key, (0, 1e9))
    if not low <= number <= high:
        raise ConfigError(f"--fault {text}: {key} must lie between {low:g} and {high:g}. Correct that value")


@dataclass(frozen=True, slots=True)
class Misfortune:
    """What the faults have in store for one request; token positions are -1 for never."""

    delay_ns: int = 0
    error_at: int = -1
    cut_at: int = -1


class Faults:
    """The faults of one server; draws are made in order of arrival."""

    def __init__(self, faults: Sequence[Fault], *, seed: int) -> None:
        self.faults = tuple(faults)
        self._random = random.Random(seed)
        self._first_ns = -1

    def first(self, now_ns: int) -> bool:
        """Note a request; true for the very first, from which the times of faults count."""
        if self._first_ns >= 0:
            return False
        self._first_ns = now_ns
        return True

    def named(self, name: str) -> list[Fault]:
        """The faults of that name."""
        return [fault for fault in self.faults if fault.name == name]

    def draw(self, now_ns: int) -> Misfortune:
        """What becomes of a request that arrived now. Raises RequestError when it is refused or fails at
        once.
        """
        delay_ns, error_at, cut_at = 0, -1, -1
        refusal: RequestError | None = None
        for fault in self.faults:
            # Draw for every fault, whatever the outcome of the others: adding one must not shift the rest.
            struck = self._random.random() < fault.number("p") if "p" in fault.values else True
            if fault.name == "slow_headers":
                delay_ns += fault.duration_ns("by")
            elif fault.name == "stream_error" and struck:
                error_at = int(fault.number("at"))
            elif fault.name == "cut" and struck:
                cut_at = int(fault.number("at"))
            elif fault.name == "error_rate" and struck:
                refusal = _refusal(int(fault.number("status")), "error_rate", 1)
            elif fault.name == "reject":
                start = self._first_ns + fault.duration_ns("at")
                if start <= now_ns < start + fault.duration_ns("for"):
                    retry_after_s = -(-fault.duration_ns("retry_after") // 1_000_000_000)
                    refusal = _refusal(int(fault.number("status")), "reject", retry_after_s)
        if refusal is not None:
            raise refusal
        return Misfortune(delay_ns, error_at, cut_at)


def scripted_status(status: int) -> RequestError:
    """The refusal a request asked for itself."""
    return _refusal(status, "status", 1)


def _refusal(status: int, cause: str, retry_after_s: int) -> RequestError:
    return RequestError(
        status,
        f"scripted fault: {cause}",
        kind="server_error" if status >= 500 else "invalid_request_error",
        code="scripted_fault",
        retry_after_s=retry_after_s if status in (429, 503) else None,
    )
