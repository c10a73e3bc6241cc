"""Clip: one recording as a sample of a speech run, with what is truly in it. Pure; it plays and sends nothing.

A source of audio puts a clip into ``Payload.data["clip"]``. The truth (when speech begins and ends, which words, when
each is over) comes from labels or from an offline detector, never from the server that is measured.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Word:
    """One word and when it is spoken, in ns from the clip's first sample."""

    text: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """Mono audio with its labels; equal to a clip of the same samples and the same labels.

    ``pcm`` int16[n] at ``rate`` samples a second; ``onset_ns`` and ``offset_ns`` are where speech begins and ends (-1:
    no speech, or not known), ``transcript`` what is said (None: not known), ``words`` each word's span (empty: not
    known), ``slice`` the name of the condition that it was made under ("": none), ``labels`` where the truth comes
    from: "synthetic", "labels", "vad" or "" (none). Raises ValueError for another dtype or shape, or a rate below 1.
    """

    pcm: npt.NDArray[np.int16]
    rate: int
    onset_ns: int = -1
    offset_ns: int = -1
    transcript: str | None = None
    words: tuple[Word, ...] = ()
    slice: str = ""
    labels: str = ""

    def __post_init__(self) -> None:
        if self.pcm.dtype != np.int16 or self.pcm.ndim != 1:
            raise ValueError(f"a clip is int16 and mono; this is {self.pcm.dtype} with {self.pcm.ndim} dimensions")
        if self.rate < 1:
            raise ValueError(f"a clip of {self.rate} samples a second. Give a rate from 1 up")

    @property
    def duration_ns(self) -> int:
        """Playing time, rounded to the nearest ns."""
        return (len(self.pcm) * NS + self.rate // 2) // self.rate

    def __eq__(self, other: object) -> bool:
        # The one that dataclasses make would ask an array for its truth value.
        if not isinstance(other, Clip):
            return NotImplemented
        return self._labels() == other._labels() and np.array_equal(self.pcm, other.pcm)

    def __hash__(self) -> int:
        return hash((self._labels(), len(self.pcm)))

    def _labels(self) -> tuple[object, ...]:
        return (self.rate, self.onset_ns, self.offset_ns, self.transcript, self.words, self.slice, self.labels)
