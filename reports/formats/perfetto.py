"""A timeline of the run's requests, as Chrome trace events: for ui.perfetto.dev, its SQL, and chrome://tracing.

A request stands on the lowest lane that is free when it is due, so that there are as many lanes as requests at once.
Slices are pairs of a beginning and an end, because a reader that rounds times then rounds both alike. Of a large run a
part is drawn, and the file says which. Times count from t0, in microseconds with all digits of their nanoseconds.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from plimsoll.reports.format import Format
from plimsoll.reports.parts.provenance import public_text
from plimsoll.reports.report import Report
from plimsoll.reports.sections.slowest import request_id
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.stages import parent, parse
from plimsoll.slo.records.records import IntArray, Phase, Records, Status, empty
from plimsoll.slo.records.trace_ids import TraceIds

#: So many requests are drawn at most; of them at most so many failed ones, and the slowest so many.
MOST, FAILED, SLOWEST = 20_000, 5_000, 5_000
#: A counter has at most so many points, and none nearer to the next than this.
POINTS, STEP_NS = 2_000, 10_000_000
#: A rate is counted over so many of these steps.
_PER_RATE = 10
#: Processes, as viewers call groups of tracks, and where the numbers of their lanes begin: no two tracks share one,
#: because some readers tell tracks apart by it alone.
RUN, REQUESTS, BESIDE = 1, 2, 3
_FIRST = {REQUESTS: 1_000, BESIDE: 1_000_000}
_TEXT = 300

#: A series of the server: its name, times since t0, values.
Series = tuple[str, Sequence[int], Sequence[float]]
Event = dict[str, Any]
#: What a request spends its time on, and the stamps it begins and ends with.
_STAGES = (
    ("generator late", "due_ns", "ready_ns"),
    ("waits for a connection", "ready_ns", "sent_ns"),
    ("to the first token", "sent_ns", "first_token_ns"),
    ("reasons", "first_token_ns", "first_answer_ns"),
    ("tokens", "first_answer_ns", "last_token_ns"),
    ("to the end", "last_token_ns", "done_ns"),
)
_PLAIN = (*_STAGES[:2], ("to the first byte", "sent_ns", "first_byte_ns"), ("answer", "first_byte_ns", "done_ns"))
_READ = (
    *("query_id", "sample_ix", "due_ns", "ready_ns", "sent_ns", "first_byte_ns", "first_token_ns", "first_answer_ns"),
    *("last_token_ns", "done_ns", "connect_ns", "n_in", "n_out", "code", "status", "phase", "worker", "error"),
    "server_timing",
)


def render(report: Report) -> bytes:
    """Of a run whose rows are not here: no request."""
    return timeline(report, empty(), {})


def timeline(report: Report, records: Records, manifest: Mapping[str, Any]) -> bytes:
    """The file, UTF-8. ``manifest``: of the run directory."""
    seen = np.flatnonzero(records.planned)
    drawn, said = chosen(records, seen)
    events = [*_counters(records, seen), *(event for one in _served(report) for event in _counter(*one))]
    events += _happened(report)
    events += _Drawing(records, report.run.id, TraceIds.told(manifest)).events(drawn)
    names = {RUN: "run", REQUESTS: f"requests ({said})", BESIDE: "attempts beside another one"}
    lanes = sorted({(event["pid"], event["tid"]) for event in events if event["pid"] in _FIRST})
    used = {RUN, REQUESTS, *(pid for pid, _ in lanes)}
    told = [_named("process_name", pid, 0, name) for pid, name in names.items() if pid in used]
    told += [_named("thread_name", pid, tid, f"lane {tid - _FIRST[pid]:03}") for pid, tid in lanes]
    lines = ",\n".join(json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in [*told, *events])
    run = report.run
    other = {"run": run.id, "started_at": run.started_at, "drawn": said, "verdict": report.verdict.outcome}
    # Readers of JSON in pieces know no other key than these two, in this order.
    return f'{{"traceEvents":[\n{lines}\n],"otherData":{json.dumps(other)}}}\n'.encode("utf-8", "replace")


def chosen(records: Records, seen: IntArray) -> tuple[IntArray, str]:
    """The rows to draw, in order of when they were due, and which these are in words."""
    due, n = records["due_ns"], len(seen)
    picked = seen
    said = f"all {units.count(n)}" if n else "none: the run's rows are not here"
    if n > MOST:
        good = records["status"][seen] == Status.OK
        bad, fine = seen[~good], seen[good]
        kept = bad[np.unique(np.linspace(0, len(bad) - 1, min(FAILED, len(bad))).astype(np.int64))]
        slow = np.argsort(due[fine] - records["done_ns"][fine], kind="stable")
        rest = fine[slow[SLOWEST:]]
        numbers = rest.astype(np.uint64)
        mixed = TraceIds.of("", 0.0).words(numbers, numbers, np.zeros_like(numbers))[1]  # a sample that stays the same
        some = rest[np.argsort(mixed, kind="stable")[: MOST - len(kept) - SLOWEST]]
        picked = np.concatenate([kept, fine[slow[:SLOWEST]], some])
        failed = "all" if len(kept) == len(bad) else f"{units.count(len(kept))} of"
        said = f"{units.count(len(picked))} of {units.count(n)}: {failed} {units.count(len(bad))} that failed, "
        said += f"the slowest {units.count(SLOWEST)}, a sample of the others"
    return picked[np.argsort(due[picked], kind="stable")], said


class _Drawing:
    """The slices of requests. ``traces``: see ``TraceIds``."""

    def __init__(self, records: Records, run_id: str, traces: TraceIds | None) -> None:
        self._records, self._run, self._traces = records, run_id, traces
        self._attempts: dict[tuple[int, int], list[dict[str, int]]] = defaultdict(list)

    def events(self, rows: IntArray) -> list[Event]:
        """Of these rows, and of the attempts that were made of them."""
        tries = np.flatnonzero(self._records["phase"] == Phase.ATTEMPT)
        tries = tries[np.isin(self._records["query_id"][tries], self._records["query_id"][rows])]
        for row in self._rows(tries[np.argsort(self._records["ready_ns"][tries], kind="stable")]):
            self._attempts[row["query_id"], row["sample_ix"]].append(row)
        found: list[Event] = []
        beside: list[dict[str, int]] = []
        turns: list[tuple[int, int, int, int, int]] = []
        labels = [self._records.label(name)[rows].tolist() for name in ("session", "turn")]
        every = self._rows(rows)
        lanes = lanes_of([(row["due_ns"], _end(row)) for row in every])
        for row, lane, session, turn in zip(every, lanes, *labels, strict=True):
            found += self._request(row, _FIRST[REQUESTS] + lane, beside)
            if session >= 0:
                turns.append((session, turn, row["due_ns"], _end(row), _FIRST[REQUESTS] + lane))
        beside.sort(key=lambda row: row["ready_ns"])
        lanes = lanes_of([(row["ready_ns"], _end(row)) for row in beside])
        for row, lane in zip(beside, lanes, strict=True):
            found += self._slices(row, _attempt(row), row["ready_ns"], BESIDE, _FIRST[BESIDE] + lane)
        return [*found, *_arrows(sorted(turns))]

    def _rows(self, rows: IntArray) -> list[dict[str, int]]:
        columns = [self._records[name][rows].tolist() for name in _READ]
        attempt, hedge = (self._records.label(name)[rows].tolist() for name in ("attempt", "hedge"))
        names = (*_READ, "attempt", "hedge")
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, attempt, hedge, strict=True)]

    def _request(self, row: dict[str, int], lane: int, beside: list[dict[str, int]]) -> list[Event]:
        """A request on its lane, with its attempts in it; those that overlap an earlier one go ``beside``."""
        tries = self._attempts.get((row["query_id"], row["sample_ix"]), [])
        inner: list[Event] = []
        at, end = row["due_ns"], _end(row)
        for one in tries:
            if one["ready_ns"] < at or _end(one) > end:
                beside.append(one)
            else:
                inner += self._slices(one, _attempt(one), one["ready_ns"], REQUESTS, lane)
                at = _end(one)
        return self._slices(row, "request", row["due_ns"], REQUESTS, lane, inner if tries else None)

    def _slices(
        self, row: dict[str, int], name: str, begin: int, pid: int, lane: int, inner: list[Event] | None = None
    ) -> list[Event]:
        """One slice with what is in it: its stages, or ``inner``."""
        status = Status(row["status"])
        if status != Status.OK:
            name += f": {status.name}" + (f" {row['code']}" if row["code"] >= 0 else "")
        first = _begin(name, begin, pid, lane, args=self._facts(row))
        if status != Status.OK:
            first["cname"] = "grey" if status == Status.CANCELLED else "terrible"
        between = self._stages(row, begin, pid, lane) if inner is None else inner
        return [first, *between, _over(_end(row), pid, lane)]

    def _stages(self, row: dict[str, int], begin: int, pid: int, lane: int) -> list[Event]:
        found: list[Event] = []
        at = begin
        if row["first_answer_ns"] < 0:  # it only reasoned
            row = {**row, "first_answer_ns": row["first_token_ns"]}
        for name, since, until in _STAGES if row["first_token_ns"] >= 0 else _PLAIN:
            start, end = max(at, row[since]), row[until]
            if row[since] < 0 or end <= start:
                continue
            inside: list[Event] = []
            if until == "sent_ns" and row["connect_ns"] >= 0:
                inside = _pair("connects", max(start, end - row["connect_ns"]), end, pid, lane)
            elif since == "sent_ns":
                inside = self._told(row, start, end, pid, lane)
            found += [_begin(name, start, pid, lane), *inside, _over(end, pid, lane)]
            at = end
        return found

    def _told(self, row: dict[str, int], start: int, end: int, pid: int, lane: int) -> list[Event]:
        """The server's own stages one after the other, as far as they fit: it told how long they took, not when."""
        if row["server_timing"] < 0:
            return []
        found: list[Event] = []
        stages = parse(self._records.timings[row["server_timing"]])
        for name, took in stages.items():
            if parent(name) in stages:
                continue
            if took > end - start:
                break
            if took:
                found += _pair(f"server: {_shown(public_text(name))}", start, start + took, pid, lane)
            start += took
        return found

    def _facts(self, row: dict[str, int]) -> dict[str, Any]:
        query, sample = row["query_id"], row["sample_ix"]
        facts: dict[str, Any] = {"request_id": request_id(self._run, query, sample), "query_id": query}
        facts |= {name: row[name] for name in ("code", "worker", "n_in", "n_out") if row[name] >= 0}
        if self._traces is not None:
            facts["trace_id"] = self._traces.header(query, sample, False)[3:35].decode()
        if row["error"] >= 0:
            facts["error"] = _shown(public_text(self._records.errors[row["error"]]))
        return facts


def lanes_of(spans: Iterable[tuple[int, int]]) -> list[int]:
    """The lowest lane that is free for each span, in order of their beginnings."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    found: list[int] = []
    for begin, end in spans:
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, lane))
        found.append(lane)
    return found


def _end(row: Mapping[str, int]) -> int:
    """When it was over; of what has no end the last that is known of it."""
    return max(row[name] for name in ("due_ns", "ready_ns", "sent_ns", "first_byte_ns", "last_token_ns", "done_ns"))


def _attempt(row: Mapping[str, int]) -> str:
    return f"{'hedge' if row['hedge'] == 1 else 'attempt'} {row['attempt']}"


def _arrows(turns: Sequence[tuple[int, int, int, int, int]]) -> Iterator[Event]:
    """From each turn of a session to the next."""
    for number, (one, other) in enumerate(pairwise(turns)):
        if one[0] == other[0] and one[1] + 1 == other[1] and one[2] < one[3]:
            for phase, at, lane in (("s", one[3] - 1, one[4]), ("f", other[2], other[4])):
                flow = {"id": number, "bp": "e", "cat": "session"}
                yield {"ts": at / 1000, "ph": phase, "pid": REQUESTS, "tid": lane, "name": f"session {one[0]}", **flow}


def _counters(records: Records, seen: IntArray) -> Iterator[Event]:
    """Over the whole run, of all its requests."""
    due, ready, sent, done = (records[name][seen] for name in ("due_ns", "ready_ns", "sent_ns", "done_ns"))
    went = sent >= 0
    if not went.any():
        return
    last = int(max(due.max(), sent.max(), done.max()))
    step = max(STEP_NS, -(-last // POINTS))
    edges = np.arange(0, last + 2 * step, step)
    failed = went & (done >= 0) & (records["status"][seen] != Status.OK)
    flying = np.searchsorted(np.sort(sent[went]), edges, "right") - np.searchsorted(
        np.sort(np.maximum(done, sent)[went & (done >= 0)]), edges, "right"
    )
    lag = np.zeros(len(edges))
    np.maximum.at(lag, ready[went] // step, (ready - due)[went] / 1e6)
    wide = _PER_RATE * step
    for name, times in (("sent per second", sent[went]), ("failed per second", done[failed])):
        numbers = np.bincount(times // wide, minlength=last // wide + 2)
        yield from _counter(name, np.arange(len(numbers)) * wide, numbers * (1e9 / wide))
    yield from _counter("requests in flight", edges, flying)
    yield from _counter("generator lag ms", edges, lag)


def _served(report: Report) -> Iterator[Series]:
    """What the server said of itself, by bucket of the report's timeline, as far as it is known."""
    drawn = report.charts.timeline
    if drawn is None or report.server is None:
        return
    for name, one in report.server.names.items():
        known = [(at, value) for at, value in enumerate(one.by_bucket) if value is not None]
        times = [drawn.start_ns + at * drawn.bucket_ns for at, _ in known]
        unit = "value" if one.unit in ("", "1") else one.unit
        yield f"{name} {unit}", times, [value for _, value in known]


def _counter(name: str, t_ns: Any, values: Any) -> Iterator[Event]:
    """A point where the value changes. Readers join the name and the key of the value by a space."""
    title, _, unit = name.rpartition(" ")
    before: float | None = None
    for at, value in zip(map(int, t_ns), map(float, values), strict=True):
        if value != before:
            shown = {unit: round(value, 6)}
            yield {"ts": at / 1000, "ph": "C", "pid": RUN, "tid": RUN, "name": title, "args": shown}
        before = value


def _happened(report: Report) -> Iterator[Event]:
    """The run's events and phases, as instants on all tracks."""
    told = [(at, f"phase {one.name}") for one in report.phases or () if (at := one.from_ns)]
    for one in report.events or ():
        told += [(one.begun_ns, one.name)] * (one.begun_ns >= 0)
        told += [(one.ended_ns, f"{one.name}: {one.fault or 'done'}")] * (one.ended_ns > one.begun_ns)
    for at, name in sorted(told):
        yield {"ts": at / 1000, "ph": "i", "s": "g", "pid": RUN, "tid": RUN, "name": _shown(name)}


def _shown(text: str) -> str:
    """A part of it that can be printed. A space follows a last backslash: Perfetto would take the text's closing quote
    for one that is escaped, and refuse the whole file.
    """
    text = "".join(letter if letter.isprintable() else " " for letter in text[:_TEXT])
    return f"{text} " if text.endswith("\\") else text


def _begin(name: str, at: int, pid: int, lane: int, **more: Any) -> Event:
    return {"ts": at / 1000, "ph": "B", "pid": pid, "tid": lane, "name": name, **more}


def _over(at: int, pid: int, lane: int) -> Event:
    return {"ts": at / 1000, "ph": "E", "pid": pid, "tid": lane}


def _pair(name: str, begin: int, end: int, pid: int, lane: int) -> list[Event]:
    return [_begin(name, begin, pid, lane), _over(end, pid, lane)]


def _named(what: str, pid: int, lane: int, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": lane or pid, "name": what, "args": {"name": name}}


FORMAT = Format("perfetto", ".trace.json", "a timeline of the requests, for ui.perfetto.dev", render, rows=timeline)
