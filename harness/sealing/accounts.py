"""What is known of a run's generator: from its plan before the first query, from what its workers say at their end, and
from what they sent and recorded, held against the rows that came.

A worker's ``account`` comes with its last message: ``sent`` requests, ``rows`` recorded, the ``digest`` of them
(``slo/validity/accounts.py``) and, of rows in files, ``segments`` written and the numbers of those that no disk took.
What is missing or too much is said by its cause; what the facts mean, ``slo/validity`` decides.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from plimsoll.harness.generator.segments import segment_name
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios.plan.blocks import Extent
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.slo.records.records import BoolArray, IntArray, Records, Status
from plimsoll.slo.validity import accounts
from plimsoll.slo.validity.generator import GeneratorFacts

if TYPE_CHECKING:
    from plimsoll.scenarios.spec import Scenario

_SHOWN = 3
#: A worker cuts one every 0.7 s, or every 20,000 rows: more than any writes, and few enough to look each of them up.
_MOST_SEGMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Here:
    """Of one worker: rows that came, their digest, and rows made in place of what did not."""

    rows: int
    digest: int
    stand_ins: int


class Ledger:
    """What came of each worker's rows, and what was made in place of others, counted block by block.

    ``plan``: its head; ``shards``: of the whole run.
    """

    def __init__(self, plan: Plan, members: Sequence[Member], shards: int) -> None:
        self._members = members
        self._rows: Counter[int] = Counter()
        self._stand_ins: Counter[int] = Counter()
        self._gaps = _all_gaps(plan, members, shards)
        self.books = accounts.Sums()

    def add(self, records: Records, came: BoolArray) -> None:
        """The next rows in order, before any is set apart as cancelled. ``came`` bool[n]: somebody recorded it."""
        worker = records["worker"]
        _count(self._rows, worker[came])
        _count(self._stand_ins, worker[~came & (records.columns["status"] == Status.UNFINISHED)])
        if self._gaps:
            rows = came & records.planned
            for index, gaps in self._gaps.items():
                gaps.add(records["query_id"][rows & (worker == index)])

    def settled(self, facts: GeneratorFacts, names: Collection[str] = ()) -> GeneratorFacts:
        """The facts with everybody's counts. ``names``: the segment files that were there."""
        if not self._members:
            return facts
        sent = recorded = lost = 0
        faults: list[str] = []
        known = {member.index for member in self._members}
        strangers = sorted(set(self._rows) - known)
        faults += [f"{self._rows[one]} rows are of worker {one}, which had no part" for one in strangers]
        for member in self._members:
            index = member.index
            count = self._rows[index] + (sum(n for one, n in self._rows.items() if one < 0) if index == 0 else 0)
            here = _Here(count, self.books.digests.get(index, 0), self._stand_ins[index])
            told = account_of(member)
            wrote = here.rows if told is None else told["rows"]
            left = (
                max(wrote, here.rows + here.stand_ins, int(member.status.get("sent", 0)))
                if told is None
                else told["sent"]
            )
            sent, recorded = sent + left, recorded + wrote
            lost += max(0, left - here.rows - here.stand_ins)
            if member.done is None:
                faults.append(f"worker {index} gave no account: what it sent last is not known")
            elif told is not None:
                gaps = self._gaps[index].found() if index in self._gaps else (0, -1)
                faults += _differences(index, told, here, names, gaps)
        return replace(facts, sent=sent, recorded=recorded, lost=lost, account_faults=(*facts.account_faults, *faults))


def _count(counts: Counter[int], worker: IntArray) -> None:
    """Add up how many rows each worker has."""
    if len(worker):
        least = int(worker.min())
        number = np.bincount(worker - least)
        counts.update({least + at: int(number[at]) for at in np.flatnonzero(number).tolist()})


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


def gone(member: Member, came: int) -> int:
    """How many rows a worker recorded that are not among the ``came`` ones of it."""
    told = account_of(member)
    return 0 if told is None else max(0, int(told["rows"]) - came)


def faults_of(
    now: Mapping[str, str], names: Collection[str], generator: Mapping[str, Any], run_id: object
) -> list[str]:
    """What in the rows of a sealed run is not as it was sealed. ``now``: their sums; ``names``: the columns that its
    files have; ``run_id``: its manifest's.

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
    altered = accounts.altered(now, held, names)
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


@dataclass(slots=True)
class _Gaps:
    """Counts the ids of a worker in a closed loop that have no row though a later one has. Its ids are ``first_id``,
    ``first_id + id_step``, ...
    """

    first_id: int
    id_step: int
    _have: int = 0
    _last: int = -1
    _first: int | None = None

    def add(self, query: IntArray) -> None:
        """The ids of its next rows, which never fall."""
        turn = (query[query >= self.first_id] - self.first_id) // self.id_step
        new = turn[np.diff(turn, prepend=self._last) > 0]
        if not len(new):
            return
        if self._first is None:
            early = np.flatnonzero(new != np.arange(self._have, self._have + len(new)))
            self._first = self._have + int(early[0]) if len(early) else None
        self._have, self._last = self._have + len(new), int(new[-1])

    def found(self) -> tuple[int, int]:
        """How many there are, and the first id; (0, -1): none."""
        if self._first is None:
            return 0, -1
        return self._last + 1 - self._have, self._first * self.id_step + self.first_id


def _all_gaps(plan: Plan, members: Sequence[Member], shards: int) -> dict[int, _Gaps]:
    if not plan.cyclic or shards > (plan.max_in_flight or 1) or bool((plan.after >= 0).any()):
        return {}  # of sessions nobody knows which turns there were
    mine = {
        member.index: plan.shard(member.index, shards) for member in members if "segments" in (account_of(member) or {})
    }
    return {index: _Gaps(part.first_id, part.id_step) for index, part in mine.items()}


def planned(
    scenario: Scenario, plan: Extent, shards: int, force: Mapping[str, Any] = MappingProxyType({})
) -> GeneratorFacts:
    """What is known before the first query. ``force``: the facts of the workforce."""
    stop, frame = plan.stop, scenario.frame
    return GeneratorFacts(
        open_loop=plan.open_loop,
        process=_arrival_process(scenario),
        aligned=_aligned(scenario),
        planned=0 if plan.cyclic else plan.n_samples,
        planned_queries=0 if plan.cyclic else plan.n_queries,
        min_queries=stop.min_queries if plan.cyclic else min(stop.min_queries, plan.n_queries),
        min_duration_ns=0 if scenario.endless else stop.min_duration_ns,
        no_endpoint=not protocols()[scenario.target.protocol].needs_url,
        n_workers=shards,
        slots=() if scenario.kind == "sessions" else _slots(plan, shards),  # a slot rests while its user thinks
        **_clocks(force),
        frame_interval_ns=frame.interval_ns if frame is not None else 0,
        frame_deadline_ns=frame.deadline_ns if frame is not None else 0,
    )


def ended(known: GeneratorFacts, members: Sequence[Member]) -> GeneratorFacts:
    """The facts with what the workers that came to their end say of it."""
    done = [member.done for member in members if member.done is not None]
    return replace(
        known,
        **vitals_of(done),
        aborted=next((report["aborted"] for report in done if report["aborted"]), None),
        worker_faults=tuple(text for report in done for text in report["faults"]),
        max_duration_hit=any(report["max_duration_hit"] for report in done),
        disk_notes=tuple(dict.fromkeys(text for report in done for text in report["disk_notes"])),
    )


def last_words(said: object) -> dict[str, Any] | None:
    """A worker's last message that comes from elsewhere, a file or another host, if all that is read of it can be;
    None: it can't.

    The folders that it names are left out: whoever seals a run reads and removes those.
    """
    if not isinstance(said, dict):
        return None
    words = {**said, "folders": []}
    member = Member(0, done=words)
    try:
        told = ended(GeneratorFacts(open_loop=False, planned=0), [member]).to_json()
        GeneratorFacts.from_json(json.loads(json.dumps(told, allow_nan=False)))
        client = words.setdefault("client", {})
        json.dumps(client, allow_nan=False)
        Counter(client.get("exhausted", {})).total()
        int(client.get("connections_opened", 0))
        check_account(member)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None
    return words


def start(t0_ns: int) -> dict[str, Any]:
    """t0 as the manifest has it, from this host's monotonic clock."""
    t0_wall_ns = time.time_ns() + t0_ns - time.monotonic_ns()
    started = datetime.fromtimestamp(t0_wall_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    return {"started_at": started, "t0_wall_ns": t0_wall_ns, "t0_monotonic_ns": t0_ns}


def vitals_of(done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Facts from the ``done`` messages: of a count the sum over workers, of a time the worst worker's."""

    def worst(part: str, key: str) -> int:
        return max((report.get(part, {}).get(key, 0) for report in done), default=0)

    def total(part: str, key: str) -> int:
        return sum(report.get(part, {}).get(key, 0) for report in done)

    return {
        "loop_stall_p99_ns": worst("stalls", "p99_ns"),
        "loop_stall_max_ns": worst("stalls", "max_ns"),
        "loop_stall_total_ns": worst("stalls", "total_ns"),
        "loop_stall_count": total("stalls", "count"),
        "gc_pause_max_ns": worst("gc", "max_ns"),
        "gc_pause_total_ns": worst("gc", "total_ns"),
        "gc_pause_count": total("gc", "count"),
        "watched_ns": max((report.get("watched_ns", 0) for report in done), default=0),
        "worker_cpu": tuple(report["cpu"] for report in done),
        "core_wanted": tuple(report["core_wanted"] for report in done if report.get("core_wanted")),
        "engine_cpu": tuple(report["engine_cpu"] for report in done if report.get("engine_cpu") is not None),
        "worker_rss_kb": tuple(report["max_rss_kb"] for report in done if report.get("max_rss_kb")),
        "pool_waits": total("client", "pool_waits"),
        "pool_wait_p99_ns": worst("client", "pool_wait_p99_ns"),
        "stream_waits": total("client", "stream_waits"),
        "clock_steps": total("client", "clock_steps"),
        "stamps_refused": total("client", "stamps_refused"),
        "kernel_reads": total("client", "kernel_reads"),
        "user_reads": total("client", "user_reads"),
        "retried": total("client", "retried_on_stale_connection") + total("client", "calls_refused_and_retried"),
    }


def _slots(plan: Extent, shards: int) -> tuple[int, ...]:
    """Requests that each worker keeps in flight; empty where nothing waits for another's answer."""
    if plan.max_in_flight is None or not (plan.cyclic or plan.n_queries == 1):
        return ()
    return tuple(len(range(index, plan.max_in_flight, shards)) for index in range(shards))


def _clocks(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Of agents on other hosts: how many had a part, and how well the worst clock of them is known."""
    took_part = [agent for agent in facts.get("agents", ()) if agent["shards"]]
    errors = [agent["clock"]["error_ns"] for agent in took_part if "clock" in agent]
    return {"agents": len(took_part), "clock_error_ns": max(errors, default=0)}


def _aligned(scenario: Scenario) -> bool:
    """Parts of the load that begin a little apart are another load: not Poisson ones, nor those of closed loops, nor of
    a kind whose samples are all due at once.
    """
    if scenario.kind == "server":
        return _arrivals(scenario) != "poisson"
    return scenario.open_loop and scenario.kind != "offline"


def _arrivals(scenario: Scenario) -> str:
    arrival = scenario.params.model_dump().get("arrival", "poisson")
    name = arrival["process"] if isinstance(arrival, Mapping) else arrival
    return "poisson" if name == "loadgen" else str(name)


def _arrival_process(scenario: Scenario) -> str | None:
    """The arrival process whose shape can be tested: only a constant rate has one."""
    if scenario.frame is not None:
        return "constant" if scenario.frame.even else None
    rate = scenario.params.model_dump().get("rate")
    found = _arrivals(scenario) if isinstance(rate, int | float) else None
    if scenario.lot is not None and scenario.lot.later:
        return None  # its share of the rate changes
    return f"{found}, by lot" if found == "constant" and scenario.lot is not None else found
