"""How audio is sent, as every live protocol's ``options.audio`` says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

from plimsoll.harness.options import STRICT
from plimsoll.harness.protocols._speech.pacing import parse_pace
from plimsoll.scenarios.text.durations import Duration
from plimsoll.slo.metrics.word_errors import normaliser

_SHORTEST_NS, _LONGEST_NS = 1_000_000, 10_000_000_000  # of a frame


class AudioOptions(BaseModel):
    """``options.audio`` of a live protocol.

    ``frame``: playing time of one message. ``pace``: ``capture`` sends a frame at the end of its span, as a microphone
    gives it; ``eager`` at its beginning (what many scripts do: it flatters every latency by a frame); ``burst`` all at
    once; ``2x`` at twice the speed. ``trailing_silence``: paced frames of silence after the clip, for servers that must
    hear quiet before they finish; with ``until_endpoint`` it ends with the server's endpoint. ``normaliser`` is how both
    texts are made comparable before word errors are counted.
    """

    model_config = STRICT
    frame: Duration | None = Field(default=None, gt=0, description="null: what suits the protocol, mostly 100 ms")
    pace: str = "capture"
    trailing_silence: Duration | None = Field(default=None, ge=0, description="null: what the protocol needs")
    until_endpoint: bool = True
    normaliser: Literal["none", "basic", "whisper-english"] = "basic"

    @field_validator("frame")
    @classmethod
    def _frame(cls, value: int | None) -> int | None:
        if value is not None and not _SHORTEST_NS <= value <= _LONGEST_NS:
            raise ValueError("a frame lasts 1 ms to 10 s. Write for example 100ms")
        return value

    @field_validator("pace")
    @classmethod
    def _pace(cls, value: str) -> str:
        return str(parse_pace(value))

    @field_validator("normaliser")
    @classmethod
    def _installed(cls, value: str) -> str:
        return normaliser(value).name  # its error, a ValueError, says what to install


def stated_normaliser(options: Mapping[str, Any]) -> str:
    """Name and version of the normaliser that a protocol's options ask for, as reports state it."""
    audio = options.get("audio")
    name = options.get("normaliser") or (audio.get("normaliser") if isinstance(audio, Mapping) else None) or "basic"
    return normaliser(str(name)).text
