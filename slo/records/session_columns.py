"""The optional columns of live sessions: speech in, speech out. A run without them has none of these in memory or on disk.

``SessionTable`` goes with a ``Records`` row by row. Times are ns relative to t0 like those of ``Records``, durations are ns,
-1 means "did not happen" or "not known". Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

#: Instants: relative to t0 in records, absolute monotonic while the exchange lives.
SESSION_TIMES = (
    "open_ns",  # the session was usable: its ready message, or the upgrade where there is none
    "media_start_ns",  # the instant of audio sample 0 on the simulated microphone
    "speech_start_ns",  # true speech onset on that timeline
    "speech_end_ns",  # true speech end on that timeline
    "input_end_ns",  # the input's true end: the last frame's due time; for text and uploads the last write
    "first_partial_ns",  # first non-empty transcript of any kind
    "first_final_ns",  # first final transcript that is not empty
    "final_ns",  # last message that made part of the transcript final; none where some of it never became so
    "endpoint_ns",  # the server said that the speaker had finished: first such event from the true speech end on
    "first_audio_ns",  # arrival of the first decoded audio sample
    "audible_ns",  # arrival of the chunk that holds the first audible sample
)
#: Durations, counts and codes.
SESSION_VALUES = (
    "leading_silence_ns",  # playing time before the first audible sample of the answer
    "media_out_ns",  # playing time of all audio received
    "false_endpoints",  # endpoint events strictly inside speech
    "n_partials",
    "n_revised",  # words of the running transcript that were changed or taken back
    "words",  # words of the reference, normalised
    "word_errors",  # substituted, left out and added
    "unsent_bytes",  # most bytes that the peer had not taken when a frame was due
    "frame_ns",  # playing time of one full frame
    "pace",  # Pace, below
)
SESSION_COLUMNS = (*SESSION_TIMES, *SESSION_VALUES, "slice")
#: What the plan says of each row. It is put in when a run directory is opened, never stamped and never stored.
PLANNED = ("deadline_ns",)  # from due: the time its query had, see ``plimsoll.slo.records.queries``
#: Lists, one a row: their entries are durations in ns.
RAGGED = (
    "chunk_audio_ns",  # playing time of each audio chunk; as many as chunk_ns
    "chunk_cursor_ns",  # how far into the audio the transcript reached at each of chunk_ns; -1 unknown
    "word_lag_ns",  # of each word of the reference that was heard: when it stood for good, minus when it was over
    "frame_lag_ns",  # of each frame: written minus due
)

#: Codes of the column ``pace``: how audio was sent.
PACE_FILE, PACE_CAPTURE, PACE_EAGER, PACE_OTHER = 0, 1, 2, 3

Ragged = tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class SessionTable:
    """Session columns of n rows: ``columns[name]`` int64[n]; ``ragged[name]`` (values int64[m], offsets int64[n+1]).

    ``columns["slice"]`` indexes ``slices``, -1 for none.
    """

    columns: Mapping[str, IntArray]
    ragged: Mapping[str, Ragged]
    slices: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.columns["slice"])

    def select(self, ix: IntArray) -> SessionTable:
        """The rows at these positions."""
        ragged = {}
        for name, (values, offsets) in self.ragged.items():
            lengths = np.diff(offsets)[ix]
            bounds = _offsets(lengths)
            source = np.arange(bounds[-1]) + np.repeat(offsets[:-1][ix] - bounds[:-1], lengths)
            ragged[name] = (values[source], bounds)
        return freeze({name: column[ix] for name, column in self.columns.items()}, ragged, self.slices)


def freeze(
    columns: Mapping[str, npt.NDArray[Any]], ragged: Mapping[str, tuple[Any, Any]], slices: Sequence[str]
) -> SessionTable:
    """A table of private, read-only arrays; what is not given is "did not happen". Raises ValueError for unknown names."""
    unknown = sorted({*columns} - {*SESSION_COLUMNS, *PLANNED} | ({*ragged} - {*RAGGED}))
    if unknown:
        raise ValueError(f"unknown session columns {', '.join(unknown)}")
    sizes = {len(column) for column in columns.values()} | {len(offsets) - 1 for _, offsets in ragged.values()}
    if len(sizes) != 1:
        raise ValueError(f"session columns of unequal lengths {sorted(sizes)}; give every column the same")
    n = sizes.pop()
    names = (*SESSION_COLUMNS, *PLANNED)
    fixed = {name: _own(columns[name]) if name in columns else _own(np.full(n, -1)) for name in names}
    lists = {
        name: (_own(ragged[name][0]), _own(ragged[name][1])) if name in ragged else (_own([]), _own(np.zeros(n + 1)))
        for name in RAGGED
    }
    return SessionTable(MappingProxyType(fixed), MappingProxyType(lists), tuple(slices))


def blank(n: int) -> SessionTable:
    """n rows of requests that were no sessions."""
    return freeze({"slice": np.full(n, -1)}, {}, ())


def join(parts: Sequence[SessionTable | None], lengths: Sequence[int]) -> SessionTable | None:
    """The rows of all parts in order, None standing for ``lengths[i]`` blank rows; None if no part has any."""
    if not any(part is not None for part in parts):
        return None
    whole = [part if part is not None else blank(n) for part, n in zip(parts, lengths, strict=True)]
    table: dict[str, int] = {}
    moved = []
    for part in whole:
        new = np.array([table.setdefault(text, len(table)) for text in part.slices] + [-1], np.int64)
        moved.append(new[part.columns["slice"]])
    columns = {name: np.concatenate([part.columns[name] for part in whole]) for name in (*SESSION_COLUMNS, *PLANNED)}
    columns["slice"] = np.concatenate(moved)
    ragged = {}
    for name in RAGGED:
        sizes = np.concatenate([np.diff(part.ragged[name][1]) for part in whole])
        ragged[name] = (np.concatenate([part.ragged[name][0] for part in whole]), _offsets(sizes))
    return freeze(columns, ragged, tuple(table))


def _own(values: Any) -> IntArray:
    array = np.array(values, np.int64)
    array.setflags(write=False)
    return array


def _offsets(lengths: npt.NDArray[Any]) -> IntArray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
