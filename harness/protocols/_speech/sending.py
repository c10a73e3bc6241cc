"""This module makes the frames of live audio, and the pieces of a text that feeds a voice, with exact due times. Pure.

Everything is encoded before t0. Schedules are in whole samples, so that no frame drifts; silence after the clip is real
frames of zeros, and the server may decide how many of them go out (``needed``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import Options
from plimsoll.harness.protocols._speech.codecs import codec_problems, encode_frames
from plimsoll.harness.transport.live.dialogue import Message
from plimsoll.scenarios.media.sound import resample
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.text.fields import Duration
from plimsoll.slo.metrics.word_errors import normaliser

IntArray = npt.NDArray[np.int64]

NS: Final = 1_000_000_000
MAX_AUDIO_NS: Final = 24 * 3600 * NS
_MOST: Final = 1 << 62
"""Of samples x ns: half of what 64 bits hold, so that no sum below can overflow."""
MAX_SPEED: Final = 1000.0

BURST, CAPTURE, EAGER, SPEED = "burst", "capture", "eager", "speed"
_CODES: Final = {BURST: 0, CAPTURE: 1, EAGER: 2, SPEED: 3}
_SPEED: Final = re.compile(r"(\d+(?:\.\d+)?)x")


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast audio is sent, and from which edge of its span a frame is due.

    ``mode``: ``capture`` (at the end of its span, when a microphone would have it), ``eager`` (at the start: the frame
    is there up to its own length too early), ``burst`` (all at once), ``speed`` (captured at ``speed`` times real
    time). ``speed`` is 1 for the others.
    """

    mode: str = CAPTURE
    speed: float = 1.0

    def __post_init__(self) -> None:
        if self.mode not in _CODES:
            raise ValueError(f"pace {self.mode!r} is not one of {', '.join(_CODES)}")
        if not 0 < self.speed <= MAX_SPEED or (self.mode != SPEED and self.speed != 1.0):
            raise ValueError(
                f"pace {self.mode} with speed {self.speed:g}. Give a speed above 0, up to {MAX_SPEED:g}, to `speed` "
                "alone"
            )

    @property
    def code(self) -> int:
        """As the column ``pace`` holds it: 0 burst, 1 capture, 2 eager, 3 another speed."""
        return _CODES[self.mode]

    @property
    def times_real(self) -> float:
        """Seconds of audio sent in a second; infinite for a burst."""
        return float("inf") if self.mode == BURST else self.speed

    def __str__(self) -> str:
        return f"{self.speed:g}x" if self.mode == SPEED else self.mode


def parse_pace(text: str) -> Pace:
    """``capture``, ``eager``, ``burst`` or a speed such as ``2x``; ``1x`` is ``capture``.

    Raises ValueError, which says what is allowed.
    """
    if text in (CAPTURE, EAGER, BURST):
        return Pace(text)
    match = _SPEED.fullmatch(text)
    speed = float(match[1]) if match else 0.0
    if not 0 < speed <= MAX_SPEED:
        raise ValueError(
            f"{text!r} is not a pace. Write capture, eager, burst, or a speed such as 2x (at most {MAX_SPEED:g}x)"
        )
    return Pace() if speed == 1.0 else Pace(SPEED, speed)


@dataclass(frozen=True, slots=True)
class FrameSchedule:
    """Frame k holds samples [``bounds[k]``, ``bounds[k + 1]``) and is due ``due_ns[k]`` after sample 0.

    ``end_ns`` is when the input is over, and so the earliest that an end-of-stream message may be sent: the true end of
    the last frame on the timeline of the pace (0 for a burst). ``gap_ns[k]`` is the least time between the writes of
    frames k - 1 and k, to be kept when frames have become late; 0 everywhere when the backlog may go out at once. All
    int64.
    """

    bounds: IntArray
    due_ns: IntArray
    gap_ns: IntArray
    end_ns: int

    def __len__(self) -> int:
        return len(self.due_ns)


def frame_schedule(
    n_samples: int, rate: int, frame_ms: float, pace: Pace, max_catch_up: float | None = None
) -> FrameSchedule:
    """The schedule of ``n_samples`` at ``rate`` Hz in frames of ``frame_ms``.

    Frame k ends at sample round((k + 1) x frame x rate); the last one is as long as what is left, and due at the true
    end. ``max_catch_up``: a late player may send at most so many seconds of audio a second until it is on time again
    (None: the backlog at once). It must be above the pace's own speed, or the player would never catch up. Raises
    ValueError for a frame below one sample, audio above 24 hours, or a catch-up that isn't faster than the pace.
    """
    frame_ns = round(frame_ms * 1_000_000)
    if n_samples < 0 or rate < 1 or n_samples * NS > min(MAX_AUDIO_NS * rate, _MOST):
        raise ValueError(f"{n_samples} samples at {rate} Hz can't be scheduled. Give at most 24 hours of audio")
    if frame_ns * rate < NS or frame_ns > MAX_AUDIO_NS:
        raise ValueError(f"a frame of {frame_ms:g} ms at {rate} Hz is no frame. Give 1 sample to 24 hours")
    if max_catch_up is not None and pace.mode != BURST and max_catch_up <= pace.speed:
        raise ValueError(f"a catch-up of {max_catch_up:g}x is no faster than the pace {pace}. Give more, or none")
    bounds = _bounds(n_samples, rate, frame_ns)
    starts_ns, ends_ns = _to_ns(bounds[:-1], rate), _to_ns(bounds[1:], rate)
    end_ns = int(ends_ns[-1]) if len(ends_ns) else 0
    gap_ns = np.zeros(len(ends_ns), np.int64)
    if max_catch_up is not None:
        gap_ns = np.rint((ends_ns - starts_ns) / max_catch_up).astype(np.int64)
        gap_ns[:1] = 0
    if pace.mode == BURST:
        due_ns, end_ns = np.zeros(len(ends_ns), np.int64), 0
    elif pace.mode == SPEED:
        due_ns, end_ns = np.rint(ends_ns / pace.speed).astype(np.int64), round(end_ns / pace.speed)
    else:
        due_ns = starts_ns if pace.mode == EAGER else ends_ns
    return FrameSchedule(bounds, due_ns, gap_ns, end_ns)


def padded(n_samples: int, rate: int, frame_ms: float) -> int:
    """``n_samples`` with as much silence behind them as makes the last frame whole: for services that refuse a shorter
    one.
    """
    bounds = _bounds(max(0, n_samples), rate, round(frame_ms * 1_000_000))
    return (2 * (len(bounds) - 1) * round(frame_ms * 1_000_000) * rate + NS) // (2 * NS)


def _bounds(n_samples: int, rate: int, frame_ns: int) -> IntArray:
    """0, then the end of each frame, the last at ``n_samples``."""
    most = n_samples * NS // (frame_ns * rate) + 2
    ends = (np.arange(1, most + 1, dtype=np.int64) * (frame_ns * rate) + NS // 2) // NS
    inside = ends[ends < n_samples]
    return np.concatenate(([0], inside, [n_samples])).astype(np.int64) if n_samples else np.zeros(1, np.int64)


def _to_ns(samples: IntArray, rate: int) -> IntArray:
    """Sample positions as ns, rounded to the nearest."""
    return (samples * NS + rate // 2) // rate


@dataclass(frozen=True, slots=True)
class FrameRules:
    """What a service asks of frames: their length, their bytes, and how much faster than real time they may come. None:
    no such rule.

    ``service`` is named in messages. ``max_speed`` is in seconds of audio a second, sustained; the same figure is the
    cap for catching up. ``lengths_ms``: only these lengths are taken (empty: any between the limits).
    """

    service: str = "the service"
    min_ms: float | None = None
    max_ms: float | None = None
    max_bytes: int | None = None
    max_catch_up: float | None = None
    lengths_ms: tuple[float, ...] = ()

    def problems(self, frame_ms: float, frame_bytes: int, pace: Pace, where: str = "target.options") -> list[str]:
        """Every rule that frames of ``frame_ms`` and ``frame_bytes`` break, as ``where.NAME: what. next step``."""
        found = []
        if self.lengths_ms and frame_ms not in self.lengths_ms:
            known = ", ".join(f"{length:g}" for length in self.lengths_ms)
            found.append(f"{where}.frame: {self.service} takes no frames of {frame_ms:g} ms. Give one of {known}")
        elif self.min_ms is not None and frame_ms < self.min_ms:
            found.append(
                f"{where}.frame: {self.service} takes frames of {self.min_ms:g} ms or more, not {frame_ms:g}. Give "
                f"{self._range()}"
            )
        elif self.max_ms is not None and frame_ms > self.max_ms:
            found.append(
                f"{where}.frame: {self.service} takes frames of {self.max_ms:g} ms at most, not {frame_ms:g}. Give "
                f"{self._range()}"
            )
        if self.max_bytes is not None and frame_bytes > self.max_bytes:
            found.append(
                f"{where}.frame: a frame of {frame_ms:g} ms has {frame_bytes:,} bytes and {self.service} takes "
                f"{self.max_bytes:,}. Give shorter frames, a lower rate or a denser encoding"
            )
        if self.max_catch_up is not None and pace.times_real > self.max_catch_up:
            found.append(
                f"{where}.pace: {pace} is faster than the {self.max_catch_up:g} x real time that {self.service} puts "
                f"up with. Give capture, or a speed up to {self.max_catch_up:g}x"
            )
        return found

    def _range(self) -> str:
        if self.min_ms is None or self.max_ms is None:
            return f"at least {self.min_ms:g}" if self.min_ms is not None else f"at most {self.max_ms:g}"
        return f"{self.min_ms:g} to {self.max_ms:g}"


_SHORTEST_NS, _LONGEST_NS = 1_000_000, 10_000_000_000  # of a frame


class AudioOptions(Options):
    """``options.audio`` of a live protocol."""

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


_WORD = re.compile(r"\s*\S+\s*")


def text_of(payload: Payload, protocol: str) -> str:
    """What is to be said. Raises HarnessFault if the payload has no text."""
    if payload.prompt and payload.prompt.strip():
        return payload.prompt
    raise HarnessFault(
        f"{protocol}: the payload has no text to say. Use a source of text, such as jsonl or synthetic_text"
    )


def feed(text: str, words_per_s: float | None, most: int) -> list[tuple[int, str]]:
    """(due ns, piece) whose pieces together are ``text``: one piece at once, or word i at i / ``words_per_s`` seconds.

    No piece is longer than ``most`` characters; a text that is gets cut between words.
    """
    words = list(_pieces(text, most))
    if words_per_s is not None:
        return [(round(i * 1e9 / words_per_s), word) for i, word in enumerate(words)]
    whole: list[str] = []
    for word in words:
        if whole and len(whole[-1]) + len(word) <= most:
            whole[-1] += word
        else:
            whole.append(word)
    return [(0, piece) for piece in whole]


def _pieces(text: str, most: int) -> Iterator[str]:
    for word in _WORD.findall(text):
        for begin in range(0, len(word), most):
            yield word[begin : begin + most]


DEFAULT_FRAME_NS = 100_000_000
NO_RULES = FrameRules()


@dataclass(frozen=True, slots=True)
class LiveAudio:
    """Frames ready to be wrapped into a protocol's messages.

    ``frames[i]`` is due ``due_ns[i]`` after the microphone starts, and at least ``gap_ns[i]`` after the frame before it
    (empty: late frames go out at once); the end of the input ``closing_ns`` after it. ``needed`` frames are sent in any
    case. ``clip`` is the recording at the rate that is sent, ``media_ns`` its playing time with the silence behind it.
    """

    frames: tuple[bytes, ...]
    due_ns: tuple[int, ...]
    gap_ns: tuple[int, ...]
    needed: int
    closing_ns: int
    pace: int
    frame_ns: int
    clip: Clip
    media_ns: int

    def script(self, frames: Sequence[Message] | None = None) -> dict[str, Any]:
        """The fields of a ``Script`` that audio decides.

        ``frames`` are ``self.frames`` as the protocol's messages (None: binary ones that hold nothing else).
        """
        messages = map(Message, self.frames) if frames is None else frames
        return {
            "frames": tuple(messages), "due_ns": self.due_ns, "gap_ns": self.gap_ns, "needed": self.needed,
            "closing_ns": self.closing_ns, "clip": self.clip, "media_ns": self.clip.duration_ns,
            "pace": self.pace, "frame_ns": self.frame_ns,
        }  # fmt: skip


def clip_of(payload: Payload, protocol: str) -> Clip:
    """The payload's audio. Raises HarnessFault if it has none."""
    clip = payload.data.get("clip")
    if not isinstance(clip, Clip):
        raise HarnessFault(f"{protocol}: the payload has no audio. Use a source of kind audio")
    return clip


def at_rate(clip: Clip, rate: int) -> Clip:
    """The same recording at another rate; its labels are in ns and stay."""
    if clip.rate == rate:
        return clip
    samples = resample(clip.pcm.astype(np.float64), clip.rate, rate)
    return replace(clip, pcm=np.clip(np.rint(samples), -32768, 32767).astype(np.int16), rate=rate)


def live_audio(
    clip: Clip,
    options: AudioOptions,
    codec: str,
    rate: int,
    *,
    rules: FrameRules = NO_RULES,
    frame_ns: int = DEFAULT_FRAME_NS,
    silence_ns: int = 0,
) -> LiveAudio:
    """``clip`` as frames of ``codec`` at ``rate`` samples a second.

    ``frame_ns`` and ``silence_ns`` are the protocol's own defaults for what the options leave open. Raises HarnessFault
    for frames that ``rules`` forbid, and for a codec that can't be had.
    """
    span_ns = options.frame or frame_ns
    quiet_ns = silence_ns if options.trailing_silence is None else options.trailing_silence
    pace = parse_pace(options.pace)
    found = audio_problems(options, codec, rate, rules, frame_ns)
    if found:
        raise HarnessFault(found)
    sent = at_rate(clip, rate)
    quiet = np.zeros(round(quiet_ns * rate / 1_000_000_000), np.int16)
    pcm = np.concatenate((sent.pcm, quiet)) if len(quiet) else sent.pcm
    schedule = frame_schedule(len(pcm), rate, span_ns / 1e6, pace, rules.max_catch_up)
    frames = tuple(encode_frames(codec, pcm, rate, schedule.bounds))
    found = rules.problems(span_ns / 1e6, max(map(len, frames), default=0), pace, "target.options.audio")
    if found:
        raise HarnessFault(found)
    spoken = int(np.searchsorted(schedule.bounds, len(sent.pcm), side="left"))
    return LiveAudio(
        frames,
        tuple(schedule.due_ns.tolist()),
        tuple(schedule.gap_ns.tolist()) if rules.max_catch_up is not None else (),
        min(spoken, len(frames)) if options.until_endpoint else len(frames),
        schedule.end_ns,
        pace.code,
        span_ns,
        sent,
        len(pcm) * 1_000_000_000 // rate,
    )


def audio_problems(
    options: AudioOptions, codec: str, rate: int, rules: FrameRules = NO_RULES, frame_ns: int = DEFAULT_FRAME_NS
) -> list[str]:
    """What is wrong with these settings before any clip is known, as ``target.options.audio.NAME: what. next step``."""
    frame_ms = (options.frame or frame_ns) / 1e6
    found = codec_problems(codec, rate, frame_ms)
    return found or rules.problems(frame_ms, 0, parse_pace(options.pace), "target.options.audio")


class LiveOptions(Options):
    """Options of a protocol that sends live audio; ``rules`` and ``frame_ns`` are what its service asks of frames."""

    audio: AudioOptions = AudioOptions()
    rules: ClassVar[FrameRules] = NO_RULES
    frame_ns: ClassVar[int] = DEFAULT_FRAME_NS

    @property
    def sent_as(self) -> tuple[str, int]:
        """(codec, samples a second) of the frames."""
        raise NotImplementedError

    @property
    def silence_ns(self) -> int:
        """Silence after the clip, by whose end the service has answered."""
        return 0

    def mistakes(self) -> list[str]:
        found = audio_problems(self.audio, *self.sent_as, self.rules, self.frame_ns)
        if "sample_rate" not in type(self).model_fields:
            return found
        return [text.replace("target.options.rate:", "target.options.sample_rate:", 1) for text in found]

    def live(self, payload: Payload, protocol: str) -> LiveAudio:
        """The payload's clip as frames. Raises HarnessFault."""
        return live_audio(
            clip_of(payload, protocol),
            self.audio,
            *self.sent_as,
            rules=self.rules,
            frame_ns=self.frame_ns,
            silence_ns=self.silence_ns,
        )


class EncodedOptions(LiveOptions):
    """Options of a protocol whose service names encodings itself: ``codecs`` says which codec each name means."""

    codecs: ClassVar[Mapping[str, str]]

    encoding: str
    sample_rate: int | None = Field(default=None, ge=8000, le=48_000)

    @property
    def sent_as(self) -> tuple[str, int]:
        codec = self.codecs[self.encoding]
        # G.711 is telephone speech unless told otherwise.
        return codec, self.sample_rate or (8000 if codec in ("mulaw", "alaw") else 16_000)


def fed(pieces: Sequence[tuple[int, str]], message: Callable[[str], Message]) -> dict[str, Any]:
    """The fields of a ``Script`` that feeds the pieces of a text, each as ``message`` makes it."""
    return {
        "frames": tuple(message(piece) for _, piece in pieces),
        "due_ns": tuple(due_ns for due_ns, _ in pieces),
        "closing_ns": pieces[-1][0],
    }


def no_option_in_query(model: type[Options], query: Mapping[str, Any]) -> None:
    """Raise ValueError where ``query`` sets what has an option of its own."""
    taken = sorted(query.keys() & model.model_fields.keys())
    if taken:
        raise ValueError(f"query has {', '.join(taken)}. Give them as options of their own")
