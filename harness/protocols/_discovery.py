"""Discovery: every extension of one kind, from its folder and from outside packages. No registry, no
state.

A folder is scanned afresh by each call; a module whose name begins with an underscore is not an
extension. Outside packages announce theirs by an entry point in the group ``plimsoll.<kind>``. Nothing is
imported before it is asked for, and a name that is claimed twice is refused, not silently replaced.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.client import ProtocolSpec


def discover(package: str, attribute: str, kind: str | None = None) -> list[tuple[str, Any]]:
    """(origin, value of ``attribute``) of each module in ``package``, by module name, then entry points
    by name.

    ``kind`` names the entry-point group ``plimsoll.<kind>``; an entry point loads to the value itself.
    Raises HarnessFault for a module without the attribute and for an entry point that fails to load.
    """
    found: list[tuple[str, Any]] = []
    folder = importlib.import_module(package)
    for info in sorted(pkgutil.iter_modules(folder.__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        name = f"{package}.{info.name}"
        module = importlib.import_module(name)
        if not hasattr(module, attribute):
            raise HarnessFault(f"{name}: it exports no {attribute}. Export it, or rename the file to _{info.name}.py")
        found.append((name, getattr(module, attribute)))
    if kind is not None:
        for point in sorted(entry_points(group=f"plimsoll.{kind}"), key=lambda point: point.name):
            try:
                found.append((f"entry point {point.name} = {point.value}", point.load()))
            except (ImportError, AttributeError) as error:
                raise HarnessFault(
                    f"entry point {point.name} ({point.value}): {error}. Repair or uninstall that package"
                ) from error
    return found


def protocols() -> Mapping[str, ProtocolSpec]:
    """Every protocol by name, sorted. Raises HarnessFault if two have the same name or one is not a
    ProtocolSpec.
    """
    specs: dict[str, ProtocolSpec] = {}
    origins: dict[str, str] = {}
    for origin, value in discover("plimsoll.harness.protocols", "PROTOCOLS", "protocols"):
        for spec in (value,) if isinstance(value, ProtocolSpec) else value:
            if not isinstance(spec, ProtocolSpec):
                raise HarnessFault(f"{origin}: {spec!r} is not a ProtocolSpec. Export a tuple of ProtocolSpec")
            if spec.name in specs:
                raise HarnessFault(
                    f"{origin}: the protocol {spec.name!r} is already defined by {origins[spec.name]}. Rename one"
                )
            specs[spec.name] = spec
            origins[spec.name] = origin
    return MappingProxyType(dict(sorted(specs.items())))
