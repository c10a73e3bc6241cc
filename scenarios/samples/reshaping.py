"""A recording's requests at other times than it says, and more or fewer of them: always the same ones for one seed.

``spread``: the requests of one instant of a coarse clock are put at random times between it and the next one, in the
order of the file. ``load``: whole sessions again, or only some of them, and never a part of one. A copy is its session
under new ids, up to ``REACH_NS`` later, as if of users who are like the recorded ones and not in step with them: a busy
hour is multiplied, a burst of seconds is not. A file without sessions has trees instead: requests whose prompts share
more than ``share_tokens`` go together, and any other request is a session of one.

Rows come in order of time, in memory for one piece and for what a copy may be late.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from plimsoll.scenarios.plan.plan import BLOCK, IntArray
from plimsoll.scenarios.plan.seeds import child, mixed
from plimsoll.scenarios.samples.recording import Recording, Trace

#: So much later than its session a copy begins, at most, and never by more than a hundredth of the recording: so long
#: its load rises at first.
REACH_NS = 300_000_000_000
#: Tokens at the beginning of a prompt that copies share with what they are copies of, unless told otherwise: a block of
#: Mooncake's, which all requests of its conversations have.
SHARED_TOKENS = 512
#: Rows that are read at once, at most, where a copy may be later than those of a block last.
_MOST = 1 << 17
#: Gaps between instants that a clock's tick is taken from.
_GAPS = 1 << 20
FOREVER = 1 << 62


class Placed(NamedTuple):
    """Consecutive requests: the row of the recording that each is, which copy (0: the row itself), and when."""

    row: IntArray
    copy: IntArray
    at_ns: IntArray


@dataclass(frozen=True, slots=True)
class Shape:
    """What is done to a recording's requests. ``tick_ns``: of its clock, as ``clock`` finds it, for ``spread``."""

    load: float = 1.0
    spread: bool = False
    share_tokens: int = SHARED_TOKENS
    seed: int = 0
    tick_ns: int = field(default=0)

    @property
    def plain(self) -> bool:
        """Nothing is done."""
        return self.load == 1 and not self.spread

    @property
    def copies(self) -> int:
        """How many of each request there may be."""
        return math.ceil(self.load)


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a recording. ``grain_ns``: times are multiples of it, or come in ticks of about so much (``ticks``).

    ``instants``: how many different times there are.
    """

    grain_ns: int
    instants: int
    ticks: bool


def clock(recording: Recording) -> Clock:
    """One pass. Ticks: two or more requests at a time on average, and most gaps between times within 1 % of one
    length; irregular gaps would be bursts of the traffic's own.
    """
    grain, instants, last = 0, 1, 0
    gaps: list[IntArray] = []
    for begin in range(0, len(recording), BLOCK):
        at = recording.times(begin, begin + BLOCK)
        steps = np.diff(np.append(last, at))
        steps, last = steps[steps > 0], int(at[-1])
        grain, instants = int(np.gcd.reduce(np.append(steps, grain))), instants + len(steps)
        if sum(map(len, gaps)) < _GAPS:
            gaps.append(steps)
    known = np.concatenate(gaps)
    if len(known) and len(recording) >= 2 * instants:
        usual = int(np.median(known))
        if np.mean(np.abs(known - usual) <= usual // 100) >= 0.5:
            return Clock(usual, instants, ticks=True)
    return Clock(grain, instants, ticks=False)


def sessions(rows: Trace, begin: int, share_tokens: int, block_tokens: int) -> IntArray:
    """A number for each of these rows, the first of which is number ``begin``: those of one session have one."""
    own = ~np.arange(begin, begin + len(rows))
    if rows.session is not None:
        return np.where(rows.session >= 0, rows.session, own)
    if rows.blocks is None:
        return own
    depth = max(1, -(-share_tokens // block_tokens))  # what all have in common makes no tree
    found = (ids[depth] if len(ids) > depth else int(one) for ids, one in zip(rows.blocks, own, strict=True))
    return np.fromiter(found, np.int64, len(own))


def as_recorded(recording: Recording) -> Iterator[Placed]:
    """All of them, as they came; at 0 where nobody knows when."""
    for begin in range(0, len(recording), BLOCK):
        at = recording.times(begin, begin + BLOCK)
        at = at if recording.timed else np.zeros_like(at)
        yield Placed(np.arange(begin, begin + len(at)), np.zeros(len(at), np.int64), at)


def placed(recording: Recording, shape: Shape, begin_ns: int = 0, end_ns: int = FOREVER) -> Iterator[Placed]:
    """The requests from ``begin_ns`` to before ``end_ns``, by the times that they are put at."""
    reach = min(REACH_NS, recording.last_ns // 100) if shape.load > 1 else 0
    row = recording.before(begin_ns - reach - (shape.tick_ns if shape.spread else 0))
    held, block = Placed(*(np.empty(0, np.int64) for _ in Placed._fields)), BLOCK
    while row < len(recording):
        rows, next_ns = _whole_instants(recording, row, block)
        block = block if next_ns - int(rows.at_ns[0]) >= reach else min(2 * block, _MOST)
        at = _spread(rows.at_ns, next_ns, row, shape) if shape.spread else rows.at_ns
        parts = [held, *_copies(at, sessions(rows, row, shape.share_tokens, recording.block_tokens), row, reach, shape)]
        every = Placed(*map(np.concatenate, zip(*parts, strict=True)))
        every = _taken(every, np.lexsort((every.row, every.copy, every.at_ns)))
        row += len(rows)
        whole = int(np.searchsorted(every.at_ns, next_ns))  # nothing that is still to come is earlier
        held = _taken(every, slice(whole, None))
        ready = slice(
            int(np.searchsorted(every.at_ns, begin_ns)), min(whole, int(np.searchsorted(every.at_ns, end_ns)))
        )
        if ready.start < ready.stop:
            yield _taken(every, ready)
        if next_ns >= end_ns:
            return


def _taken(some: Placed, which: IntArray | slice) -> Placed:
    return Placed(*(column[which] for column in some))


def _whole_instants(recording: Recording, row: int, block: int) -> tuple[Trace, int]:
    """A block of rows from this one on, with all of its last instant, and when the next one is."""
    end = recording.before(int(recording.times(row, row + block)[-1]) + 1)
    return recording.rows(row, end), int(recording.times(end, end + 1)[0]) if end < len(recording) else FOREVER


def _spread(at_ns: IntArray, next_ns: int, row: int, shape: Shape) -> IntArray:
    instant, place = np.unique(at_ns, return_inverse=True)
    room = np.minimum(np.diff(np.append(instant, next_ns)), shape.tick_ns)[place]
    drawn = mixed(child(shape.seed, "spread"), np.arange(row, row + len(at_ns))) >> np.uint64(11)
    return np.sort(at_ns + (drawn.astype(np.float64) * 2.0**-53 * room).astype(np.int64))


def _copies(at_ns: IntArray, session: IntArray, row: int, reach: int, shape: Shape) -> Iterator[Placed]:
    rows = np.arange(row, row + len(at_ns))
    for copy in range(shape.copies):
        kept: slice | IntArray = slice(None)
        if copy + 1 > shape.load:  # the last: of some sessions
            drawn = mixed(child(shape.seed, "load", "some"), session) >> np.uint64(11)
            kept = np.flatnonzero(drawn.astype(np.float64) * 2.0**-53 < shape.load - copy)
        late = mixed(child(shape.seed, "load", str(copy)), session) % np.uint64(reach + 1) if copy else np.uint64(0)
        at = at_ns + np.asarray(late).astype(np.int64)
        yield Placed(rows[kept], np.full(len(rows), copy)[kept], at[kept])
