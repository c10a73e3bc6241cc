"""Interleaved execution: the same load to each arm in turn, round by round, so that drift of the host or of the network
falls on all of them alike.

Order and seeds are data, made before anything is sent: two arms go A B, B A, A B ...; with more, each pair of rounds is
an order and its reverse, and the order rotates from pair to pair. In a round all arms get the same seed, hence the same
schedule and payloads (common random numbers); nothing is sent or judged here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.series.ledger import Ledger
from plimsoll.scenarios.plan.seeds import child

SCHEMA = "plimsoll.interleave/1"
FILE = "interleave.json"
#: Whole numbers above this one are not exact in every JSON reader.
_SEED_BITS = 53
#: What must be the same for a run to go on where it was stopped. (More repeats may be asked for.)
_IDENTITY = ("scenario", "arms", "levels", "cooldown")

#: "skipped" is of a sweep alone: the run would have taught nothing, and ``error`` says why.
State = Literal["pending", "done", "unreachable", "skipped"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One run of the order. ``round`` counts from 1; ``level`` names one of several loads, empty when there is one."""

    number: int
    round: int
    level: str
    arm: str
    seed: int
    state: State = "pending"
    outcome: str = ""
    started_at: str = ""
    error: str = ""

    @property
    def folder(self) -> str:
        """Where its run directory is, below the comparison's own folder."""
        return f"runs/{self.number:03d}-{self.arm}" + (f"-{self.level}" if self.level else "")


@dataclass(frozen=True, slots=True)
class Interleaving:
    """What an ``interleave.json`` holds: what is compared, and what has become of each run. No secrets."""

    scenario: Mapping[str, Any]
    arms: tuple[Mapping[str, Any], ...]
    levels: tuple[Mapping[str, Any], ...]
    repeats: int
    cooldown: str
    slots: tuple[Slot, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The arms, in the order given; the first is the one that the others are compared with."""
        return tuple(str(arm["name"]) for arm in self.arms)

    def marked(self, slot: Slot) -> Interleaving:
        """With what has become of one run."""
        return replace(self, slots=tuple(slot if old.number == slot.number else old for old in self.slots))

    def pending(self) -> tuple[Slot, ...]:
        """Runs that are still to be made."""
        return tuple(slot for slot in self.slots if slot.state == "pending")


def order(arms: Sequence[str], repeats: int) -> list[tuple[str, ...]]:
    """The arms of each round in the order in which they run."""
    rounds: list[tuple[str, ...]] = []
    for number in range(repeats):
        turn = (number // 2) % len(arms)
        # Two arms need no rotation: order and reverse already put each as often first as second.
        forward = (*arms[turn:], *arms[:turn]) if len(arms) > 2 else tuple(arms)
        rounds.append(forward[::-1] if number % 2 else forward)
    return rounds


def round_seed(root: int, number: int) -> int:
    """The seed that every arm gets in a round."""
    return child(root, "interleave", str(number)) >> (64 - _SEED_BITS)


def slots(arms: Sequence[str], levels: Sequence[str], repeats: int, root: int) -> tuple[Slot, ...]:
    """Every run in order. In a round the levels go up, in the next one down; at each level every arm runs once."""
    made: list[Slot] = []
    for number, turn in enumerate(order(arms, repeats), 1):
        for level in levels if number % 2 else tuple(reversed(levels)):
            made += [
                Slot(len(made) + offset, number, level, arm, round_seed(root, number))
                for offset, arm in enumerate(turn, 1)
            ]
    return tuple(made)


def ledger(out: Path, whole: str = "comparison") -> Ledger:
    """The ledger of a folder; ``whole``: what messages call the session."""
    return Ledger(out, FILE, whole)


def save(out: Path, plan: Interleaving) -> None:
    """Write ``interleave.json``. Raises HarnessFault if it can't be written."""
    document = {"schema": SCHEMA, **asdict(plan)}
    document["runs"] = [{**asdict(slot), "folder": slot.folder} for slot in plan.slots]
    del document["slots"]
    ledger(out).save(document)


def read(out: Path) -> Interleaving:
    """The ``interleave.json`` of a folder. Raises HarnessFault if it is not whole, or of another version."""
    path = out / FILE
    if not path.is_file():
        raise HarnessFault(
            f"{out}: it holds no {FILE}. Give the --out of an interleaved comparison, a bake-off or a sweep"
        )
    try:
        document = json.loads(files.read_text(path, files.DATA))
        if document["schema"] != SCHEMA:
            raise HarnessFault(f"{path}: schema {document['schema']!r} is not {SCHEMA}. Use the version that wrote it")
        runs = [{key: value for key, value in run.items() if key != "folder"} for run in document["runs"]]
        found = Interleaving(
            scenario=document["scenario"],
            arms=tuple(document["arms"]),
            levels=tuple(document["levels"]),
            repeats=int(document["repeats"]),
            cooldown=str(document["cooldown"]),
            slots=tuple(Slot(**run) for run in runs),
        )
        labels = {str(level["label"]) for level in found.levels}
        if strange := next((s.number for s in found.slots if s.arm not in found.names or s.level not in labels), None):
            raise ValueError(f"run {strange} belongs to none of its arms and loads")
        return found
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise HarnessFault(
            f"{path}: it is damaged or from another version ({error!r}). Begin in a new folder"
        ) from None


def go_on(out: Path, wanted: Interleaving, resume: bool, whole: str = "comparison") -> Interleaving:
    """What is to be done in ``out``: everything, or with ``resume`` what an earlier attempt at the same left undone.

    Raises HarnessFault if the folder holds anything else; a finished run is never taken for a new one unasked.
    """
    book = ledger(out, whole)
    found = book.before(resume, lambda: read(out))
    if found is None:
        return wanted
    fewer = (
        [f"repeats: {found.repeats} there, {wanted.repeats} now. Fewer would drop runs that were made"]
        if wanted.repeats < found.repeats
        else []
    )
    made = f"{len(found.slots) - len(found.pending())} of {len(found.slots)} runs made. Add --resume to make the rest"
    there, here = ({key: getattr(one, key) for key in _IDENTITY} for one in (found, wanted))
    book.go_on(resume, made, there, here, fewer)
    slots = {slot.number: slot for slot in found.slots}
    return replace(wanted, slots=tuple(slots.get(slot.number, slot) for slot in wanted.slots))
