"""Standard output and error of our processes: a reader that goes away costs its own text and nothing else.

``install`` puts them in place once, where a process begins. From then on nothing that prints (``print``, rich, a
plug-in, a traceback) can fail for want of a reader, a terminal or room: the descriptor leads to nowhere and the work
goes on. Signs that the output's encoding lacks are spelt out.
"""

from __future__ import annotations

import codecs
import errno
import io
import locale
import os
import select
import sys
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

#: Columns of a result that goes to a file or a pipe, where nobody says (COLUMNS) or shows (a terminal on stderr)
#: another number.
WIDTH = 100
_SPELT_OUT = {
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "±": "+/-", "×": "x", "·": "-", "•": "*", "−": "-", "–": "-", "—": "-",
    "→": "->", "←": "<-", "∞": "inf", "√": "sqrt", "σ": "sigma", "µ": "u", "μ": "u", "°": "deg", "✓": "+", "✕": "x",
    "‘": "'", "’": "'", "“": '"', "”": '"', "█": "#", "▇": "#", "▁": "_", "│": "|", "─": "-", "━": "-",
    "▲": "^", "▼": "v", "≡": "=", "‖": "|", "⌀": "0",
}  # fmt: skip

_lost: list[OSError] = []


def install() -> None:
    """Make this process's output indestructible. A standard descriptor that is closed leads nowhere from then on."""
    for number in (0, 1, 2):  # in this order: the lowest free number is the one that is missing
        if not _is_open(number):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for before in (sys.stdout, sys.stderr):
        if before is not None:
            before.flush()
    sys.stdout, sys.stderr = (
        stream(number, getattr(before, "encoding", None)) for number, before in ((1, sys.stdout), (2, sys.stderr))
    )


def stream(number: int, encoding: str | None = None) -> io.TextIOWrapper:
    """Text to a descriptor, which is not closed with it. ``encoding``: None is the locale's."""
    pipe = _Pipe(number)
    return io.TextIOWrapper(
        io.BufferedWriter(pipe),
        encoding=encoding or locale.getpreferredencoding(False),
        errors="spelt-out",
        line_buffering=number == 2 or pipe.isatty(),
    )


def complete() -> bool:
    """Nothing that was printed was lost for want of room. A reader that had enough has lost nothing."""
    return not _lost


def console() -> Console:
    """What results are drawn on: as wide as the terminal, or as COLUMNS says, or as the terminal that shows stderr."""
    from rich.console import Console

    found = Console()
    if found.is_terminal:
        return found
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return Console(width=int(given))
    try:
        return Console(width=os.get_terminal_size(2).columns or WIDTH)
    except OSError:
        return Console(width=WIDTH)


def draw(result: Callable[[int], RenderableType]) -> None:
    """Print on stdout what ``result`` makes for so many columns."""
    drawn_on = console()
    with drawn_on.capture() as printed:
        drawn_on.print(result(drawn_on.width))
    say(printed.get())


def say(text: str) -> None:
    """Print it on stdout now."""
    sys.stdout.write(text)
    sys.stdout.flush()


def spelt_out(error: UnicodeError) -> tuple[str, int]:
    """An error handler of encoders: signs become words or letters that every encoding has."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_SPELT_OUT.get(sign) or _plain(sign) for sign in text), error.end


def _plain(sign: str) -> str:
    return unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode() or "?"


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


codecs.register_error("spelt-out", spelt_out)


class _Pipe(io.RawIOBase):
    """A descriptor that takes everything: from the first failure on it leads nowhere."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        while True:
            try:
                return os.write(self._number, data)
            except BlockingIOError:  # somebody who shares the terminal made it so
                select.select([], [self._number], [])
            except OSError as error:
                self._lose(error)
                return len(data)

    def _lose(self, error: OSError) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, self._number)
        os.close(nowhere)
        if self._number == 1 and error.errno != errno.EPIPE:
            _lost.append(error)
            print(f"warning: the result could not be printed ({error.strerror})", file=sys.stderr)
