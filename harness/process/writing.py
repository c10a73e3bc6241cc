"""Every file that Plimsoll writes, and the only place that opens one for writing: whole or not at all, never through a
link.

A file is made under a name that nobody can guess, exclusively, and renamed over its own: whoever reads sees the old one
or the new one, and a link that lies where we write is replaced, not followed. Logs, which grow, follow no link either.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import IO, Any, BinaryIO

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process import outlet

#: What stands for standard output where a file can be named.
STDOUT = Path("-")
_OURS = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: Names in here are devices, pipes and open descriptors: nothing can be renamed over them.
_NO_FOLDERS = ("/dev/fd/", "/proc/", "/dev/std")


def whole(
    path: Path, content: bytes | Callable[[IO[bytes]], object], *, sync: bool = False, named: bool = False
) -> None:
    """Write a file whole or not at all; ``content`` is its bytes, or writes them. A device or descriptor is written as
    it is, a pipe only if it was the user who ``named`` it: one that somebody put under a name of ours is replaced, for
    opening it may wait for ever.

    ``sync``: on disk when this returns. Raises OSError, and leaves nothing behind then.
    """
    if _is_stream(path, named):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), "wb") as file:
            _fill(file, content)
        return
    try:
        with _beside(path) as (partial, file):
            _fill(file, content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
            file.close()
            partial.replace(path)
    except OSError as error:
        error.filename = str(path)  # the kernel names no file that it can't write into
        raise


def settle(folder: Path) -> None:
    """What lies in a folder, and the folder itself, is on disk when this returns. Raises OSError."""
    for path in (*filter(Path.is_file, folder.iterdir()), folder, folder.parent):
        try:
            held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(held)
            finally:
                os.close(held)
        except OSError as error:
            if error.errno not in (
                errno.EINVAL,
                errno.ENOTSUP,
                errno.EACCES,
            ):  # some disks sync no folders, some folders aren't ours
                raise


def over(path: Path, at: int, data: bytes) -> None:
    """Write over a few bytes within a file of ours, so that it is as long as before. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(file, data, at)
    finally:
        os.close(file)


def write_json(path: Path, value: Any) -> None:
    """JSON on disk, whole or not at all. Raises OSError, and ValueError for what JSON can't say."""
    whole(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def result(path: Path, data: bytes, remedy: str, *, named: bool = True) -> bool:
    """Write a result that exists in memory: "-" is stdout. False, and a warning that ends with ``remedy``, where it
    can't be. ``named``: as ``whole`` has it.

    A full disk costs the new file, not an older one, nor the results that are still to be written.
    """
    try:
        if path == STDOUT:
            sys.stdout.write(data.decode("utf-8", "replace"))
            sys.stdout.flush()
            return outlet.complete()
        whole(path, data, named=named)
    except OSError as error:
        print(f"warning: {path} could not be written ({error.strerror}); {remedy}", file=sys.stderr)
        return False
    return True


def no_room(error: OSError, folder: Path, remedy: str) -> HarnessFault:
    """A fault that ends with ``remedy``, for an error of a session's own folder. Raises any other error again."""
    name = str(error.filename or "")
    if not name.startswith((str(folder), str(folder.absolute()))):
        raise error
    return HarnessFault(f"--out: {name} cannot be written ({error.strerror}). {remedy}")


def new(path: Path, text: str) -> None:
    """Write a file that is not there yet. Raises FileExistsError, or another OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_EXCL | _OURS, 0o666), "w", encoding="utf-8") as file:
        file.write(text)


def log(path: Path) -> FileIO:
    """Open a file that grows, at its end; unbuffered, so that what is written is there. Raises HarnessFault."""
    try:  # O_NONBLOCK: a pipe that nobody reads is refused, and waited for it would be for ever
        return FileIO(str(path), "ab", opener=lambda name, flags: os.open(name, flags | _OURS | os.O_NONBLOCK, 0o666))
    except OSError as error:
        raise HarnessFault(
            f"{path} cannot be written ({error.strerror}). Make room there, or name another folder"
        ) from None


def check(path: Path) -> None:
    """Raise OSError if ``whole`` could not write there. Leaves nothing behind."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not _is_stream(path, True):
        with _beside(path):
            return
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def tail(path: Path, characters: int = 800) -> str:
    """The end of a log on one line; "" if it holds nothing or can't be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * characters))  # it may be of gigabytes
            said = " ".join(file.read(4 * characters).decode("utf-8", "replace").split())
    except OSError:
        return ""
    return said if len(said) <= characters else "... " + said[-characters:]


@contextmanager
def _beside(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside ``path``, gone at the end if it is still there."""
    name = os.fsdecode(os.fsencode(path.name)[:200])  # a name has at most 255 bytes
    partial = path.with_name(f"{name}.{secrets.token_hex(8)}.partial")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_EXCL | _OURS, 0o666), "wb") as file:
        try:
            yield partial, file
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def _fill(file: BinaryIO, content: bytes | Callable[[IO[bytes]], object]) -> None:
    if callable(content):
        content(file)
    else:
        file.write(content)


def _is_stream(path: Path, pipes: bool) -> bool:
    """A device, open descriptor or, with ``pipes``, a pipe by its own name. A link to one is only a link."""
    if str(path).startswith(_NO_FOLDERS):
        return True
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or (pipes and stat.S_ISFIFO(mode))
