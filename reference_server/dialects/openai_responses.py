"""OpenAI's Responses: request bodies to values, answers to typed events.

Every event has ``type`` and a gapless ``sequence_number``; exactly one of ``response.completed``,
``response.incomplete`` and ``response.failed`` ends a stream, and no ``[DONE]`` follows. Nothing is stored: what would
need a memory of earlier responses is refused by name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from plimsoll.reference_server.dialects.generation import TextRequest, answering, messages, refuse, text_request
from plimsoll.reference_server.seams.models import Finish
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.http_calls import Call
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError, invalid
from plimsoll.reference_server.values.tokenizer import Tokenizer

_REFUSED = ("tools", "previous_response_id", "conversation", "background", "store", "prompt", "include", "reasoning")
_PARTS = ("input_text", "output_text", "text")


def add_routes(app: web.Application, service: Service) -> None:
    app.router.add_post("/v1/responses", answering(service, parse_response, _writer))


def _writer(call: Call, fields: Fields, asked: TextRequest) -> ResponseWriter:
    instructions = fields.text("instructions") if fields.has("instructions") else None
    return ResponseWriter(asked, instructions=instructions, answer_id=call.row.request_id, created_s=int(time.time()))


def parse_response(fields: Fields, tokenizer: Tokenizer) -> TextRequest:
    refuse(fields, _REFUSED)
    if fields.mapping("text").mapping("format").text("type", "text") != "text":
        raise invalid("text.format.type", "must be text: this server writes no other")
    said = [("system", fields.text("instructions"))] if fields.has("instructions") else []
    given = fields.values.get("input")
    if isinstance(given, str):
        said.append(("user", given))
    else:
        _only_messages(fields.items("input"))
        said += messages(fields, "input", _PARTS)
    max_new = fields.integer("max_output_tokens", 64, low=1)
    return text_request(fields, fields, tokenizer.chat(said), max_new, stream=fields.flag("stream"))


def _only_messages(items: list[Any]) -> None:
    for index, item in enumerate(items):
        kind = item.get("type", "message") if isinstance(item, dict) else "message"
        if kind != "message":
            raise invalid(f"input[{index}].type", "must be message: this server knows no other item")


class ResponseWriter:
    """Events of one response, or its one object."""

    content_type = "text/event-stream"

    def __init__(self, request: TextRequest, *, instructions: str | None, answer_id: str, created_s: int) -> None:
        self._request = request
        self._instructions = instructions
        self._id = f"resp_{answer_id}"
        self._item_id = f"msg_{answer_id}"
        self._created_s = created_s
        self._n_events = 0
        self._parts: list[str] = []
        where = json.dumps({"item_id": self._item_id, "output_index": 0, "content_index": 0, "logprobs": []})
        self._after_number = f", {where[1:-1]}, ".encode() + b'"delta": '

    def opening(self) -> Sequence[bytes]:
        response = self._response("in_progress", [], None)
        return (
            self._event("response.created", {"response": response}),
            self._event("response.in_progress", {"response": response}),
            self._event("response.output_item.added", {"output_index": 0, "item": self._item("in_progress", [])}),
            self._event("response.content_part.added", {**self._place(), "part": _part("")}),
        )

    def token(self, text: str, n_new: int) -> bytes:
        self._parts.append(text)
        number, self._n_events = self._n_events, self._n_events + 1
        return (
            b"event: response.output_text.delta\n"
            b'data: {"type": "response.output_text.delta", "sequence_number": %d%b%b}\n\n'
            % (number, self._after_number, json.dumps(text).encode())
        )

    def failure(self, error: RequestError) -> bytes:
        response = self._response("failed", [self._item("incomplete", [_part("".join(self._parts))])], None)
        response["error"] = {"code": error.code or "server_error", "message": error.message}
        return self._event("response.failed", {"response": response})

    def closing(self, finish: Finish, stages: Stages, elapsed_ns: int) -> Sequence[bytes]:
        """The twins of the opening events, and the whole response."""
        text = "".join(self._parts)
        response = self._ended(text, finish)
        done = [
            self._event("response.output_text.done", {**self._place(), "text": text, "logprobs": []}),
            self._event("response.content_part.done", {**self._place(), "part": _part(text)}),
            self._event("response.output_item.done", {"output_index": 0, "item": response["output"][0]}),
        ]
        if self._request.script.omit_done:
            return done
        last = {"response": response, "server_timing": stages.server_timing()}
        return [*done, self._event(f"response.{response['status']}", last)]

    def whole(self, text: str, finish: Finish, stages: Stages, elapsed_ns: int) -> bytes:
        return json.dumps(self._ended(text, finish)).encode()

    def _event(self, kind: str, members: dict[str, Any]) -> bytes:
        value = {"type": kind, "sequence_number": self._n_events, **members}
        self._n_events += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps(value).encode())

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": 0, "content_index": 0}

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._item_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _ended(self, text: str, finish: Finish) -> dict[str, Any]:
        status = "incomplete" if finish.reason == "length" else "completed"
        usage = None if self._request.script.omit_usage else self._usage(finish)
        return self._response(status, [self._item(status, [_part(text)])], usage)

    def _usage(self, finish: Finish) -> dict[str, Any]:
        n_prompt = len(self._request.prompt)
        return {
            "input_tokens": n_prompt,
            "input_tokens_details": {"cached_tokens": max(0, finish.n_cached)},
            "output_tokens": finish.n_new,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": n_prompt + finish.n_new,
        }

    def _response(self, status: str, output: list[dict[str, Any]], usage: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created_s,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": self._instructions,
            "max_output_tokens": self._request.max_new,
            "model": self._request.model,
            "output": output,
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "truncation": "disabled",
            "usage": usage,
            "metadata": {},
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
