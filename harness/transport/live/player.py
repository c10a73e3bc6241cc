"""A ``Player`` says one script's messages on absolute deadlines and notes how late each one left.

A late frame goes out at once and the next one keeps its own deadline, as with the buffer of a microphone; for servers
that refuse a burst, frames keep a least distance until they have caught up. The clock's one heap is the timer of all
sessions, because a sleeping task a session would cost more than its frames.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from plimsoll.harness.clock import Clock

#: How often the bytes that the peer has not taken are looked at, in ns: a system call of its own.
UNSENT_EVERY_NS = 1_000_000_000
#: So many frames leave in a row at most, then it is the other sessions' turn: a backlog of one must make no other late.
FRAMES_IN_A_ROW = 32


class Player:
    """Frames, then a closing. ``write(data)`` returns the stamp of the write; ``unsent()`` counts bytes not taken by
    the peer.

    ``frames[i]`` is due ``due_ns[i]`` after the start, ``closing_ns`` after it ``closing`` is written, as soon as the
    last frame is out. Of the frames from ``needed`` on none is sent once ``cut`` was called, and the closing comes at
    once. ``gap_ns[i]``, if given, is the least time between the writes of frames i - 1 and i. ``copies[i]``, if given,
    is how often frame i is written: 0 of one that a bad network loses (``lost`` counts them), 2 of one that comes
    ``twice``.
    """

    __slots__ = (
        "_clock",
        "_closing",
        "_closing_ns",
        "_copies",
        "_cut",
        "_due",
        "_frames",
        "_gap",
        "_looked_ns",
        "_needed",
        "_next",
        "_start_ns",
        "_unsent",
        "_write",
        "ended_ns",
        "finished",
        "lag_ns",
        "lost",
        "most_unsent",
        "stopped",
        "twice",
    )

    def __init__(
        self,
        clock: Clock,
        frames: Sequence[bytes],
        due_ns: Sequence[int],
        needed: int,
        closing: bytes,
        closing_ns: int,
        write: Callable[[bytes], int],
        unsent: Callable[[], int],
        gap_ns: Sequence[int] = (),
        copies: Sequence[int] = (),
    ) -> None:
        self._clock = clock
        self._frames = frames
        self._due = due_ns
        self._gap = gap_ns
        self._copies = copies
        self._needed = needed
        self._closing = closing
        self._closing_ns = closing_ns
        self._write = write
        self._unsent = unsent
        self._start_ns = 0
        self._looked_ns = 0
        self._next = 0
        self._cut = False
        self.ended_ns = -1  # when the input was over: as planned, or the moment it was cut
        self.finished = False
        self.stopped = False
        self.lag_ns = array("q")
        self.most_unsent = self.lost = self.twice = 0

    def start(self, start_ns: int) -> None:
        """Begin; deadlines count from ``start_ns`` (absolute)."""
        self._start_ns = self._looked_ns = start_ns
        self._wait()

    def cut(self) -> None:
        """Nobody needs the frames beyond the needed ones any more."""
        if not self._cut and not self.finished:
            self._cut = True
            if self._next >= self._needed:
                self._clock.wake_at(0, self._tick)

    def stop(self) -> None:
        """Say nothing more: the session is over."""
        self.stopped = True

    def _wait(self) -> None:
        due = self._due[self._next] if self._next < len(self._frames) else self._closing_ns
        self._clock.wake_at(self._start_ns + due, self._tick)

    def _tick(self) -> None:
        if self.stopped or self.finished:
            return
        write, lag_ns, start_ns = self._write, self.lag_ns, self._start_ns
        frames, dues = self._frames, self._due
        last = self._needed if self._cut else len(frames)
        i = self._next
        now = self._clock.now_ns()
        wait_ns = 0
        row_end = i + FRAMES_IN_A_ROW
        while i < last and start_ns + dues[i] <= now:
            if i == row_end:
                wait_ns = now
                break
            now = write(frames[i]) if not self._copies else self._repeated(i, now)
            lag_ns.append(now - start_ns - dues[i])
            i += 1
            if self._gap and i < last and start_ns + dues[i] < now + self._gap[i]:
                wait_ns = now + self._gap[i]  # late, and not allowed to make up for it at once
                break
        self._next = i
        if now - self._looked_ns > UNSENT_EVERY_NS:
            self._look(now)
        if wait_ns:
            self._clock.wake_at(wait_ns, self._tick)
        elif i < last:
            self._wait()
        elif self._cut or now >= start_ns + self._closing_ns:
            self._close(now)
        else:
            self._wait()

    def _repeated(self, i: int, now: int) -> int:
        """Write frame i as often as the network delivers it."""
        copies = self._copies[i]
        self.lost += copies == 0
        self.twice += copies == 2
        for _ in range(copies):
            now = self._write(self._frames[i])
        return now

    def _look(self, now: int) -> None:
        self._looked_ns = now
        self.most_unsent = max(self.most_unsent, self._unsent())

    def _close(self, now: int) -> None:
        self._look(now)
        self.finished = True
        self.ended_ns = now if self._cut else self._start_ns + self._closing_ns
        if self._closing:
            self._write(self._closing)
