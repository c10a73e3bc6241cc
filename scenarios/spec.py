"""Scenario files: the one import others need. ``load``, ``parse``, ``with_flags``, ``json_schema``,
``library``.

Every problem of a file is reported at once and unknown keys are refused. Nothing here sends anything or reads
a secret, and objectives are passed on unread.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from plimsoll.scenarios.flags import Flags, with_flags
from plimsoll.scenarios.parsing import parse
from plimsoll.scenarios.scenario import Scenario, StopSection, TargetSection
from plimsoll.scenarios.schema import json_schema
from plimsoll.scenarios.text.document import Document, read_file
from plimsoll.scenarios.text.errors import ScenarioError
from plimsoll.scenarios.text.problems import unknown

__all__ = [
    "Flags",
    "Scenario",
    "ScenarioError",
    "StopSection",
    "TargetSection",
    "document",
    "json_schema",
    "library",
    "load",
    "parse",
    "with_flags",
]


def library() -> Mapping[str, Path]:
    """The ready-made scenarios by name."""
    folder = Path(__file__).parent / "library"
    return MappingProxyType({path.stem: path for path in sorted(folder.glob("*.yaml"))})


def load(name_or_path: str | Path) -> Scenario:
    """The scenario in a file, or the library scenario of that name. Raises ``ScenarioError`` with every
    problem.

    A text without a folder or ``.yaml`` is a library name first. Relative file names inside start at the
    file's folder.
    """
    path = _find(name_or_path)
    mapping = document(name_or_path)
    mapping.setdefault("name", path.stem)
    return parse(mapping, mapping.where, folder=path.resolve().parent)


def document(name_or_path: str | Path) -> Document:
    """What stands in that file, as it is written. Raises ``ScenarioError`` for one that can't be read or is not YAML."""
    found = read_file(_find(name_or_path), str(name_or_path), "Give a scenario file, or a library name")
    if "arms" in found and "kind" not in found:
        raise ScenarioError([f"{found.where}: is a bake-off file, not a scenario. Run it with: plimsoll bakeoff FILE."])
    return found


def _find(name_or_path: str | Path) -> Path:
    text, known = str(name_or_path), library()
    if text in known:
        return known[text]
    path = Path(name_or_path).expanduser()
    if path.exists():
        return path  # what is no file is refused where it is read
    if isinstance(name_or_path, Path) or path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise ScenarioError(
            [f"{text}: there is no such file. Check the path, or give a library name: {', '.join(known)}."]
        )
    raise ScenarioError([f"{text}: {unknown(text, known, 'library scenario')}. Give a name or a file."])
