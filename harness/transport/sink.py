"""Sink: who is told what happens on a stream. It reads and writes nothing itself."""

from __future__ import annotations

from typing import Protocol


class Sink(Protocol):
    """Who is told what happens on a stream. All calls come from the loop's thread."""

    def on_open(self, t_ns: int) -> None:
        """Connected (and the TLS handshake is done)."""
        ...

    def on_data(self, data: memoryview | bytes, t_ns: int, kernel: bool) -> None:
        """Bytes arrived. ``data`` is only valid during the call."""
        ...

    def on_lost(self, reason: str, t_ns: int, connected: bool) -> None:
        """The connection is over: ``reason`` is "" for an orderly end of stream, else the error. Called once."""
        ...


class _Closed:
    """The sink of a closed stream: hears nothing, because nothing is said."""

    __slots__ = ()

    def on_open(self, t_ns: int) -> None: ...

    def on_data(self, data: memoryview | bytes, t_ns: int, kernel: bool) -> None: ...

    def on_lost(self, reason: str, t_ns: int, connected: bool) -> None: ...


CLOSED: Sink = _Closed()
