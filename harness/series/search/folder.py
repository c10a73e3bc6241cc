"""A search's folder: begun, or gone on with where it is the same search. Nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process.writing import write_json
from plimsoll.harness.run.remains import put_aside
from plimsoll.harness.series.comparison.interleave import differences
from plimsoll.harness.series.search import answer
from plimsoll.harness.series.search.probe import folder_of
from plimsoll.harness.series.search.question import Question
from plimsoll.reports.search.search_parts import ProbePart, SearchReport

FILE = "search.json"
#: What to do where it can't be written.
REMEDY = "Make room, or name a folder that you may write; --resume then goes on"
#: What says nothing of the endpoint is tried again, with all that followed from it: the reason may be gone.
_AGAIN = ("UNREACHABLE", "INVALID")


@dataclass(frozen=True, slots=True)
class Before:
    """What earlier attempts left: their probes in order, the time they took, and when the first began ("": now)."""

    probes: tuple[ProbePart, ...] = ()
    spent_ns: int = 0
    started_at: str = ""


def begin(out: Path, question: Question, resume: bool) -> Before:
    """What to go on from. Raises HarnessFault if the folder holds anything else; a finished probe is never taken unasked."""
    path = out / FILE
    if not path.is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise HarnessFault(f"--out: {out} is not empty. Name a new folder, or delete that one")
        if resume:
            raise HarnessFault(f"--resume: {out} holds no {FILE}. Leave --resume out to begin")
        return Before()
    found = answer.read(path)
    if strange := next((part.run for part in found.probes if part.run != folder_of(part)), None):
        raise HarnessFault(f"{path}: damaged ({strange!r} is no folder of a probe). Search into a new folder")
    if not resume:
        raise HarnessFault(
            f"--out: {out} holds a search with {len(found.probes)} probes. Add --resume to go on, or name a new folder"
        )
    if differing := _differences(found.question, question.identity):
        raise HarnessFault(
            [f"--resume: {out}: {text}" for text in differing]
            + [f"--resume: {out} is another search. Give what it was begun with, or name a new folder"]
        )
    kept = list(found.probes)
    end = _limit(kept) if found.outcome == "INVALID" else len(kept)
    while len(kept) > end or (kept and kept[-1].outcome in _AGAIN):
        put_aside(out, kept.pop().run)
    return Before(tuple(kept), found.spent_ns, found.started_at)


def _limit(probes: Sequence[ProbePart]) -> int:
    """Where the generator met its limit: the first probe of those at a load whose last one was INVALID."""
    last = {part.load: part.outcome for part in probes}
    found = (place for place, part in enumerate(probes) if part.outcome == last[part.load] == "INVALID")
    return next(found, len(probes))


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    was, now = dict(there), json.loads(json.dumps(here))
    return [f"{path}: {old!r} there, {new!r} now" for path, old, new in differences(was, now)]


def save(out: Path, report: SearchReport) -> None:
    """Write ``search.json``, whole or not at all. Raises HarnessFault if it can't be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / FILE, report.document())
    except OSError as error:
        raise HarnessFault(f"--out: cannot write {out / FILE} ({error.strerror}). {REMEDY}") from None
