"""Finds the kinds and sources: one file each in ``kinds/`` and ``sources/``, sorted by file name.

A folder scan, not a registry: importing this package runs no plugin code, and a new file is found without
editing anything.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TypeVar

from plimsoll.scenarios.kind import Kind
from plimsoll.scenarios.samples.source import Source

T = TypeVar("T", Kind, Source)


def kinds() -> Mapping[str, Kind]:
    """Every scenario kind by name."""
    return _scan("plimsoll.scenarios.kinds", "KIND", Kind)


def sources() -> Mapping[str, Source]:
    """Every payload source by name."""
    return _scan("plimsoll.scenarios.sources", "SOURCE", Source)


def _scan(package: str, attribute: str, wanted: type[T]) -> Mapping[str, T]:
    found: dict[str, T] = {}
    for info in sorted(pkgutil.iter_modules(import_module(package).__path__), key=lambda info: info.name):
        plugin = getattr(import_module(f"{package}.{info.name}"), attribute, None)
        if not isinstance(plugin, wanted):
            raise TypeError(f"{package}.{info.name} does not export {attribute}, a {wanted.__name__}. Add it.")
        if plugin.name != info.name:
            raise TypeError(f"{package}.{info.name} exports {plugin.name!r}. Give the file and the plugin one name.")
        found[plugin.name] = plugin
    return MappingProxyType(found)
