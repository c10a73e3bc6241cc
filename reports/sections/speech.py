"""The part of a report on speech: words, playback and audio of the whole run, under report key ``speech``.

What single sessions did is in the metrics; here is what only the run as a whole has: the pooled word error rate by slice with
its normaliser, playback under several buffers from the same arrivals, audio seconds per second, and what the generator's own audio was
worth. Nothing is judged. Its tables are the same on every page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Lag, Text
from plimsoll.reports.sections.provenance import public_text
from plimsoll.reports.wording import units
from plimsoll.slo.metrics import word_error_rate as wer
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.metrics.playback import PREBUFFERS_NS
from plimsoll.slo.metrics.speech import playback
from plimsoll.slo.objectives.goodput import per_second, span_ns
from plimsoll.slo.records.records import BoolArray, Records
from plimsoll.slo.records.session_columns import PACE_CAPTURE, PACE_EAGER, PACE_FILE, PACE_OTHER
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.validity.live_audio import LiveAudio

_PACES = {
    PACE_FILE: "file or burst",
    PACE_CAPTURE: "1x as captured",
    PACE_EAGER: "1x eager",
    PACE_OTHER: "another speed",
}
#: Slices shown in the formats for people, those of most words; the JSON has all.
MOST_SLICES = 24
_SLICE_NAME = 60


class WordErrors(BaseModel, frozen=True, extra="forbid"):
    """Pooled: errors over words. Null: no word to count. Of ``sessions``, ``failed`` failed and are wrong in every word."""

    sessions: int
    failed: int = 0
    guessed: int = Field(
        default=0, description="failed sessions whose words were never counted; they count as many as the mean"
    )
    words: int
    errors: int
    rate: float | None
    interval: tuple[float, float] | None = Field(
        description="each bound at the report's confidence, by words and sessions"
    )
    mean: float | None = Field(description="mean of the rates of single sessions")
    design_effect: float = Field(description="how many words count as one, because those of a session go together")


class Slice(BaseModel, frozen=True, extra="forbid"):
    """The word errors of sessions under one condition; an empty name: none was given."""

    name: Text
    wer: WordErrors


class Buffered(BaseModel, frozen=True, extra="forbid"):
    """Every answer played at 1x, begun with so much audio gathered first."""

    prebuffer_ns: int
    stall_ratio: float = Field(description="pooled: time stood still over time from start to end")
    without_stall: float = Field(description="share of answers that played without a break")
    longest_stall_ns: int


class Playback(BaseModel, frozen=True, extra="forbid"):
    """Of the ``n`` successful answers with audio. ``startup_delay_ns``: what each one needs to play without a break."""

    n: int
    startup_delay_ns: Lag
    buffers: list[Buffered]


class SentAudio(BaseModel, frozen=True, extra="forbid"):
    """Paced audio as it was sent: ``late`` sessions by the generator's fault, ``held`` ones by the endpoint's back-pressure."""

    sessions: int
    frames: int
    frame_ns: int
    frame_lag_ns: Lag
    late: int
    held: int
    unsent_bytes: int | None = Field(default=None, description="most that the endpoint had not taken in any session")
    unsent_ns: int | None = Field(default=None, description="the same as playing time")


class Speech(BaseModel, frozen=True, extra="forbid"):
    """``sessions`` measured requests with audio in or out, by how they were paced; those that only received are in no pace."""

    sessions: int
    paces: dict[str, int]
    audio_in_per_s: float | None = Field(
        description="seconds of audio of successful requests, per second of the run; null: none sent"
    )
    audio_out_per_s: float | None = Field(description="seconds of audio received, likewise")
    normaliser: Text = Field(default="", description="name and version of what made texts comparable")
    wer: WordErrors | None = None
    slices: list[Slice] = Field(default_factory=list)
    false_endpoints: float | None = Field(
        default=None, description="false endpoints per successful session that had endpoints"
    )
    outside_rtf: int = Field(default=0, description="requests of paced audio, which has no real-time factor")
    playback: Playback | None = None
    sent: SentAudio | None = None


def speech_part(
    records: Records,
    live: LiveAudio | None,
    manifest: Mapping[str, Any],
    scenario: Mapping[str, Any],
    confidence: Probability,
) -> Speech | None:
    """None for a run without audio. ``live``: what validity saw of it."""
    if records.session is None:
        return None
    pace = records["pace"]
    audio = records.in_measure & ((pace >= PACE_FILE) | (records["media_out_ns"] >= 0) | (records["words"] >= 0))
    if not audio.any():
        return None
    whole = wer.word_error_rate(records, confidence)
    slices = wer.by_slice(records, confidence)
    cut_off = measure(catalogue()["false_endpoints"], records)
    inside = cut_off.values[np.isfinite(cut_off.values)]
    return Speech(
        sessions=int(np.count_nonzero(audio)),
        paces={name: int(n) for code, name in _PACES.items() if (n := np.count_nonzero(audio & (pace == code)))},
        audio_in_per_s=_rate(records, "media_ns", audio & (pace >= PACE_FILE)),
        audio_out_per_s=_rate(records, "media_out_ns", audio),
        normaliser=_normaliser(manifest, scenario) if whole is not None else "",
        wer=None if whole is None else _words(whole),
        slices=[Slice(name=public_text(name)[:_SLICE_NAME], wer=_words(one)) for name, one in slices.items()],
        false_endpoints=float(inside.mean()) if len(inside) else None,
        outside_rtf=int(np.count_nonzero(audio & (pace >= PACE_CAPTURE))),
        playback=_playback(records),
        sent=None if live is None else _sent(live),
    )


def _rate(records: Records, column: str, rows: BoolArray) -> float | None:
    """Seconds of audio per second of the run."""
    known = rows & (records[column] >= 0)
    if not known.any():
        return None
    return per_second(float(records[column][known & records.ok].sum()) * 1e-9, span_ns(records))


def _normaliser(manifest: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    """As the run wrote it down; from an older one its name at least."""
    audio = ((scenario.get("target") or {}).get("options") or {}).get("audio") or {}
    name = audio.get("normaliser") if isinstance(audio, Mapping) else None
    return public_text(str(manifest.get("normaliser") or name or ""))


def _words(one: wer.WordErrorRate) -> WordErrors:
    counted = one.words > 0
    return WordErrors(
        sessions=one.sessions,
        failed=one.failed,
        guessed=one.guessed,
        words=one.words,
        errors=one.errors,
        rate=one.rate if counted else None,
        interval=one.interval if counted else None,
        mean=one.mean if one.mean == one.mean else None,
        design_effect=float(f"{one.design_effect:.4g}"),
    )


def _playback(records: Records) -> Playback | None:
    answers = records.in_measure & records.ok
    buffers: list[Buffered] = []
    for prebuffer in PREBUFFERS_NS:
        played = playback(records, prebuffer)
        rows = answers & played.valid
        if not rows.any():
            return None
        stalled, media = played.stalled_ns[rows], played.media_ns[rows]
        buffers.append(
            Buffered(
                prebuffer_ns=prebuffer,
                stall_ratio=float(stalled.sum() / (stalled.sum() + media.sum())),
                without_stall=float((played.underruns[rows] == 0).mean()),
                longest_stall_ns=int(played.longest_ns[rows].max()),
            )
        )
    delay = np.sort(played.required_ns[rows]).astype(np.float64)
    lag = Lag(p50=int(quantile(delay, "0.5")), p99=int(quantile(delay, "0.99")), max=int(delay[-1]))
    return Playback(n=len(delay), startup_delay_ns=lag, buffers=buffers)


def _sent(live: LiveAudio) -> SentAudio:
    lag = live.frame_lag_ns
    return SentAudio(
        sessions=live.sessions,
        frames=live.frames,
        frame_ns=live.frame_ns,
        frame_lag_ns=Lag(p50=lag.p50, p99=lag.p99, max=lag.max),
        late=live.late,
        held=live.held,
        unsent_bytes=live.unsent_bytes,
        unsent_ns=live.unsent_ns,
    )


# -- in words -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """A table: the first cell of a row names it, the others are numbers. ``note`` goes below, "" for none."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def facts(part: Speech) -> list[tuple[str, str]]:
    """What is one number of the whole run: (name, value)."""
    paces = "; ".join(f"{name}: {units.count(n)}" for name, n in part.paces.items())
    if [*part.paces.values()] == [part.sessions]:
        (paces,) = part.paces
    found = [("Sessions", units.count(part.sessions) + (f" ({paces})" if paces else ""))]
    if part.audio_in_per_s is not None:
        found.append(("Audio sent", f"{units.significant(part.audio_in_per_s)} s per second"))
    if part.audio_out_per_s is not None:
        found.append(("Audio received", f"{units.significant(part.audio_out_per_s)} s per second"))
    if part.false_endpoints is not None:
        found.append(("False endpoints", f"{units.significant(part.false_endpoints)} per session"))
    if part.outside_rtf:
        found.append(("No real-time factor", f"{units.many(part.outside_rtf, 'paced session')}: see lag_slope"))
    return found + (_sent_facts(part.sent) if part.sent is not None else [])


def _sent_facts(sent: SentAudio) -> list[tuple[str, str]]:
    lag = sent.frame_lag_ns
    spread = f"p50 {_span(lag.p50)}, p99 {_span(lag.p99)}, max {_span(lag.max)}"
    found = [
        ("Frames sent", f"{units.count(sent.frames)} of {units.duration(sent.frame_ns)}, late by {spread}"),
        ("Sessions sent late audio", f"{units.count(sent.late)} of {units.count(sent.sessions)}, by this host"),
    ]
    if sent.unsent_bytes is not None and sent.unsent_ns is not None:
        most = f"at most {units.count(sent.unsent_bytes)} bytes ({units.duration(sent.unsent_ns)} of audio) waited to be taken"
        held = f"; {units.many(sent.held, 'session')} held up" if sent.held else ""
        found.append(("Back-pressure", most + held))
    return found


def tables(part: Speech, confidence: float) -> list[Rows]:
    """Word errors by slice, and playback by buffer; those that the run has."""
    found = []
    if part.wer is not None:
        found.append(_word_table(part, part.wer, confidence))
    if part.playback is not None:
        found.append(_playback_table(part.playback))
    return found


def _word_table(part: Speech, whole: WordErrors, confidence: float) -> Rows:
    named = [one for one in part.slices if one.name or len(part.slices) > 1]
    shown = sorted(sorted(named, key=lambda one: -one.wer.words)[:MOST_SLICES], key=lambda one: one.name)
    rows = [("all", *_word_cells(whole)), *((one.name or "no slice", *_word_cells(one.wer)) for one in shown)]
    said = [f"Pooled, normaliser {part.normaliser or 'not stated'}."]
    if whole.mean is not None:
        said.append(f"Mean of sessions {units.percent(whole.mean)}.")
    if whole.failed:
        said.append(f"{units.many(whole.failed, 'session')} failed and counted as wrong in every word.")
    if len(named) > len(shown):
        said.append(f"{units.many(len(named) - len(shown), 'more slice')} in the JSON.")
    return Rows(
        "Word error rate",
        ("slice", "WER", units.bounds(confidence), "errors", "words", "sessions"),
        tuple(rows),
        " ".join(said),
    )


def _word_cells(one: WordErrors) -> tuple[str, ...]:
    rate = units.NOTHING if one.rate is None else units.percent(one.rate)
    bounds = units.NOTHING if one.interval is None else " to ".join(units.percent(end, 3) for end in one.interval)
    return rate, bounds, units.count(one.errors), units.count(one.words), units.count(one.sessions)


def _playback_table(part: Playback) -> Rows:
    rows = [
        (
            "nothing" if not one.prebuffer_ns else units.duration(one.prebuffer_ns),
            units.percent(one.stall_ratio, 3),
            units.percent(one.without_stall),
            units.duration(one.longest_stall_ns),
        )
        for one in part.buffers
    ]
    delay = part.startup_delay_ns
    note = (
        f"{units.many(part.n, 'successful answer')} played at 1x from their arrivals; a chunk up to 20 ms late is in time. To play without a break "
        f"they need a start later than the first chunk by p50 {_span(delay.p50)}, p99 {_span(delay.p99)}, max {_span(delay.max)}."
    )
    return Rows("Playback", ("gathered first", "stalled", "without a stall", "longest stall"), tuple(rows), note)


def _span(value: int | None) -> str:
    return units.NOTHING if value is None else units.duration(value)
