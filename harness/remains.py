"""What an earlier attempt left where a run is to be made: a whole run is taken as it is, anything less is put aside, not thrown away."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.rundir import Sealed, open_sealed


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
