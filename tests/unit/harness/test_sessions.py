"""Turns of sessions in virtual time, what a script writes, and what of a plan was due."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.issuer import Issuer, Load
from plimsoll.harness.generator.native import attach, available
from plimsoll.harness.generator.outputs import read_answer
from plimsoll.harness.generator.sessions import PIECE, Affinity, Manners, Script, Turns, calls, reader, script
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.sealing.chained import Chain, Listed
from plimsoll.harness.sealing.plan_file import differences
from plimsoll.harness.sealing.planned import MEASURED
from plimsoll.harness.transport.client import Client, Target
from plimsoll.harness.transport.http.http_pool import Prepared
from plimsoll.harness.transport.live.dialogue import Script as Spoken
from plimsoll.harness.transport.live.websocket_session import Prepared as Live
from plimsoll.scenarios.plan.blocks import Blocks, cut
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.spec import parse
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.records import PACE_CAPTURE, PACE_FILE, Records, Status
from tests.virtual_time import VirtualClock

MS = 1_000_000


def plan_of(n: int = 12, **params: Any) -> Plan:
    given = {"rate": 10, "arrival": "constant", "turns": 3, "think": "20ms", **params}
    stop = {"min_queries": n, "min_duration": "0s"}
    return parse({"name": "x", "kind": "sessions", "params": given, "stop": stop}).build(4)


def client_of(name: str, **options: Any) -> Client:
    target = Target("http://127.0.0.1:1", name, model="m", options=options)
    return protocols()[name].build(target, None)


class Slow:
    """Answers after so long; ``failing`` queries fail. Parsing costs ``settle_ns`` of the clock."""

    status = Status.OK

    def __init__(self, clock: VirtualClock, took_ns: int, failing: Sequence[int] = (), settle_ns: int = 0) -> None:
        self.clock, self.took_ns, self.failing, self.settle_ns = clock, took_ns, failing, settle_ns
        self.settled: list[int] = []

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        exchange.sent_ns = self.clock.now_ns()
        self.clock.wake_at(exchange.sent_ns + self.took_ns, lambda: self._end(exchange))

    def _end(self, exchange: Exchange) -> None:
        exchange.done_ns, exchange.status = self.clock.now_ns(), int(self.status)
        exchange.on_done(exchange)

    def settle(self, exchange: Exchange) -> None:
        self.settled.append(exchange.query_id)
        self.clock.spend(self.settle_ns)
        if exchange.query_id in self.failing:
            exchange.status = int(Status.PROTOCOL)


def issued(
    plan: Plan,
    goes_on: bool = False,
    failing: Sequence[int] = (),
    recorder: bool = True,
    settle_ns: int = 0,
    held: Any = None,
) -> list[Exchange]:
    clock = VirtualClock(0)
    client: Any = Slow(clock, 7 * MS, failing, settle_ns)
    request: Any = Prepared(b"POST / HTTP/1.1\r\n", b"", 1, -1, False) if held is None else spoken()
    turns = Turns(plan, [request] * 4, Manners(Affinity(None, "r"), goes_on, calls=held), None, clock)
    load = Load(Blocks(lambda: iter((plan,))), None, [request] * 4, "r", fed={0: turns}, turns=turns)
    ended: list[Exchange] = []
    settle = turns.settling(client.settle)

    def finished(exchange: Exchange) -> None:
        ended.append(exchange)
        if recorder:  # it has time at once, or never comes to it while the run goes on
            settle(exchange)

    issuer = Issuer(load, client, clock, finished)
    issuer.start(0)
    clock.run()
    assert issuer.issued_all
    if not recorder:
        for exchange in ended:
            settle(exchange)
    assert sorted(client.settled) == sorted(one.query_id for one in ended), "each is taken apart once"
    return ended


@pytest.mark.parametrize("recorder", [True, False])
def test_turns_follow_answers_in_virtual_time_whoever_takes_them_apart(recorder: bool) -> None:
    plan = plan_of()
    ended = {one.query_id: one for one in issued(plan, recorder=recorder)}
    assert sorted(ended) == plan.query_id.tolist()
    for row, before in enumerate(plan.after.tolist()):
        expected = plan.due_ns[row] if before < 0 else ended[before].done_ns + 20 * MS
        assert ended[row].due_ns == ended[row].sent_ns == expected


@pytest.mark.parametrize(("shards", "most"), [(1, None), (1, 7), (3, None)])
def test_so_many_sessions_at_a_time_each_whole_and_the_list_begins_again(shards: int, most: int | None) -> None:
    params = {"concurrency": 3, "turns": {"dist": "uniform", "min": 1, "max": 4}, "think": "20ms"}
    stop = {"min_queries": 7 if most else 9_000, "min_duration": "0s", "max_queries": most}
    plan = parse({"name": "x", "kind": "sessions", "params": params, "stop": stop}).build(4)
    plan = replace(plan, **_cut(plan, 5))  # five sessions, again and again
    n, seen, alive = plan.n_queries, set[int](), 0
    for shard in range(shards):
        part = plan.shard(shard, shards)
        ended = issued(part)
        begins = [one for one in ended if plan.after[one.query_id % n] < 0]
        assert seen.isdisjoint(one.query_id for one in ended)
        seen |= {one.query_id for one in ended}
        alive += sum(one.due_ns == 0 for one in begins)
        assert differences(rows_of(ended), plan) == ([], 0)
        by_id = {one.query_id: one for one in ended}
        for one in ended:
            assert one.payload_ix == plan.payload_ix[one.query_id % n]
            if plan.after[one.query_id % n] >= 0:
                assert one.due_ns == by_id[one.query_id - 1].done_ns + 20 * MS
    assert alive == 3
    if most:
        assert len(seen) == most
    else:
        assert 9_000 <= len(seen) < 9_000 + 4 * 3
        assert max(seen) >= n


def test_a_slot_whose_session_found_no_connection_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slow, "status", Status.CONNECT)
    plan = plan_of(concurrency=2, rate=1.0, arrival="poisson", think="none")
    ended = issued(plan)
    assert len(ended) == 12
    assert sorted({one.due_ns for one in ended}) == [at * 17 * MS for at in range(6)], "7 ms to fail, 10 ms of rest"


@pytest.mark.parametrize(("think", "hurried"), [("none", True), ("1ms", False)])
def test_whether_anybody_thinks_is_known_from_the_plan(think: str, hurried: bool) -> None:
    for closed in ({}, {"concurrency": 2, "rate": 1.0, "arrival": "poisson"}):
        plan = plan_of(think=think, **closed)
        assert Turns(plan, [None] * 4, Manners(Affinity(None, "r")), None, VirtualClock(0)).hurried == hurried


@pytest.mark.parametrize(
    "ends", [(1 << 62,), (MEASURED + 1, MEASURED + 4, 1 << 62), (*range(MEASURED, MEASURED + 9), 1 << 62)]
)
def test_sessions_of_a_closed_loop_that_an_interrupt_cut_have_a_row_for_the_turn_that_was_next(
    ends: tuple[int, ...],
) -> None:
    """Of four sessions of three turns the first had all, the second failed in turn 1, and the others were thinking."""
    plan = plan_of(concurrency=2, rate=1.0, arrival="poisson", think="20ms")
    query, status = [0, 1, 2, 3, 6, 7, 9], [Status.OK] * 3 + [Status.HTTP] + [Status.OK] * 3
    rows = rec.from_columns(7, query_id=query, status=status, done_ns=[100 * one * MS for one in query], worker=1)
    listed = Listed.of(cut(plan))
    assert listed is not None
    begin, found = 0, []
    for end in ends:
        key = MEASURED + rows["query_id"]
        found.append(listed.cut(rows.select((key >= begin) & (key < end)), end))
        begin = end
    made = [(q, d // MS, p, w) for some, who in found for q, d, p, w in zip(
        some.query_id.tolist(), some.due_ns.tolist(), some.payload_ix.tolist(), who.tolist(), strict=True)]  # fmt: skip
    payload = plan.payload_ix.tolist()
    assert made == [(8, 720, payload[8], 1), (10, 920, payload[10], 1)]


@pytest.mark.skipif(not available(), reason="the extension is not compiled here")
@pytest.mark.parametrize(
    ("think", "wanted", "native"), [("none", "auto", False), ("none", "native", True), ("1ms", "auto", True)]
)
def test_where_nobody_thinks_the_python_engine_sends_unless_told_otherwise(
    think: str, wanted: str, native: bool
) -> None:
    plan, client = plan_of(think=think), client_of("openai-chat")
    requests = [client.encode(Payload(prompt="hi"))] * 4
    turns = Turns(plan, requests, Manners(Affinity(None, "r")), None, VirtualClock(0))
    load = Load(Blocks(lambda: iter((plan,))), None, requests, "r", fed={0: turns}, turns=turns)
    run = asyncio.run(attach(client, load, wanted))
    assert (run is not None) == native
    if run is not None:
        run._engine.close()


def test_first_turns_come_in_pieces_and_none_is_left_out() -> None:
    plan = plan_of(9_000)
    turns = Turns(plan, [None] * 4, Manners(Affinity(None, "r")), None, VirtualClock(0))
    found = []
    while (taken := turns.take()) is not None:
        assert len(taken[1]) == taken[0].n_queries <= PIECE
        found += taken[0].query_id.tolist()
    assert found == plan.query_id[plan.after < 0].tolist()
    assert len(found) == 3_000


def test_of_a_closed_loop_what_followed_a_failed_turn_was_never_due() -> None:
    params = {"concurrency": 2, "rate": 1.0, "arrival": "poisson", "turns": 4, "think": "none"}
    plan = plan_of(40, **params)
    ended = issued(plan, failing=[1, 14, 35])  # second, third and last turn of theirs
    rows = rows_of(ended)
    assert len({one.query_id for one in ended} & {2, 3, 15}) == 0
    for step in (1, 7, len(rows)):
        listed = Listed.of(cut(plan))
        assert listed is not None
        for at in range(0, len(rows), step):
            listed.add(rows.select(np.arange(len(rows))[at : at + step]))
        assert listed.unreached == 3
    went_on = rows_of(issued(plan, True, failing=[1, 14, 35]))
    listed = Listed.of(cut(plan))
    assert listed is not None
    listed.add(went_on)
    assert listed.unreached == 0
    assert Listed.of(cut(plan_of())) is None


def _cut(plan: Plan, sessions: int) -> dict[str, Any]:
    n = int(np.flatnonzero(plan.after < 0)[sessions])
    names = ("due_ns", "query_id", "sample_ix", "payload_ix", "after")
    return {name: getattr(plan, name)[:n] for name in names} | {"offsets": plan.offsets[: n + 1], "labels": None}


def test_what_it_costs_to_take_an_answer_apart_is_lag_where_nobody_thinks_and_hidden_where_one_does() -> None:
    for think, lag in (("none", 3 * MS), ("20ms", 0)):
        ended = issued(plan_of(think=think), settle_ns=3 * MS)
        later = [one.ready_ns - one.due_ns for one in ended if one.due_ns % (100 * MS)]
        assert len(later) == 8
        assert set(later) == {lag}


@given(st.integers(1, 40), st.integers(0, 5), st.integers(1, 5))
def test_the_shards_of_a_plan_send_its_sessions_whole(n: int, seed: int, shards: int) -> None:
    plan = plan_of(n, turns={"dist": "uniform", "min": 1, "max": 4}, think={"dist": "exponential", "mean": "50ms"})
    parts = [plan.shard(at, shards) for at in range(shards)]
    assert sorted(np.concatenate([part.query_id for part in parts]).tolist()) == plan.query_id.tolist()
    for part in parts:
        assert np.isin(part.after[part.after >= 0], part.query_id).all()
    assert plan.labels is not None
    session, turn = plan.labels.columns["session"], plan.labels.columns["turn"]
    follows = plan.after >= 0
    assert (turn[~follows] == 1).all()
    assert (session[~follows] == plan.query_id[~follows]).all()
    assert (turn[follows] == turn[plan.after[follows]] + 1).all()
    assert (session[follows] == session[plan.after[follows]]).all()


def rows_of(ended: Sequence[Exchange]) -> Records:
    order = sorted(ended, key=lambda one: one.query_id)
    names = ("query_id", "due_ns", "ready_ns", "sent_ns", "done_ns", "status", "payload_ix")
    return rec.from_columns(len(order), **{name: np.array([getattr(one, name) for one in order]) for name in names})


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_is_never_due_has_no_row_and_anything_else_that_is_missing_is_told(goes_on: bool) -> None:
    plan = plan_of()
    rows = rows_of(issued(plan, goes_on, failing=[0]))
    assert len(rows) == (12 if goes_on else 10)
    assert differences(rows, plan) == ([], 0 if goes_on else 2)
    chain = Chain.of(cut(plan))
    assert chain is not None
    keep = np.ones(len(rows), np.bool_)
    keep[-1] = False
    texts, _ = differences(rows.select(keep), plan)
    assert texts == ["1 planned samples have no row"]
    later = int(np.flatnonzero(rows["due_ns"] != plan.due_ns[rows["query_id"]])[0])
    moved = {name: rows[name].copy() for name in rows.columns if name not in ("error", "server_timing")}
    moved["due_ns"][later] += 1
    texts, _ = differences(rec.from_columns(len(rows), **moved), plan)
    assert texts[0].startswith("1 rows have another due time than planned"), "one nanosecond is seen"


CHATS = {
    "openai-chat": lambda body: [(one["role"], one["content"]) for one in body["messages"]],
    "openai-completions": lambda body: body["prompt"].split("\n"),
    "anthropic-messages": lambda body: [(one["role"], one["content"]) for one in body["messages"]],
    "ollama-chat": lambda body: [(one["role"], one["content"]) for one in body["messages"]],
    "ollama-generate": lambda body: body["prompt"].split("\n"),
    "llamacpp-completion": lambda body: body["prompt"].split("\n"),
    "tgi-generate": lambda body: body["inputs"].split("\n"),
    "triton-generate": lambda body: body["text_input"].split("\n"),
    "openai-responses": lambda body: [(one["role"], one["content"]) for one in body["input"]],
}


def test_every_protocol_with_a_history_is_tried_here() -> None:
    assert {name for name, spec in protocols().items() if spec.history} == {*CHATS, "http"}


@pytest.mark.parametrize("name", CHATS)
def test_a_script_writes_the_request_that_the_protocol_would_write(name: str) -> None:
    client, by_text = client_of(name), protocols()[name].history == "text"
    words = ['first "q"', "answer\u00e9\t1", "second \\", "answer 2", "third"]
    asks = [Payload(prompt=text, max_output_tokens=5 + at) for at, text in enumerate(words[::2])]
    scripts = [script(client, one, name, by_text) for one in asks]
    said = bytearray()
    for at in range(2):
        said += (scripts[at].own if said else scripts[at].first) + scripts[at].reply + quoted(words[2 * at + 1])
    made = scripts[2].filled(said, 9)
    body = made.suffix.partition(b"\r\n\r\n")[2]
    assert b"\r\ncontent-length: %d\r\n" % len(body) in made.prefix
    read = CHATS[name](json.loads(body))
    assert read == (words if by_text else [*zip(("user", "assistant") * 3, words, strict=False)])
    alone = json.loads(scripts[2].plain.suffix.partition(b"\r\n\r\n")[2])
    changed = {key for key, value in json.loads(body).items() if alone.get(key) != value}
    assert len(changed) == 1, "nothing else differs from a request of its own"


def quoted(text: str) -> bytes:
    return orjson.dumps(text)[1:-1]


def test_a_script_keeps_the_system_message_and_serves_a_template() -> None:
    talk = Payload(messages=({"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}))
    for name, options in (
        ("anthropic-messages", {}),
        ("openai-chat", {}),
        ("http", {"body": '{"m": {{ messages | tojson }}, "n": 1}'}),
    ):
        made = script(client_of(name, **options), talk, name, False)
        assert isinstance(made, Script)
        said = bytearray(made.first + made.reply + b"yes")
        body = json.loads(made.filled(said, -1).suffix.partition(b"\r\n\r\n")[2])
        assert "be brief" in json.dumps(body)
        assert json.dumps(body).count("hello") == 2


@pytest.mark.parametrize("options", [{"body": '{"p": {{ prompt | tojson }} }'}, {"form": {"p": "{{ prompt }}"}}])
def test_a_template_without_messages_has_no_place_for_a_history(options: dict[str, Any]) -> None:
    with pytest.raises(HarnessFault, match="no place for them"):
        script(client_of("http", **options), Payload(prompt="hello"), "http", False)


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
EVENT = st.one_of(
    TEXT.map(lambda text: {"choices": [{"index": 0, "delta": {"content": text}}]}),
    TEXT.map(lambda text: {"choices": [{"index": 0, "delta": {"reasoning_content": text}}]}),
    TEXT.map(lambda text: {"choices": [{"text": text}]}),
    TEXT.map(lambda text: {"text": text, "choices": [{"delta": {}}]}),
    st.just({"choices": [], "usage": {"prompt_tokens": 3}}),
    st.just({"choices": [{"delta": {"role": "assistant", "content": None}, "finish_reason": "stop"}]}),
)


@given(st.lists(EVENT, max_size=6), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_a_chat_stream_read_at_once_says_what_it_says_event_by_event(events: list[Any], done: bool, end: str) -> None:
    lines = [f"data: {json.dumps(one, ensure_ascii=False)}{end}{end}" for one in events]
    exchange = Exchange(0, 0, 0, 0, None)
    exchange.headers = [(b"content-type", b"text/event-stream")]
    exchange.body += "".join([*lines, f"data: [DONE]{end}{end}" if done else ""]).encode()
    exchange.mark_ns.append(1)
    exchange.mark_end.append(len(exchange.body))
    found = read_answer(exchange)
    assert reader({}, ())(exchange) == ((found.text or "") if found is not None else "")


# -- calls: all turns of a session on one connection -------------------------------------------------------------------

BARGE_IN = {"share": "50%", "after": {"dist": "uniform", "min": "300ms", "max": "800ms"}}


def spoken(pace: int = PACE_CAPTURE, **clip: Any) -> Live:
    """A turn of speech that begins 200 ms into its clip."""
    heard = replace(Clip(np.zeros(16_000, np.int16), 16_000, 200 * MS, 900 * MS), **clip)
    return Live(Spoken("/", clip=heard, pace=pace), b"", (), b"")


class Calls:
    """Remembers who followed whom, when each was to be cut short, and who was the last of a session."""

    converses = True

    def __init__(self) -> None:
        self.dialogue = SimpleNamespace(deaf="")
        self.followed: list[tuple[int, int]] = []
        self.left: list[int] = []

    def follow(self, request: Any, before: Exchange | None, cut_ns: int) -> Any:
        self.followed.append((-1 if before is None else before.query_id, cut_ns))
        return request

    def leave(self, exchange: Exchange) -> None:
        self.left.append(exchange.query_id)


def test_a_seeded_share_of_later_turns_barges_in_and_does_not_think() -> None:
    plain, plan = plan_of(3_000), plan_of(3_000, barge_in=BARGE_IN)
    assert plan.labels is not None
    assert plain.labels is not None
    after, turn = plan.labels.columns["barge_in"], plan.labels.columns["turn"]
    over = after >= 0
    assert "barge_in" not in plain.labels.columns
    assert not over[turn == 1].any()
    assert 0.45 < over[turn > 1].mean() < 0.55
    assert 300 * MS <= after[over].min() < 320 * MS
    assert 780 * MS < after[over].max() <= 800 * MS
    before = np.searchsorted(plan.query_id, plan.after)
    think = plan.due_ns - plan.due_ns[np.minimum(before, len(before) - 1)]
    assert (think[over] == 0).all()
    assert (think[(turn > 1) & ~over] == 20 * MS).all()
    # Nothing else is drawn differently: sessions come when they came, and say what they said.
    assert sorted(plan.due_ns[turn == 1]) == sorted(plain.due_ns[plain.labels.columns["turn"] == 1])
    assert sorted(plan.payload_ix) == sorted(plain.payload_ix)
    again = plan_of(3_000, barge_in=BARGE_IN).labels
    assert again is not None
    assert (again.columns["barge_in"] == after).all()


@pytest.mark.parametrize("failing", [(), (1, 4)])
@pytest.mark.parametrize("slots", [None, 2])
def test_each_turn_of_a_call_follows_the_one_before_and_the_last_one_leaves(
    slots: int | None, failing: tuple[int, ...]
) -> None:
    params = {"concurrency": slots, "turns": 3, "think": "20ms"} if slots else {"rate": 10, "arrival": "constant"}
    stop = {"min_queries": 12, "min_duration": "0s", **({"max_queries": 12} if slots else {})}
    given = {"name": "x", "kind": "sessions", "params": {**params, "barge_in": BARGE_IN}, "stop": stop}
    plan, held = parse(given).build(4), Calls()
    assert plan.labels is not None
    over = plan.labels.columns["barge_in"]
    ended = issued(plan, failing=failing, held=held)
    assert len(held.followed) == len(ended)
    last = {one.query_id for one in ended} - {query for query, _ in held.followed}
    assert sorted(held.left) == sorted(last), "a session is left once, by its last turn"
    cuts = {cut for _, cut in held.followed} - {-1}
    assert cuts
    assert cuts <= {int(one) - 200 * MS for one in over if one >= 0}, "speech begins 200 ms into its clip"


@pytest.mark.parametrize(
    ("client", "request_", "error"),
    [
        (SimpleNamespace(), spoken(), "protocol P with these options holds no spoken conversation"),
        (SimpleNamespace(converses=False), spoken(), "holds no spoken conversation"),
        (SimpleNamespace(converses=True, dialogue=SimpleNamespace(deaf="it can't hear")), spoken(), "it can't hear"),
        (Calls(), spoken(onset_ns=-1), "whose clips say where speech begins"),
        (Calls(), spoken(PACE_FILE), "audio.pace: capture"),
        (Calls(), spoken(), None),
    ],
)
def test_who_can_not_be_spoken_over_is_refused_before_load(client: Any, request_: Any, error: str | None) -> None:
    params = {"history": "live", "barge_in": BARGE_IN}
    if error is None:
        assert calls(client, [None, request_], params, "P") is client
        assert calls(client, [request_], {**params, "barge_in": None, "history": "none"}, "P") is None
        assert calls(client, [request_], {"history": "recorded"}, "P") is None, "turns of a recording"
        assert calls(client, [request_], {"history": "live"}, "P") is client  # turns of a replay have no barge_in
        return
    with pytest.raises(HarnessFault, match=f"params.barge_in: .*{error}"):
        calls(client, [None, request_], params, "P")


@pytest.mark.parametrize(
    ("attributes", "kept"),
    [
        ("", b"cookie: route=a; turn=2\r\n"),
        ("; Path=/; Max-Age=60", b"cookie: route=a; turn=2\r\n"),
        ("; expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=60", b"cookie: route=a; turn=2\r\n"),
        ("; max-age=soon", b"cookie: route=a; turn=2\r\n"),
        ("; Max-Age=0; Path=/", b"cookie: route=a\r\n"),
        ("; Expires=Thu, 01 Jan 1970 00:00:00 GMT", b"cookie: route=a\r\n"),
        ("; Expires=Fri, 31 Dec 2199 23:59:59 GMT", b"cookie: route=a; turn=2\r\n"),
    ],
)
def test_a_cookie_that_a_server_deletes_is_sent_back_no_more(attributes: str, kept: bytes) -> None:
    affinity = Affinity("cookie", "r")
    before = affinity.echo([(b"Set-Cookie", b"route=a"), (b"set-cookie", b"turn=1; HttpOnly")], b"")
    assert before == b"cookie: route=a; turn=1\r\n"
    assert affinity.echo([(b"set-cookie", f"turn=2{attributes}".encode())], before) == kept


def test_a_server_that_deletes_its_only_cookie_is_sent_none() -> None:
    affinity = Affinity("cookie", "r")
    assert affinity.echo([(b"set-cookie", b"a=; Max-Age=0")], b"cookie: a=1\r\n") == b""


@pytest.mark.parametrize("how", ["cookie", "token-echo"])
def test_an_affinity_that_never_got_what_it_sends_back_is_told_of(how: str) -> None:
    affinity = Affinity(how, "r")
    assert affinity.notes() == [], "no turn followed an answer"
    affinity.echo([(b"content-type", b"text/plain")], b"")
    assert [text.split(",")[0] for text in affinity.notes()] == [
        f"affinity: no answer to a worker's sessions {'set a cookie' if how == 'cookie' else 'had an x-session-token'}"
    ]
    affinity.echo([(b"set-cookie", b"a=1"), (b"x-session-token", b"t")], b"")
    assert affinity.notes() == []
    other = Affinity("url-hash", "r")
    other.echo([], b"")
    assert other.notes() == []
