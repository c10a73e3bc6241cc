"""The words of an utterance as they become certain, for those who can't take back what they sent. Pure.

A partial transcript may still change. So a word counts as certain once two partials agree on it and another one has followed.
"""

from __future__ import annotations

from collections.abc import Sequence


class CertainWords:
    """The words of one utterance, told once each. What ``feed`` and ``end`` return, joined, is a prefix of the final transcript unless a word was
    revised after two partials had agreed on it; then nothing more is told.
    """

    def __init__(self) -> None:
        self._before: list[str] = []
        self._told: list[str] = []

    def feed(self, partial: Sequence[str]) -> list[str]:
        """The words that have become certain with this partial."""
        agreed = 0
        while agreed < min(len(self._before), len(partial) - 1) and self._before[agreed] == partial[agreed]:
            agreed += 1
        self._before = list(partial)
        return self._tell(partial[:agreed])

    def end(self, final: Sequence[str]) -> list[str]:
        """The words that are left."""
        return self._tell(final)

    def delta(self, words: Sequence[str]) -> str:
        """What was just told, as text to be appended."""
        return " ".join(words) if len(self._told) == len(words) else "".join(f" {word}" for word in words)

    def _tell(self, certain: Sequence[str]) -> list[str]:
        n_told = len(self._told)
        if list(certain[:n_told]) != self._told:
            return []
        fresh = list(certain[n_told:])
        self._told += fresh
        return fresh
