"""What a recognition session was worth: from the server's events and the clip's truth to the stamps of one row. Pure.

It judges no status, but for one: words without end are no transcript. The running transcript is the segments' latest texts in order; a word of it *stands* from the message since
which it was there to stay, compared without case and punctuation so that formatting is no revision. Words are the same from one
message to the next, and in the transcript and its reference, as in an alignment of the fewest edits: what is put in front of a word
does not change it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols._speech.events import FADE_NS, Endpoint, Event, Transcript
from plimsoll.harness.transport.outcome import PROTOCOL, fail
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.slo.metrics.edits import aligned, cells
from plimsoll.slo.metrics.word_errors import word_errors

#: What comparing the transcripts of one answer may take (``plimsoll.slo.metrics.edits.cells``): 64 MB and a third of a second. An hour of speech has 10,000
#: words, which makes 100 million where all of them are compared at once.
MOST_CELLS = 1 << 28
_TOO_MANY = (
    f"the transcripts have too many words that change from one message to the next to be compared (more than {MOST_CELLS >> 20} million "
    "pairs). Send shorter audio"
)


class _Running:
    """The transcript as it grows: since when each word has been in it, and how many were changed or taken back. ``left``: what comparing
    may still take; below 0 nothing is compared any more.
    """

    def __init__(self) -> None:
        self.left = MOST_CELLS
        self.words: list[str] = []
        self.since: list[int] = []
        self.revised = 0

    def now_reads(self, text: str, t_ns: int) -> None:
        words = text.split()
        plain = [fold_word(word) for word in words]
        kept = self.aligned(self.words, plain)
        self.revised += len(self.words) - len(kept)
        since = [t_ns] * len(plain)
        for before, now in kept:
            since[now] = self.since[before]
        self.since = since
        self.words = plain

    def aligned(self, reference: Sequence[str], output: Sequence[str]) -> list[tuple[int, int]]:
        """``plimsoll.slo.metrics.edits.aligned`` while it may take that."""
        self.left -= cells(reference, output) if self.left >= 0 else 0
        return aligned(reference, output) if self.left >= 0 else []


def fold_word(word: str) -> str:
    """A word without case and without punctuation around it; one that is nothing else stays as it is."""
    return word.strip(".,;:!?\"'()[]…¿¡-").casefold() or word


def put_transcripts(exchange: Exchange, clip: Clip | None, events: Sequence[Event], normaliser: str) -> str:
    """Fill the row's session stamps from what was heard, and give the transcript as it was at the end.

    ``normaliser`` is one of ``plimsoll.slo.metrics.word_errors``. With a clip whose truth is known, words and word errors, word lags and false
    endpoints are counted too.
    """
    stamps = exchange.session if exchange.session is not None else SessionStamps()
    exchange.session = stamps
    segments: dict[int, str] = {}
    final: set[int] = set()
    running = _Running()
    chunks, cursors = array("q"), array("q")
    stamps.n_partials = 0
    heard = [event for event in events if isinstance(event, Transcript)]
    for i, event in enumerate(heard):
        segments[event.segment] = event.text.strip()
        if i + 1 == len(heard) or heard[i + 1].t_ns != event.t_ns:  # what one message says in parts is read as a whole
            running.now_reads(" ".join(segments[key] for key in sorted(segments) if segments[key]), event.t_ns)
        if not event.text.strip():
            continue
        chunks.append(event.t_ns)
        cursors.append(event.cursor_ns)
        if stamps.first_partial_ns < 0:
            stamps.first_partial_ns = event.t_ns
        if event.final:
            final.add(event.segment)
            stamps.final_ns = event.t_ns
            stamps.first_final_ns = stamps.first_final_ns if stamps.first_final_ns >= 0 else event.t_ns
        else:
            stamps.n_partials += 1
    if any(text and key not in final for key, text in segments.items()):
        stamps.final_ns = -1  # the end of the text was never made final: no earlier final covers it
    exchange.chunk_ns, exchange.n_chunks, stamps.chunk_cursor_ns = chunks, len(chunks), cursors
    stamps.n_revised = running.revised
    _put_endpoints(stamps, [event for event in events if isinstance(event, Endpoint)])
    transcript = " ".join(segments[key] for key in sorted(segments) if segments[key])
    stamps.heard = transcript
    if clip is not None:
        _compare(stamps, clip, running, transcript, normaliser)
    if running.left < 0:
        fail(exchange, PROTOCOL, _TOO_MANY)
    return transcript


def _put_endpoints(stamps: SessionStamps, events: Iterable[Endpoint]) -> None:
    """The first endpoint from the true speech end on, and those inside speech.

    What a server that is behind says of a pause in the middle comes after the end, and is no less false: the position in the
    audio that it gives tells.
    """
    stamps.false_endpoints = 0
    start_ns, end_ns = stamps.speech_start_ns, stamps.speech_end_ns
    for event in events:
        inside = start_ns >= 0 and start_ns < event.t_ns < end_ns
        if start_ns >= 0 and event.t_ns >= end_ns and event.cursor_ns >= 0:
            at_ns = stamps.media_start_ns + event.cursor_ns
            inside = start_ns < at_ns < end_ns - FADE_NS
        if inside:
            stamps.false_endpoints += 1
        elif stamps.endpoint_ns < 0 and event.t_ns >= end_ns:
            stamps.endpoint_ns = event.t_ns


def _compare(stamps: SessionStamps, clip: Clip, running: _Running, transcript: str, normaliser: str) -> None:
    if clip.transcript is not None:
        stamps.word_errors, stamps.words = word_errors(clip.transcript, transcript, normaliser)
    if not clip.words or stamps.media_start_ns < 0:
        return
    reference = [fold_word(word.text) for word in clip.words]
    lags = array("q")
    for said, heard in running.aligned(reference, running.words):
        lags.append(running.since[heard] - stamps.media_start_ns - clip.words[said].end_ns)
    stamps.word_lag_ns = lags
