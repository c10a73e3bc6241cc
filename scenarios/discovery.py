"""Finds the kinds and sources: one file each in ``kinds/`` and ``sources/``, named as what it holds.

A folder scan, not a registry: a new file is found without editing anything, and the file of one that is not asked for is not imported.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

from plimsoll.scenarios.kind import Kind
from plimsoll.scenarios.samples.source import Source

T = TypeVar("T", bound=Kind | Source)


def kinds() -> Mapping[str, Kind]:
    """Every scenario kind by name."""
    return _Found("plimsoll.scenarios.kinds", "KIND", Kind)


def sources() -> Mapping[str, Source]:
    """Every payload source by name."""
    return _Found("plimsoll.scenarios.sources", "SOURCE", Source)


class _Found(Mapping[str, T]):
    """By file name, sorted. Raises TypeError where a file does not hold what it is named after."""

    def __init__(self, package: str, attribute: str, wanted: type[T]) -> None:
        self._package, self._attribute, self._wanted = package, attribute, wanted
        self._names = sorted(info.name for info in pkgutil.iter_modules(import_module(package).__path__))

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        module = f"{self._package}.{name}"
        plugin = getattr(import_module(module), self._attribute, None)
        if not isinstance(plugin, self._wanted):
            raise TypeError(f"{module} does not export {self._attribute}, a {self._wanted.__name__}. Add it.")
        if plugin.name != name:
            raise TypeError(f"{module} exports {plugin.name!r}. Give the file and the plugin one name.")
        return plugin

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
