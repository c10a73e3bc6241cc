"""The sending end of an agent's sealed files: in pieces, a few on their way at a time, each file once more if it came damaged.

A file counts as handed over when the master says that it has it; until then it is on this host's disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plimsoll.harness.distributed.fleet_messages import WINDOW
from plimsoll.harness.distributed.pieces import cut


class Courier:
    """Sends files over ``say``; ``heard`` takes the master's ``taken`` and ``again``."""

    def __init__(self, say: Callable[[Mapping[str, Any]], None]) -> None:
        self._say = say
        self._window = asyncio.Semaphore(WINDOW)
        self._open: dict[str, Path | bytes] = {}
        self._resend: asyncio.Queue[str] = asyncio.Queue()
        self._changed = asyncio.Event()
        self.sent: set[str] = set()
        #: Files that the master would not take.
        self.rejected: list[str] = []

    async def send(self, name: str, content: Path | bytes) -> None:
        """Send one file; returns when its last piece has left. Raises OSError if it can't be read."""
        self.sent.add(name)
        self._open[name] = content
        await self._pass(name)
        while not self._resend.empty():
            await self._pass(self._resend.get_nowait())

    async def _pass(self, name: str) -> None:
        content = self._open[name]
        data = content if isinstance(content, bytes) else content.read_bytes()
        for piece in cut(name, data):
            await self._window.acquire()
            self._say(piece)

    def heard(self, message: Mapping[str, Any]) -> None:
        """The master's answer to a piece."""
        name = str(message["file"])
        self._window.release()
        if message["type"] == "again":
            self._resend.put_nowait(name)
        elif message["whole"]:
            self._open.pop(name, None)
            if not message["good"]:
                self.rejected.append(name)
        self._changed.set()

    async def settled(self) -> None:
        """Wait until the master has said of every file what became of it."""
        while self._open:
            self._changed.clear()
            while not self._resend.empty():
                await self._pass(self._resend.get_nowait())
            if self._open:
                await self._changed.wait()
