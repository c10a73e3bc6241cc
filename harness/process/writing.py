"""The only place that opens a file for writing: whole or not at all, never through a link. It reads ``--format`` too.

A file is made under a name that nobody can guess, exclusively, and renamed over its own: a reader sees the old one or
the new one, and a link that lies there is replaced, not followed. Logs, which grow, follow no link either.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import json
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, BinaryIO

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process import outlet
from plimsoll.slo.metrics.plugin import PluginError

#: What stands for standard output where a file can be named, and all that is taken for it.
STDOUT = Path("-")
_ON_STDOUT = (str(STDOUT), "/dev/stdout")
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
            # Some disks sync no folders, some folders aren't ours.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
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


def result(path: Path, made: bytes | Callable[[], bytes], remedy: str, *, named: bool = True) -> bool:
    """Write a result: "-" is stdout; a name that ends in ``.gz`` has it compressed. False, and a warning that ends with
    ``remedy``, where it can't be, or an error where the format of an outside package fails. ``named``: as ``whole`` has
    it.

    A full disk costs the new file, not an older one, nor the results that are still to be written.
    """
    try:
        data = made() if callable(made) else made
        if path.suffix == ".gz":
            data = gzip.compress(data, mtime=0)
        if path == STDOUT:
            sys.stdout.write(data.decode("utf-8", "replace"))
            sys.stdout.flush()
            return outlet.complete()
        whole(path, data, named=named)
    except OSError as error:
        print(f"warning: {path} could not be written ({error.strerror}); {remedy}", file=sys.stderr)
        return False
    except PluginError as error:
        print(f"error: {path}: {error}", file=sys.stderr)
        return False
    return True


@dataclass(frozen=True, slots=True)
class Output:
    """One ``--format F=PATH``: what makes the bytes, and the file that takes them (``STDOUT``: standard output)."""

    render: Callable[..., bytes]
    path: Path


def formats_of(
    texts: Sequence[str],
    known: Mapping[str, Callable[..., bytes]],
    of: str = "",
    unusable: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[Output, ...], list[str]]:
    """``F=PATH`` pairs, and every error in them. Each file is tried now, so that a bad path fails before the run.

    ``known``: the formats of the document in question, which is ``of`` in words; ``unusable``: why some can't be used.
    """
    found: list[Output] = []
    errors: list[str] = []
    for text in texts:
        name, _, path = text.partition("=")
        if name in unusable:
            errors.append(f"--format {text}: {unusable[name]}")
            continue
        if name not in known or not path:
            what = f"{name!r} is no format{of and f' of {of}'}" if name not in known else "no file name"
            errors.append(f"--format {text}: {what}. Write F=PATH, with F one of {', '.join(sorted(known))}")
            continue
        if path in _ON_STDOUT:  # opening it by name would truncate a file that stdout was sent to
            found.append(Output(known[name], STDOUT))
            continue
        try:
            check(Path(path))
            found.append(Output(known[name], Path(path)))
        except OSError as error:
            errors.append(f"--format {text}: {path} cannot be written ({error.strerror}). Name another file")
    return tuple(found), errors


def one_on_stdout(format_texts: Sequence[str], as_json: bool, quiet: bool = False) -> list[str]:
    """What is wrong with where the results go: standard output holds one document that a program reads."""
    there = [text for text in format_texts if text.partition("=")[2] in _ON_STDOUT]
    if len(there) + as_json + quiet > 1:
        what = [
            *(["--json"] if as_json else []),
            *(["--quiet"] if quiet else []),
            *(f"--format {text}" for text in there),
        ]
        return [f"{' and '.join(what)}: all go to standard output. Give all but one a file"]
    return []


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
        with contextlib.suppress(OSError):  # not every disk knows locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield partial, file
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Remove what writers left in ``folder`` when they were killed: half files that nobody holds any more."""
    for path in folder.glob(f"*.{'[0-9a-f]' * 16}.partial"):
        with contextlib.suppress(OSError), files.opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


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
