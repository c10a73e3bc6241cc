"""The JSON schema of a scenario file, so that an editor can complete and check it while it is written."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from plimsoll.scenarios.discovery import kinds, sources
from plimsoll.scenarios.scenario import Scenario


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the whole file: ``params`` per kind and fields per source as ``oneOf``."""
    schema = Scenario.model_json_schema(by_alias=True, mode="validation")
    definitions: dict[str, Any] = schema.setdefault("$defs", {})
    known = sorted(kinds().values(), key=lambda kind: kind.name)
    schema["properties"]["kind"] = {
        "description": "How queries are issued.",
        "enum": [kind.name for kind in known],
    }
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
    schema["required"] = ["kind"]
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
