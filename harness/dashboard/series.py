"""The live page of a verb that makes many runs: one page at one address, which shows the run that is going on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

from harness.dashboard.place import Place
from harness.job import Prepared
from harness.watcher import Watcher


class Series:
    """``place``: None for no page. A free port is chosen by the first run and kept for the others."""

    def __init__(self, place: Place | None) -> None:
        self._place = place

    @contextmanager
    def watching(self, prepared: Prepared) -> Iterator[tuple[Watcher, ...]]:
        """The watchers of one run; judge it inside, so that the page has its verdict. The address is free again after that."""
        if self._place is None:
            yield ()
            return
        from harness.dashboard.watcher import watcher  # loads a server

        view = watcher(self._place, prepared)
        try:
            yield (view,)
        finally:
            view.stop()
            if view.url:
                self._place = replace(self._place, port=urlsplit(view.url).port or self._place.port)
