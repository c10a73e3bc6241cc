"""The grid of a sweep: from ``--vary NAME=VALUES`` to loads, endpoint settings and the series they form.

A load setting (rate, concurrency, lengths ...) becomes a level, a setting of the endpoint or of how it is addressed
(``server.X``, ``option.X``, model, protocol) becomes an arm; every combination of both is a point. Refused are names
that nothing takes and grids without a number to draw along. Sends nothing.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from plimsoll.documents.text import plain
from plimsoll.harness.series.comparison.arms import BUNDLED, Arm, BundledServer
from plimsoll.harness.series.comparison.rounds import Level
from plimsoll.reports.models.sweep_parts import RISING, kind_of
from plimsoll.scenarios.flags import split_load, unmoved
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.text.problems import Place, problems

#: Flags of ``plimsoll run`` that say how much is sent, and what.
LOAD = (
    "rate", "concurrency", "prompt_tokens", "output_tokens", "arrival", "speed", "queries", "duration", "workers",
    "timeout",
)  # fmt: skip
#: Keys below the scenario's source: how many prompts, how often they repeat and begin alike.
_SOURCE = "source."
#: Those that say how it is addressed.
TARGET = ("model", "protocol")
#: The kind of scenario that a load is of, where the user names none.
_KINDS = {"rate": "server", "concurrency": "concurrency"}
_WHOLE = ("concurrency", "prompt_tokens", "output_tokens", "queries", "workers")
MOST_POINTS = 10_000
_MOST_LABEL = 60
_MOST_NAME = 40  # of an arm
_SAFE = re.compile(r"[^A-Za-z0-9._-]+")
_RANGE = re.compile(r"([0-9.]+)\.\.([0-9.]+)([*+])([0-9.]+)")
_OF_CLASS = re.compile(r"\s*\w+\{class=[^}]*\}")
_EXPONENT = re.compile(r"[0-9.]+[eE][+-]?[0-9]+")

Value = int | float | str | bool
Settings = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Variable:
    """One ``--vary``: what varies and over which values, in the order given (numbers: ascending)."""

    name: str
    values: tuple[Value, ...]

    @property
    def numeric(self) -> bool:
        """Whether a curve can be drawn along it."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    @property
    def is_load(self) -> bool:
        """Whether it changes what is sent; else it changes where it goes."""
        return self.kind in LOAD or self.name.startswith(_SOURCE)

    @property
    def kind(self) -> str:
        """``rate`` of ``rate{class=chat}``, else its name."""
        return kind_of(self.name)


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination of the values. ``x``: the variable that curves are drawn along."""

    variables: tuple[Variable, ...]
    x: str

    @property
    def points(self) -> int:
        """How many combinations there are."""
        return math.prod(len(variable.values) for variable in self.variables)

    def loads(self) -> tuple[Settings, ...]:
        """Every combination of the load settings, the curve's variable innermost; one empty one if none vary."""
        return _product([v for v in self.variables if v.is_load], self.x)

    def places(self) -> tuple[Settings, ...]:
        """Every combination of the others."""
        return _product([v for v in self.variables if not v.is_load], self.x)

    def levels(self, kind_given: bool, mix: bool = False) -> tuple[Level, ...]:
        """One per load. ``kind_given``: the user names the kind of scenario; ``mix``: its classes have theirs."""
        loads = self.loads()
        labels = self._labels(loads, "load", _MOST_LABEL)
        if mix:
            return tuple(Level(label, _of_mix(load)) for label, load in zip(labels, loads, strict=True))
        return tuple(
            Level(label, {**({} if kind_given else _kind_of(load)), **load})
            for label, load in zip(labels, loads, strict=True)
        )

    def misplaced(self, scenario: Scenario) -> list[str]:
        """Loads that this scenario, or a class of it, has not."""
        named = [(one.name, split_load(one.name)) for one in self.variables]
        return [text for name, (kind, of) in named if kind for text in unmoved(scenario, f"--vary {name}", kind, of)]

    def arms(self, bundled: bool) -> tuple[Arm, ...]:
        """One per endpoint setting. ``bundled``: the endpoint is the bundled server. Raises ValidationError."""
        places = self.places()
        names = self._labels(places, "endpoint", _MOST_NAME)
        return tuple(
            _arm(name or ("bundled" if bundled else "endpoint"), place, bundled)
            for name, place in zip(names, places, strict=True)
        )

    def _labels(self, combinations: Sequence[Settings], fallback: str, most: int) -> list[str]:
        """Names for folders: what differs among them, or a number where that would be too long or not unique."""
        varied = {variable.name for variable in self.variables if len(variable.values) > 1}
        made = [
            _SAFE.sub("_", "-".join(f"{name.split('.')[-1]}-{_shown(v)}" for name, v in one.items() if name in varied))
            for one in combinations
        ]
        if len(set(made)) == len(made) and all(len(label) <= most for label in made):
            return made
        return [f"{fallback}-{number:03d}" for number, _ in enumerate(combinations, 1)]

    def series(self) -> tuple[Settings, ...]:
        """What stays the same along each curve: every combination of the other variables, in the order given."""
        return _product([v for v in self.variables if v.name != self.x], None)


def read_grid(texts: Sequence[str]) -> tuple[Grid | None, list[str]]:
    """The grid that ``--vary`` texts name, None where it has errors, and every error."""
    variables: list[Variable] = []
    errors: list[str] = []
    for text in texts:
        variable, wrong = _variable(text)
        errors += [f"--vary {text}: {what}" for what in wrong]
        if variable is not None and variable.name in [other.name for other in variables]:
            errors.append(f"--vary {text}: {variable.name} is varied twice. Put all values in one --vary")
        elif variable is not None:
            variables.append(variable)
    names = [variable.name for variable in variables]
    if not texts:
        errors.append("--vary: nothing varies. Give for example --vary rate=1,2,5,10")
    if len([name for name in names if name == kind_of(name) in _KINDS]) and any("{" in name for name in names):
        errors.append("--vary: a load of all classes and one of a class are varied. Name the class in both, or in none")
    if "rate" in names and "concurrency" in names:
        errors.append("--vary: a rate is of an open loop, a concurrency of a closed one. Vary one of them")
    x = _along([v for v in variables if len(v.values) > 1]) or _along(variables)
    if not errors and x is None:
        errors.append(
            f"--vary: {', '.join(names)}: no number to draw a curve along. Vary a rate too, or use `plimsoll bakeoff`"
        )
    grid = Grid(tuple(variables), x or "")
    if not errors and grid.points > MOST_POINTS:
        errors.append(f"--vary: {grid.points:,} points are more than {MOST_POINTS:,}. Give fewer values")
    return (None if errors else grid), errors


def _along(variables: Sequence[Variable]) -> str | None:
    numeric = [variable.name for variable in variables if variable.numeric]
    rising = [name for name in numeric if kind_of(name) in RISING]
    first = next((name for kind in _KINDS for name in rising if kind_of(name) == kind), rising[0] if rising else None)
    return first or (numeric[0] if numeric else None)


def _variable(text: str) -> tuple[Variable | None, list[str]]:
    of_class = _OF_CLASS.match(text)
    begin = of_class.end() if of_class else 0
    equals, rest = (part.strip() for part in text[begin:].partition("=")[1:])
    name = text[: text.index("=", begin)].strip() if equals else ""
    if not equals or not rest:
        return None, ["no values. Write NAME=1,2,5 or NAME=1..64*2"]
    errors = _known(name)
    values: list[Value] = []
    kind = kind_of(name)
    for part in rest.split(","):
        found, wrong = _values(part.strip(), kind in _WHOLE)
        values += found
        errors += wrong
    if len(set(values)) < len(values):
        errors.append("a value is given twice. Give each once")
    if not errors and kind in _KINDS and any(isinstance(v, str | bool) or v <= 0 for v in values):
        errors.append("a load is a number above 0")
    if not errors and kind in _WHOLE and any(not isinstance(v, int) for v in values):
        errors.append("whole numbers are needed")
    made = Variable(name, tuple(values))
    return (None if errors else Variable(name, tuple(sorted(values, key=float))) if made.numeric else made), errors


def _known(name: str) -> list[str]:
    group, dot, below = name.partition(".")
    if name in LOAD or name in TARGET or split_load(name)[1] or (group in ("option", "source") and below):
        return []
    if group == "server" and below in BundledServer.model_fields:
        return []
    if group == "server" and dot:
        return [f"the bundled server has no {below!r}. Known: {', '.join(BundledServer.model_fields)}"]
    known = ", ".join((*LOAD, *TARGET))
    return [
        f"{name!r} can't be varied. Known: {known}, source.KEY (source.count, source.shared.groups), option.NAME, and "
        "server.NAME of the bundled server"
    ]


def _values(part: str, whole: bool) -> tuple[list[Value], list[str]]:
    """One part between commas: a value, ``1..64*2`` or ``10..100+10``."""
    if ".." in part:
        return _ranged(part, whole)
    if not part:
        return [], ["an empty value. Take the comma out"]
    try:
        value = plain(part)
    except ValueError:
        return [], [f"{part!r} is not YAML. Quote it"]
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)  # YAML takes 1e3 for a word
    if isinstance(value, int | float | str) and not (isinstance(value, float) and not math.isfinite(value)):
        return [value], []
    return [], [f"{part!r} is no number and no word"]


def _ranged(part: str, whole: bool) -> tuple[list[Value], list[str]]:
    found = _RANGE.fullmatch(part)
    try:
        low, high, step = (float(found[n]) for n in (1, 2, 4)) if found else (0.0, 0.0, 0.0)
    except ValueError:
        found = None
    if found is None:
        return [], [f"{part!r} is no range. Write 1..64*2 (each twice the last) or 10..100+10"]
    times = found[3] == "*"
    if not low < high or (times and (step <= 1 or low <= 0)) or step <= 0:
        return [], [f"{part!r} never gets from its beginning to its end. Write 1..64*2 or 10..100+10"]
    made: list[Value] = []
    index = 0
    while (value := low * step**index if times else low + step * index) <= high * (1 + 1e-9):
        shown: Value = round(value) if whole else int(value) if value == int(value) else float(f"{value:.12g}")
        if shown not in made:
            made.append(shown)
        index += 1
        if len(made) > MOST_POINTS:
            return [], [f"{part!r} has more than {MOST_POINTS:,} values. Take larger steps"]
    return made, []


def _product(variables: Sequence[Variable], innermost: str | None) -> tuple[Settings, ...]:
    # The curve's variable changes fastest, so that a series goes up and is known before the next one begins.
    ordered = sorted(variables, key=lambda v: v.name == innermost)
    return tuple(
        dict(zip([v.name for v in ordered], values, strict=True))
        for values in itertools.product(*(v.values for v in ordered))
    )


def _of_mix(load: Settings) -> dict[str, Any]:
    """The flags of a load whose rates and slots are of classes."""
    moved = {name: value for name, value in load.items() if kind_of(name) in _KINDS}
    return {**({"loads": moved} if moved else {}), **{name: load[name] for name in load if name not in moved}}


def _kind_of(load: Settings) -> dict[str, str]:
    return next(({"kind": kind} for name, kind in _KINDS.items() if name in load), {})


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _arm(name: str, place: Settings, bundled: bool) -> Arm:
    mapping: dict[str, Any] = {"name": name, **({"url": BUNDLED} if bundled else {})}
    for key, value in place.items():
        group, dot, below = key.partition(".")
        if not dot:
            mapping[key] = str(value)
        elif group == "option":
            *rooms, last = below.split(".")
            inside = mapping.setdefault("options", {})
            for room in rooms:
                inside = inside.setdefault(room, {})
            inside[last] = value
        else:
            wanted = BundledServer.model_fields[below].annotation
            mapping.setdefault("server", {})[below] = str(value) if wanted == (str | None) else value
    return Arm.model_validate(mapping)


def arms_of(grid: Grid, bundled: bool) -> tuple[tuple[Arm, ...], list[str]]:
    """The arms, and every error of their settings."""
    servers = [v.name for v in grid.variables if v.name.startswith("server.")]
    if servers and not bundled:
        return (), [f"--vary {name}: only the bundled server is started by us. Leave --url out" for name in servers]
    try:
        return grid.arms(bundled), []
    except ValidationError as error:
        return (), [said for _, said in problems(error, Arm, Place("--vary"))]
