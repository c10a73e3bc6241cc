"""What servers of speech say, in one vocabulary: the adapters translate their messages into these, and nothing else reads them.

Times are absolute monotonic ns of the message's arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

#: A turn may be said to end a little before the true end of its speech: where it fades.
FADE_NS = 250_000_000


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text of one segment as the server sees it now: it replaces what was said of that segment before.

    Segments follow each other by number and together are the transcript. ``final``: the server will not revise it.
    ``cursor_ns``: how far into the audio it reaches (-1: not said).
    """

    t_ns: int
    segment: int
    text: str
    final: bool
    cursor_ns: int = -1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The server says that the speaker has finished. ``cursor_ns``: how far into the audio it had come by then (-1: not said)."""

    t_ns: int
    cursor_ns: int = -1


@dataclass(frozen=True, slots=True)
class Sound:
    """Decoded audio: ``samples`` is int16[n] or float32[n] (full scale 1.0), mono, at ``rate`` samples a second."""

    t_ns: int
    samples: npt.NDArray[Any]
    rate: int


Event = Transcript | Endpoint
