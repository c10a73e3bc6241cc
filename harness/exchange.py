"""One sample's stopwatch, the only mutable value in Plimsoll. Clients stamp it; the recorder copies it out.

It is of ints and slots, without methods that do work. Times are absolute monotonic nanoseconds while the exchange
lives, and the recorder makes them relative to t0; -1 means "did not happen".
"""

from __future__ import annotations

from array import array
from typing import Any


class SessionStamps:
    """What only a live session has: see ``plimsoll.slo.records.records`` for each field. Made by the client or
    by ``settle``.

    Instants are absolute monotonic ns, durations ns, -1 "did not happen"; ``slice`` is a name ("": none). No columns:
    ``texts`` (1 for each message that was text, 0 for a binary one), ``heard`` (the transcript, None: none), and of a
    turn on a connection that had others before it (``follows``): how much audio it had taken by then
    (``taken_before_ns``), and of the answer that this turn speaks over, when it would have been played
    (``sounding_ns``) and whether the server was still at it (``under_way``). ``cut``: the next turn spoke over this
    one's answer.
    """

    __slots__ = (
        "audible_ns",
        "chunk_audio_ns",
        "chunk_cursor_ns",
        "cut",
        "endpoint_ns",
        "false_endpoints",
        "final_ns",
        "first_audio_ns",
        "first_final_ns",
        "first_partial_ns",
        "follows",
        "frame_lag_ns",
        "frame_ns",
        "heard",
        "input_end_ns",
        "leading_silence_ns",
        "media_out_ns",
        "media_start_ns",
        "n_partials",
        "n_revised",
        "open_ns",
        "pace",
        "slice",
        "sounding_ns",
        "speech_end_ns",
        "speech_start_ns",
        "taken_before_ns",
        "texts",
        "under_way",
        "unsent_bytes",
        "word_errors",
        "word_lag_ns",
        "words",
    )

    def __init__(self) -> None:
        self.open_ns = -1
        self.media_start_ns = -1
        self.speech_start_ns = -1
        self.speech_end_ns = -1
        self.input_end_ns = -1
        self.first_partial_ns = -1
        self.first_final_ns = -1
        self.final_ns = -1
        self.endpoint_ns = -1
        self.first_audio_ns = -1
        self.audible_ns = -1
        self.leading_silence_ns = -1
        self.media_out_ns = -1
        self.false_endpoints = -1
        self.n_partials = -1
        self.n_revised = -1
        self.words = -1
        self.word_errors = -1
        self.unsent_bytes = -1
        self.frame_ns = -1
        self.pace = -1
        self.slice = ""
        self.follows = self.under_way = self.cut = False
        self.taken_before_ns = 0
        self.sounding_ns = -1
        self.texts = bytearray()
        self.heard: str | None = None
        self.chunk_audio_ns = array("q")
        self.chunk_cursor_ns = array("q")
        self.word_lag_ns = array("q")
        self.frame_lag_ns = array("q")


class Exchange:
    """One sample on the wire.

    While the exchange is on, a client only appends: response bytes to ``body``, and for each read one pair
    (``mark_ns``, ``mark_end``): ``body[:mark_end[i]]`` had arrived by ``mark_ns[i]``. After it is over, off the
    clock, the client's ``settle`` takes the body apart and fills the token fields.

    ``request`` is what the client's ``encode`` made of the payload; ``stamp`` starts at 0 (kernel) and is set to 1
    by the first read that the kernel did not stamp; ``attempts`` is how often its request was
    written (the recorder makes it 0 where nothing was sent).
    ``traceparent``: the trace context that goes with it (empty: none).
    ``labels``: what the answer said of itself, by label (None: nothing that is kept).
    ``on_done`` is called exactly once, by the client; ``watch``, where there is one, after each read before the last.
    """

    __slots__ = (
        "attempts",
        "body",
        "bytes_in",
        "bytes_out",
        "chunk_ns",
        "code",
        "connect_ns",
        "context",
        "done_ns",
        "due_ns",
        "error",
        "first_answer_ns",
        "first_byte_ns",
        "first_token_ns",
        "headers",
        "headers_ns",
        "labels",
        "last_token_ns",
        "mark_end",
        "mark_ns",
        "media_ns",
        "n_asked",
        "n_chunks",
        "n_in",
        "n_in_from",
        "n_out",
        "on_done",
        "on_wire",
        "payload_ix",
        "phase",
        "query_id",
        "ready_ns",
        "request",
        "request_id",
        "sample_ix",
        "sent_ns",
        "server_timing",
        "session",
        "stamp",
        "status",
        "tokens_from",
        "traceparent",
        "watch",
    )

    def __init__(self, query_id: int, sample_ix: int, payload_ix: int, due_ns: int, request: Any) -> None:
        self.query_id = query_id
        self.sample_ix = sample_ix
        self.payload_ix = payload_ix
        self.due_ns = due_ns
        self.request = request
        self.ready_ns = -1
        self.sent_ns = -1
        self.headers_ns = -1
        self.first_byte_ns = -1
        self.first_token_ns = -1
        self.first_answer_ns = -1
        self.last_token_ns = -1
        self.done_ns = -1
        self.connect_ns = -1
        self.n_in = -1
        self.n_in_from = 0
        self.n_out = -1
        self.n_asked = -1
        self.n_chunks = 0
        self.media_ns = -1
        self.bytes_out = 0
        self.bytes_in = 0
        self.code = -1
        self.status = 8  # plimsoll.slo.records.records.Status.UNFINISHED until somebody says otherwise
        self.stamp = 0
        self.phase = 0
        self.attempts = 1
        self.tokens_from = 0
        self.error: str | None = None
        self.server_timing: str | None = None
        self.session: SessionStamps | None = None
        self.labels: dict[str, str | int | None] | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        self.mark_ns = array("q")
        self.mark_end = array("q")
        self.chunk_ns = array("q")
        self.on_done: Any = None
        self.watch: Any = None
        self.context: Any = None
        self.request_id = b""
        self.traceparent = b""
        self.on_wire = False
