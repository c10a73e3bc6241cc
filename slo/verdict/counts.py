"""How the measured requests ended, and what was counted of their tokens. Numbers only; no request is judged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.metrics.speech import PREBUFFERS_NS, playback
from plimsoll.slo.metrics.stages import beyond, cached_tokens
from plimsoll.slo.metrics.word_errors import WordErrorRate, by_slice, word_error_rate
from plimsoll.slo.objectives.goodput import per_second, span_ns
from plimsoll.slo.records.labels import CACHED
from plimsoll.slo.records.records import (
    PACE_CAPTURE,
    PACE_EAGER,
    PACE_FILE,
    PACE_OTHER,
    BoolArray,
    IntArray,
    Phase,
    Records,
    Status,
    TokensFrom,
)
from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.validity.lateness import Lag, summary

#: Kinds of error texts that are told apart, whatever the size of the run, and the texts that are looked at for them.
MAX_ERRORS = 20
MOST_ERRORS = 100_000

#: Runs that differ from request to request: hexadecimal ones of eight and more characters with a digit, and numbers.
_VARIABLE = re.compile(r"\b(?=[0-9a-f-]*[0-9])[0-9a-f][0-9a-f-]{6,}[0-9a-f]\b|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """An error text, as it was recorded, and how often it was seen; ``texts``: it stands for so many that differ in
    numbers only.
    """

    text: str
    status: str
    count: int
    texts: int = 1


@dataclass(frozen=True, slots=True)
class Counts:
    """``errors``: the most frequent kinds of texts; ``other_errors``: failures without one of them. ``asked_exactly``:
    successes of which an exact number of output tokens was asked and whose server counted them, ``short_of_asked``
    those that had fewer.

    Of the successes, ``guessed_output`` have their tokens counted by chunks and ``planned_input`` their prompt's length
    from the plan; of ``false_cached`` and ``false_stages`` the server says more cached tokens, or a longer stage, than
    the request has. ``all_empty_400``: every request was refused by a 400 without a word.
    """

    measured: int
    ok: int
    failed: int
    by_status: Mapping[str, int]
    errors: tuple[ErrorCount, ...]
    other_errors: int
    warmup: int
    asked_exactly: int
    short_of_asked: int
    guessed_output: int
    planned_input: int
    false_cached: int
    false_stages: int
    all_empty_400: bool


#: Of ``Counts`` what adds up over parts of a run.
SUMS = (
    "measured", "ok", "failed", "warmup", "asked_exactly", "short_of_asked", "guessed_output", "planned_input",
    "false_cached", "false_stages",
)  # fmt: skip


def count(records: Records) -> Counts:
    measured = records.in_measure
    status = records.columns["status"][measured]
    number_of = np.bincount(status, minlength=len(Status))
    errors = alike(errors_of(records, MOST_ERRORS))
    failed = int(np.count_nonzero(status != Status.OK))
    good = records.ok & records.in_measure
    tokens_from, planned = records.columns["tokens_from"], records.columns["n_in_from"] == TokensFrom.PLAN
    asked = good & (records["n_asked"] >= 0) & (tokens_from == TokensFrom.USAGE)
    labels = {} if records.labels is None else records.labels.columns
    return Counts(
        measured=int(np.count_nonzero(measured)),
        ok=int(number_of[Status.OK]),
        failed=failed,
        by_status={status.name: int(number_of[status]) for status in Status if number_of[status]},
        errors=errors,
        other_errors=failed - sum(error.count for error in errors),
        warmup=int(np.count_nonzero(records.columns["phase"] == Phase.WARMUP)),
        asked_exactly=int(np.count_nonzero(asked)),
        short_of_asked=int(np.count_nonzero(asked & (records["n_out"] < records["n_asked"]))),
        guessed_output=int(np.count_nonzero((tokens_from == TokensFrom.CHUNKS) & good)),
        planned_input=int(np.count_nonzero(planned & (records["n_out"] >= 0) & good)),
        false_cached=int((good & (cached_tokens(records) < labels[CACHED])).sum()) if CACHED in labels else 0,
        false_stages=int(np.count_nonzero(good & beyond(records))) if records.timings else 0,
        all_empty_400=_all_empty_400(records),
    )


def alike(errors: Iterable[ErrorCount]) -> tuple[ErrorCount, ...]:
    """Those with texts that differ only in numbers as one, by its most frequent text; the most frequent kinds."""
    kinds: dict[tuple[str, str], ErrorCount] = {}
    for one in errors:  # the most frequent first
        kind = one.status, shape(one.text)
        known = kinds.get(kind)
        kinds[kind] = one if known is None else replace(known, count=known.count + one.count, texts=known.texts + 1)
    return tuple(sorted(kinds.values(), key=lambda one: -one.count)[:MAX_ERRORS])


def errors_of(records: Records, most: int) -> tuple[ErrorCount, ...]:
    """The ``most`` frequent texts of requests that failed, with their status."""
    failed = records.in_measure & ~records.ok
    # One integer for each pair of status and text, so that a single pass counts them all.
    width = len(records.errors) + 1
    each = records["status"][failed] * width + records["error"][failed] + 1
    each.sort()
    starts = np.flatnonzero(np.append(len(each) > 0, each[1:] != each[:-1]))
    pairs, numbers = each[starts], np.diff(np.append(starts, len(each)))
    order = np.lexsort((pairs, -numbers))
    listed = [(int(pairs[i]), int(numbers[i])) for i in order if pairs[i] % width][:most]
    return tuple(
        ErrorCount(records.errors[pair % width - 1], Status(pair // width).name, number) for pair, number in listed
    )


def shape(text: str) -> str:
    """``text`` with everything that differs from request to request replaced."""
    return _VARIABLE.sub("#", text)


def kinds_of(records: Records, rows: IntArray) -> IntArray:
    """A number for each of these rows, the same for those of one kind: of a status, a code and a shape of text."""
    error = records["error"][rows] + 1
    texts = np.flatnonzero(np.bincount(error, minlength=len(records.errors) + 1))
    shapes: dict[bytes, int] = {}  # of a hash: a million texts are much to hold twice
    of_text = np.zeros(len(records.errors) + 1, np.int64)
    of_text[texts] = [shapes.setdefault(shape_of(records, t - 1), len(shapes)) for t in texts.tolist()]
    status, code = records["status"][rows], records["code"][rows] + 1
    key = (status * (int(code.max()) + 1) + code) * len(shapes) + of_text[error]
    distinct = np.sort(key)
    distinct = distinct[np.append(True, distinct[1:] != distinct[:-1])]
    return np.asarray(distinct.searchsorted(key))


def shape_of(records: Records, index: int) -> bytes:
    """What stands for the shape of an error text, by its place (-1: none)."""
    text = shape(records.errors[index]) if index >= 0 else ""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _all_empty_400(records: Records) -> bool:
    measured = records.in_measure
    if not bool((records.columns["code"][measured] == 400).all()):
        return False
    return {"HTTP 400"} == {text for text, _ in texts_of(records, "error", measured)}


def texts_of(records: Records, name: str, rows: BoolArray) -> list[tuple[str | None, int]]:
    """The texts of column ``error``, ``server_timing`` or ``slice`` that some of these rows have, None for none, and
    how many have each.
    """
    table = (None, *records.table(name))
    numbers = np.bincount(records[name][rows] + 1, minlength=1)
    return [(table[place], int(numbers[place])) for place in np.flatnonzero(numbers).tolist()]


# -- speech as a whole -------------------------------------------------------------------------------------------------

# What only a run of speech as a whole has: pooled word errors by slice, playback under several buffers, seconds of
# audio per second. What single sessions did is in the indicators, and whether the audio went out in time is the
# generator's part (``slo/validity/lateness.py``). Nothing is judged.

_PACES = {
    PACE_FILE: "file or burst",
    PACE_CAPTURE: "1x as captured",
    PACE_EAGER: "1x eager",
    PACE_OTHER: "another speed",
}


@dataclass(frozen=True, slots=True)
class Buffered:
    """Every answer played at 1x, begun with ``prebuffer_ns`` of audio gathered first. ``stall_ratio`` is pooled: time
    stood still over time from start to end; ``without_stall``: the share of answers that played without a break.
    """

    prebuffer_ns: int
    stall_ratio: float
    without_stall: float
    longest_stall_ns: int


@dataclass(frozen=True, slots=True)
class Playback:
    """Of the ``n`` successful answers with audio. ``startup_delay_ns``: what each one needs to play without a break."""

    n: int
    startup_delay_ns: Lag
    buffers: tuple[Buffered, ...]


@dataclass(frozen=True, slots=True)
class Speech:
    """``sessions`` measured requests with audio in or out, by how they were paced; those that only received are in no
    pace.

    Audio per second is of successful requests, None where none went that way. ``false_endpoints`` per successful
    session that had endpoints. ``outside_rtf``: requests of paced audio, which has no real-time factor.
    """

    sessions: int
    paces: Mapping[str, int]
    audio_in_per_s: float | None
    audio_out_per_s: float | None
    wer: WordErrorRate | None
    slices: Mapping[str, WordErrorRate]
    false_endpoints: float | None
    outside_rtf: int
    playback: Playback | None


def speech(records: Records, confidence: Probability) -> Speech | None:
    """None for a run without audio."""
    if records.session is None:
        return None
    pace = records["pace"]
    audio = records.in_measure & ((pace >= PACE_FILE) | (records["media_out_ns"] >= 0) | (records["words"] >= 0))
    if not audio.any():
        return None
    cut_off = measure(catalogue()["false_endpoints"], records)
    inside = cut_off.values[np.isfinite(cut_off.values)]
    return Speech(
        sessions=int(np.count_nonzero(audio)),
        paces={name: int(n) for code, name in _PACES.items() if (n := np.count_nonzero(audio & (pace == code)))},
        audio_in_per_s=_rate(records, "media_ns", audio & (pace >= PACE_FILE)),
        audio_out_per_s=_rate(records, "media_out_ns", audio),
        wer=word_error_rate(records, confidence),
        slices=by_slice(records, confidence),
        false_endpoints=float(inside.mean()) if len(inside) else None,
        outside_rtf=int(np.count_nonzero(audio & (pace >= PACE_CAPTURE))),
        playback=_playback(records),
    )


def _rate(records: Records, column: str, rows: BoolArray) -> float | None:
    """Seconds of audio per second of the run."""
    known = rows & (records[column] >= 0)
    if not known.any():
        return None
    return per_second(float(records[column][known & records.ok].sum()) * 1e-9, span_ns(records))


def _playback(records: Records) -> Playback | None:
    answers = records.in_measure & records.ok
    buffers: list[Buffered] = []
    needed: IntArray = np.empty(0, np.int64)
    for prebuffer in PREBUFFERS_NS:
        played = playback(records, prebuffer)
        rows = answers & played.valid
        if not rows.any():
            return None
        stalled, media, needed = played.stalled_ns[rows], played.media_ns[rows], played.required_ns[rows]
        buffers.append(
            Buffered(
                prebuffer_ns=prebuffer,
                stall_ratio=float(stalled.sum() / (stalled.sum() + media.sum())),
                without_stall=float((played.underruns[rows] == 0).mean()),
                longest_stall_ns=int(played.longest_ns[rows].max()),
            )
        )
    return Playback(len(needed), summary(needed), tuple(buffers))
