"""Ctrl-C at any moment ends a command with its own exit code and one line.

A library may swallow an interrupt that is raised while it is imported, or make a broken import of it. So one that comes
then is raised where the next import begins, again if it is swallowed there, and after five seconds wherever it is.
"""

from __future__ import annotations

import atexit
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Never, TypeVar

Result = TypeVar("Result")

_PAUSE_S, _PAUSES = 0.25, 20


class _NextImport:
    """A finder of modules that raises the interrupt instead, once."""

    def find_spec(self, *_: object) -> Never:
        sys.meta_path.remove(self)
        raise KeyboardInterrupt


def install() -> None:
    """Make interrupts wait for imports, once, where a process begins."""
    pauses = iter(range(_PAUSES))

    def interrupted(number: int, frame: FrameType | None) -> None:
        while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        if frame is None or next(pauses, None) is None:
            settle()
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, _PAUSE_S)
        if not any(isinstance(finder, _NextImport) for finder in sys.meta_path):
            sys.meta_path.insert(0, _NextImport())

    signal.signal(signal.SIGALRM, interrupted)
    atexit.register(settle)  # Python has given the signal back by the time the process ends: it would be killed
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as under nohup
        signal.signal(signal.SIGINT, interrupted)


def settle() -> None:
    """The interrupt has arrived: it is not raised again."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _NextImport)]


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """``asyncio.run``, which cancels what it runs at the first interrupt: for that it asks for Python's own handler."""
    import asyncio

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, before)
