"""Sessions as the transport leaves them: for tests of what a live protocol says, hears and makes of it.

No socket is involved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.transport.live.dialogue import Dialogue, Script
from plimsoll.harness.transport.live.websocket_session import Prepared
from plimsoll.scenarios.samples.clip import Clip, Word
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status
from tests.finished import MS, finished

#: 900 ms of speech in a second of audio; the microphone starts at 0.
WORDS = (Word("one", 0, 400 * MS), Word("two", 400 * MS, 900 * MS))
CLIP = Clip((3000 * np.sin(np.arange(16_000) * 0.1)).astype(np.int16), 16_000, 0, 900 * MS, "one two", WORDS, "s")
AUDIO = Payload(data={"clip": CLIP}, media_ns=CLIP.duration_ns, reference="one two")
TEXT = Payload(prompt="mind the gap", n_in=3, max_output_tokens=9)

At = tuple[int, dict[str, Any] | bytes | str]


def begun(script: Script) -> Exchange:
    """A session that stands and has heard nothing."""
    exchange = finished([], code=101, content_type=None)
    exchange.request = Prepared(script, b"", (), b"")
    exchange.n_in, exchange.media_ns = script.n_in, script.media_ns
    stamps = exchange.session = SessionStamps()
    stamps.open_ns, stamps.pace, stamps.frame_ns = 0, script.pace, script.frame_ns
    if script.frame_ns >= 0:
        stamps.media_start_ns = 0
    if script.clip is not None and script.clip.onset_ns >= 0:
        stamps.speech_start_ns, stamps.speech_end_ns = script.clip.onset_ns, script.clip.offset_ns
    return exchange


def hear(
    talk: Dialogue, script: Script, messages: Sequence[At], exchange: Exchange | None = None
) -> tuple[Exchange, list[int]]:
    """The session with (ms, message), and what ``hear`` answered to each. Mappings and str are text, bytes binary."""
    exchange = exchange or begun(script)
    answers = []
    for at_ms, message in messages:
        data = json.dumps(message) if isinstance(message, dict) else message
        text = isinstance(data, str)
        raw = data.encode() if isinstance(data, str) else data
        exchange.body += raw
        exchange.mark_ns.append(at_ms * MS)
        exchange.mark_end.append(len(exchange.body))
        assert exchange.session is not None
        exchange.session.texts.append(text)
        answers.append(talk.hear(exchange, raw, text))
    return exchange, answers


def settled(
    talk: Dialogue, payload: Payload, messages: Sequence[At], status: Status = Status.OK, error: str | None = None
) -> Exchange:
    """The session with those messages, settled after it ended with ``status``."""
    exchange, _ = hear(talk, talk.encode(payload), messages)
    exchange.status, exchange.error = int(status), error
    talk.settle(exchange)
    return exchange
