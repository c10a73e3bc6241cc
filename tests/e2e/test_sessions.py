"""Sessions against a server that logs what it is asked: when turns come, what they repeat, and where they go; by either
engine.

Real sockets, about forty seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Phase, Status
from tests.e2e.both_engines import ENGINES
from tests.e2e.plimsoll import plimsoll_here
from tests.raw_server import raw_server

pytestmark = pytest.mark.e2e

MS = 1_000_000
CHAT = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n%s\r\n"


def said(number: int) -> str:
    """An answer that nobody writes into JSON by accident."""
    return f'answer {number}: "quoted"\n\\ back\u00e9 \U0001f642\ttab'


@dataclass
class Log:
    """What the server was asked: arrival (monotonic ns), head and body, by the number in the request's id."""

    url: str = ""
    asked: dict[int, tuple[int, dict[str, str], str, Any]] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    flaky: dict[int, int] = field(default_factory=dict)
    tried: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


@contextmanager
def chat(log: Log, pieces: int = 3) -> Iterator[Log]:
    """A chat server in a thread. ``log.broken``: turns (by query) that it answers with 500; ``flaky``: so many times
    before it answers; ``tried``: when each came.
    """
    ready, over, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def script(request: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter, __: int) -> None:
        came = time.monotonic_ns()
        head, _, body = request.partition(b"\r\n\r\n")
        line, *rest = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
        query = int(headers["x-request-id"].split("-")[-2])
        log.asked[query] = came, headers, line, json.loads(body)
        log.tried[query].append(came)
        if query in log.broken or len(log.tried[query]) <= log.flaky.get(query, 0):
            writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\nno")
            return
        token = b"x-session-token: tok%d\r\nset-cookie: who=c%d; Path=/\r\n" % (query, query)
        writer.write(CHAT % token)
        whole = said(query)
        parts = [whole[at::pieces] for at in range(pieces)] if pieces == 1 else [whole[:5], whole[5:9], whole[9:]]
        events = [{"choices": [{"delta": {"content": part}, "finish_reason": None}]} for part in parts]
        events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        for event in events:
            data = b"data: " + json.dumps(event, ensure_ascii=query % 2 == 0).encode() + b"\n\n"
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    async def serve() -> None:
        async with raw_server(script) as url:
            log.url = url
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield log
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def scenario(engine: str = "native", **params: Any) -> dict[str, Any]:
    return {
        "name": "talk",
        "kind": "sessions",
        "params": {"rate": 20, "arrival": "constant", "turns": 3, "think": "40ms", **params},
        "source": {"kind": "synthetic_text", "prompt_tokens": 6, "output_tokens": 9, "count": 16},
        "stop": {"min_queries": 30, "min_duration": "0s"},
        "target": {"protocol": "openai-chat", "model": "m", "options": {"engine": engine}},
    }


@dataclass
class Ran:
    """Rows by (session, turn), the query of each, and the report."""

    rows: dict[tuple[int, int], dict[str, int]]
    report: dict[str, Any]
    said: str


def run(tmp_path: Path, given: dict[str, Any], log: Log, *flags: str) -> Ran:
    tmp_path.mkdir(exist_ok=True)  # of one engine
    (tmp_path / "s.yaml").write_text(json.dumps(given))
    done = plimsoll_here("run", "s.yaml", "--url", log.url, "--out", "r", "--json", *flags, cwd=tmp_path)
    assert (tmp_path / "r" / "report.json").exists(), done.stderr
    generator = json.loads((tmp_path / "r" / "generator.json").read_text())
    wanted = given["target"].get("options", {}).get("engine", "native")
    assert {client["engine"] for client in generator["clients"]} == {wanted}
    records = tables.load(tmp_path / "r")
    records = records.select(records["phase"] != Phase.ATTEMPT)
    assert records.labels is not None
    session, turn = (records.labels.columns[name].tolist() for name in ("session", "turn"))
    names = ("query_id", "due_ns", "ready_ns", "sent_ns", "done_ns", "status", "payload_ix")
    columns = {name: records[name].tolist() for name in names}
    rows = {
        (session[at], turn[at]): {name: values[at] for name, values in columns.items()}
        for at in range(len(session))
        if session[at] >= 0
    }
    return Ran(rows, json.loads((tmp_path / "r" / "report.json").read_text()), done.stderr)


def by_session(ran: Ran) -> dict[int, list[dict[str, int]]]:
    found: dict[int, list[dict[str, int]]] = defaultdict(list)
    for (session, _), row in sorted(ran.rows.items()):
        found[session].append(row)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_turn_is_due_when_the_answer_before_it_has_ended_and_the_user_has_thought(
    tmp_path: Path, engine: str
) -> None:
    with chat(Log()) as log:
        ran = run(tmp_path, scenario(engine, affinity={"header": "X-Session"}), log)
    talks = by_session(ran)
    assert len(talks) == 10
    marks = set()
    for rows in talks.values():
        assert [row["status"] for row in rows] == [Status.OK] * 3
        for before, row in itertools.pairwise(rows):
            assert row["due_ns"] == before["done_ns"] + 40 * MS, "to the nanosecond"
            assert row["due_ns"] <= row["ready_ns"] <= row["sent_ns"]
            # By the server's own clock: not before the think time was over. It stamps an answer's end later than it is
            # received, and a request's arrival later than it is sent.
            apart = log.asked[row["query_id"]][0] - log.asked[before["query_id"]][0]
            assert apart >= 40 * MS + before["done_ns"] - before["sent_ns"] - 20 * MS
        heads = [log.asked[row["query_id"]][1]["x-session"] for row in rows]
        assert len(set(heads)) == 1, "constant in a session"
        marks.add(heads[0])
    assert len(marks) == 10, "distinct across sessions"
    told = ran.report["sessions"]
    assert (told["offered"], told["finished"], told["abandoned"], told["turns"]) == (10, 10, 0, 30)
    assert [turn["n"] for turn in told["by_turn"]] == [10, 10, 10]
    assert max(told["live"]) > 1
    assert told["live"][-1] == 0
    assert ran.report["metrics"]["session_duration"]["n"] == 10
    checks = {one["name"]: one["ok"] for one in ran.report["validity"]["checks"]}
    assert all(ok for name, ok in checks.items() if name in ("records agree", "accounting", "all sent", "rate"))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_live_history_holds_what_was_said_byte_for_byte(tmp_path: Path, engine: str) -> None:
    with chat(Log()) as log:
        ran = run(tmp_path, scenario(engine), log)
    for rows in by_session(ran).values():
        before: list[dict[str, str]] = []
        for row in rows:
            messages = log.asked[row["query_id"]][3]["messages"]
            assert messages[:-1] == before
            assert set(messages[-1]) == {"role", "content"}
            assert messages[-1]["role"] == "user"
            before = [*messages, {"role": "assistant", "content": said(row["query_id"])}]
        assert len(before) == 6


def test_without_history_each_turn_is_alone_and_one_of_the_data_says_what_was_recorded(tmp_path: Path) -> None:
    talk = [{"role": role, "content": f"{role} {at}"} for at in range(3) for role in ("user", "assistant")]
    lines = [
        {"messages": talk[:1]},  # the same conversation, told again with every turn: no turn is counted twice
        {"messages": talk[:3]},
        {"messages": talk[:5], "think": ["30ms", "70ms"]},
        {"messages": [{"role": "system", "content": "be brief"}, *talk[2:5]], "think": ["50ms"]},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = scenario(turns="data", think="recorded", history="recorded", order="permutation")
    given["source"] = {"kind": "jsonl", "path": "t.jsonl", "output_tokens": 4}
    given["stop"] = {"min_queries": 10, "min_duration": "0s"}
    with chat(Log()) as log:
        ran = run(tmp_path, given, log)
        talks = by_session(ran)
        assert {len(rows) for rows in talks.values()} == {2, 3}
        for rows in talks.values():
            waits = [after["due_ns"] - row["done_ns"] for row, after in itertools.pairwise(rows)]
            assert waits == ([30 * MS, 70 * MS] if len(rows) == 3 else [50 * MS])
            told = [log.asked[row["query_id"]][3]["messages"] for row in rows]
            whole = lines[2] if len(rows) == 3 else lines[3]
            lead = len(rows) == 2
            assert told == [whole["messages"][: 2 * at + 1 + lead] for at in range(len(rows))]
        given["params"]["history"] = "none"
        (tmp_path / "none").mkdir()
        (tmp_path / "none" / "t.jsonl").write_text((tmp_path / "t.jsonl").read_text())
        for rows in by_session(run(tmp_path / "none", given, log)).values():
            told = [log.asked[row["query_id"]][3]["messages"] for row in rows]
            assert [len(messages) for messages in told] == ([1, 1, 1] if len(rows) == 3 else [2, 2])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["cookie", "token-echo", "url-hash"])
def test_a_session_stays_where_it_was_as_the_scenario_says(tmp_path: Path, how: str, engine: str) -> None:
    with chat(Log()) as log:
        ran = run(tmp_path, scenario(engine, affinity=how), log)
    lines = set()
    for rows in by_session(ran).values():
        asked = [log.asked[row["query_id"]] for row in rows]
        lines.add(asked[0][2])
        assert len({line for _, _, line, _ in asked}) == 1
        for before, (_, headers, _, _) in zip([None, *rows], asked, strict=False):
            token = None if before is None else f"tok{before['query_id']}"
            cookie = None if before is None else f"who=c{before['query_id']}"
            assert headers.get("x-session-token") == (token if how == "token-echo" else None)
            assert headers.get("cookie") == (cookie if how == "cookie" else None)
    assert len(lines) == (10 if how == "url-hash" else 1)


def test_what_has_no_place_for_a_history_is_refused_before_load(tmp_path: Path) -> None:
    given = scenario()
    given["target"]["protocol"] = "openai-embeddings"
    (tmp_path / "s.yaml").write_text(json.dumps(given))
    with chat(Log()) as log:
        done = plimsoll_here("run", "s.yaml", "--url", log.url, "--out", "r", cwd=tmp_path)
        assert not [one for one in log.asked.values() if one[1]["x-request-id"]]
    assert done.returncode == 2
    assert "params.history: live puts answers into the next request, and protocol openai-embeddings" in done.stderr


def test_a_turn_is_tried_again_before_its_session_ends_and_the_next_waits_for_its_last_answer(tmp_path: Path) -> None:
    given = scenario("python", on_failure="retry") | {
        "client": {"retry": {"on": [500], "max": 2, "backoff": "50ms..1s", "jitter": "none"}}
    }
    with chat(Log(flaky={4: 2, 7: 9})) as log:
        ran = run(tmp_path, given, log)
    place = {row["query_id"]: key for key, row in ran.rows.items()}
    rows, told = by_session(ran), ran.report["sessions"]
    tried = {query: times for query, times in log.tried.items() if len(times) > 1}
    assert {query: len(times) for query, times in tried.items()} == {4: 3, 7: 3}
    for times in tried.values():  # as the server saw them: 50 ms and then 100 ms after each refusal
        waits = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert waits[0] >= 50 * MS
        assert waits[1] >= 100 * MS
    saved, lost = rows[place[4][0]], rows[place[7][0]]
    assert [row["status"] for row in saved] == [Status.OK] * 3
    again = next(row for row in saved if row["query_id"] == 4)
    assert again["done_ns"] - again["due_ns"] >= 150 * MS  # from its first due
    for session in rows.values():
        for before, row in itertools.pairwise(session):
            assert row["due_ns"] == before["done_ns"] + 40 * MS
    assert (lost[-1]["query_id"], lost[-1]["status"]) == (7, Status.HTTP)
    assert (told["abandoned"], told["finished"]) == (1, 9)
    later = [row["query_id"] for row in saved if row["due_ns"] > again["due_ns"]]
    for query in later:  # what was said at last is in the history, once
        assert json.dumps(log.asked[query][3]["messages"], ensure_ascii=False).count("answer 4:") == 1
    checks = {one["name"]: one["ok"] for one in ran.report["validity"]["checks"]}
    assert all(checks[name] for name in ("records agree", "accounting", "all sent", "min_queries"))


def test_a_turn_that_can_not_be_sent_again_is_refused_before_load(tmp_path: Path) -> None:
    given = scenario("python", on_failure="retry", history="none") | {
        "target": {"protocol": "websocket", "url": "ws://127.0.0.1:9/x"}
    }
    (tmp_path / "s.yaml").write_text(json.dumps(given))
    done = plimsoll_here("run", "s.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "params.on_failure: an exchange of websocket can't be sent again" in done.stderr


def test_a_turn_is_tried_again_by_a_stated_default_where_the_client_has_no_policy(tmp_path: Path) -> None:
    with chat(Log(flaky={4: 1})) as log:
        ran = run(tmp_path, scenario("python", on_failure="retry"), log)
    assert len(log.tried[4]) == 2
    assert ran.report["sessions"]["abandoned"] == 0
    kept = (tmp_path / "r" / "scenario.yaml").read_text()
    assert "cut" in kept
    assert "max: 2" in kept


@pytest.mark.parametrize("engine", ENGINES)
def test_turns_that_are_cancelled_on_purpose_end_their_sessions_and_nothing_is_missing(
    tmp_path: Path, engine: str
) -> None:
    given = scenario(engine) | {"cancel": {"share": 0.3, "after": "1ms"}}
    with chat(Log()) as log:
        ran = run(tmp_path, given, log)
    told, chosen = ran.report["sessions"], ran.report["cancellation"]["chosen"]
    assert chosen == told["abandoned"] > 0
    assert told["offered"] == 10 == told["finished"] + told["abandoned"]
    assert len(ran.rows) + told["turns_not_reached"] == 30
    checks = {one["name"]: one["ok"] for one in ran.report["validity"]["checks"]}
    assert all(checks[name] for name in ("records agree", "accounting", "all sent"))
    assert not ran.report["verdict"]["reasons"] or "plan" not in ran.report["verdict"]["reasons"][0]


@pytest.mark.parametrize("engine", ENGINES)
def test_so_many_sessions_at_a_time_are_a_closed_loop(tmp_path: Path, engine: str) -> None:
    given = scenario(engine, concurrency=3, affinity={"header": "x-session"})
    given["params"] = {key: value for key, value in given["params"].items() if key not in ("rate", "arrival")}
    with chat(Log(broken={4})) as log:
        ran = run(tmp_path, given, log)
    told, validity = ran.report["sessions"], ran.report["validity"]
    assert max(told["live"]) <= 3
    assert told["abandoned"] == 1
    assert told["offered"] == told["finished"] + 1
    assert told["turns_not_reached"] == 3 - len(by_session(ran)[3])
    checks = {one["name"]: one["ok"] for one in validity["checks"]}
    assert all(checks[name] for name in ("records agree", "accounting", "all sent", "min_queries"))
    for session, rows in by_session(ran).items():
        assert {log.asked[row["query_id"]][1]["x-session"][-len(str(session)) :] for row in rows} == {str(session)}
        for before, row in itertools.pairwise(rows):
            assert row["due_ns"] == before["done_ns"] + 40 * MS
    assert any("closed loop" in text for text in ran.report["warnings"])


def test_both_engines_send_the_same_turns_and_the_same_bytes(tmp_path: Path) -> None:
    found = []
    turns = {"dist": "uniform", "min": 1, "max": 4}
    for engine in ENGINES:
        given = scenario(engine, turns=turns, on_failure="continue")
        given |= {"cancel": {"share": 0.2, "after": "1ms"}, "warmup": "200ms"}
        with chat(Log(broken={4, 9})) as log:
            ran = run(tmp_path / engine, given, log)
        names = ("query_id", "status", "payload_ix")
        rows = {turn: [row[name] for name in names] for turn, row in ran.rows.items()}
        asked = {query: log.asked[query][2:] for query, status, _ in rows.values() if status != Status.CANCELLED}
        found.append((rows, asked, {name: ran.report["sessions"][name] for name in ("finished", "turns_not_reached")}))
    assert found[0] == found[1]
    assert {status for _, status, _ in found[0][0].values()} == {Status.OK, Status.HTTP, Status.CANCELLED}


@pytest.mark.parametrize("loop", ["open", "closed"])
@pytest.mark.parametrize("engine", ENGINES)
def test_no_turn_is_sent_after_the_longest_duration(tmp_path: Path, engine: str, loop: str) -> None:
    given = scenario(engine, think="60ms", turns=50, **({"rate": 20} if loop == "open" else {"concurrency": 4}))
    if loop == "closed":
        given["params"] = {key: value for key, value in given["params"].items() if key not in ("rate", "arrival")}
    given["stop"] = {"min_queries": 500, "min_duration": "0s", "max_duration": "500ms"}
    with chat(Log()) as log:
        ran = run(tmp_path, given, log)
        assert len(log.asked) == sum(row["sent_ns"] >= 0 for row in ran.rows.values())
    assert 4 < len(log.asked) < 200
    assert max(row["sent_ns"] for row in ran.rows.values()) < 600 * MS
    assert "max_duration" in json.dumps(ran.report["validity"]["reasons"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", ["end", "continue"])
def test_a_failed_turn_ends_its_session_or_is_left_out_of_it(tmp_path: Path, policy: str, engine: str) -> None:
    with chat(Log(broken={4})) as log:
        ran = run(tmp_path, scenario(engine, on_failure=policy), log)
    (session,) = {session for (session, _), row in ran.rows.items() if row["query_id"] == 4}
    rows = by_session(ran)[session]
    failed = next(at for at, row in enumerate(rows) if row["query_id"] == 4)
    told = ran.report["sessions"]
    if policy == "end":
        assert failed == len(rows) - 1
        assert told["abandoned"] == 1
        assert told["turns_not_reached"] == 2 - failed
        assert len(ran.rows) == 28 + failed
    else:
        assert len(rows) == 3
        assert len(ran.rows) == 30
        for row in rows[failed + 1 :]:
            assert said(4) not in json.dumps(log.asked[row["query_id"]][3]["messages"], ensure_ascii=False)
    assert ran.report["validity"]["planned"] == len(ran.rows)
    checks = {one["name"]: one["ok"] for one in ran.report["validity"]["checks"]}
    assert all(checks[name] for name in ("records agree", "accounting", "all sent", "min_queries"))
