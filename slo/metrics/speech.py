"""Instants and lists that several speech indicators share: the live microphone, what was heard, how far the transcript
had got. Pure.

Every time counts on the timeline of the simulated microphone: sample s of the clip was spoken ``s / rate`` after
``media_start_ns``. That line is real only where audio was sent at 1x (``live``); a burst has none, and nothing that
counts from true speech is computed for it. No status is looked at and nothing is judged.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from plimsoll.slo.records.columns import Lists, offsets_of
from plimsoll.slo.records.records import (
    PACE_CAPTURE,
    PACE_EAGER,
    PACE_FILE,
    BoolArray,
    Compute,
    FloatArray,
    IntArray,
    Records,
)

# -- playback: would it have played without a break? ------------------------------------------------------------------

# Chunk i arrives at t_i and plays for d_i; C_i is the audio before it. The player starts ``startup_delay`` after the
# first chunk, or when ``prebuffer`` of audio is there (or all of it, whichever comes first), and needs chunk i at start
# + C_i + S, with S the time it has stood still so far. A chunk that is later than that by more than ``eps`` is an
# underrun: the player waits for it and goes on at once. One that is late by less is absorbed by the sound device, whose
# period that is, and costs nothing.
#
#     stall_ratio = S / (D + S)           required_startup_delay = max(t_i - t_1 - C_i)
#
# It knows no status, and it can't know that an answer was cut short: audio that never came stalls nobody.

#: One period of a sound device.
EPS_NS = 20_000_000
#: The prebuffers that a report shows side by side.
PREBUFFERS_NS = (0, 100_000_000, 200_000_000, 400_000_000)


@dataclass(frozen=True, slots=True)
class Playback:
    """Per session, all int64[n] and 0 where ``valid`` bool[n] says that no audio came.

    ``media_ns`` all audio (D); ``start_ns`` when the player began; ``stalled_ns`` the time it stood still (S), in
    ``underruns`` pieces, ``longest_ns`` the longest; ``required_ns`` the smallest start-up delay without any.
    """

    media_ns: IntArray
    start_ns: IntArray
    stalled_ns: IntArray
    underruns: IntArray
    longest_ns: IntArray
    required_ns: IntArray
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
    """Play every session. ``arrival_ns`` and ``audio_ns`` int64[m]: when each chunk came and how long it plays, those
    of session i at ``offsets[i]:offsets[i + 1]``, in order of arrival; a chunk without audio is passed over.

    Raises ValueError for negative settings.
    """
    if min(startup_delay_ns, prebuffer_ns, eps_ns) < 0:
        raise ValueError("a delay, a buffer and a tolerance are 0 or more")
    arrival, audio, bounds = _heard(arrival_ns, audio_ns, offsets)
    lengths = np.diff(bounds)
    rows = np.flatnonzero(lengths)
    media, started, stalled, underruns, longest, required = (np.zeros(len(lengths), np.int64) for _ in range(6))
    if len(rows):
        begin, lengths = bounds[:-1][rows], lengths[rows]
        before = _before(audio, begin, lengths)
        media[rows] = np.add.reduceat(audio, begin)
        start = _start(arrival, audio, before, begin, lengths, media[rows], prebuffer_ns) + startup_delay_ns
        slack = arrival - np.repeat(arrival[begin], lengths) - before
        started[rows] = start
        required[rows] = np.maximum(np.maximum.reduceat(slack, begin), 0)
        stalled[rows], underruns[rows], longest[rows] = _play(arrival, before, begin, lengths, start, eps_ns)
    return Playback(media, started, stalled, underruns, longest, required, np.diff(bounds) > 0)


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
    arrival: IntArray, before: IntArray, begin: IntArray, lengths: IntArray, start: IntArray, eps_ns: int
) -> tuple[IntArray, IntArray, IntArray]:
    """(stalled, underruns, longest): chunk by chunk, all sessions that still have one at a time."""
    order = np.argsort(-lengths, kind="stable")
    begin, lengths, start = begin[order], lengths[order], start[order]
    stalled, underruns, longest = (np.zeros(len(begin), np.int64) for _ in range(3))
    for step in range(int(lengths[0])):
        alive = int(np.searchsorted(-lengths, -step, side="left"))
        at = begin[:alive] + step
        late = arrival[at] - (start[:alive] + before[at] + stalled[:alive])
        late = np.where(late > eps_ns, late, 0)
        stalled[:alive] += late
        underruns[:alive] += late > 0
        np.maximum(longest[:alive], late, out=longest[:alive])
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return stalled[back], underruns[back], longest[back]


#: A slope needs so many transcripts over so long; fewer say more of where words end than of the server.
SLOPE_POINTS = 3
SLOPE_SPAN_NS = 1_000_000_000


def sounds(records: Records) -> BoolArray:
    """bool[n]: audio went one way or the other, so the row's chunks are transcripts or audio and no tokens."""
    return np.asarray((records["pace"] >= PACE_FILE) | (records["media_out_ns"] >= 0))


def without_sounds(records: Records) -> Records:
    """The same rows, those of speech without their chunks: for what takes a chunk for tokens."""
    if records.session is None or records.chunks.dropped:
        return records
    lengths = np.diff(records.chunk_offsets)
    kept = ~sounds(records)
    times = records.chunk_ns[np.repeat(kept, lengths)]
    return replace(records, chunks=Lists(offsets_of(np.where(kept, lengths, 0)), times))


def live(records: Records) -> BoolArray:
    """bool[n]: audio went out as fast as it is spoken."""
    pace = records["pace"]
    return np.asarray((pace == PACE_CAPTURE) | (pace == PACE_EAGER))


def whole_file(records: Records) -> BoolArray:
    """bool[n]: audio went out as fast as it was taken, in a burst or as one upload."""
    return np.asarray((records["pace"] == PACE_FILE) & (records["media_ns"] > 0))


def processing(records: Records) -> tuple[FloatArray, BoolArray]:
    """What unpaced audio took, in ns: an upload from due to its end, a burst from its first frame to the last final."""
    start = np.where(records["media_start_ns"] != -1, records["media_start_ns"], records["due_ns"])
    end = np.where(records["final_ns"] != -1, records["final_ns"], records["done_ns"])
    valid = whole_file(records) & (start != -1) & (end > start)
    return (end - start).astype(np.float64), np.asarray(valid)


def since(records: Records, anchor: str, end: IntArray) -> tuple[FloatArray, BoolArray]:
    """``end`` (int64[n], -1 none) minus an instant of the live microphone, where both are known."""
    start = records[anchor]
    return (end - start).astype(np.float64), (start != -1) & (end != -1) & live(records)


def no_live_speech(records: Records) -> BoolArray:
    """bool[n]: no speech whose onset and end are known went out at 1x."""
    return np.asarray((records["speech_end_ns"] == -1) | ~live(records))


def heard_ns(records: Records) -> IntArray:
    """int64[n]: when the first audible sample is heard by someone who plays audio as it comes; -1 for an answer of
    silence.

    Silence at the head of the answer is played before it; and it can't be heard before it is there. Where that silence
    came in pieces with gaps, what is left of it behind a gap is played after the gap.
    """
    first, there = records["first_audio_ns"], records["audible_ns"]
    silence = np.maximum(records["leading_silence_ns"], 0)
    known = (first != -1) & (there != -1)
    audio, offsets = _beside_chunks(records, "chunk_audio_ns", 0)
    row = np.repeat(np.arange(len(records)), np.diff(offsets))
    running = np.concatenate(([0], np.cumsum(audio)))
    left = silence[row] - (running[:-1] - running[offsets[:-1]][row])  # of the silence, when this chunk begins to play
    played = _over_rows(np.maximum, np.where((audio > 0) & (left >= 0), records.chunk_ns + left, -1), offsets, -1)
    return np.where(known, np.maximum(np.maximum(first + silence, there), played), -1)


def playback(records: Records, prebuffer_ns: int = 0) -> Playback:
    """The audio of every record, played at 1x."""
    audio, offsets = _beside_chunks(records, "chunk_audio_ns", 0)
    return simulate(records.chunk_ns, audio, offsets, prebuffer_ns=prebuffer_ns)


def playing(value: Callable[[Playback], FloatArray | IntArray]) -> Compute:
    """A metric's ``compute``, of what a player of the audio met."""

    def compute(records: Records) -> tuple[FloatArray, BoolArray]:
        played = playback(records)
        return value(played).astype(np.float64), played.valid

    return compute


def no_audio(records: Records) -> BoolArray:
    """bool[n]: there was nothing to play."""
    return ~playback(records).valid


def per_word(counted: str) -> Compute:
    """A metric's ``compute``: what a column counted, -1: nothing, for each word of the reference."""

    def compute(records: Records) -> tuple[FloatArray, BoolArray]:
        number, words = records[counted], records["words"]
        return number / np.maximum(words, 1), np.asarray((number >= 0) & (words > 0))

    return compute


def last_audio_ns(records: Records) -> IntArray:
    """int64[n]: arrival of the last chunk that holds audio; -1 without one."""
    audio, offsets = _beside_chunks(records, "chunk_audio_ns", 0)
    times = np.where(audio > 0, records.chunk_ns, -1)
    return _over_rows(np.maximum, times, offsets, -1)


def first_transcript_from(records: Records, from_ns: IntArray) -> IntArray:
    """int64[n]: arrival of the first transcript not before ``from_ns`` int64[n]; -1 where none came."""
    audio, offsets = _beside_chunks(records, "chunk_audio_ns", 0)
    late = np.iinfo(np.int64).max
    row = np.repeat(np.arange(len(records)), np.diff(offsets))
    told = (audio <= 0) & (records.chunk_ns >= from_ns[row]) & (records["first_partial_ns"][row] != -1)
    first = _over_rows(np.minimum, np.where(told, records.chunk_ns, late), offsets, late)
    return np.where(first == late, -1, first)


def transcript_lag(records: Records) -> tuple[FloatArray, BoolArray]:
    """Per chunk: the audio that the microphone had taken in when a transcript came, minus how far that reached, in ns.

    Valid for transcripts with a cursor, of sessions at 1x, while audio was going out: after it the lag can only shrink.
    """
    cursor, offsets = _beside_chunks(records, "chunk_cursor_ns", -1)
    row = np.repeat(np.arange(len(records)), np.diff(offsets))
    start, media = records["media_start_ns"][row], records["media_ns"][row]
    taken_in = records.chunk_ns - start
    valid = (cursor >= 0) & (start != -1) & live(records)[row] & (taken_in >= 0) & (taken_in <= media)
    return (taken_in - cursor).astype(np.float64), np.asarray(valid)


def lag_slope(records: Records) -> tuple[FloatArray, BoolArray]:
    """Per record: the least-squares slope of the transcript lag over time, in s per s."""
    lag, valid = transcript_lag(records)
    row = np.repeat(np.arange(len(records)), np.diff(records.chunk_offsets))[valid]
    n = len(records)
    points = np.bincount(row, minlength=n)
    # Seconds from the session's own start: squares of ns since the run's would lose digits.
    t = (records.chunk_ns[valid] - records["media_start_ns"][row]) * 1e-9
    y = lag[valid] * 1e-9
    count = np.maximum(points, 1)
    t_mean, y_mean = np.bincount(row, t, n) / count, np.bincount(row, y, n) / count
    dt, dy = t - t_mean[row], y - y_mean[row]
    squares, products = np.bincount(row, dt * dt, n), np.bincount(row, dt * dy, n)
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low, row, t)
    np.maximum.at(high, row, t)
    enough = (points >= SLOPE_POINTS) & (high - low >= SLOPE_SPAN_NS * 1e-9)
    return products / np.where(squares > 0, squares, 1.0), np.asarray(enough & (squares > 0))


def _beside_chunks(records: Records, name: str, absent: int) -> tuple[IntArray, IntArray]:
    """A list that goes with ``chunk_ns``, entry by entry; ``absent`` in the rows that have none."""
    offsets = records.chunk_offsets
    values, bounds = records.ragged(name)
    lengths, given = np.diff(offsets), np.diff(bounds)
    if len(values) == offsets[-1] and bool((lengths == given).all()):
        return values, offsets
    whole = np.full(int(offsets[-1]), absent, np.int64)
    has = (lengths == given) & (lengths > 0)
    whole[np.repeat(has, lengths)] = values[np.repeat(has, given)]
    return whole, offsets


def _over_rows(reduce: np.ufunc, values: IntArray, offsets: IntArray, absent: int) -> IntArray:
    found = np.full(len(offsets) - 1, absent, np.int64)
    has = np.diff(offsets) > 0
    if has.any():
        found[has] = reduce.reduceat(values, offsets[:-1][has])
    return found
