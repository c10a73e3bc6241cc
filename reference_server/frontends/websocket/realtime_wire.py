"""The events of OpenAI's Realtime protocol (GA names) and the items of its conversations. Pure.

``audio_*_ms`` are positions on the time line of the appended audio. An error is an event and never ends the session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from plimsoll.reference_server.frontends.http import openai_wire
from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.values.errors import RequestError

_QUOTED = 1000
"""An error quotes what was wrong; it must not send all of it back."""
_CONTENT = {"user": ("input_text",), "system": ("input_text",), "assistant": ("output_text",)}


@dataclass(slots=True, eq=False)
class Item:
    """One message of a conversation. ``said`` is its text, or the transcript of its audio."""

    item_id: str
    role: str
    content_type: str
    said: str = ""
    status: str = "completed"

    def shown(self) -> dict[str, Any]:
        """The item as clients see it; audio itself is not kept."""
        key = "transcript" if self.content_type.endswith("audio") else "text"
        return {
            "id": self.item_id,
            "object": "realtime.item",
            "type": "message",
            "role": self.role,
            "status": self.status,
            "content": [{"type": self.content_type, key: self.said}],
        }


@dataclass(slots=True)
class Events:
    """Events of one session, each with an id of its own."""

    request_id: str
    _n_made: dict[str, int] = field(default_factory=dict)

    def new_id(self, kind: str) -> str:
        """An id that no other thing of that kind in this session has."""
        self._n_made[kind] = self._n_made.get(kind, 0) + 1
        return f"{kind}_{self._n_made[kind]}"

    def event(self, name: str, **fields: Any) -> dict[str, Any]:
        """One event."""
        return {"type": name, "event_id": self.new_id("event"), **fields}

    def error(self, error: RequestError, event_id: str | None = None) -> dict[str, Any]:
        """Something that was asked for could not be done; ``event_id`` is that of the client's event."""
        body = {"type": error.kind, "code": error.code, "message": error.message[:_QUOTED], "param": error.param}
        return self.event("error", error={**body, "event_id": event_id[:_QUOTED] if event_id else None})


def parse_event(message: str | bytes) -> Fields:
    """A client's event. Raises RequestError 400 for what is none."""
    if isinstance(message, bytes):
        raise RequestError(400, "events are JSON in text messages, and this one is binary", code="invalid_message")
    try:
        event = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the message is not JSON: {error}", code="invalid_json") from None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise RequestError(400, "an event must be a JSON object with a type", param="type", code="invalid_event")
    return Fields(event)


def parse_item(given: Fields, item_id: str, where: str = "item.") -> Item:
    """An item that a client puts into the conversation: a message of text. Raises RequestError 400 naming the field."""
    if given.text("type", "message") != "message":
        raise invalid(f"{where}type", "must be message: this server calls no functions")
    role = given.text("role")
    if role not in _CONTENT:
        raise invalid(f"{where}role", f"must be one of {', '.join(_CONTENT)}")
    parts = []
    for index, part in enumerate(given.items("content")):
        if (
            not isinstance(part, dict)
            or part.get("type") not in _CONTENT[role]
            or not isinstance(part.get("text"), str)
        ):
            raise invalid(
                f"{where}content[{index}]",
                f'must be {{"type": "{_CONTENT[role][0]}", "text": "..."}}. Audio is appended',
            )
        parts.append(part["text"])
    return Item(given.text("id", "") or item_id, role, _CONTENT[role][0], " ".join(parts))


def refuse(error: RequestError, _request_id: str) -> web.Response:
    """The reply to a handshake that is refused."""
    return web.Response(body=openai_wire.error_body(error), status=error.status, content_type="application/json")


def failed(error: RequestError) -> dict[str, Any]:
    """The last event of a session that ends before its time."""
    return Events("").error(error)
