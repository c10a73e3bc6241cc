"""A text on its way to be spoken, as words that are whole. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.reference_server.frontends.websocket.speech_models import sayable


class SpokenWords:
    """A text model's tokens as the words that will be heard, each as soon as it is whole."""

    def __init__(self) -> None:
        self._open = ""

    def feed(self, text: str) -> list[str]:
        """Words that are whole now."""
        *whole, self._open = (self._open + text).split(" ")
        return self._said(whole)

    def flush(self) -> list[str]:
        """The last one, if any."""
        rest, self._open = self._open, ""
        return self._said([rest])

    @staticmethod
    def _said(whole: Sequence[str]) -> list[str]:
        return [word for given in whole for word in sayable(given).split()]
