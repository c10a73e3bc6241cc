"""How we start a process of ours: with our modules, and with nothing that lies in the current directory.

``python -m`` puts the current directory before the standard library, so a user's ``json.py`` would run in our workers.
Entry points, PYTHONPATH and installed packages are found as ever.
"""

from __future__ import annotations

import asyncio
import signal
import site
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault

#: How the ``death`` of a process begins that ended itself.
ENDED = "ended with exit code"
_ROOT = Path(__file__).absolute().parents[__name__.count(".")]
#: For a copy of ours that is not installed (a checkout): only who starts it knows where it is.
_FROM_ROOT = (
    "import runpy, sys; _, root, name, *rest = sys.argv; sys.path.insert(0, root); sys.argv[1:] = rest; "
    "runpy.run_module(name, run_name='__main__', alter_sys=True)"
)


def command(module: str, *arguments: str) -> list[str]:
    """The command line of ``python -m module`` for a module of ours."""
    safe = [sys.executable, "-P"]
    if str(_ROOT) in map(_real, (*site.getsitepackages(), site.getusersitepackages())):
        return [*safe, "-m", module, *arguments]
    return [*safe, "-c", _FROM_ROOT, str(_ROOT), module, *arguments]


async def begin(words: Sequence[str], **how: Any) -> asyncio.subprocess.Process:
    """Start it, as asyncio does. Raises HarnessFault where this host has no room for one more process."""
    try:
        return await asyncio.create_subprocess_exec(*words, **how)
    except OSError as error:
        raise _no_room(error) from None


def piped(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """The same without a loop, with pipes to it and from it. Linux shares cores by session: it has one of its own."""
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(words, stdin=pipe, stdout=pipe, start_new_session=True)
    except OSError as error:
        raise _no_room(error) from None


def death(code: int) -> str:
    """How a process ended, after its name."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"{ENDED} {code}"


def _no_room(error: OSError) -> HarnessFault:
    return HarnessFault(
        f"a process of ours could not be started ({error.strerror}): nothing was sent. Free memory, processes "
        "(ulimit -u, the container's pids limit) or open files (ulimit -n) on this host, or use fewer --workers"
    )


def _real(path: str) -> str:
    return str(Path(path).resolve())
