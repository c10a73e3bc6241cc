"""Which point of the grid each run is, kept beside the runs as ``grid.json``: the document is made of it at any time later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process.writing import write_json
from plimsoll.harness.series.comparison.interleave import Slot
from plimsoll.harness.series.sweep.grid import Grid, Settings, Value

SCHEMA = "plimsoll.grid/1"
FILE = "grid.json"


@dataclass(frozen=True, slots=True)
class Places:
    """The grid of a sweep. ``levels``, ``arms``: the settings that each label of a run stands for."""

    name: str
    x: str
    variables: Mapping[str, tuple[Value, ...]]
    levels: Mapping[str, Settings]
    arms: Mapping[str, Settings]

    def settings(self, slot: Slot) -> dict[str, Value]:
        """All settings of a run, in the order of the variables."""
        both = {**self.arms[slot.arm], **self.levels[slot.level]}
        return {name: both[name] for name in self.variables}

    def of(self, slot: Slot) -> tuple[Settings, float]:
        """The series of a run, and its x."""
        settings = self.settings(slot)
        x = settings.pop(self.x)
        return settings, float(x)

    def document(self) -> dict[str, Any]:
        """As ``grid.json`` holds it."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "x": self.x,
            "variables": {name: list(values) for name, values in self.variables.items()},
            "levels": dict(self.levels),
            "arms": dict(self.arms),
        }


def places_of(grid: Grid, name: str, levels: list[str], arms: list[str]) -> Places:
    """The grid with the labels that its loads and endpoints go by, each in their order."""
    return Places(
        name=name,
        x=grid.x,
        variables={variable.name: variable.values for variable in grid.variables},
        levels=dict(zip(levels, grid.loads(), strict=True)),
        arms=dict(zip(arms, grid.places(), strict=True)),
    )


def keep(places: Places, out: Path) -> None:
    """Write ``grid.json``. Raises HarnessFault if it can't be written."""
    try:
        write_json(out / FILE, places.document())
    except OSError as error:
        raise HarnessFault(
            f"--out: cannot write {out / FILE} ({error.strerror}). Name a folder you may write"
        ) from None


def kept(out: Path) -> Places:
    """The grid of a sweep's folder. Raises HarnessFault if there is none or it is not whole."""
    path = out / FILE
    if not path.is_file():
        raise HarnessFault(f"{out}: it holds no {FILE}. Give the --out of a sweep that has begun")
    try:
        document = json.loads(files.read_text(path, files.DATA))
        if document["schema"] != SCHEMA:
            raise HarnessFault(f"{path}: schema {document['schema']!r} is not {SCHEMA}. Use the version that wrote it")
        return Places(
            name=str(document["name"]),
            x=str(document["x"]),
            variables={str(name): tuple(values) for name, values in document["variables"].items()},
            levels=document["levels"],
            arms=document["arms"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HarnessFault(f"{path}: it is damaged ({error!r}). Begin in a new folder") from None
