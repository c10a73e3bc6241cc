"""How many requests a server works at: a number, or one that follows the latency of those it took. Pure: instants are
arguments.

It refuses to queue: a request beyond the limit is turned away at once, which is what makes it different from slots.
"""

from __future__ import annotations

from plimsoll.reference_server.values.durations import parse_duration_ns

WINDOW = 100
"""Answers that a decision is made of: the fewest that have a p99, of which one may be late."""
_FIRST = 20
_LESS = 0.9


class Limit:
    """With a target, additive increase and multiplicative decrease: after 100 answers one more if their p99 met it and
    the limit was reached, a tenth less if not. Only requests taken after the last decision have a say in the next.
    """

    def __init__(self, most: int = _FIRST, target_ns: int = 0) -> None:
        """Without ``target_ns`` it is ``most`` for ever."""
        self.most = most
        self.target_ns = target_ns
        self.n_taken = 0
        """Under way now."""
        self._since_ns = 0
        self._reached = False
        self._n = self._n_late = 0

    def take(self) -> bool:
        """Take a request; False: turn it away."""
        self._reached |= self.n_taken + 1 >= self.most
        if self.n_taken >= self.most:
            return False
        self.n_taken += 1
        return True

    def give(self, came_ns: int, now_ns: int) -> None:
        """A request that was taken at ``came_ns`` is over."""
        self.n_taken -= 1
        if not self.target_ns or came_ns < self._since_ns:
            return
        self._n += 1
        self._n_late += now_ns - came_ns > self.target_ns
        if self._n < WINDOW:
            return
        if self._n_late > WINDOW // 100:
            self.most = max(1, int(self.most * _LESS))
        elif self._reached:
            self.most += 1
        self._since_ns, self._n, self._n_late, self._reached = now_ns, 0, 0, False


def parse_limit(text: str) -> Limit | None:
    """``16``: so many; ``200ms``: as many as keep p99 within it; "": None. Raises ValueError for anything else."""
    if not text:
        return None
    made = Limit(int(text)) if text.isdecimal() else Limit(target_ns=parse_duration_ns(text))
    if made.most < 1 or (not text.isdecimal() and made.target_ns < 1):
        raise ValueError(f"{text!r} leaves no request. Write a whole number or a time, like 16 or 200ms")
    return made
