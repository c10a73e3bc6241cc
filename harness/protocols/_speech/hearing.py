"""This module turns what speech servers say into the stamps of one row. Pure; nothing here raises, whatever the bytes.

A vendor's file says what one message means in three shared words (``Transcript``, ``Endpoint``, ``Sound``), which an
``Account`` holds in order; ``recognised`` and ``synthesised`` make the row of them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols._speech.codecs import Decoder
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.http.dialect import split_url
from plimsoll.harness.transport.live.dialogue import messages_of
from plimsoll.harness.transport.live.handshake import http_url
from plimsoll.harness.transport.outcome import PROTOCOL, fail
from plimsoll.harness.wire.tokens import Fault
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.slo.metrics.word_errors import aligned, cells, word_errors
from plimsoll.slo.records.records import PACE_CAPTURE, PACE_EAGER, PACE_FILE, PACE_OTHER

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
    """The server says that the speaker has finished.

    ``cursor_ns``: how far into the audio it had come by then (-1: not said).
    """

    t_ns: int
    cursor_ns: int = -1


@dataclass(frozen=True, slots=True)
class Sound:
    """Decoded audio: ``samples`` is int16[n] or float32[n] (full scale 1.0), mono, at ``rate`` samples a second."""

    t_ns: int
    samples: npt.NDArray[Any]
    rate: int


Event = Transcript | Endpoint


_TYPE = re.compile(rb'"type"\s*:\s*"([^"\\]*)"')
_CLOSED = re.compile(r"the server closed the session[^:]*: (\d{4})\b")
#: Close codes by which a server says that a session ended as it should, or that say nothing of their own.
_SILENT = frozenset({1000, 1001, 1005, 1006})
#: Close codes that say "not now" in any protocol.
OVERLOADED = frozenset({1013})
_SHED = re.compile(r"\b(?:429|503)\b|overload|too many|rate.?limit|quota")
_LONGEST_S = 1_000_000.0


def kind_of(message: bytes) -> bytes:
    """The ``type`` of a JSON object, b"" if it has none. Hot: looks for bytes, decodes nothing."""
    for found in _TYPE.finditer(message):
        start = found.start()
        if message.count(b"{", 0, start) - message.count(b"}", 0, start) == 1:  # the object's own, not one inside
            return found[1]
    return b""


def number_of(message: bytes, key: str) -> float:
    """The number under ``key`` of a JSON object, -1 if it has none. Hot: looks for bytes, decodes nothing else."""
    for found in re.finditer(rb'"%s"\s*:\s*(\d{1,9}(?:\.\d{1,12})?)' % key.encode(), message):
        start = found.start()
        if message.count(b"{", 0, start) - message.count(b"}", 0, start) == 1:
            return float(found[1])
    return -1.0


def after_speech(exchange: Exchange) -> bool:
    """The latest message came when the speaker had truly finished; where nobody knows that, when the clip was over.
    Hot.

    Always true of audio that no microphone would give so fast: when it is heard says nothing about a speaker.
    """
    stamps = exchange.session
    if stamps is None or stamps.pace in (PACE_FILE, PACE_OTHER):
        return True
    end_ns = stamps.speech_end_ns if stamps.speech_end_ns >= 0 else stamps.media_start_ns + max(0, exchange.media_ns)
    return exchange.mark_ns[-1] >= end_ns


def heard_out(exchange: Exchange, position_ms: float) -> bool:
    """``after_speech``, and the position in the audio that the server gave reaches the true end of the speech. Hot.

    What a slow server says of the first half of a clip comes late, but it is not the end.
    """
    stamps = exchange.session
    if stamps is not None and stamps.speech_end_ns >= 0:
        end_ns = stamps.speech_end_ns - stamps.media_start_ns
        return position_ms * 1e6 + FADE_NS >= end_ns and after_speech(exchange)
    return after_speech(exchange)


@dataclass(frozen=True, slots=True)
class Said:
    """The messages of a session: (arrival ns, JSON object or binary data) in order, up to one that could not be read
    (``broken``).
    """

    messages: tuple[tuple[int, dict[str, Any] | bytes], ...]
    broken: str | None = None


def from_json(data: bytes, text: bool) -> dict[str, Any] | bytes | None:
    """A message: the object in a text, None for other JSON; binary data as it is. Raises ValueError."""
    if not text:
        return data
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise ValueError(f"is not JSON: {outcome.excerpt(data)}") from None
    return value if isinstance(value, dict) else None


def read(exchange: Exchange, decode: Callable[[bytes, bool], dict[str, Any] | bytes | None] = from_json) -> Said:
    """Every message of a finished session, as ``decode`` makes it of its data and whether that is text.

    A message of which it makes None is passed over; its ValueError says what a message is that can't be read.
    """
    found: list[tuple[int, dict[str, Any] | bytes]] = []
    for number, (t_ns, data, text) in enumerate(messages_of(exchange), 1):
        try:
            value = decode(data, text)
        except ValueError as error:
            return Said(tuple(found), f"message {number} {error}")
        if value is not None:
            found.append((t_ns, value))
    return Said(tuple(found))


def member(value: Any, *path: str | int) -> Any:
    """What lies at ``path`` (names, and places in lists), None where the path leads nowhere."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:
    """The text at ``path``, "" where there is none."""
    found = member(value, *path)
    return found if isinstance(found, str) else ""


def ns_of(value: Any, unit_ns: int = 1_000_000_000) -> int:
    """A position in audio in ns, from a number of seconds (or of ``unit_ns``); -1 for anything else."""
    if type(value) not in (int, float) or not 0 <= value < _LONGEST_S * 1e9 / unit_ns:
        return -1
    position: int = round(value * unit_ns)
    return position


def fault_in(said: dict[str, Any], text: Iterable[str], code: Iterable[str], overloaded: Collection[str] = ()) -> Fault:
    """An error message in the server's words: the first of ``text`` that is there, and all of ``code``. ``overloaded``:
    parts of codes by which it sheds load.
    """
    words = next((found for name in text if (found := text_at(said, name))), "")
    labels = [str(said[name]) for name in code if isinstance(said.get(name), str | int) and said[name] != ""]
    if not words:  # not in a known place: what there is on the surface
        words = ", ".join(f"{name}: {value}" for name, value in said.items() if isinstance(value, str | int))
    told = " ".join([words, *labels]).lower()
    shed = _SHED.search(told) is not None or any(part in told for part in overloaded)
    return Fault(f"{words} ({', '.join(labels)})" if labels else words, shed)


def while_open(exchange: Exchange, events: Sequence[Event]) -> list[Event]:
    """The events without the endpoints that came after the input was over: those answer our own goodbye, not a
    speaker's silence.
    """
    over_ns = exchange.session.input_end_ns if exchange.session is not None else -1
    return [event for event in events if over_ns < 0 or not isinstance(event, Endpoint) or event.t_ns <= over_ns]


def conclude(exchange: Exchange, said: Said, fault: Fault | None, overloaded: Collection[int] = OVERLOADED) -> None:
    """Judge a session by what was said in it: a reported error, then a message that could not be read, then how it was
    closed.

    A close with a code of the service's own is its word, not a broken connection; ``overloaded``: the codes that shed
    load.
    """
    closed = _CLOSED.search(exchange.error or "") if exchange.status == outcome.PROTOCOL else None
    if fault is not None:
        outcome.fail_by(exchange, fault)
    elif said.broken is not None:
        outcome.fail(exchange, outcome.PROTOCOL, said.broken)
    elif closed is not None and int(closed[1]) not in _SILENT:
        status = outcome.REFUSED if int(closed[1]) in overloaded else outcome.HTTP
        outcome.fail(exchange, status, exchange.error or "")
    if exchange.error:
        exchange.error = redact(exchange.error)


#: What comparing the transcripts of one answer may take (``plimsoll.slo.metrics.word_errors.cells``): 64 MB and a third
#: of a second. An hour of speech has 10,000 words, which makes 100 million where all of them are compared at once.
MOST_CELLS = 1 << 28
_TOO_MANY = (
    "the transcripts have too many words that change from one message to the next to be compared (more than "
    f"{MOST_CELLS >> 20} million pairs). Send shorter audio"
)


class _Running:
    """The transcript as it grows: since when each word has been in it, and how many were changed or taken back.
    ``left``: what comparing may still take; below 0 nothing is compared any more.
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
        """``plimsoll.slo.metrics.word_errors.aligned`` while it may take that."""
        self.left -= cells(reference, output) if self.left >= 0 else 0
        return aligned(reference, output) if self.left >= 0 else []


def fold_word(word: str) -> str:
    """A word without case and without punctuation around it; one that is nothing else stays as it is."""
    return word.strip(".,;:!?\"'()[]…¿¡-").casefold() or word


def put_transcripts(exchange: Exchange, clip: Clip | None, events: Sequence[Event], normaliser: str) -> str:
    """Fill the row's session stamps from what was heard, and give the transcript as it was at the end.

    ``normaliser`` is one of ``plimsoll.slo.metrics.word_errors``. With a clip whose truth is known, words and word
    errors, word lags and false endpoints are counted too.
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

    What a server that is behind says of a pause in the middle comes after the end, and is no less false: the position
    in the audio that it gives tells.
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


NS = 1_000_000_000
AUDIBLE_RMS = 0.01
_WINDOW_MS, _HOP_MS = 10, 1


def put_sounds(exchange: Exchange, sounds: Sequence[Sound]) -> None:
    """Fill chunk arrivals, playing times, first and audible audio from the chunks in order of arrival; empty ones are
    none.
    """
    stamps = exchange.session if exchange.session is not None else SessionStamps()
    exchange.session = stamps
    held = [sound for sound in sounds if len(sound.samples)]
    exchange.chunk_ns = array("q", [sound.t_ns for sound in held])
    exchange.n_chunks = len(held)
    # Cut from the running number of samples, so that many short chunks add up to the whole without rounding away.
    ends = np.cumsum([0] + [len(sound.samples) for sound in held]).astype(np.int64)
    rate = held[0].rate if held else 1
    edges = (ends * NS + rate // 2) // rate
    stamps.chunk_audio_ns = array("q", np.diff(edges).tolist())
    stamps.media_out_ns = int(edges[-1])
    if not held:
        return
    stamps.first_audio_ns = held[0].t_ns
    place = first_audible(np.concatenate([sound.samples for sound in held]), rate)
    if place >= 0:
        stamps.leading_silence_ns = place * NS // rate
        heard = min(place + rate * _WINDOW_MS // 1000, int(ends[-1])) - 1  # what makes the window loud is at its end
        stamps.audible_ns = held[int(np.searchsorted(ends, heard, side="right")) - 1].t_ns


@dataclass(slots=True)
class Spoken:
    """How an answer sounds: what came of it, whether that is all, and when it was to fall silent (-1: at its end)."""

    sounds: list[Sound]
    over: bool = False
    stop_ns: int = -1

    def done(self, t_ns: int, cancelled: bool) -> None:
        """The server says that this was all, or that it has stopped."""
        self.over = True
        self.stop_ns = t_ns if cancelled and self.stop_ns < 0 else self.stop_ns

    def spoken_over(self, t_ns: int) -> None:
        """The server says that it hears speech: a player drops what it holds of an answer that has come whole."""
        self.stop_ns = t_ns if self.over and self.stop_ns < 0 else self.stop_ns

    def played(self, from_ns: int, sounding_ns: int) -> list[tuple[int, int]]:
        """(begin, end) of each piece as a player at 1x plays it that has sound from ``from_ns`` to ``sounding_ns``."""
        pieces, end = [(from_ns, sounding_ns)] if sounding_ns > from_ns else [], sounding_ns
        for sound in self.sounds:
            begin = max(end, sound.t_ns)
            end = begin + len(sound.samples) * NS // sound.rate
            pieces.append((begin, end))
        if self.stop_ns < 0:
            return pieces
        return [(begin, min(end, self.stop_ns)) for begin, end in pieces if begin < self.stop_ns]


def put_talk(exchange: Exchange, answers: Sequence[Spoken], interrupts: bool) -> None:
    """The labels of a turn of a spoken conversation: how long both talked at once (``overlap``, ns), whether the server
    did not give way (``talked_over``), and how long it went on after the user had begun to speak over the answer before
    (``barge_in_stop``, ns). ``answers``: first that one's rest. ``interrupts``: the server was to stop.
    """
    stamps = exchange.session
    if stamps is None or stamps.speech_start_ns < 0:
        return
    onset, offset = stamps.speech_start_ns, stamps.speech_end_ns
    if exchange.status != outcome.OK and exchange.done_ns <= onset:
        return  # nobody came to speak
    if not interrupts:
        for one in answers:
            one.stop_ns = -1
    before = answers[0].played(stamps.media_start_ns, stamps.sounding_ns)
    own = [piece for one in answers[1:] for piece in one.played(0, -1)]
    both = sum(max(0, min(end, offset) - max(begin, onset)) for begin, end in (*before, *own))
    silent = max((end for _, end in before), default=-1)
    talked_over = silent >= offset or any(begin < offset for begin, _ in own)
    labels: dict[str, str | int | None] = {"overlap": both, "talked_over": int(talked_over)}
    if silent > onset:
        labels["barge_in_stop"] = silent - onset
    exchange.labels = {**(exchange.labels or {}), **labels}


def as_float(samples: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """Samples with full scale 1.0."""
    if samples.dtype == np.int16:
        return samples.astype(np.float32) / np.float32(32768)
    return samples.astype(np.float32, copy=False)


def first_audible(samples: npt.NDArray[np.generic], rate: int) -> int:
    """Index of the first sample of the first audible window, -1 if all is silent. int16[n], or float32[n] with full
    scale 1.0.
    """
    window, hop = max(1, rate * _WINDOW_MS // 1000), max(1, rate * _HOP_MS // 1000)
    if len(samples) < window:
        return 0 if len(samples) and float(np.std(as_float(samples))) > AUDIBLE_RMS else -1
    block = 200 * hop  # a fifth of a second at a time: silence is short, answers are long
    for begin in range(0, len(samples) - window + 1, block):
        part = as_float(samples[begin : begin + block + window - 1]).astype(np.float64)
        sums = np.concatenate(([0.0], np.cumsum(part)))
        squares = np.concatenate(([0.0], np.cumsum(part * part)))
        starts = np.arange(0, len(part) - window + 1, hop)
        mean = (sums[starts + window] - sums[starts]) / window
        power = (squares[starts + window] - squares[starts]) / window - mean * mean
        loud = np.flatnonzero(power > AUDIBLE_RMS**2)
        if len(loud):
            return begin + int(starts[loud[0]])
    return -1


#: Paces at which audio comes as from a microphone, so that a server hears silence for as long as it lasts.
LIVE_PACES = (PACE_CAPTURE, PACE_EAGER)


@dataclass(slots=True)
class Account:
    """Events and sounds in their order.

    ``fault`` is the server's own word that it failed, ``broken`` why reading ended, ``timing`` the stages that the
    server reported last.
    """

    events: list[Event] = field(default_factory=list)
    sounds: list[Sound] = field(default_factory=list)
    fault: Fault | None = None
    broken: str | None = None
    segment: int = 0
    timing: str = ""

    def heard(self, t_ns: int, text: str, final: bool, cursor_ns: int = -1) -> None:
        """The present segment's text; a final one ends it."""
        self.events.append(Transcript(t_ns, self.segment, text, final, cursor_ns))
        if final:
            self.segment += 1

    def ended(self, t_ns: int, cursor_ns: int = -1) -> None:
        """The speaker has finished, says the server."""
        self.events.append(Endpoint(t_ns, cursor_ns))

    def reached(self, cursor_ns: int) -> None:
        """The latest transcript went so far: some services say it in a message of its own."""
        for i in range(len(self.events) - 1, -1, -1):
            event = self.events[i]
            if isinstance(event, Transcript):
                self.events[i] = replace(event, cursor_ns=cursor_ns)
                return

    def sounded(self, t_ns: int, data: bytes, play: Decoder) -> None:
        """Audio bytes as they came."""
        try:
            samples = play.feed(data)
        except ValueError as error:
            self.broken = f"the audio can't be decoded: {error}"
            return
        if len(samples):
            self.sounds.append(Sound(t_ns, samples, play.rate))

    def sounded_base64(self, t_ns: int, value: Any, play: Decoder) -> None:
        """Audio as base64 text; None and "" are no audio."""
        if value is None or value == "":
            return
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            self.broken = f"the audio is not base64: {error}"
            return
        self.sounded(t_ns, data, play)


#: Tells one message: (account, arrival ns, JSON object or binary data).
Teller = Callable[[Account, int, Any], None]


def account_of(said: Said, tell: Teller) -> tuple[Account, Said]:
    """Tell every message, up to one that reports a failure or can't be read: (what was told, what was said up to
    there).
    """
    account = Account()
    for number, (t_ns, message) in enumerate(said.messages, 1):
        tell(account, t_ns, message)
        if account.fault is not None or account.broken is not None:
            broken = None if account.broken is None else f"message {number}: {account.broken}"
            return account, Said(said.messages[:number], broken)
    return account, said


def recognised(
    exchange: Exchange,
    tell: Teller,
    normaliser: str,
    said: Said | None = None,
    overloaded: Collection[int] = OVERLOADED,
) -> None:
    """A finished session of speech to text onto its exchange: transcripts and endpoints, then its failure if there was
    one.
    """
    account, up_to = account_of(read(exchange) if said is None else said, tell)
    if exchange.session is not None and exchange.session.open_ns >= 0:
        put_transcripts(exchange, _clip_of(exchange), while_open(exchange, account.events), normaliser)
    exchange.server_timing = account.timing or exchange.server_timing
    conclude(exchange, up_to, account.fault, overloaded)


def synthesised(
    exchange: Exchange,
    tell: Teller,
    said: Said | None = None,
    overloaded: Collection[int] = OVERLOADED,
    play: Decoder | None = None,
) -> None:
    """A finished session of text to speech onto its exchange: sounds, then its failure; one without any sound is a
    failure.

    ``play`` is asked for what it still holds of the sound: it came with the last chunk.
    """
    account, up_to = account_of(read(exchange) if said is None else said, tell)
    if play is not None and account.sounds:
        with contextlib.suppress(ValueError):  # a stream that was cut in a frame has no more of it
            account.sounds.append(replace(account.sounds[-1], samples=play.finish()))
    if exchange.session is not None and exchange.session.open_ns >= 0:
        put_sounds(exchange, account.sounds)
    conclude(exchange, up_to, account.fault, overloaded)
    if not account.sounds:
        outcome.fail(exchange, outcome.PROTOCOL, "the session ended without any audio")


def _clip_of(exchange: Exchange) -> Any:
    return getattr(getattr(exchange.request, "script", None), "clip", None)


def objects_in(said: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects in a list member."""
    value = said.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def keyed(headers: Iterable[tuple[str, str]], name: str) -> tuple[tuple[str, str], ...]:
    """The headers with a bearer key under the service's own header instead, unless that is given."""
    pairs = tuple(headers)
    if name.lower() in {given.lower() for given, _ in pairs}:
        return pairs
    return tuple(_moved(given, value, name) for given, value in pairs)


def path_below(url: str, route: str) -> str:
    """A route of one segment below the URL's path, which may end with it already; the URL's query is left to others."""
    base, _ = split_url(http_url(url))
    if route == "/" or base.endswith(route):
        return base or "/"
    return base + route


def _moved(given: str, value: str, name: str) -> tuple[str, str]:
    scheme, _, key = value.partition(" ")
    return (name, key.strip()) if given.lower() == "authorization" and scheme.lower() == "bearer" else (given, value)


def value_of(message: bytes, key: bytes, most: int = 64) -> bytes:
    """What follows the first ``"key":`` of a JSON text, at most so many bytes; b"" without it.

    Hot: looks, parses nothing.
    """
    at = message.find(key)
    while at >= 0:
        rest = message[at + len(key) : at + len(key) + most].lstrip(b" \t\r\n")
        if rest[:1] == b":":
            return rest[1:].lstrip(b" \t\r\n")
        at = message.find(key, at + len(key))  # that was a value
    return b""


def input_over(exchange: Exchange) -> bool:
    """The latest message came when everything had been said, as planned. Hot."""
    stamps = exchange.session
    if stamps is None or stamps.media_start_ns < 0:
        return False
    closing_ns: int = exchange.request.script.closing_ns
    return exchange.mark_ns[-1] >= stamps.media_start_ns + closing_ns
