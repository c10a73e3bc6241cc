"""Every name's course over a run, from all series that mean it: their sums, their largest, or their means by count.

A sample is an interval, because it was taken somewhere between asking and answer. A window in which a counter fell, or
in which its process began anew, is unknown; so is a gauge while its source gives nothing. Nothing is ever taken as 0
that nobody said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from urllib.parse import urlsplit

import numpy as np

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray
from plimsoll.slo.server.canonical import NAMES, STARTED, Across, Kind, Reading, engines
from plimsoll.slo.server.served import Asked, Served, Track
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.slope import Slope, slope

#: Names of which several sources may tell of one thing: whoever ranks first does.
_ONE_VOICE = ("host.", "gpu.")
_NEVER = np.iinfo(np.int64).max
#: Nothing that a server counts or measures is as much, in any unit.
_MOST = 1e100


@dataclass(frozen=True, slots=True)
class Course:
    """One name over the run. Each value is somewhere in ``begin_ns`` to ``end_ns``, since t0: of a gauge it is what was
    read then, of a counter what it grew by, of a mean the mean of ``weights`` events; NaN: unknown, or of no events.
    ``since_ns``: the end of the value before. Samples take time, so windows overlap; from end to end they do not.
    """

    name: str
    kind: Kind
    begin_ns: IntArray
    end_ns: IntArray
    values: FloatArray
    weights: FloatArray
    engine: str
    families: tuple[str, ...]
    sources: tuple[str, ...]
    n_series: int
    since_ns: IntArray

    def during(self, start_ns: int, end_ns: int, patience_ns: int) -> Course:
        """What has some of its time in this span; unknown where the last sample came more than this before its end."""
        there = (self.end_ns > start_ns) & (self.begin_ns <= end_ns)
        times = [one[there] for one in (self.begin_ns, self.end_ns, self.since_ns)]
        held = [self.values[there], self.weights[there]]
        last = int(self.end_ns.max(initial=start_ns))
        if last < end_ns - patience_ns:
            times = [np.append(one, at) for one, at in zip(times, (last, end_ns, last), strict=True)]
            held = [np.append(one, np.nan) for one in held]
        return replace(self, begin_ns=times[0], end_ns=times[1], since_ns=times[2], values=held[0], weights=held[1])

    @property
    def seconds(self) -> FloatArray:
        """How long each window is: together no longer than the time that passed."""
        found: FloatArray = (self.end_ns - self.since_ns) / 1e9
        return found

    @property
    def average(self) -> float:
        """Of what is known, by weight; however sums are rounded, between the least value and the greatest."""
        values, weights = self.values[self.known], self.weights[self.known]
        if not weights.sum():
            return math.nan
        return float(np.clip(np.average(values, weights=weights), values.min(), values.max()))

    def growth(self, confidence: Probability = "0.95", sides: int = 2) -> Slope | None:
        """How fast a gauge grows in an hour, of what is known; None: too few samples."""
        known = self.known
        return slope(self.end_ns[known] / 1e9, self.values[known], confidence, sides)

    @property
    def unknown(self) -> BoolArray:
        """Where something happened that nobody knows; a mean of no events is not unknown."""
        found: BoolArray = np.isnan(self.weights) if self.kind == "mean" else ~self.known
        return found

    @property
    def known(self) -> BoolArray:
        found: BoolArray = ~np.isnan(self.values)
        return found


@dataclass(frozen=True, slots=True)
class Restart:
    """A source whose process began anew between two samples."""

    source: str
    after_ns: int
    before_ns: int


def courses(served: Served, since: Mapping[str, int] | None = None) -> tuple[dict[str, Course], tuple[Restart, ...]]:
    """The course of every name that something was said of, and where a server restarted. ``since``: by name the end of
    an earlier window, after which the next one begins where several sources are one.
    """
    served = sane(served)
    restarted = {name: _restarted(name, asked, served.tracks) for name, asked in served.sources.items()}
    found: dict[str, Course] = {}
    for name in NAMES:
        voices = _voices(name, served)
        if parts := [_part(voice, served.sources[voice.source], restarted[voice.source]) for voice in voices]:
            found[name] = _joined(name, parts, (since or {}).get(name))
    restarts = [
        Restart(source, int(asked.end_ns[at - 1]), int(asked.sent_ns[at]))
        for source, asked in served.sources.items()
        for at in np.flatnonzero(restarted[source])
    ]
    return found, tuple(restarts)


def sane(served: Served) -> Served:
    """With NaN for values that are none: infinite ones, and those whose sums would be."""
    tracks = (replace(one, values=np.where(np.abs(one.values) < _MOST, one.values, np.nan)) for one in served.tracks)
    return replace(served, tracks=tuple(tracks))


@cache
def _growing() -> frozenset[str]:
    """Families that can only grow."""
    read = [reading for engine in engines().values() for reading in engine.readings if reading.kind != "gauge"]
    return frozenset(family for reading in read for family in (*reading.families, *reading.over))


@dataclass(frozen=True, slots=True)
class _Voice:
    """One source that tells of a name: the series of what is counted, and those that it is divided by."""

    source: str
    engine: str
    reading: Reading
    over: tuple[Track, ...]
    tracks: tuple[Track, ...]


def _voices(name: str, served: Served) -> list[_Voice]:
    """Of each source the engine that ranks first, and of what two sources of a host tell only the first."""
    found: list[tuple[int, _Voice]] = []
    for source in served.sources:
        mine = [track for track in served.tracks if track.source == source]
        there = {track.family for track in mine}.union(served.sources[source].origin.declared)
        for rank, engine in enumerate(engines().values()):
            told = (one for one in engine.readings if one.name == name and not there.isdisjoint(one.families))
            reading = next(told, None)
            if reading is None:
                continue
            place = next(place for place, one in enumerate(reading.families) if one in there)
            meant = [track for track in mine if reading.counts(track.labels)]
            top, under = (
                tuple(track for track in meant if track.family == family)
                for family in (reading.families[place], reading.over[place] if reading.over else "")
            )
            counted = reading.kind == "counter" and reading.families[place] in served.sources[source].origin.declared
            if counted or (top and (under or not reading.over)):
                found.append((rank, _Voice(source, engine.name, reading, under, top)))
                break
    first: dict[str, int] = {}
    for rank, voice in found:
        host = _host(name, served.sources[voice.source])
        first[host] = min(rank, first.get(host, rank))
    return [voice for rank, voice in found if rank == first[_host(name, served.sources[voice.source])]]


def _host(name: str, asked: Asked) -> str:
    """Where one engine is enough, because two of them tell of one thing: at a server, and of hosts anywhere."""
    return "" if name.startswith(_ONE_VOICE) else urlsplit(asked.origin.where).hostname or ""


def _restarted(source: str, asked: Asked, tracks: Sequence[Track]) -> BoolArray:
    """Between which samples of a source, each with the one before it, its process began anew."""
    found = np.zeros(len(asked.sent_ns), bool)
    between: list[tuple[int, int]] = []
    for track in tracks:
        if track.source != source:
            continue
        changed = np.diff(track.values)
        if track.name == STARTED or track.family.endswith("_created"):
            anew = np.abs(changed) > 1
        elif track.family in _growing():
            anew = changed < 0
        else:
            continue
        between += zip((track.at[:-1][anew] + 1).tolist(), track.at[1:][anew].tolist(), strict=True)
    for first, last in sorted(between, key=lambda one: one[1] - one[0]):
        # A series that comes back some samples after a restart tells of that one, not of another.
        if not found[first : last + 1].any():
            found[last] = True
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """What one source says of a name at each of its samples; of a counter and a mean, since the one before."""

    voice: _Voice
    asked: Asked
    top: FloatArray
    under: FloatArray


def _part(voice: _Voice, asked: Asked, restarted: BoolArray) -> _Part:
    reading, n = voice.reading, len(asked.sent_ns)
    if reading.kind == "gauge":
        values = np.stack([_at(track, n) for track in voice.tracks])
        if reading.bits:
            values = np.where(
                np.isnan(values), np.nan, ((np.nan_to_num(values) % 2**53).astype(np.int64) & reading.bits) != 0
            )
        if reading.over:
            below = {_key(track): _at(track, n) for track in voice.over}
            totals = np.stack([below.get(_key(track), np.full(n, np.nan)) for track in voice.tracks])
            values = np.divide(values, totals, out=np.full(values.shape, np.nan), where=totals > 1 / _MOST)
        return _Part(voice, asked, _across(values * reading.scale, NAMES[reading.name].across), np.ones(n))
    top = _grown(voice.tracks, n, restarted) * reading.scale
    under = _grown(voice.over, n, restarted) if reading.over else np.ones(n)
    if reading.mute and not np.nansum(top):
        under = under * 0
    return _Part(voice, asked, top, under)


def _key(track: Track) -> str:
    return repr(sorted(track.labels.items()))


def _at(track: Track, n: int) -> FloatArray:
    """Its value at each sample of its source; NaN: it was not there."""
    values = np.full(n, np.nan)
    values[track.at] = track.values
    return values


def _across(values: FloatArray, across: Across) -> FloatArray:
    """Several series as one, at each sample over those that are there; NaN where none is."""
    there = ~np.isnan(values)
    whole = np.where(there, values, -np.inf if across == "max" else 0.0)
    found = whole.max(axis=0) if across == "max" else whole.sum(axis=0)
    if across == "mean":
        found = found / np.maximum(there.sum(axis=0), 1)
    joined: FloatArray = np.where(there.any(axis=0), found, np.nan)
    return joined


def _grown(tracks: Iterable[Track], n: int, restarted: BoolArray) -> FloatArray:
    """What all series together grew by since the sample before: NaN at the first, and where one fell.

    A series that appears later began at 0, because its process was there, and so does one that comes back after a
    restart; one that is left out for a while stands still.
    """
    grown, life = np.zeros(n), np.cumsum(restarted)
    for track in tracks:
        values = _at(track, n)
        last = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(n)))
        held = np.where((last >= 0) & (life[last] == life), values[last], 0.0)
        grown[1:] += np.diff(held)
    grown[restarted] = np.nan
    grown[:1] = np.nan
    return grown


def _joined(name: str, parts: Sequence[_Part], since: int | None) -> Course:
    """All sources as one: a gauge at every time at which one of them was read, once all of them were; what is counted
    whenever all of them were read anew, since a window in which only one was has nothing of the others' time in it.
    """
    kind = parts[0].voice.reading.kind
    parts = [part for part in parts if part.voice.reading.kind == kind]
    ends = np.unique(np.concatenate([part.asked.end_ns for part in parts]))
    if kind == "gauge" and len(ends):  # what was not answered was not seen either
        ends = np.union1d(ends, [gap.end_ns for part in parts for gap in part.asked.origin.gaps])
    ends = ends[ends >= max((int(part.asked.end_ns[0]) for part in parts if len(part.asked.end_ns)), default=0)]
    if kind != "gauge" and len(parts) > 1:
        ends = _rounds([part.asked.end_ns for part in parts], ends if since is None else ends[ends >= since])
    begins, tops, unders = [], [], []
    for part in parts:
        place = np.searchsorted(part.asked.end_ns, ends, side="right") - 1
        if kind == "gauge":
            begins.append(part.asked.sent_ns[place])
            tops.append(np.where(_lost(part.asked, ends, place), np.nan, part.top[place]))
            unders.append(np.ones(len(ends)))
            continue
        before = np.concatenate([[-1], place[:-1]])
        begins.append(part.asked.sent_ns[np.maximum(np.minimum(before, place - 1), 0)])
        for of, held in ((part.top, tops), (part.under, unders)):
            sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(of))])
            unknown = np.concatenate([[0], np.cumsum(np.isnan(of))])
            value = sums[place + 1] - sums[before + 1]
            held.append(np.where(unknown[place + 1] > unknown[before + 1], np.nan, value))
    begin = np.min(np.stack(begins), axis=0)
    top, under = np.stack(tops), np.stack(unders)
    if kind == "gauge":
        values = np.where(np.isnan(top).any(axis=0), np.nan, _across(top, NAMES[name].across))
    else:
        values, under = top.sum(axis=0), under.sum(axis=0)
    weights = np.ones(len(ends))
    if kind == "mean":
        weights = under
        values = np.divide(values, under, out=np.full(len(ends), np.nan), where=under > 1 / _MOST)
    voices = [part.voice for part in parts]
    return Course(
        name, kind, begin, ends, values, weights,
        ", ".join(dict.fromkeys(one.engine for one in voices)),
        tuple(dict.fromkeys(track.family for one in voices for track in one.tracks)),
        tuple(one.source for one in voices),
        sum(len(one.tracks) for one in voices),
        np.concatenate([begin[:1], ends[:-1]]),
    )  # fmt: skip


def _rounds(read: Sequence[IntArray], ends: IntArray) -> IntArray:
    """Of these times, when all of them were read, the first, and each by which every source was read again."""
    latest = np.full(len(ends), -1)
    # When each source is read next after each time; the end of time where it never is.
    for one in read:
        latest = np.maximum(latest, np.searchsorted(ends, np.append(one, _NEVER)[np.searchsorted(one, ends, "right")]))
    found, at = list[int](), 0
    while at < len(ends):
        found.append(at)
        at = int(latest[at])
    return ends[found]


def _lost(asked: Asked, ends: IntArray, place: IntArray) -> BoolArray:
    """At which times a source had failed to answer since its last sample."""
    lost = np.zeros(len(ends), bool)
    for gap in asked.origin.gaps:
        lost |= (asked.end_ns[place] <= gap.end_ns) & (ends >= gap.end_ns)
    return lost
