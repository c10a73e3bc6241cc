"""This module finds the protocols: those of the files beside it, and those of outside packages.

A file names its protocols in its text (``ProtocolSpec("openai-chat", ...``), so only the file of a protocol that a run
uses is imported. A module whose name begins with an underscore holds none; outside packages announce theirs by an entry
point in the group ``plimsoll.protocols``. A name that two claim is refused where a run asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import BaseModel

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.client import Client, ProtocolSpec, Target
from plimsoll.slo.metrics.plugin import PluginError, announced, guarded, loaded, misfit

_PACKAGE = "plimsoll.harness.protocols"
_SPEC = re.compile(r'ProtocolSpec\(\s*"([^"]+)"')


def protocols() -> Mapping[str, ProtocolSpec]:
    """Every protocol by name, sorted.

    To ask for one that an outside package breaks, or has too, raises PluginError. Such names are not listed.
    """
    return _Protocols(named(), outside())


def protocol(name: str) -> ProtocolSpec:
    """The protocol of a name that exists: outside packages are looked at only where none of ours has it."""
    module = named().get(name)
    return outside().spec(name) if module is None else _load(module, name)


def spoken_by(server: str) -> tuple[str, ...]:
    """The protocols of a server or a service: those whose names begin with its own, and those whose spec lists it."""
    known, wanted = protocols(), server.lower()
    return tuple(name for name in known if name.startswith(f"{wanted}-") or wanted in known[name].servers)


@cache
def named(package: str = _PACKAGE) -> Mapping[str, str]:
    """name -> module of every protocol that the package's files hold, by their text. Raises HarnessFault."""
    found: dict[str, str] = {}
    folder = Path(*import_module(package).__path__)
    for path in sorted(folder.glob("[!_]*.py")):
        module = f"{package}.{path.stem}"
        names = _SPEC.findall(path.read_text(encoding="utf-8"))
        if not names:
            raise HarnessFault(f"{module}: it makes no ProtocolSpec. Make one, or rename the file to _{path.name}")
        for name in names:
            _claim(found.get(name), module, name)
            found[name] = module
    return found


class Outside(NamedTuple):
    """The protocols of outside packages: by name those that can be used, why others can't, and every such reason."""

    specs: Mapping[str, ProtocolSpec]
    broken: Mapping[str, PluginError]
    errors: tuple[PluginError, ...]

    def spec(self, name: str) -> ProtocolSpec:
        """Raises PluginError for one that is broken, KeyError for one that is not there."""
        if name in self.broken:
            raise self.broken[name]
        return self.specs[name]


@cache
def outside() -> Outside:
    """The protocols of outside packages, imported. A broken one is an error for who asks for it, and for nobody else:
    what doesn't load goes by the name of its entry point.
    """
    found: dict[str, ProtocolSpec] = {}
    broken: dict[str, PluginError] = {}
    errors: list[PluginError] = []
    origins = dict(named())
    for point in announced("plimsoll.protocols"):
        try:
            value = loaded(point)
            specs = value if isinstance(value, tuple | list) else (value,)
            if not all(isinstance(spec, ProtocolSpec) for spec in specs):
                raise PluginError(point, f"exports {value!r:.60}, not a ProtocolSpec or a tuple of them")
            for spec in specs:
                if wrong := misfit(spec, {"name": str, "summary": str, "build": None}):
                    raise PluginError(point, wrong)
                if spec.options is not None and not _is_model(spec.options):
                    raise PluginError(point, f"the options of {spec.name} are {spec.options!r:.60}; give it a model")
        except PluginError as error:
            errors.append(error)
            if point.name not in named():
                broken[point.name] = error
            continue
        for spec in specs:
            if spec.name in origins:
                said = f"the protocol {spec.name!r} is already defined by {origins[spec.name]}"
                broken[spec.name] = PluginError(point, said)
                errors.append(broken[spec.name])
            else:
                found[spec.name] = _foreign(point, spec)
                origins[spec.name] = f"entry point {point.name} = {point.value}"
        if point.name not in found and point.name not in named():
            offered = ", ".join(repr(spec.name) for spec in specs)
            broken[point.name] = PluginError(point, f"its protocol is {offered}: ask for that")
    return Outside(found, broken, tuple(errors))


def _is_model(options: object) -> bool:
    return isinstance(options, type) and issubclass(options, BaseModel)


def _foreign(point: EntryPoint, spec: ProtocolSpec) -> ProtocolSpec:
    """The protocol of an outside package: where its client or a request can't be made, that is the package's fault."""

    def of_client(made: object, *_: object) -> str | None:
        return None if callable(getattr(made, "encode", None)) else f"returned {made!r:.60}, no client"

    def built(target: Target, clock: Any) -> Client:
        client: Any = guarded(point, f"build of {spec.name}", spec.build, of_client, mistakes)(target, clock)
        with suppress(AttributeError):  # of a client with slots the worker tells what it raised
            client.encode = guarded(point, f"encode of {spec.name}", client.encode, lambda *_: None, mistakes)
        return cast("Client", client)

    mistakes = (HarnessFault,)  # of the user, told by the package
    return replace(spec, build=built)


def _claim(before: str | None, origin: str, name: str) -> None:
    if before is not None:
        raise HarnessFault(f"{origin}: the protocol {name!r} is already defined by {before}. Rename one")


def _load(module: str, name: str) -> ProtocolSpec:
    specs: tuple[ProtocolSpec, ...] = import_module(module).PROTOCOLS
    for spec in specs:
        if spec.name == name:
            return spec
    raise HarnessFault(f"{module}: {name!r} is not among its PROTOCOLS. Add it")


class _Protocols(Mapping[str, ProtocolSpec]):
    """All of them, each file of ours imported when one of its protocols is asked for."""

    def __init__(self, ours: Mapping[str, str], others: Outside) -> None:
        self._ours, self._others = ours, others

    def __getitem__(self, name: str) -> ProtocolSpec:
        if name in self._ours and name not in self._others.broken:
            return _load(self._ours[name], name)
        return self._others.spec(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._ours, *self._others.specs} - self._others.broken.keys()))

    def __len__(self) -> int:
        return len(list(iter(self)))
