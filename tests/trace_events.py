"""A second reader of Chrome trace events: into SQLite, in the tables and with the rules of Perfetto's importer of them
(one stack of open slices a thread, counters named by event and key, flows between the slices that are open), so that
tests can ask in SQL. It refuses what that importer drops or counts as an error. tests/e2e/test_perfetto_itself.py holds
it against the processor of Perfetto's page, which is too slow for every example.
"""

from __future__ import annotations

import json
import re
import sqlite3
from decimal import Decimal
from typing import Any

_TABLES = """
create table process (pid integer primary key, name text);
create table thread (pid integer, tid integer primary key, name text);
create table slice (id integer primary key, ts integer, dur integer, name text, pid integer, tid integer, depth integer,
                    parent_id integer, cname text);
create table args (slice_id integer, key text, value);
create table counter (ts integer, name text, value real);
create table flow (id integer, slice_out integer, slice_in integer);
"""
_PHASES = {"B": "begin", "E": "end", "C": "counter", "s": "out", "f": "in", "i": "instant"}


def read(data: bytes) -> sqlite3.Connection:
    """Raises AssertionError for an event that a reader would drop."""
    text = data.decode()
    assert text.index('"traceEvents"') < text.index('"otherData"')  # a reader in pieces stops at a key it doesn't know
    assert "\\u" not in text.split('"otherData"')[0]  # nor does it read such escapes
    assert not re.search(r'(?<!\\)(\\\\)+"', text)  # a closing quote after a backslash is none to it
    document = json.loads(text, parse_float=Decimal)
    assert document.keys() == {"traceEvents", "otherData"}
    db = sqlite3.connect(":memory:")
    db.executescript(_TABLES)
    events = document["traceEvents"]
    for event in (one for one in events if one["ph"] == "M"):
        table, key = ("process", "pid") if event["name"] == "process_name" else ("thread", "tid")
        assert event["tid"] > 0 < event["pid"]  # 0 is the idle task's
        names = {"pid": event["pid"], key: event[key], "name": event["args"]["name"]}
        db.execute(f"insert into {table} ({','.join(names)}) values ({','.join('?' * len(names))})", [*names.values()])
    timed = [one for one in events if one["ph"] != "M"]
    _Reader(db).play(sorted(timed, key=lambda event: ns(event)))  # in order of time, as they stand among equals
    return db


def ns(event: dict[str, Any]) -> int:
    """All digits are there."""
    exact = Decimal(event["ts"]) * 1000
    assert exact == int(exact)
    return int(exact)


class _Reader:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._open: dict[int, list[int]] = {}
        self._flows: dict[int, int] = {}
        self._instants: list[tuple[int, int]] = []
        self._ids = 0

    def play(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            getattr(self, f"_on_{_PHASES[event['ph']]}")(event, ns(event))
        assert not any(self._open.values()), "slices without an end"

    def _on_begin(self, event: dict[str, Any], at: int) -> None:
        stack = self._open.setdefault(event["tid"], [])
        self._ids += 1
        row = (self._ids, at, -1, event["name"], event["pid"], event["tid"], len(stack), stack[-1] if stack else None)
        self._db.execute("insert into slice values (?,?,?,?,?,?,?,?,?)", (*row, event.get("cname")))
        for key, value in event.get("args", {}).items():
            self._db.execute("insert into args values (?,?,?)", (self._ids, key, value))
        stack.append(self._ids)

    def _on_end(self, event: dict[str, Any], at: int) -> None:
        assert self._open.get(event["tid"]), "an end without a slice"
        self._db.execute("update slice set dur = ? - ts where id = ?", (at, self._open[event["tid"]].pop()))

    def _on_instant(self, event: dict[str, Any], at: int) -> None:
        assert event["s"] == "g"  # on a track of its own
        self._instants = [one for one in self._instants if one[0] == at]  # those at the same time stand in each other
        self._ids += 1
        row = (self._ids, at, 0, event["name"], len(self._instants), self._instants[-1][1] if self._instants else None)
        self._db.execute("insert into slice (id, ts, dur, name, depth, parent_id) values (?,?,?,?,?,?)", row)
        self._instants.append((at, self._ids))

    def _on_counter(self, event: dict[str, Any], at: int) -> None:
        for key, value in event["args"].items():
            self._db.execute("insert into counter values (?,?,?)", (at, f"{event['name']} {key}", float(value)))

    def _on_out(self, event: dict[str, Any], at: int) -> None:
        assert event["id"] not in self._flows
        self._flows[event["id"]] = self._open[event["tid"]][-1]

    def _on_in(self, event: dict[str, Any], at: int) -> None:
        row = (event["id"], self._flows.pop(event["id"]), self._open[event["tid"]][-1])
        self._db.execute("insert into flow values (?,?,?)", row)
