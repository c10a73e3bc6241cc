"""What every dialect asks of a text model, read from JSON and checked. Pure: no sockets, no clock.

What the server can't do is refused by name, never ignored. Sampling settings are read and checked, but decoding is greedy
whatever they say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plimsoll.reference_server.engine.scheduler import PRIORITIES
from plimsoll.reference_server.frontends.shared.fields import Fields, invalid
from plimsoll.reference_server.seams.answers import Script
from plimsoll.reference_server.values.tokenizer import Tokenizer

MAX_STOPS = 4
_MAX_STOP_LENGTH = 256


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A request for text, checked."""

    model: str
    prompt: list[int]
    max_new: int
    min_new: int = 0
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    """Usage so far in every frame, as vLLM has it."""
    stops: tuple[str, ...] = ()
    priority: int = 0
    script: Script = field(default_factory=Script)


def stops(fields: Fields, name: str = "stop") -> tuple[str, ...]:
    """The texts that end an answer and are not part of it."""
    texts = fields.strings(name)
    if len(texts) > MAX_STOPS:
        raise invalid(name, f"must hold at most {MAX_STOPS} strings")
    if not all(0 < len(text) <= _MAX_STOP_LENGTH for text in texts):
        raise invalid(name, f"must hold strings of 1 to {_MAX_STOP_LENGTH} characters")
    return tuple(texts)


def priority(fields: Fields) -> int:
    """Lower goes first; 0 when it isn't given. Checked the same for every model, also for one that has no use for it."""
    return fields.integer("priority", 0, low=PRIORITIES[0], high=PRIORITIES[-1])


def sampling(fields: Fields) -> None:
    """Check what is read and not used."""
    fields.number("temperature", 1.0, low=0.0, high=2.0)
    fields.number("top_p", 1.0, low=0.0, high=1.0)


def refuse(fields: Fields, names: tuple[str, ...]) -> None:
    """Raise RequestError 400 for the first of the fields that asks for something."""
    for name in names:
        if fields.values.get(name) not in (None, False, [], {}, ""):
            raise invalid(name, "is not supported by this server. Leave it out")


def messages(fields: Fields, name: str = "messages", kinds: tuple[str, ...] = ("text",)) -> list[tuple[str, str]]:
    """A conversation as (role, content); content parts may be of those kinds."""
    said = []
    for index, message in enumerate(fields.items(name)):
        where = f"{name}[{index}]"
        if not isinstance(message, dict):
            raise invalid(where, "must be an object")
        role = Fields(message, f"{where}.").text("role")
        said.append((role, _content(message.get("content"), where, kinds)))
    return said


def tokens(value: object, where: str, tokenizer: Tokenizer) -> list[int]:
    """A prompt given as text or as token ids."""
    if isinstance(value, str):
        return tokenizer.encode(value)
    if isinstance(value, list) and value and all(type(token) is int for token in value):
        if not all(0 <= token < tokenizer.vocabulary for token in value):
            raise invalid(where, f"token ids must lie between 0 and {tokenizer.vocabulary - 1}")
        return tokenizer.begin(value)
    raise invalid(where, "must be a string or a list of token ids")


def _content(content: object, where: str, kinds: tuple[str, ...]) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise invalid(f"{where}.content", "must be a string or a list of text parts")
    parts = []
    for index, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") not in kinds or not isinstance(part.get("text"), str):
            raise invalid(f"{where}.content[{index}]", f'must be {{"type": "{kinds[0]}", "text": "..."}}')
        parts.append(part["text"])
    return "".join(parts)
