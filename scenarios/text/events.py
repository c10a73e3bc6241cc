"""The ``events:`` and ``phases:`` of a scenario file: what happens at a moment of the run, and the names of its parts.

A phase holds the queries due in it. Those of ``phases`` are stretches that the file gives; without any, each event
begins ``during`` as it starts and ``after`` as it ends, however long that takes. Nothing is run here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, model_validator

from plimsoll.scenarios.text.fields import STRICT, Duration, format_duration

#: Events and phases of one run.
MOST = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,59}")


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is no name: begin with a letter or a digit; use letters, digits, space . _ -")
    return name


Name = Annotated[str, AfterValidator(_named)]


class PhaseSection(BaseModel):
    """A stretch of the run's clock, in which queries are due."""

    model_config = STRICT
    from_ns: Duration = Field(default=0, alias="from", description="Its begin, from t0.")
    to_ns: Duration | None = Field(default=None, alias="to", description="Its end, from t0; null: that of the run.")
    objectives: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), strict=False, description="Promised of the requests due in it."
    )

    @model_validator(mode="after")
    def _forward(self) -> PhaseSection:
        if self.to_ns is not None and self.to_ns <= self.from_ns:
            begin, end = format_duration(self.from_ns), format_duration(self.to_ns)
            raise ValueError(f"ends at {end}, and begins at {begin}. Write a later end")
        return self


class HttpSection(BaseModel):
    """One request that the coordinator sends."""

    model_config = STRICT
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    url: str = Field(description="${env:NAME} and ${file:PATH} in it are resolved as the run begins.")
    body: str = Field(default="", description="Sent as it is; JSON where it begins with { or [.")
    headers: dict[str, str] = Field(default_factory=dict, description="No secrets: ${env:NAME} or ${file:PATH}.")

    @model_validator(mode="after")
    def _whole_url(self) -> HttpSection:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url[:80]!r} is no URL of http or https. Write http://127.0.0.1:8000/path")
        return self


class EventSection(BaseModel):
    """One thing that the coordinator does beside the load, once."""

    model_config = STRICT
    at_ns: Duration = Field(alias="at", description="When it is due, from t0.")
    name: Name | None = Field(default=None, description="What objectives and pages call it; null: by its number.")
    run: str | None = Field(default=None, min_length=1, description="A command for /bin/sh, on the coordinator's host.")
    http: HttpSection | None = Field(default=None, description="A request: {method: POST, url: ..., body: ...}.")
    fault: str | None = Field(
        default=None, min_length=1, description="The bundled server misbehaves from now on: NAME or NAME=ARGS; off."
    )
    note: str | None = Field(default=None, min_length=1, description="A mark, and nothing else.")
    timeout_ns: Duration = Field(default=60_000_000_000, alias="timeout", gt=0, description="Ended, and failed, then.")
    phase: Name | None = Field(default=None, description="Begins a phase of this name, instead of during and after.")

    @model_validator(mode="after")
    def _one_thing(self) -> EventSection:
        given = [name for name in ("run", "http", "fault", "note") if getattr(self, name) is not None]
        if len(given) != 1:
            said = f"has {' and '.join(given)}" if given else "does nothing"
            raise ValueError(f"{said}. Give one of run, http, fault and note")
        return self

    @property
    def does(self) -> str:
        """``run``, ``http``, ``fault`` or ``note``."""
        return next(name for name in ("run", "http", "fault", "note") if getattr(self, name) is not None)


def names_of(events: Sequence[EventSection]) -> tuple[str, ...]:
    """What each event is called."""
    return tuple(one.name or f"event {place}" for place, one in enumerate(events, 1))


def phases_of(events: Sequence[EventSection]) -> tuple[str, ...]:
    """The phases that events may cut a run into, in order."""
    found = ["before"]
    for name, one in zip(names_of(events), events, strict=True):
        suffix = f" {name}" if len(events) > 1 else ""
        found += [one.phase] if one.phase else [*([] if one.does == "note" else [f"during{suffix}"]), f"after{suffix}"]
    return tuple(dict.fromkeys(found))


def cut(events: Sequence[EventSection], times: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """(name, begin in ns from t0) of each phase that events cut, by when each began and ended (-1: it did not).

    What ends after another one began does not end that one's phase.
    """
    found = [("before", 0)]
    for name, one, (begun, ended) in zip(names_of(events), events, times, strict=True):
        suffix = f" {name}" if len(events) > 1 else ""
        if begun >= 0 and (one.phase or one.does != "note"):
            found.append((one.phase or f"during{suffix}", begun))
        later = [other for other, _ in times if begun < other <= ended]
        if ended >= 0 and not one.phase and not later:
            found.append((f"after{suffix}", ended))
    return sorted(found, key=lambda phase: phase[1])


def stretches(phases: Mapping[str, PhaseSection]) -> list[tuple[str, int]]:
    """The same of phases that the file gives; "" is the name of what lies between them."""
    found: list[tuple[str, int]] = []
    ordered = sorted(phases.items(), key=lambda one: one[1].from_ns)
    for place, (name, one) in enumerate(ordered):
        found.append((name, one.from_ns))
        following = ordered[place + 1][1].from_ns if place + 1 < len(ordered) else None
        if one.to_ns is not None and one.to_ns != following:
            found.append(("", one.to_ns))
    return found


def mistakes(
    events: Sequence[EventSection], phases: Mapping[str, PhaseSection], end_ns: int | None
) -> list[tuple[tuple[str | int, ...], str]]:
    """(key path, what is wrong) of events and phases together. ``end_ns``: nothing is sent after it; None: unknown."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    if max(len(events), len(phases)) > MOST:
        found.append((("events",) if len(events) > MOST else ("phases",), f"has more than {MOST}. Keep fewer"))
    names = names_of(events)
    for place, name in enumerate(names):
        if name in names[:place]:
            found.append((("events", place, "name"), f"{name!r} is another event's name already. Take another"))
        if phases and events[place].phase:
            told = "phases names the parts of the run already. Leave this out, or phases"
            found.append((("events", place, "phase"), told))
    ordered = sorted(phases, key=lambda name: phases[name].from_ns)
    for before, name in itertools.pairwise(ordered):
        end = phases[before].to_ns
        if end is None or end > phases[name].from_ns:
            when = "goes on to the end of the run" if end is None else f"ends at {format_duration(end)}"
            begin = format_duration(phases[name].from_ns)
            found.append((("phases", name), f"begins at {begin}, and {before} {when}: they overlap. Give {before} an "
                                            f"end (to: {begin}), or move one"))  # fmt: skip
    return found + beyond(events, phases, end_ns)


def beyond(
    events: Sequence[EventSection], phases: Mapping[str, PhaseSection], end_ns: int | None
) -> list[tuple[tuple[str | int, ...], str]]:
    """Events and phases that begin when the run is over."""
    if end_ns is None:
        return []
    told = f"and the run sends nothing after {end_ns / 1e9:.4g}s. Make it longer (stop), or this earlier"
    late: list[tuple[tuple[str | int, ...], int]] = [
        (("events", place, "at"), one.at_ns) for place, one in enumerate(events)
    ]
    late += [(("phases", name, "from"), one.from_ns) for name, one in phases.items()]
    return [(loc, f"is {format_duration(at)}, {told}") for loc, at in late if at > end_ns]
