"""Files that somebody names: regular files up to a size, and nothing that could wait or go on for ever.

A pipe, a device, a socket or a folder is an ``OSError`` whose ``strerror`` says so, before a byte of it is read, and so
is a file that is larger than what it is taken for. Callers say where the name stood and what to do.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path
from typing import BinaryIO

#: What a person writes by hand (scenarios, objectives, bake-offs), and what programs write for them, in bytes.
WRITTEN = 1 << 20
DATA = 1 << 30
#: A pipe that a secret comes through (``--api-key-file <(pass show key)``) is waited for so long, in seconds.
PATIENCE_S = 10.0

_KINDS = (
    (stat.S_ISDIR, errno.EISDIR, "it is a folder, not a file"),
    (stat.S_ISFIFO, errno.ESPIPE, "it is a pipe, not a file: save what comes out of it first"),
    (stat.S_ISSOCK, errno.ENXIO, "it is a socket, not a file"),
    (stat.S_ISCHR, errno.ENODEV, "it is a device, not a file"),
    (stat.S_ISBLK, errno.ENODEV, "it is a device, not a file"),
)


def opened(path: Path, *, pipe: bool = False) -> BinaryIO:
    """The regular file at ``path`` (with ``pipe`` also a pipe, not waiting for it), to be closed. Raises OSError."""
    _refuse(path, path.stat().st_mode, pipe)
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse(path, os.fstat(file).st_mode, pipe)  # of what was opened, whatever was there a moment ago
    except OSError:
        os.close(file)
        raise
    return os.fdopen(file, "rb")


def _refuse(path: Path, mode: int, pipe: bool) -> None:
    for is_kind, number, what in _KINDS:
        if is_kind(mode) and not (pipe and is_kind is stat.S_ISFIFO):
            raise OSError(number, what, str(path))


def read_bytes(path: Path, most: int = DATA, *, pipe: bool = False) -> bytes:
    """All of a regular file of at most ``most`` bytes; with ``pipe`` also of a pipe that ends soon. Raises OSError."""
    with opened(path, pipe=pipe) as file:
        found = os.fstat(file.fileno())
        if stat.S_ISFIFO(found.st_mode):
            data = _from_pipe(file.fileno(), most, path)
        else:
            data = file.read(min(most, found.st_size) + 1)  # room is made for all of it at once, and for no more
            while len(data) <= most and (more := file.read(min(1 << 20, most + 1 - len(data)))):
                data += more  # it has grown, or is one of /proc, which have no size
    if len(data) > most:
        size = f"{most >> 20:,} MiB" if most >= 1 << 20 else f"{most >> 10:,} KiB"
        raise OSError(
            errno.EFBIG, f"it is larger than {size}, which is the most that is read of such a file", str(path)
        )
    return data


def read_text(path: Path, most: int = WRITTEN, *, pipe: bool = False) -> str:
    """As ``read_bytes``, for text. Raises OSError, UnicodeDecodeError."""
    return read_bytes(path, most, pipe=pipe).decode("utf-8-sig")


def _from_pipe(file: int, most: int, path: Path) -> bytes:
    """What comes through a pipe until its last writer is gone."""
    data = bytearray()
    until = time.monotonic() + PATIENCE_S
    ready = select.poll()
    ready.register(file, select.POLLIN)
    while len(data) <= most:
        try:
            part = os.read(file, 1 << 16)
        except BlockingIOError:
            part = None
        if part:
            data += part
            continue
        if part == b"" and data:
            return bytes(data)  # no writer is left; before the first byte it may be that none has come yet
        left = until - time.monotonic()
        events = ready.poll(min(max(left, 0) * 1000, 100)) if left > 0 else []
        if left <= 0:
            raise OSError(errno.ETIMEDOUT, f"nothing more came through this pipe for {PATIENCE_S:g} s", str(path))
        # With POLLIN a writer has come and gone since we read: what it wrote is there.
        if part == b"" and any(happened & (select.POLLHUP | select.POLLIN) == select.POLLHUP for _, happened in events):
            return bytes(data)
    return bytes(data)


def why(error: OSError | UnicodeDecodeError) -> str:
    """What kept a file from being read, in a few words."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is not UTF-8 text"
    return error.strerror or str(error)
