"""Would it have played without a break? Chunks of audio against a player that runs at 1x, for every session at once. Pure numpy.

Chunk i arrives at t_i and plays for d_i; C_i is the audio before it. The player starts ``startup_delay`` after the first chunk,
or when ``prebuffer`` of audio is there (or all of it, whichever comes first), and needs chunk i at start + C_i + S, with S the
time it has stood still so far. A chunk that is later than that by more than ``eps`` is an underrun: the player waits for
it and goes on at once. One that is late by less is absorbed by the sound device, whose period that is, and costs nothing.

    stall_ratio = S / (D + S)           required_startup_delay = max(t_i - t_1 - C_i)

It knows no status, and it can't know that an answer was cut short: audio that never came stalls nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray

#: One period of a sound device.
EPS_NS = 20_000_000
#: The prebuffers that a report shows side by side.
PREBUFFERS_NS = (0, 100_000_000, 200_000_000, 400_000_000)


@dataclass(frozen=True, slots=True)
class Playback:
    """Per session, all int64[n] and 0 where ``valid`` bool[n] says that no audio came.

    ``media_ns`` all audio (D); ``start_ns`` when the player began; ``stalled_ns`` the time it stood still (S), in ``underruns``
    pieces, ``longest_ns`` the longest; ``required_ns`` the smallest start-up delay without any; ``ahead_ns`` the most audio
    that was there and not yet played.
    """

    media_ns: IntArray
    start_ns: IntArray
    stalled_ns: IntArray
    underruns: IntArray
    longest_ns: IntArray
    required_ns: IntArray
    ahead_ns: IntArray
    valid: BoolArray

    @property
    def stall_ratio(self) -> FloatArray:
        """float64[n]: the share of the time from start to end that the player stood still; NaN without audio."""
        whole = self.media_ns + self.stalled_ns
        return np.where(self.valid, self.stalled_ns / np.maximum(whole, 1), np.nan)


def simulate(
    arrival_ns: IntArray,
    audio_ns: IntArray,
    offsets: IntArray,
    *,
    startup_delay_ns: int = 0,
    prebuffer_ns: int = 0,
    eps_ns: int = EPS_NS,
) -> Playback:
    """Play every session. ``arrival_ns`` and ``audio_ns`` int64[m]: when each chunk came and how long it plays, those of session i
    at ``offsets[i]:offsets[i + 1]``, in order of arrival; a chunk without audio is passed over.

    Raises ValueError for negative settings.
    """
    if min(startup_delay_ns, prebuffer_ns, eps_ns) < 0:
        raise ValueError("a delay, a buffer and a tolerance are 0 or more")
    arrival, audio, bounds = _heard(arrival_ns, audio_ns, offsets)
    n, lengths = len(offsets) - 1, np.diff(bounds)
    rows = np.flatnonzero(lengths)
    found = {
        name: np.zeros(n, np.int64)
        for name in ("media", "start", "stalled", "underruns", "longest", "required", "ahead")
    }
    if len(rows):
        begin, lengths = bounds[:-1][rows], lengths[rows]
        before = _before(audio, begin, lengths)
        media = np.add.reduceat(audio, begin)
        first = arrival[begin]
        start = _start(arrival, audio, before, begin, lengths, media, prebuffer_ns) + startup_delay_ns
        slack = arrival - np.repeat(first, lengths) - before
        found["media"][rows], found["start"][rows] = media, start
        found["required"][rows] = np.maximum(np.maximum.reduceat(slack, begin), 0)
        parts = _play(arrival, audio, before, begin, lengths, start, eps_ns)
        for name, part in zip(("stalled", "underruns", "longest", "ahead"), parts, strict=True):
            found[name][rows] = part
    return Playback(
        media_ns=found["media"],
        start_ns=found["start"],
        stalled_ns=found["stalled"],
        underruns=found["underruns"],
        longest_ns=found["longest"],
        required_ns=found["required"],
        ahead_ns=found["ahead"],
        valid=np.diff(bounds) > 0,
    )


def _heard(arrival_ns: IntArray, audio_ns: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """The chunks that hold audio, and where each session begins among them."""
    keep = audio_ns > 0
    if keep.all():
        return arrival_ns, audio_ns, offsets
    kept = np.concatenate(([0], np.cumsum(keep)))
    return arrival_ns[keep], audio_ns[keep], kept[offsets]


def _before(audio: IntArray, begin: IntArray, lengths: IntArray) -> IntArray:
    """int64[m]: the audio of a session before each of its chunks."""
    running = np.cumsum(audio) - audio
    return running - np.repeat(running[begin], lengths)


def _start(
    arrival: IntArray,
    audio: IntArray,
    before: IntArray,
    begin: IntArray,
    lengths: IntArray,
    media: IntArray,
    prebuffer_ns: int,
) -> IntArray:
    """When the player has what it wants before it starts: at the latest with its last chunk."""
    enough = before + audio >= np.repeat(np.minimum(prebuffer_ns, media), lengths)
    return np.minimum.reduceat(np.where(enough, arrival, np.iinfo(np.int64).max), begin)


def _play(
    arrival: IntArray,
    audio: IntArray,
    before: IntArray,
    begin: IntArray,
    lengths: IntArray,
    start: IntArray,
    eps_ns: int,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """(stalled, underruns, longest, ahead): chunk by chunk, all sessions that still have one at a time."""
    order = np.argsort(-lengths, kind="stable")
    begin, lengths, start = begin[order], lengths[order], start[order]
    stalled, underruns, longest, ahead = (np.zeros(len(begin), np.int64) for _ in range(4))
    for step in range(int(lengths[0])):
        alive = int(np.searchsorted(-lengths, -step, side="left"))
        at = begin[:alive] + step
        late = arrival[at] - (start[:alive] + before[at] + stalled[:alive])
        late = np.where(late > eps_ns, late, 0)
        stalled[:alive] += late
        underruns[:alive] += late > 0
        np.maximum(longest[:alive], late, out=longest[:alive])
        # Before the start nothing is played; afterwards never more than is there.
        played = np.clip(arrival[at] - start[:alive] - stalled[:alive], 0, before[at])
        np.maximum(ahead[:alive], before[at] + audio[at] - played, out=ahead[:alive])
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return stalled[back], underruns[back], longest[back], ahead[back]


__all__ = ["EPS_NS", "PREBUFFERS_NS", "Playback", "simulate"]
