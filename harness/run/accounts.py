"""What workers say that they sent and recorded, held against the rows that came: at sealing, and whenever a run is
opened again.

A worker's ``account`` comes with its last message: ``sent`` requests, ``rows`` recorded, the ``digest`` of them
(``slo/validity/accounts.py``) and, of rows in files, ``segments`` written and the numbers of those that no disk took.
What is missing or too much is said by its cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from plimsoll.harness.generator.segments import segment_name
from plimsoll.harness.run.workforce import Member
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.slo.records.records import Phase, Records, Status
from plimsoll.slo.validity import accounts
from plimsoll.slo.validity.generator import GeneratorFacts

_SHOWN = 3
#: A worker cuts one every 0.7 s, or every 20,000 rows: more than any writes, and few enough to look each of them up.
_MOST_SEGMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Here:
    """Of one worker: rows that came, their digest, and rows made in place of what did not."""

    rows: int
    digest: int
    stand_ins: int


def settled(
    facts: GeneratorFacts,
    plan: Plan,
    members: Sequence[Member],
    measured: Records,
    missing: Records,
    names: Collection[str] = (),
) -> GeneratorFacts:
    """The facts with everybody's counts. ``measured``: the rows that came; ``missing``: those made in place of others;
    ``names``: the segment files that were there.
    """
    if not members:
        return facts
    digests = accounts.digests(measured)
    rows = np.bincount(measured["worker"].clip(0), minlength=len(members))
    made = missing["worker"][missing["status"] == Status.UNFINISHED]
    sent = recorded = lost = 0
    faults: list[str] = []
    known = {member.index for member in members}
    strangers = sorted(set(np.unique(measured["worker"]).tolist()) - known)
    faults += [
        f"{int((measured['worker'] == one).sum())} rows are of worker {one}, which had no part" for one in strangers
    ]
    for member in members:
        count = int(rows[member.index]) if member.index < len(rows) else 0
        here = _Here(count, digests.get(member.index, 0), int((made == member.index).sum()))
        told = account_of(member)
        wrote = here.rows if told is None else told["rows"]
        left = (
            max(wrote, here.rows + here.stand_ins, int(member.status.get("sent", 0))) if told is None else told["sent"]
        )
        sent, recorded = sent + left, recorded + wrote
        lost += max(0, left - here.rows - here.stand_ins)
        if member.done is None:
            faults.append(f"worker {member.index} gave no account: what it sent last is not known")
        elif told is not None:
            faults += _differences(member.index, told, here, names, _gaps(plan, member, len(members), measured))
    return replace(facts, sent=sent, recorded=recorded, lost=lost, account_faults=(*facts.account_faults, *faults))


def account_of(member: Member) -> Mapping[str, Any] | None:
    """What a worker that came to its end said of its rows; None: it did not."""
    account = (member.done or {}).get("account")
    return account if isinstance(account, Mapping) else None


def check_account(member: Member) -> None:
    """Raises ValueError, TypeError or KeyError where what a worker said of its rows can't be held against them."""
    told = account_of(member)
    if told is None:
        if (member.done or {}).get("account") is not None:
            raise ValueError("account is no mapping")
        return
    numbers = [told["sent"], told["rows"], told["digest"], told.get("segments", 0), *told.get("unwritten", ())]
    if any(type(number) is not int or not 0 <= number < 1 << 64 for number in numbers):
        raise ValueError("account counts in something else than numbers")
    if numbers[3] > _MOST_SEGMENTS:
        raise ValueError("account has more segments than a worker writes")


def gone(member: Member, measured: Records) -> int:
    """How many rows a worker recorded that are not among these."""
    told = account_of(member)
    return 0 if told is None else max(0, int(told["rows"]) - int((measured["worker"] == member.index).sum()))


def faults_of(records: Records, names: Collection[str], generator: Mapping[str, Any], run_id: object) -> list[str]:
    """What in the rows of a sealed run is not as it was sealed. ``names``: the columns that its files have; ``run_id``:
    its manifest's.

    Raises ValueError where ``columns`` of its generator.json is no mapping of sums. Earlier versions, which didn't
    count, wrote none.
    """
    found = []
    if generator.get("run_id", run_id) != run_id:
        found.append("generator.json and the rows are of another run than manifest.json")
    held = generator.get("columns")
    if held is None:
        if "sent" in generator["facts"]:
            found.append(
                "generator.json has lost columns, the sums of the rows: nothing shows that they are those that were "
                "sealed"
            )
        return found
    if not (isinstance(held, dict) and all(isinstance(value, str) for value in held.values())):
        raise ValueError("columns of generator.json is no mapping of texts")
    altered = accounts.altered(records, held, names)
    if altered:
        more = f" and {len(altered) - _SHOWN} more columns" if len(altered) > _SHOWN else ""
        found.append(
            f"the rows are not those that were sealed: {', '.join(altered[:_SHOWN])}{more} of requests.parquet or "
            "chunks.parquet were changed"
        )
    return found


def _differences(
    index: int, told: Mapping[str, Any], here: _Here, names: Collection[str], gaps: tuple[int, int]
) -> list[str]:
    """How the rows of one worker are not what it said."""
    sent, rows = int(told["sent"]), int(told["rows"])
    found = []
    if sent != rows:
        found.append(f"worker {index} sent {sent:,} requests and recorded {rows:,}")
    if here.rows < rows:
        absent = _absent(index, told, names)
        where = f"{', '.join(absent)} of its segments {'is' if len(absent) == 1 else 'are'} gone" if absent else ""
        count, first = gaps
        ids = f"{count:,} query ids have no row, the first is {first}" if count else ""
        why = "; ".join(text for text in (where, ids) if text)
        missing = f"worker {index} recorded {rows:,} rows, of which {here.rows:,} came: {rows - here.rows:,} are gone"
        found.append(f"{missing} ({why})" if why else missing)
    elif here.rows > rows:
        found.append(
            f"worker {index} recorded {rows:,} rows, and {here.rows:,} came: {here.rows - rows:,} are there twice or "
            "not its own"
        )
    elif here.digest != told["digest"]:
        found.append(f"the rows of worker {index} are not those that it recorded: something changed its segments")
    return found


def _absent(index: int, told: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """Names of segments that a worker wrote and that were not there: the first ones, however many it says."""
    unwritten = set(told.get("unwritten", ()))
    wrote = (segment_name(index, number) for number in range(int(told.get("segments", 0))) if number not in unwritten)
    return list(islice((name for name in wrote if name not in names), _SHOWN))


def _gaps(plan: Plan, member: Member, shards: int, measured: Records) -> tuple[int, int]:
    """How many ids of a worker in a closed loop have no row though a later one has, and the first of them."""
    if not plan.cyclic or shards > (plan.max_in_flight or 1) or "segments" not in (account_of(member) or {}):
        return 0, -1
    mine = plan.shard(member.index, shards)
    rows = (measured["worker"] == member.index) & (measured["phase"] != Phase.WARMUP)
    have = np.unique((measured["query_id"][rows] - mine.first_id) // mine.id_step)
    have = have[have >= 0]
    n = int(have[-1]) + 1 if len(have) else 0
    if n == len(have):
        return 0, -1
    first = int(np.flatnonzero(have != np.arange(len(have)))[0])
    return n - len(have), first * mine.id_step + mine.first_id
