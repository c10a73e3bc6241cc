"""The live page of a verb that makes many runs: one page at one address, which shows the run that is going on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from plimsoll.harness.live.place import Place
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.watcher import Watcher

if TYPE_CHECKING:
    from plimsoll.harness.live.live_view import LiveView


class Series:
    """``place``: None for no page. A free port is chosen by the first run and kept for the others."""

    def __init__(self, place: Place | None) -> None:
        self._place = place
        self._view: LiveView | None = None

    @contextmanager
    def watching(self, prepared: Prepared) -> Iterator[tuple[Watcher, ...]]:
        """The watchers of one run; judge it inside, so that the page has its verdict. The address is free again after that."""
        try:
            yield self.begin(prepared)
        finally:
            self.end()

    def begin(self, prepared: Prepared) -> tuple[Watcher, ...]:
        """The watchers of one run. Without ``end`` the page goes on until its verdict was shown."""
        if self._place is None:
            return ()
        from plimsoll.harness.live.live_view import watcher  # loads a server

        self._view = watcher(self._place, prepared)
        return (self._view,)

    def end(self) -> None:
        """The page of the run that was begun is over, and its address is kept for the next one's."""
        view, self._view = self._view, None
        if view is None or self._place is None:
            return
        view.stop()
        if view.url:
            self._place = replace(self._place, port=urlsplit(view.url).port or self._place.port)
