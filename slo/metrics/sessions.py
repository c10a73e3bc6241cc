"""Sessions of a run: rows brought together by their label ``session``, in the order of their label ``turn``.

A session lasts from when its first turn was due until its last answer ended. It is finished where its last row
succeeded, abandoned where that failed, and cut where the run ended first (the row is unsent or unfinished).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records, Status
from plimsoll.slo.statistics.distribution import nearest
from plimsoll.slo.statistics.order import ranked

#: Turns that are told one by one; later ones are told together.
TURNS = 8
#: Moments at which living sessions are counted.
MOMENTS = 60
_CUT = (Status.UNSENT, Status.UNFINISHED)


@dataclass(frozen=True, slots=True)
class Spans:
    """One entry a session: the rows of its first and its last turn, int64[m] each."""

    first: IntArray
    last: IntArray

    def duration_ns(self, records: Records) -> FloatArray:
        """float64[m]: from the first turn's due time to the last one's end; +inf unless it is finished."""
        took = records["done_ns"][self.last] - records["due_ns"][self.first]
        return np.where(records.ok[self.last], took.astype(np.float64), np.inf)


def spans(records: Records) -> Spans | None:
    """The sessions of the planned load, turns that were cancelled on purpose too; None: it has none."""
    columns = {} if records.labels is None else records.labels.columns
    if "session" not in columns or "turn" not in columns:
        return None
    session, turn = np.asarray(columns["session"]), np.asarray(columns["turn"])
    rows = np.flatnonzero(records.planned & (session >= 0))
    if not len(rows):
        return None
    of = np.asarray(columns.get("class", np.zeros(len(records), np.int64)))  # classes number theirs by themselves
    rows = rows[np.lexsort((turn[rows], session[rows], of[rows]))]
    new = np.append(True, (np.diff(session[rows]) != 0) | (np.diff(of[rows]) != 0))
    return Spans(rows[new], rows[np.append(new[1:], True)])


#: Where ``lasted`` is kept.
_LASTED = "how long sessions lasted"


def lasted(records: Records) -> FloatArray | None:
    """float64[n]: on the row of a session's last turn how long it lasted, +inf unless it is finished; NaN on others.

    None: there are no sessions. Of rows that ``carry_sessions`` knows it is as in the run that they were picked from.
    """
    if _LASTED not in records.kept:
        found, values = spans(records), None
        if found is not None:
            values = np.full(len(records), np.nan)
            values[found.last] = found.duration_ns(records)
        records.kept[_LASTED] = values
    kept: FloatArray | None = records.kept[_LASTED]
    return kept


def carry_sessions(records: Records, rows: BoolArray, part: Records) -> None:
    """Sessions of ``part``, which are the ``rows`` bool[n] of ``records``, last as long as there: a turn that was
    picked alone is no session.
    """
    values = lasted(records)
    if values is not None:
        part.kept[_LASTED] = values[rows]


@dataclass(frozen=True, slots=True)
class Turn:
    """The rows of one turn, or of all from ``turn`` on (``later``); times in ns, +inf for failures, None: no value."""

    turn: int
    later: bool
    n: int
    failed: int
    ttft_p50_ns: float | None
    ttft_p99_ns: float | None
    latency_p50_ns: float | None
    latency_p99_ns: float | None


@dataclass(frozen=True, slots=True)
class Sessions:
    """``offered`` sessions, those of them that began, and how they ended; ``turns_not_reached``: turns that were never
    due, as the session had ended. ``at_ns`` and ``live``: how many went on at moments of the run.
    """

    offered: int
    started: int
    finished: int
    abandoned: int
    cut: int
    turns: int
    turns_not_reached: int
    duration_p50_ns: float
    duration_p90_ns: float
    duration_p99_ns: float
    duration_max_ns: float
    at_ns: tuple[int, ...]
    live: tuple[int, ...]
    by_turn: tuple[Turn, ...]


def sessions(records: Records, unreached: int = 0) -> Sessions | None:
    """What there is to say of a run's sessions; None: it has none."""
    found = spans(records)
    if found is None:
        return None
    status, done = records["status"][found.last], records["done_ns"][found.last]
    cut = np.isin(status, _CUT)
    ordered = ranked(found.duration_ns(records))
    p50, p90, p99 = (float(ordered[rank]) for rank in nearest(len(ordered), ("0.5", "0.9", "0.99")))
    started = records["sent_ns"][found.first] >= 0  # others never went on
    begun = records["due_ns"][found.first][started]
    ended = np.where(done >= 0, done, np.iinfo(np.int64).max)[started]
    at = np.linspace(0, int(max(begun.max(initial=1), done.max())), MOMENTS).astype(np.int64)
    live = np.searchsorted(np.sort(begun), at, side="right") - np.searchsorted(np.sort(ended), at, side="right")
    turn = np.asarray(records.labels.columns["turn"]) if records.labels is not None else begun
    measured = records.in_measure & (turn > 0)
    return Sessions(
        offered=len(found.first),
        started=int(started.sum()),
        finished=int((status == Status.OK).sum()),
        abandoned=int((~cut & (status != Status.OK)).sum()),
        cut=int(cut.sum()),
        turns=int(measured.sum()),
        turns_not_reached=unreached,
        duration_p50_ns=p50,
        duration_p90_ns=p90,
        duration_p99_ns=p99,
        duration_max_ns=float(ordered[len(ordered) - 1]),
        at_ns=tuple(at.tolist()),
        live=tuple(live.tolist()),
        by_turn=tuple(_turns(records, turn, measured)),
    )


def _turns(records: Records, turn: npt.NDArray[np.int64], measured: BoolArray) -> list[Turn]:
    found = []
    for number in range(1, min(int(turn.max()), TURNS + 1) + 1):
        later = number > TURNS
        rows = np.flatnonzero(measured & ((turn >= number) if later else (turn == number)))
        if not len(rows):
            continue
        ok, due = records.ok[rows], records["due_ns"][rows]
        token, done = records["first_token_ns"][rows], records["done_ns"][rows]
        heard = bool((ok & (token >= 0)).any())
        first = _pair(np.where(ok & (token >= 0), token - due, np.inf)) if heard else (None, None)
        last = _pair(np.where(ok, done - due, np.inf))
        found.append(Turn(number, later, len(rows), int((~ok).sum()), first[0], first[1], last[0], last[1]))
    return found


def _pair(values: FloatArray) -> tuple[float, float]:
    ordered = ranked(values)
    p50, p99 = (float(ordered[rank]) for rank in nearest(len(ordered), ("0.5", "0.99")))
    return p50, p99
