"""Did the generator play its audio on time, and did the endpoint take it? Sessions of paced audio, judged one by one. Pure.

Every frame has a due time on its session's absolute schedule, and ``frame_lag_ns`` is how much later it was handed over. Late
audio makes an endpoint look slow, never fast, so late sessions stay in every number and are counted; beyond a share of them
the run proves nothing, whatever it says. What was handed over in time and not taken is the endpoint's part, or the network's:
``unsent_bytes``, the most that the peer had not taken when a frame was due. It is reported and makes no run invalid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll.slo.objectives.objective import show
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records
from plimsoll.slo.records.session_columns import PACE_CAPTURE
from plimsoll.slo.validity.generator import Check
from plimsoll.slo.validity.lateness import Lag, summary

#: A session is late when the p99 of its frames is more than half a frame late, or one of them more than two.
P99_FRAMES, MAX_FRAMES = 0.5, 2.0
#: The largest share of late sessions in a valid run.
LATE_SHARE = 0.01
#: With more audio than this waiting to be taken the endpoint holds its sender up.
HELD_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LiveAudio:
    """``sessions`` of paced audio; ``late`` of them were sent late audio, ``held`` were held up by the endpoint.

    ``frame_lag_ns``: over all ``frames``. ``frame_ns``: the most common frame. ``unsent_bytes`` and ``unsent_ns`` (the same as
    playing time): the most of any session, None where nobody looked.
    """

    sessions: int
    frames: int
    late: int
    held: int
    frame_ns: int
    frame_lag_ns: Lag
    unsent_bytes: int | None
    unsent_ns: int | None

    @property
    def late_share(self) -> float:
        """Late sessions per session."""
        return self.late / self.sessions if self.sessions else 0.0


def late_sessions(records: Records) -> BoolArray:
    """bool[n]: paced sessions whose audio was sent late."""
    lags, offsets = records.ragged("frame_lag_ns")
    frames = np.diff(offsets)
    judged = _paced(records, frames)
    frame = _frame_ns(records, frames)
    late = np.zeros(len(records), np.bool_)
    if not judged.any():
        return late
    # Within each session ascending, so that its p99 and its maximum have known places.
    ordered = lags[np.lexsort((lags, np.repeat(np.arange(len(records)), frames)))]
    rows = np.flatnonzero(judged)
    p99 = ordered[offsets[rows] - (-99 * frames[rows] // 100) - 1]
    most = ordered[offsets[rows + 1] - 1]
    late[rows] = (p99 > P99_FRAMES * frame[rows]) | (most > MAX_FRAMES * frame[rows])
    return late


def live_audio(records: Records) -> LiveAudio | None:
    """The measured sessions that were sent paced audio, failed ones included; None without any."""
    if records.session is None:
        return None
    rows = records.measured()
    lags, offsets = rows.ragged("frame_lag_ns")
    frames = np.diff(offsets)
    judged = _paced(rows, frames)
    if not judged.any():
        return None
    unsent = rows["unsent_bytes"][judged]
    waiting = _waiting_ns(rows, frames)[judged]
    known = unsent >= 0
    sizes, count = np.unique(rows["frame_ns"][judged], return_counts=True)
    return LiveAudio(
        sessions=int(np.count_nonzero(judged)),
        frames=int(frames[judged].sum()),
        late=int(np.count_nonzero(late_sessions(rows))),
        held=int(np.count_nonzero(waiting[known] > HELD_NS)),
        frame_ns=int(sizes[np.argmax(count)]),
        frame_lag_ns=summary(lags[np.repeat(judged, frames)]),
        unsent_bytes=int(unsent.max()) if known.any() else None,
        unsent_ns=round(float(waiting[known].max())) if known.any() else None,
    )


def checks(found: LiveAudio | None) -> list[Check]:
    """The generator's promise: its audio was there when it was due, in nearly all sessions. None: it sent no audio."""
    if found is None:
        return []
    detail = (
        f"late audio in {found.late} of {found.sessions} sessions, limit {LATE_SHARE:.0%} (late: p99 of the frame lag above half a "
        f"frame of {show(found.frame_ns, 'ns')}, or one frame above two); of all frames p99 {_shown(found.frame_lag_ns.p99)}, max "
        f"{_shown(found.frame_lag_ns.max)}"
    )
    fix = "Run fewer sessions at once, take longer frames, add workers, or free the host"
    return [Check("live audio", found.late_share <= LATE_SHARE, detail, fix)]


def warnings(found: LiveAudio | None) -> list[str]:
    """What a reader should know of audio that came late here, or was not taken there."""
    said: list[str] = []
    if found is None:
        return said
    if 0 < found.late_share <= LATE_SHARE:
        said.append(
            f"{found.late} of {found.sessions} sessions were sent audio late by this host (within the limit of {LATE_SHARE:.0%}). They are "
            "in every number, and can only make the endpoint look slower"
        )
    if found.held:
        assert found.unsent_ns is not None
        said.append(
            f"{found.held} of {found.sessions} sessions were held up: at worst {show(found.unsent_ns, 'ns')} of audio had been sent in time and "
            "was not taken. That is back-pressure of the endpoint or the network, it is in their latency, and it is not this host's"
        )
    return said


def _paced(records: Records, frames: IntArray) -> BoolArray:
    return np.asarray((records["pace"] >= PACE_CAPTURE) & (frames > 0) & (records["frame_ns"] > 0))


def _frame_ns(records: Records, frames: IntArray) -> FloatArray:
    """The time between two due frames: a frame's playing time, or less of it where audio went out faster than it plays."""
    span = records["input_end_ns"] - records["media_start_ns"]
    known = (records["input_end_ns"] != -1) & (records["media_start_ns"] != -1) & (span > 0)
    faster = np.where(known & (records["pace"] > PACE_CAPTURE + 1), span / np.maximum(frames, 1), np.inf)
    return np.minimum(records["frame_ns"].astype(np.float64), faster)


def _waiting_ns(records: Records, frames: IntArray) -> FloatArray:
    """Unsent bytes as playing time, by the bytes that all of the session's audio took."""
    played = frames * records["frame_ns"].astype(np.float64)
    return np.maximum(records["unsent_bytes"], 0) / np.maximum(records["bytes_out"], 1) * played


def _shown(value: int | None) -> str:
    return "none" if value is None else show(value, "ns")
