"""One fault as a user writes it, ``NAME=KEY:VALUE,KEY:VALUE``, checked and typed. Refuses unknown names, keys and values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from plimsoll.reference_server.misfortune.kinds import ALWAYS, KINDS, FaultKind
from plimsoll.reference_server.misfortune.window import Window
from plimsoll.reference_server.values.durations import parse_duration_ns
from plimsoll.reference_server.values.errors import ConfigError

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
class Fault:
    """One parsed fault: its name and the text of each key."""

    name: str
    values: Mapping[str, str]

    @property
    def kind(self) -> FaultKind:
        """What is known about faults of this name."""
        return KINDS[self.name]

    @property
    def text(self) -> str:
        """The fault in full, as ``parse_fault`` reads it."""
        return f"{self.name}={','.join(f'{key}:{value}' for key, value in self.values.items())}"

    def duration_ns(self, key: str) -> int:
        """The key as nanoseconds; ``for:always`` is -1."""
        return -1 if key == "for" and self.values[key] == ALWAYS else parse_duration_ns(self.values[key])

    def number(self, key: str) -> float:
        """The key as a number."""
        try:
            return float(self.values[key])
        except ValueError:
            raise ValueError(f"{self.values[key]!r} is not a number") from None

    def whole(self, key: str) -> int:
        """The key as a whole number."""
        return int(self.number(key))

    def size(self, key: str) -> int:
        """The key as bytes."""
        match = _SIZE.fullmatch(self.values[key])
        if match is None:
            raise ValueError(
                f"{self.values[key]!r} is no size. Write a whole number and a unit, e.g. 64KiB; units: B, KiB, MiB, GiB"
            )
        return int(match.group(1)) * _BYTES[match.group(2)]

    def window(self) -> Window:
        """When it acts."""
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


def check_models(fault: Fault, served: Collection[str]) -> None:
    """Raises ConfigError when none of the served models can be struck: a fault that is ignored would be believed in."""
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
