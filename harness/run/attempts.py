"""Whether a run is made again: only where the machine spoiled it, never for what the endpoint or the user did.

A run that is INVALID by the generator alone says nothing of the endpoint, so making it again picks no result. It has
the same seed, hence the same schedule and payloads: the same experiment, not another one. A PASS, a FAIL and an
INCONCLUSIVE are results, and so is an INVALID that the endpoint caused; whoever stopped a run does not want it again.
Nothing is sent here.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.rundir import ATTEMPTS, RunDirectory, Sealed, open_sealed
from plimsoll.reports.report import Report


def spoiled(report: Report) -> bool:
    """INVALID, and nobody but the generator had a part in it (``plimsoll.slo.validity.generator.Check.cause``)."""
    broken = [check for check in report.validity.checks if not check.ok]
    return report.verdict.outcome == "INVALID" and all(check.cause == "generator" for check in broken)


def as_noted(earlier: Sequence[Report]) -> list[dict[str, Any]]:
    """Earlier attempts as the manifest of the next one keeps them; ``plimsoll.reports.parts.provenance`` reads it."""
    return [
        {"number": number, "outcome": report.verdict.outcome, "reasons": list(report.verdict.reasons)}
        for number, report in enumerate(earlier, 1)
    ]


def could_not_begin(fault: HarnessFault | KeyboardInterrupt) -> str:
    """Why a later attempt could not, without the claim that nothing was sent: an earlier attempt did send."""
    if isinstance(fault, KeyboardInterrupt):
        return "interrupted"
    claims = (" Nothing was sent.", ": nothing was sent", ". Nothing was sent")
    texts = list(fault.errors)
    for claim in claims:
        texts = [text.replace(claim, "") for text in texts]
    return "; ".join(texts)


def made_before(out: Path, run: str) -> Sealed | None:
    """The whole run in the folder ``run`` of ``out``, of an attempt that was stopped too early to note it; None: make
    it.

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
    """Put attempt ``number`` back where a run's files are; what a later one left lies beside."""
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
