"""Scenario files: the one import others need. ``load``, ``parse``, ``with_flags``, ``json_schema``, ``library``.

Every problem of a file is reported at once and unknown keys are refused. Nothing here sends anything or reads a secret,
and objectives are passed on unread.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from plimsoll.scenarios.flags import Flags, with_flags
from plimsoll.scenarios.plugins import kinds, sources
from plimsoll.scenarios.ready_made import library
from plimsoll.scenarios.scenario import OF_RUN, Scenario, StopSection, TargetSection, parse
from plimsoll.scenarios.text.document import Document, ScenarioError, read_file
from plimsoll.scenarios.text.problems import unknown

__all__ = [
    "Document",
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


def load(name_or_path: str | Path | Document) -> Scenario:
    """The scenario in a file, or the library scenario of that name. Raises ``ScenarioError`` with every problem.

    A text without a folder or ``.yaml`` is a library name first. Relative file names inside start at the file's folder.
    """
    mapping = document(name_or_path)
    assert mapping.path is not None
    mapping.setdefault("name", mapping.path.stem)
    return parse(mapping, mapping.where, folder=mapping.path.resolve().parent)


def document(name_or_path: str | Path | Document) -> Document:
    """What stands in that file, as it is written; of a document that was read before, a copy.

    Raises ``ScenarioError`` for one that can't be read or is not YAML.
    """
    if isinstance(name_or_path, Document):
        return deepcopy(name_or_path)
    found = read_file(_find(name_or_path), str(name_or_path), "Give a scenario file, or a library name")
    if "arms" in found and not {"kind", "source", "params"} & found.keys():
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


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the whole file: ``params`` per kind and fields per source as ``oneOf``."""
    schema = Scenario.model_json_schema(by_alias=True, mode="validation")
    definitions: dict[str, Any] = schema.setdefault("$defs", {})
    known = sorted(kinds().values(), key=lambda kind: kind.name)
    schema["properties"]["kind"] = {"description": "How queries are issued.", "enum": [kind.name for kind in known]}
    schema["oneOf"] = [
        {
            "title": kind.name,
            "description": kind.summary,
            "properties": {
                "kind": {"const": kind.name},
                "params": _nullable(_reference(kind.params, definitions), "Nothing to set."),
            },
            "required": ["kind"],
        }
        for kind in known
    ]
    of_kinds: list[dict[str, Any]] = schema["oneOf"]
    schema["properties"]["params"] = {"description": "The kind's own settings."}
    schema["properties"]["source"] = {
        "description": "What is sent.",
        "oneOf": [
            {**_reference(source.params, definitions), "title": source.name, "description": source.summary}
            for source in sorted(sources().values(), key=lambda source: source.name)
        ],
    }
    for section in ("target", "stop"):
        schema["properties"][section] = _nullable(schema["properties"][section], "Defaults.")
    inside = {key: part for key, part in schema["properties"].items() if key not in OF_RUN}
    inside["until"] = {
        "description": "others: a closed loop that ends when the other classes have.",
        "enum": ["others"],
    }
    schema["properties"]["mix"] |= {
        "minProperties": 1,
        "additionalProperties": {
            "type": "object", "properties": inside, "oneOf": of_kinds, "required": ["kind"],
            "additionalProperties": False,
        },
    }  # fmt: skip
    share = {
        "type": ["string", "object"],
        "description": "Of the queries, by lot: 10%, {0s: 5%, 60s: 25%}, or copy.",
    }
    schema["properties"]["arms"] = {
        "description": "One open loop, dealt by lot to several targets: {base: {share: 90%}, canary: {share: 10%}}.",
        "type": "object", "minProperties": 2,
        "additionalProperties": {"type": "object", "properties": {**inside, "share": share}, "required": ["share"]},
    }  # fmt: skip
    del schema["required"]  # as pydantic knows it
    alone = [{**one, "properties": {**one["properties"], "mix": False}} for one in of_kinds]
    not_here = dict.fromkeys(("kind", "params", "source"), False)
    schema["oneOf"] = [*alone, {"title": "mix", "properties": not_here, "required": ["mix"]}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _nullable(part: dict[str, Any], meaning: str) -> dict[str, Any]:
    """A section may be written with nothing below it, which YAML reads as null."""
    return {"anyOf": [part, {"type": "null", "description": meaning}]}


def _reference(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    """Put ``model`` and what it needs among the definitions; return a reference to it."""
    own = model.model_json_schema(by_alias=True, mode="validation")
    for name, definition in {**own.pop("$defs", {}), model.__name__: own}.items():
        if definitions.setdefault(name, definition) != definition:
            raise TypeError(f"two different models are called {name}. Rename one of them.")
    if "kind" in own.get("properties", {}):
        own["required"] = sorted({"kind", *own.get("required", ())})
    return {"$ref": f"#/$defs/{model.__name__}"}
