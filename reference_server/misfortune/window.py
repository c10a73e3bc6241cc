"""When a fault acts: from an instant on, for a while, perhaps again and again. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Nanoseconds after an origin. ``for_ns`` of -1 is without end; ``every_ns`` of 0 is once."""

    at_ns: int = 0
    for_ns: int = -1
    every_ns: int = 0

    def open(self, since_ns: int) -> bool:
        """Does it act that long after the origin? At its start yes, at its end no."""
        into_ns = since_ns - self.at_ns
        if into_ns < 0:
            return False
        if self.for_ns < 0:
            return True
        return (into_ns % self.every_ns if self.every_ns > 0 else into_ns) < self.for_ns

    def next_edge(self, since_ns: int) -> int | None:
        """The next instant after ``since_ns`` at which it opens or closes; None when it never changes again."""
        into_ns = since_ns - self.at_ns
        if into_ns < 0:
            return self.at_ns
        if self.for_ns < 0 or 0 < self.every_ns <= self.for_ns:
            return None
        if self.every_ns <= 0:
            return self.at_ns + self.for_ns if into_ns < self.for_ns else None
        begun_ns = into_ns // self.every_ns * self.every_ns
        return self.at_ns + begun_ns + (self.for_ns if into_ns - begun_ns < self.for_ns else self.every_ns)
