"""Large numpy arrays on disk, so that what a process computes over a run is not limited by the machine's memory.

The compiled part (``scratch/scratch.c``) gives numpy its memory from files without a name, of which little is resident
at a time. Without it, or where no disk takes such files, arrays stay in memory: the figures are the same ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from pathlib import Path

#: Arrays of fewer bytes stay in memory.
LEAST = 4 << 20
#: So many bytes of large arrays stay in memory before others go to disk.
IN_MEMORY = 48 << 20
#: About so many bytes of those on disk are in memory at a time.
RESIDENT = 48 << 20


def on_disk(near: Path, in_memory: int = IN_MEMORY) -> Path | None:
    """Have large arrays that this thread makes from now on live on disk, in a temporary folder or in ``near``.

    Returns the folder; None: arrays stay in memory.
    """
    try:
        from plimsoll.harness.process import _scratch
    except ImportError:
        return None
    for folder in (Path(tempfile.gettempdir()), near, Path("/var/tmp")):
        with contextlib.suppress(OSError, ValueError):
            _scratch.install(os.fspath(folder.absolute()), LEAST, in_memory, RESIDENT)
            return folder
    return None


def let_go() -> None:
    """Give memory that was freed back to the system, after work in blocks: small arrays leave tens of MB behind."""
    with contextlib.suppress(OSError, AttributeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)
