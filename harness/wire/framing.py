"""Framing: one way to ask for any of the ways in which a stream of messages lies in a body. Each has its own rules elsewhere.

``sse`` (harness/wire/sse.py), ``ndjson`` (harness/wire/ndjson.py), ``lines`` (the same lines, of text), ``chunks`` (each network read
is a message: all that can be known where a server marks nothing) and ``length-prefixed`` (harness/wire/prefixed.py).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from plimsoll.harness.wire import ndjson, prefixed, sse
from plimsoll.harness.wire.sse import IntArray

Framing = Literal["sse", "ndjson", "lines", "chunks", "length-prefixed"]
#: Framings whose messages are text as it is, never JSON.
PLAIN_TEXT = frozenset({"lines", "chunks"})


@dataclass(frozen=True, slots=True)
class Stream:
    """A body taken apart by any framing: ``payloads[i]`` arrived at ``times[i]``, with the event name ``names[i]`` where any has
    one. ``broken`` ends the reading, ``cut`` says that the last message is torn.
    """

    payloads: list[bytes]
    times: IntArray
    names: list[bytes] | None = None
    broken: str | None = None
    cut: str | None = None


def take_apart(
    body: bytes | bytearray,
    mark_ns: array[int],
    mark_end: array[int],
    framing: str,
    byte_order: Literal["big", "little"] = "big",
) -> Stream:
    """The messages of a body. ``body[:mark_end[i]]`` had arrived by ``mark_ns[i]`` (both ascending). Never raises."""
    if framing == "sse":
        decoded = sse.decode(body, mark_ns, mark_end)
        cut = "stream cut inside an event" if decoded.truncated else None
        return Stream(decoded.payloads, decoded.times, decoded.names, decoded.error, cut)
    if framing == "length-prefixed":
        messages = prefixed.decode(body, mark_ns, mark_end, byte_order)
        cut = "stream cut inside a message" if messages.truncated else None
        return Stream(messages.payloads, messages.times, None, messages.error, cut)
    if framing == "chunks":
        reads = [bytes(body[begin:end]) for begin, end in pairwise((0, *mark_end))]
        return Stream(reads, np.array(mark_ns, dtype=np.int64))
    # A last line without its LF is taken: had it been cut, it would not be JSON (and of text nobody can tell).
    lines = ndjson.decode(body, mark_ns, mark_end)
    return Stream(lines.payloads, lines.times, None, lines.error)
