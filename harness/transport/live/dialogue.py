"""A ``Dialogue`` is what makes one live protocol differ from the next; it knows no socket and sends nothing.

It makes the script of a session before t0 (``encode``), looks at each message only as far as it must to know whether
the session is ready or over (``hear``), and reads everything else off the clock (``settle``). One transport plays the
scripts of all WebSocket protocols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from plimsoll.harness.exchange import Exchange
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import PACE_FILE

#: What ``hear`` may answer.
NOTHING, READY, DONE, ENDPOINT = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Message:
    """One whole message: text (UTF-8) or binary."""

    data: bytes
    text: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """What one session says, and when.

    ``path`` (with query), ``headers`` and ``subprotocols`` make the handshake; headers may hold credentials, so a
    script is never printed. ``opening`` is said as soon as the session stands. With ``waits`` the clock of the frames
    starts at the message that ``hear`` calls READY, otherwise at once. Frame i is due ``due_ns[i]`` after that start,
    and is not written sooner than ``gap_ns[i]`` after the one before it, even when it is late (empty: the backlog at
    once); the first ``needed`` frames are always sent (None: all), the others only until ``hear`` says ENDPOINT.
    ``closing`` is said ``closing_ns`` after the start, or with the last frame that is sent.

    The session is over when ``hear`` says DONE; with ``ends_on_close`` also when the server closes it in good order
    after everything was said. ``clip`` is the audio and its truth, whose first sample is at the frames' start.
    ``media_ns`` and ``n_in`` as in Payload; ``pace`` a code of ``plimsoll.slo.records.records``, ``frame_ns``
    the playing time of a full frame (-1: no audio).
    """

    path: str
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()
    opening: Sequence[Message] = ()
    waits: bool = False
    frames: Sequence[Message] = ()
    due_ns: Sequence[int] = ()
    gap_ns: Sequence[int] = ()
    needed: int | None = None
    closing: Sequence[Message] = ()
    closing_ns: int = 0
    ends_on_close: bool = True
    clip: Clip | None = field(default=None, compare=False)
    media_ns: int = -1
    n_in: int = -1
    pace: int = PACE_FILE
    frame_ns: int = -1

    def __repr__(self) -> str:
        return f"Script({self.path.partition('?')[0]!r}, {len(self.frames)} frames)"


class Dialogue(Protocol):
    """One live protocol. Instances hold credentials: don't print them."""

    def encode(self, payload: Payload) -> Script:
        """The script for a payload; the same payload always gives the same script. Raises ``HarnessFault``."""
        ...

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        """NOTHING, READY, DONE or ENDPOINT. Hot: looks for bytes, parses nothing, never raises."""
        ...

    def settle(self, exchange: Exchange) -> None:
        """Fill token and session fields, status and error from the messages. Never raises, whatever the bytes.

        Message i is ``body[mark_end[i - 1]:mark_end[i]]``, arrived at ``mark_ns[i]``; ``session.texts[i]`` is 1 for
        text.
        """
        ...


class Converser(Dialogue, Protocol):
    """A dialogue whose turns may follow each other on one connection: as it is set up, it ``converses`` or doesn't.
    ``deaf``: why nobody can speak over its answers; "": they can.
    """

    converses: bool
    deaf: str

    def sounds(self, message: bytes) -> int:
        """How long this message's audio plays, in ns; -1: a new answer begins. Hot, like ``hear``."""
        ...


def messages_of(exchange: Exchange) -> list[tuple[int, bytes, bool]]:
    """(arrival ns, data, whether it is text) of each message of a session."""
    texts = exchange.session.texts if exchange.session is not None else bytearray(len(exchange.mark_end))
    body, begin = exchange.body, 0
    found = []
    for t_ns, end, text in zip(exchange.mark_ns, exchange.mark_end, texts, strict=True):
        found.append((t_ns, bytes(body[begin:end]), bool(text)))
        begin = end
    return found
