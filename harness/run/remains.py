"""What an attempt left where a run is to be made: a whole run is taken as it is, anything less is put aside, not thrown away.

Also where a whole run goes that the machine spoiled, when it is made again in the same folder: ``attempts/1``, ``attempts/2`` ...
"""

from __future__ import annotations

import shutil
from pathlib import Path

from plimsoll.harness.run.earlier import ATTEMPTS
from plimsoll.harness.run.rundir import RunDirectory, Sealed, open_sealed


def made_before(out: Path, run: str) -> Sealed | None:
    """The whole run in the folder ``run`` of ``out``, of an attempt that was stopped too early to note it; None: make it.

    Raises HarnessFault for a run that is there but can't be opened.
    """
    folder = out / run
    if (folder / "manifest.json").is_file():
        sealed = open_sealed(folder)
        if not sealed.facts.interrupted:
            return sealed
    put_aside(out, run)
    return None


def put_aside(out: Path, run: str) -> None:
    """Move a run directory out of the way, to ``interrupted/`` in ``out``, where there is one."""
    folder = out / run
    if not folder.exists():
        return
    aside = out / "interrupted"
    aside.mkdir(exist_ok=True)
    number = sum(1 for _ in aside.glob(f"{folder.name}.*")) + 1
    shutil.move(folder, aside / f"{folder.name}.{number}")


def attempt_folder(directory: RunDirectory, number: int) -> RunDirectory:
    """Where an earlier attempt is kept."""
    return RunDirectory(directory.file(ATTEMPTS) / str(number))


def keep_attempt(directory: RunDirectory, number: int) -> None:
    """Move what an attempt left into the folder of attempts, and make room for the next. Raises OSError."""
    kept = attempt_folder(directory, number).path
    kept.mkdir(parents=True)
    for entry in _own(directory):
        entry.rename(kept / entry.name)
    directory.segments.mkdir()


def last_is_back(directory: RunDirectory, number: int) -> None:
    """Attempt ``number`` was the last that came to anything: it stands where a run's files are, and what a later one left lies beside."""
    if directory.segments.is_dir() and not any(directory.segments.iterdir()):
        directory.segments.rmdir()
    if _own(directory):
        keep_attempt(directory, number + 1)
        directory.segments.rmdir()
    kept = attempt_folder(directory, number).path
    for entry in list(kept.iterdir()):
        entry.rename(directory.path / entry.name)
    kept.rmdir()
    if not any(kept.parent.iterdir()):
        kept.parent.rmdir()


def _own(directory: RunDirectory) -> list[Path]:
    """Everything in a run directory but its earlier attempts."""
    return [entry for entry in directory.path.iterdir() if entry.name != ATTEMPTS]
