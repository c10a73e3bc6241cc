"""Audio: clips of speech, each with its transcript and the instants at which speech truly begins and ends.

``files`` and ``manifest`` take recordings (WAV; FLAC, OGG and MP3 with ``pip install plimsoll-slo[speech]``); without
either, seeded words are spoken in the tones that the bundled recogniser hears. ``Payload.data["clip"]`` is a
``Clip``. Where labels lack, an energy detector finds speech, never the server, and the clip says so.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.media.recordings import (
    Entry,
    Recording,
    Unreadable,
    probe,
    read_manifest,
    samples_of,
    speech_span,
)
from plimsoll.scenarios.media.sound import louder, resample, speak, to_int16, with_noise
from plimsoll.scenarios.plan.lengths import Length, draw_lengths
from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import child, stream
from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.clip import NS, Clip, Word
from plimsoll.scenarios.samples.lines import cap, without_values
from plimsoll.scenarios.samples.payload import Payload, PayloadSource, Said, require_index
from plimsoll.scenarios.samples.words import drawn
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT, Duration, FileName, expanded, missing


class Slice(BaseModel):
    __doc__ = (  # one line of the schema
        "One condition. Speed comes first, then noise, then gain: gain changes the level and leaves the ratio of "
        "speech to noise alone."
    )

    model_config = STRICT
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]*$", max_length=60, description="As reports call it.")
    noise_db: float | None = Field(
        default=None, ge=-30, le=100, description="White noise so far below the mean power of the speech (SNR in dB)."
    )
    gain_db: float = Field(default=0.0, ge=-90, le=60, description="Louder or softer; 16 bits clip and round.")
    speed: float = Field(
        default=1.0, ge=0.25, le=4, description="Synthetic: said faster. Recordings: played faster, and so higher."
    )
    share: Annotated[float, Field(gt=0, le=1e6)] = Field(default=1.0, description="Of the clips, relative to others.")


#: What a clip without a slice goes through.
AS_IT_IS = Slice(name="as it is")


def assigned(shares: list[float], n: int, seed: int) -> IntArray:
    """Which slice each of ``n`` clips belongs to: counts are exact within one (largest remainder), places are shuffled.

    Raises ValueError when there are fewer clips than slices, because a slice without clips can't be reported.
    """
    if n < len(shares):
        raise ValueError(f"{n} clips can't be spread over {len(shares)} slices. Give more clips, or paired: true")
    # One clip for each slice first: a share of a hundredth among fifty clips still has one.
    ideal = np.array(shares) / sum(shares) * (n - len(shares))
    counts = np.floor(ideal).astype(np.int64)
    rest = n - len(shares) - int(counts.sum())
    counts[np.argsort(counts - ideal, kind="stable")[:rest]] += 1
    order = np.argsort(stream(seed).random_raw(n), kind="stable")
    return np.repeat(np.arange(len(shares), dtype=np.int64), counts + 1)[order]


MOST_WORDS = 3000
"""Of one synthetic clip: about 20 minutes."""
MOST_SILENCE_NS = 600 * NS
_DEFAULT_WORDS, _DEFAULT_COUNT = 12, 64
_LEAD_NS, _TRAIL_NS = 200_000_000, 500_000_000

Rate = Literal[8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000]


class Audio(BaseModel):
    """Recordings (``files`` or ``manifest``), or synthetic speech of ``words`` words where neither is given."""

    model_config = STRICT
    kind: Literal["audio"] = "audio"
    files: tuple[FileName, ...] | None = Field(
        default=None, strict=False, min_length=1, description="Recordings; `*` and `?` match names, in their order."
    )
    manifest: FileName | None = Field(
        default=None, description="JSON Lines of file, text, start, end, words, slice; see docs/reference/scenarios.md."
    )
    count: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Clips; synthetic: 64 by default, else all recordings."
    )
    words: Length | None = Field(default=None, description="Synthetic speech: words a clip, 12 by default.")
    rate: Rate = Field(default=16000, description="Samples a second; recordings of another rate are resampled.")
    lead_ns: Duration | None = Field(
        default=None, alias="lead", description="Silence before; synthetic: 200ms by default, else 0."
    )
    trail_ns: Duration | None = Field(
        default=None, alias="trail", description="Silence behind; synthetic: 500ms by default, else 0."
    )
    slices: tuple[Slice, ...] = Field(default=(), strict=False, max_length=100, description="Conditions; see Slice.")
    paired: bool = Field(default=False, description="Every clip under every slice, instead of a share of them each.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.files is not None and self.manifest is not None:
            raise ValueError("files and manifest are both given. Keep one of them, or name the files in the manifest")
        if self.words is not None and not self.synthetic:
            raise ValueError("words is for synthetic speech. Remove it, or the recordings")
        if max(self.silences_ns) > MOST_SILENCE_NS:
            raise ValueError("lead or trail is above 10m. Give a shorter silence")
        names = [each.name for each in self.slices]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"slices has {twice[0]!r} twice. Give every slice its own name")
        if self.paired and not self.slices:
            raise ValueError("paired without slices. Give slices, or remove it")
        return self

    @property
    def synthetic(self) -> bool:
        """Is there nothing recorded?"""
        return self.files is None and self.manifest is None

    @property
    def silences_ns(self) -> tuple[int, int]:
        """(before, behind) with the defaults filled in."""
        lead, trail = (_LEAD_NS, _TRAIL_NS) if self.synthetic else (0, 0)
        return lead if self.lead_ns is None else self.lead_ns, trail if self.trail_ns is None else self.trail_ns


@dataclass(frozen=True, slots=True)
class _Sound:
    """A clip before its condition: ``samples`` at the source's rate, speech in [``start``, ``end``) of them (-1: none).

    ``words``: text, and begin and end as (fractional) samples.
    """

    samples: npt.NDArray[np.float64]
    start: int
    end: int
    words: tuple[tuple[str, float, float], ...]
    text: str | None
    labels: str
    id: str | None


@dataclass(frozen=True, slots=True)
class _Spoken:
    """Seeded words in tones."""

    rate: int
    seed: int
    lengths: IntArray

    def __len__(self) -> int:
        return len(self.lengths)

    def sound(self, index: int, speed: float) -> _Sound:
        rng = np.random.Generator(np.random.PCG64(child(self.seed, f"clip {index}")))
        text = " ".join(drawn(rng, int(self.lengths[index])))
        speech = speak(text, self.rate, speed)
        return _Sound(speech.samples, 0, len(speech.samples), speech.words, text, "synthetic", f"clip {index}")


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Recordings and their labels, read when they are asked for."""

    rate: int
    entries: tuple[Entry, ...]
    recordings: tuple[Recording, ...]

    def __len__(self) -> int:
        return len(self.entries)

    def sound(self, index: int, speed: float) -> _Sound:
        entry, recording = self.entries[index], self.recordings[index]
        try:
            given = samples_of(entry.path)
        except Unreadable as error:
            raise ScenarioError([f"{entry.where}: {error}."]) from None
        if entry.end_ns >= 0:
            span, labels = (_at(entry.start_ns, recording.rate), _at(entry.end_ns, recording.rate)), "labels"
        else:
            found = speech_span(given, recording.rate)
            span, labels = found or (-1, -1), "vad" if found else ""
        samples = resample(given, recording.rate, self.rate, speed)
        start, end = (
            (min(len(samples), round(at * self.rate / recording.rate / speed)) if at >= 0 else -1) for at in span
        )
        scale = self.rate / NS / speed
        words = tuple((word.text, word.start_ns * scale, word.end_ns * scale) for word in entry.words)
        return _Sound(samples, start, end, words, entry.text, labels, entry.id)


@dataclass(frozen=True, slots=True)
class _Clips:
    """Makes each clip when it is asked for; the same index gives the same samples."""

    params: Audio
    seed: int
    sounds: _Spoken | _Recorded
    slice_of: tuple[Slice | None, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.slice_of)

    @property
    def labels(self) -> Said:
        """What the manifest says of each clip's recording under the keys of labels."""
        entries = self.sounds.entries if isinstance(self.sounds, _Recorded) else ()
        of = [entries[self._which(index)].said for index in range(len(self) if entries else 0)]
        return {key: [said[key] for said in of] for key in (of[0] if of else ())}

    def _which(self, index: int) -> int:
        return index // len(self.params.slices) if self.params.paired else index

    def payload(self, index: int) -> Payload:
        require_index(index, len(self))
        condition = self.slice_of[index] or AS_IT_IS
        which = self._which(index)
        sound = self.sounds.sound(which, condition.speed)
        clip = self._conditioned(sound, condition, index)
        clip = replace(clip, slice=self.names[index])
        return Payload(data={"clip": clip}, media_ns=clip.duration_ns, reference=clip.transcript, id=sound.id)

    def _conditioned(self, sound: _Sound, condition: Slice, index: int) -> Clip:
        rate = self.params.rate
        lead, trail = (_at(ns, rate) for ns in self.params.silences_ns)
        samples = np.concatenate((np.zeros(lead), sound.samples, np.zeros(trail)))
        spoken = sound.start >= 0
        start, end = (lead + sound.start, lead + sound.end) if spoken else (0, len(samples))
        if condition.noise_db is not None:
            samples = with_noise(samples, (start, end), condition.noise_db, child(self.seed, f"noise {index}"))
        if condition.gain_db:
            samples = louder(samples, condition.gain_db)
        return Clip(
            pcm=to_int16(samples),
            rate=rate,
            onset_ns=_ns(start, rate) if spoken else -1,
            offset_ns=_ns(end, rate) if spoken else -1,
            transcript=sound.text,
            words=tuple(Word(text, _ns(lead + at, rate), _ns(lead + by, rate)) for text, at, by in sound.words),
            labels=sound.labels,
        )


def _at(ns: int, rate: int) -> int:
    """The sample at ``ns``, rounded to the nearest."""
    return (ns * rate + NS // 2) // NS


def _ns(sample: float, rate: int) -> int:
    """One function for all labels of a clip, so that equal places are equal times."""
    return round(sample * NS / rate)


def _labelled(params: Audio, seed: int, keys: Collection[str] = ()) -> PayloadSource:
    seed = child(seed, "audio")
    errors: list[str] = []
    if keys and params.manifest is None:
        errors.append("source.manifest: labels take keys of a manifest's lines. Give one, or leave those labels out.")
    sounds = _spoken(params, seed, errors) if params.synthetic else _recorded(params, errors, keys)
    if not errors:
        try:
            slice_of, names = _slices(params, sounds, child(seed, "slices"))
            return _Clips(params, seed, sounds, slice_of, names)
        except ValueError as error:
            errors = [f"source.slices: {error}."]
    raise ScenarioError(cap(errors, "source"))


def _spoken(params: Audio, seed: int, errors: list[str]) -> _Spoken:
    count = params.count or _DEFAULT_COUNT
    lengths = draw_lengths(params.words or _DEFAULT_WORDS, child(seed, "words"), count)
    if lengths.max() > MOST_WORDS:
        errors.append(f"source.words: a clip would have {lengths.max():,} words. Give at most {MOST_WORDS:,}.")
    return _Spoken(params.rate, seed, lengths)


def _recorded(params: Audio, errors: list[str], keys: Collection[str]) -> _Recorded:
    """All recordings, each looked at now: a broken one must not show up in the middle of a run."""
    entries: list[Entry] = []
    if params.manifest is not None:
        problem = missing(Path(params.manifest), "source.manifest")
        if problem:
            errors.append(problem)
        else:
            entries, found = read_manifest(Path(params.manifest), params.count, keys)
            said = {key: [entry.said[key] for entry in entries] for key in keys}
            errors += found or without_values(Path(params.manifest), said)
    else:
        paths, nameless = expanded(params.files or (), "source.files")
        errors += nameless
        entries = [Entry(path, str(path), id=path.name) for path in paths[: params.count]]
    recordings = []
    for entry in entries:
        problem = missing(entry.path, entry.where)
        if problem:
            errors.append(problem)
            continue
        try:
            recording = probe(entry.path)
        except Unreadable as error:
            errors.append(f"{entry.where}: {error}.")
            continue
        recordings.append(recording)
        errors += _beyond(entry, recording)
    return _Recorded(params.rate, tuple(entries), tuple(recordings))


def _beyond(entry: Entry, recording: Recording) -> list[str]:
    """Labels that lie outside the recording."""
    last = max([entry.end_ns, *(word.end_ns for word in entry.words)])
    # Labels are often rounded up to a hundredth of a second.
    if last > _ns(recording.n_samples, recording.rate) + 10_000_000:
        seconds = recording.n_samples / recording.rate
        return [
            f"{entry.where}: speech is said to end at {last / NS:g} s and the recording has {seconds:g} s. Correct one."
        ]
    return []


def _slices(params: Audio, sounds: _Spoken | _Recorded, seed: int) -> tuple[tuple[Slice | None, ...], tuple[str, ...]]:
    """The condition and the name of the slice of each clip. Raises ValueError."""
    own = [entry.slice for entry in sounds.entries] if isinstance(sounds, _Recorded) else [""] * len(sounds)
    slices = params.slices
    if not slices:
        return (None,) * len(own), tuple(own)
    if params.paired:
        return slices * len(own), tuple(each.name for each in slices) * len(own)
    by_name = {each.name: each for each in slices}
    strange = sorted({name for name in own if name and name not in by_name})
    if strange:
        raise ValueError(f"the manifest says slice {strange[0]!r}, which isn't among {', '.join(by_name)}. Add it")
    free = [i for i, name in enumerate(own) if not name]
    drawn = assigned([each.share for each in slices], len(free), seed).tolist() if free else []
    chosen = [by_name.get(name) for name in own]
    for i, which in zip(free, drawn, strict=True):
        chosen[i] = slices[which]
    return tuple(chosen), tuple(each.name if each else "" for each in chosen)


SOURCE = Source(
    name="audio",
    summary="Speech with its transcript and its true ends: recordings, or synthetic tone speech.",
    params=Audio,
    build=_labelled,
    labelled=_labelled,
)
