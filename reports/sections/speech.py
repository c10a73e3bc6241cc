"""The part of a report on speech: words, playback and audio of the whole run, under report key ``speech``.

What single sessions did is in the metrics; here is what only the run as a whole has: the pooled word error rate by
slice with its normaliser, playback under several buffers from the same arrivals, audio seconds per second, and what the
generator's own audio was worth. Nothing is judged. Its tables are the same on every page.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from plimsoll.reports.blocks.document import Block, Card, Column, Facts, On, Row, Section, Sentence, Table
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.parts.parts import Lag, Text, part
from plimsoll.reports.parts.provenance import public_text
from plimsoll.reports.wording import units
from plimsoll.slo.judge import Judged
from plimsoll.slo.metrics.word_errors import WordErrorRate

#: Slices shown in the formats for people, those of most words; the JSON has all.
MOST_SLICES = 24
_SLICE_NAME = 60


class WordErrors(BaseModel, frozen=True, extra="forbid"):
    """Pooled: errors over words. Null: no word to count. Of ``sessions``, ``failed`` failed and are wrong in every
    word.
    """

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
    """Paced audio as it was sent: ``late`` sessions by the generator's fault, ``held`` ones by the endpoint's
    back-pressure.
    """

    sessions: int
    frames: int
    frame_ns: int
    frame_lag_ns: Lag
    late: int
    held: int
    unsent_bytes: int | None = Field(default=None, description="most that the endpoint had not taken in any session")
    unsent_ns: int | None = Field(default=None, description="the same as playing time")


class Speech(BaseModel, frozen=True, extra="forbid"):
    """``sessions`` measured requests with audio in or out, by how they were paced; those that only received are in no
    pace.
    """

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


def speech_part(judged: Judged, manifest: Mapping[str, Any], scenario: Mapping[str, Any]) -> Speech | None:
    """None for a run without audio. The normaliser is the one that the manifest names, else the scenario."""
    found, live = judged.speech, judged.validity.live_audio
    if found is None:
        return None
    return part(
        Speech,
        found,
        normaliser=_normaliser(manifest, scenario) if found.wer is not None else "",
        wer=None if found.wer is None else _words(found.wer),
        slices=[Slice(name=public_text(name)[:_SLICE_NAME], wer=_words(one)) for name, one in found.slices.items()],
        sent=None if live is None else part(SentAudio, live),
    )


def _normaliser(manifest: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    """As the run wrote it down; from an older one its name at least."""
    audio = ((scenario.get("target") or {}).get("options") or {}).get("audio") or {}
    name = audio.get("normaliser") if isinstance(audio, Mapping) else None
    return public_text(str(manifest.get("normaliser") or name or ""))


def _words(one: WordErrorRate) -> WordErrors:
    counted = one.words > 0
    return part(
        WordErrors,
        one,
        rate=one.rate if counted else None,
        interval=one.interval if counted else None,
        mean=one.mean if one.mean == one.mean else None,
        design_effect=float(f"{one.design_effect:.4g}"),
    )


# -- in words -------------------------------------------------------------------------------------------------


def blocks(part: Speech, report: Any) -> list[Block]:
    """One number each of the whole run, then word errors by slice and playback by buffer, of a run that has them."""
    shown: list[Block] = [Facts(facts(part), title="Speech")]
    if part.wer is not None:
        shown += word_table(part, part.wer, report.confidence)
    if part.playback is not None:
        shown += _playback_table(part.playback)
    return [Section("Speech", [Card(shown)], folded="Speech")]


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
        audio = f"{units.duration(sent.unsent_ns)} of audio"
        most = f"at most {units.count(sent.unsent_bytes)} bytes ({audio}) waited to be taken"
        held = f"; {units.many(sent.held, 'session')} held up" if sent.held else ""
        found.append(("Back-pressure", most + held))
    return found


def word_table(part: Speech, whole: WordErrors, confidence: float) -> list[Block]:
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
    heads = ("slice", "WER", units.bounds(confidence), "errors", "words", "sessions")
    return _table("Word error rate", heads, rows, " ".join(said))


def _word_cells(one: WordErrors) -> tuple[str, ...]:
    rate = units.NOTHING if one.rate is None else units.percent(one.rate)
    bounds = units.NOTHING if one.interval is None else " to ".join(units.percent(end, 3) for end in one.interval)
    return rate, bounds, units.count(one.errors), units.count(one.words), units.count(one.sessions)


def _playback_table(part: Playback) -> list[Block]:
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
        f"{units.many(part.n, 'successful answer')} played at 1x from their arrivals; a chunk up to 20 ms late is in "
        f"time. To play without a break they need a start later than the first chunk by p50 {_span(delay.p50)}, p99 "
        f"{_span(delay.p99)}, max {_span(delay.max)}."
    )
    return _table("Playback", ("gathered first", "stalled", "without a stall", "longest stall"), rows, note)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> list[Block]:
    """The first cell of a row names it, the others are numbers; the note stands below."""
    columns = [Column(heads[0], right=False, names=True), *map(Column, heads[1:])]
    table = Table(columns, [Row(row) for row in rows], title=title)
    return [Sentence("", lead=title, on=On.MARKDOWN | On.PAGE), table, Sentence(note, fine=True, close=True)]


def _span(value: int | None) -> str:
    return units.NOTHING if value is None else units.duration(value)


SECTION = ReportSection("speech", 90, lambda run: speech_part(run.judged, run.manifest, run.scenario), blocks)
