"""A clip as live audio: encoded frames with exact due times, and the truth that the answers are held against.

Everything is encoded before t0. Silence after the clip is real frames of zeros on the same schedule; how many of them are sent
may depend on the server (``needed``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._speech.audio_options import AudioOptions
from plimsoll.harness.protocols._speech.codecs import codec_problems, encode_frames
from plimsoll.harness.protocols._speech.pacing import FrameRules, frame_schedule, parse_pace
from plimsoll.harness.transport.live.dialogue import Message
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.sound.resample import resample

DEFAULT_FRAME_NS = 100_000_000
NO_RULES = FrameRules()


@dataclass(frozen=True, slots=True)
class LiveAudio:
    """Frames ready to be wrapped into a protocol's messages.

    ``frames[i]`` is due ``due_ns[i]`` after the microphone starts, and at least ``gap_ns[i]`` after the frame before it (empty: late
    frames go out at once); the end of the input ``closing_ns`` after it. ``needed``
    frames are sent in any case. ``clip`` is the recording at the rate that is sent, ``media_ns`` its playing time with the
    silence behind it.
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

    def script(self, frames: Sequence[Message]) -> dict[str, Any]:
        """The fields of a ``Script`` that audio decides; ``frames`` are ``self.frames`` as the protocol's messages."""
        return {
            "frames": tuple(frames), "due_ns": self.due_ns, "gap_ns": self.gap_ns, "needed": self.needed, "closing_ns": self.closing_ns,
            "clip": self.clip, "media_ns": self.clip.duration_ns, "pace": self.pace, "frame_ns": self.frame_ns,
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

    ``frame_ns`` and ``silence_ns`` are the protocol's own defaults for what the options leave open. Raises HarnessFault for
    frames that ``rules`` forbid, and for a codec that can't be had.
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
