"""JSON Lines: your own samples, one object a line, with ``prompt`` or ``messages`` or ``data``.

``{"prompt": "..."}``, ``{"messages": [{"role": "user", "content": "..."}]}`` or ``{"data": {...}}``, each with an
optional ``max_output_tokens``; messages of several turns with the times between them (``think``: a list of durations),
for kind ``sessions``; and for accuracy runs an ``id`` and a ``reference``: the expected answer. Keys that the
scenario's ``labels`` name may stand beside them. Every bad line is reported; none is skipped.
"""

import sys
from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.lines import cap, each_place, require_object, scalar, without_values
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.samples.payload_file import PayloadFile
from plimsoll.scenarios.samples.reference import checked
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT, FileName, missing, parse_duration

_KEYS = ("prompt", "messages", "data", "max_output_tokens", "think", "id", "reference")


class JsonLines(BaseModel):
    """``output_tokens`` is for the lines that do not say ``max_output_tokens`` themselves."""

    model_config = STRICT
    kind: Literal["jsonl"] = "jsonl"
    path: FileName = Field(description="The file; relative to the scenario file's folder.")
    output_tokens: int | None = Field(default=None, ge=1, le=10_000_000, description="Tokens to ask for by default.")
    count: int | None = Field(default=None, ge=1, description="Use only the first so many.")


def _labelled(params: JsonLines, seed: int, keys: Collection[str] = ()) -> PayloadFile:
    path = Path(params.path)
    problem = missing(path, "source.path")
    if problem:
        raise ScenarioError([problem])
    said: dict[str, list[str | float | None]] = {key: [] for key in keys}

    def of(entry: Any) -> Payload:
        return _payload(entry, params.output_tokens, keys)

    def read(entry: Any, where: str) -> Payload:
        payload = of(entry)
        for key, values in said.items():
            value = scalar(entry, key)
            values.append(sys.intern(value) if isinstance(value, str) else value)
        return payload

    made, errors = PayloadFile(path, of, said), list[str]()
    for found in islice(each_place(made.file, path, read, errors), params.count):
        made.add(*found)
    if not len(made) and not errors:
        errors = [f"{path}: no samples in it. Write one JSON object a line."]
    errors += without_values(path, said) if not errors else []
    if errors:
        raise ScenarioError(cap(errors, str(path)))
    return made


def _payload(line: Any, output_tokens: int | None, keys: Collection[str] = ()) -> Payload:
    entry = require_object(line, (*_KEYS, *keys), '{"prompt": "..."}')
    given = [key for key in ("prompt", "messages", "data") if key in entry]
    if len(given) != 1:
        raise ValueError(f"has {' and '.join(given) or 'no sample'}. Give exactly one of prompt, messages or data.")
    limit = entry.get("max_output_tokens", output_tokens)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError(f"max_output_tokens is {limit!r}. Give a whole number from 1 up.")
    name, expected = entry.get("id"), entry.get("reference")
    payload = _of(given[0], entry[given[0]], -1 if limit is None else limit)
    if "think" in entry:
        payload = replace(payload, data={**payload.data, "turns": _thoughts(entry["think"], given[0])})
    if name is None and expected is None:
        return payload
    return replace(
        payload, id=None if name is None else str(name), reference=None if expected is None else checked(expected)
    )


def _thoughts(think: Any, given: str) -> list[dict[str, int]]:
    """What ``plimsoll.scenarios.samples.conversations`` reads: nothing of the first turn, then each wait."""
    if given != "messages" or not isinstance(think, list):
        raise ValueError('think is no list of durations beside messages. Give for example ["2s", "500ms"].')
    return [{}, *({"think_ns": parse_duration(one)} for one in think)]


def _of(key: str, value: Any, limit: int) -> Payload:
    if key == "prompt":
        if not isinstance(value, str) or not value:
            raise ValueError("prompt is not a text, or is empty. Give some text.")
        return Payload(prompt=value, max_output_tokens=limit)
    if key == "messages":
        if not isinstance(value, list) or not value:
            raise ValueError('messages is not a list of {"role", "content"} objects. Give at least one.')
        for i, message in enumerate(value):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
                raise ValueError(f"messages[{i}] is not an object with role and content. Add what is missing.")
        return Payload(messages=tuple(value), max_output_tokens=limit)
    if not isinstance(value, dict):
        raise ValueError("data is not an object. Give the request's fields as an object.")
    return Payload(data=value, max_output_tokens=limit)


SOURCE = Source(
    name="jsonl",
    summary="Your own samples: a JSON Lines file of prompts, chats or data.",
    params=JsonLines,
    build=_labelled,
    labelled=_labelled,
    sample_file='{"prompt": "What is a load line?", "max_output_tokens": 32}\n',
)
