"""Source: what one payload source is. A file in ``scenarios/sources/`` exports one as ``SOURCE``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from plimsoll.scenarios.samples.payload import PayloadSource


@dataclass(frozen=True, slots=True)
class Source:
    """One way of making payloads.

    ``params`` is the pydantic model of the scenario's ``source`` mapping, with a field ``kind`` that holds
    ``name``. ``build(params, seed)`` makes the source from the scenario's root seed; it raises
    ``ScenarioError`` with every problem of its input files. ``sample_file`` is the smallest valid content of
    the file a field ``path`` names, if any.
    """

    name: str
    summary: str
    params: type[BaseModel]
    build: Callable[[Any, int], PayloadSource]
    sample_file: str | None = None
