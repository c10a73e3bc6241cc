"""Which protocols there are: those of the files beside this one, and those of outside packages. No registry, no state.

A file says in its text which protocols it holds (``ProtocolSpec("openai-chat", ...``), so that all names are known and only the file
of a protocol that is asked for is imported. A module whose name begins with an underscore holds none. Outside packages announce
theirs by an entry point in the group ``plimsoll.protocols``. A name that is claimed twice is refused, not silently replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.client import ProtocolSpec

_PACKAGE = "plimsoll.harness.protocols"
_SPEC = re.compile(r'ProtocolSpec\(\s*"([^"]+)"')


def protocols() -> Mapping[str, ProtocolSpec]:
    """Every protocol by name, sorted. Raises HarnessFault for a name that is claimed twice and an outside package that fails."""
    return _Protocols(named(), outside())


def protocol(name: str) -> ProtocolSpec:
    """The one of this name, for who knows that there is one: what outside packages announce is looked at only for it."""
    module = named().get(name)
    return outside()[name] if module is None else _load(module, name)


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


@cache
def outside() -> Mapping[str, ProtocolSpec]:
    """The protocols of outside packages, imported. Raises HarnessFault."""
    from importlib.metadata import entry_points

    found: dict[str, ProtocolSpec] = {}
    origins = dict(named())
    for point in sorted(entry_points(group="plimsoll.protocols"), key=lambda point: point.name):
        origin = f"entry point {point.name} = {point.value}"
        try:
            value = point.load()
        except (ImportError, AttributeError) as error:
            raise HarnessFault(
                f"entry point {point.name} ({point.value}): {error}. Repair or uninstall that package"
            ) from error
        for spec in (value,) if isinstance(value, ProtocolSpec) else value:
            if not isinstance(spec, ProtocolSpec):
                raise HarnessFault(f"{origin}: {spec!r} is not a ProtocolSpec. Export a tuple of ProtocolSpec")
            _claim(origins.get(spec.name), origin, spec.name)
            found[spec.name], origins[spec.name] = spec, origin
    return found


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

    def __init__(self, ours: Mapping[str, str], others: Mapping[str, ProtocolSpec]) -> None:
        self._ours, self._others = ours, others

    def __getitem__(self, name: str) -> ProtocolSpec:
        return _load(self._ours[name], name) if name in self._ours else self._others[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted([*self._ours, *self._others]))

    def __len__(self) -> int:
        return len(self._ours) + len(self._others)
