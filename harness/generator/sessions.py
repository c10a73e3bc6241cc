"""The later turns of sessions: due when the answer before them has ended and the user has thought.

A turn's due time is the previous turn's ``done_ns`` and its think time, to the nanosecond. What it says may repeat what
was said (``history: live``): ``Script`` holds a turn's request with gaps where the history goes, which is kept as the
bytes that the protocol writes, and only grows. Taking an answer apart and building the next request happens while the
user thinks, where there is time; where there is none it makes the turn late, and lag says so.

The Python engine is given a turn when it is due; the compiled one a little earlier, and keeps it until then.
"""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Protocol

import numpy as np
import orjson

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.outputs import paths_of, read_answer
from plimsoll.harness.transport.client import BACKOFF_NS, Client
from plimsoll.harness.transport.http.http_pool import Prepared
from plimsoll.harness.wire.pointer import Selector
from plimsoll.scenarios.plan.plan import IntArray, Plan
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import PACE_CAPTURE, PACE_EAGER, Phase, Status

_OK, _CONNECT, _MEASURE, _NEVER = int(Status.OK), int(Status.CONNECT), int(Phase.MEASURE), 1 << 62
#: Paces at which sound comes as it is spoken.
_AT_1X = (PACE_CAPTURE, PACE_EAGER)
#: First turns that are made ready at once.
PIECE = 1 << 10
_COUNT = re.compile(rb"(?i)\r\ncontent-length: (\d+)\r\n")
#: Stand for what is said in a session, where a protocol writes it.
_MARKS = ("pLiMsOlLaSkS0q", "pLiMsOlLtElLs1q", "pLiMsOlLaSkS2q")
NO_HISTORY = (
    "params.history: live puts answers into the next request, and protocol {name} has no place for them{why}. Use a "
    "protocol of chats, or history: none"
)
#: Where a text is too, in dialects of the same stream.
_ELSEWHERE = frozenset({"text", "generated_text", "response"})
#: The header that token-echo sends back.
TOKEN = b"x-session-token"
#: What an answer does that has something to be sent back.
_GIVEN = {"cookie": "set a cookie", "token-echo": "had an x-session-token"}


@dataclass(frozen=True, slots=True)
class Script:
    """One turn's request, to be filled: ``head``, the length of the body, ``middle``, the request's id, ``gap``, and
    the body: ``begin``, what was said before, ``own`` and ``end``. ``first``: what ``own`` is where nothing was said
    before; ``reply``: what stands between a question and its answer.
    """

    plain: Prepared
    head: bytes
    middle: bytes
    gap: bytes
    begin: bytes
    first: bytes
    reply: bytes
    own: bytes
    end: bytes

    def filled(self, said: bytearray, n_in: int) -> Prepared:
        """The request after what was said."""
        body = b"".join((self.gap, self.begin, said, self.own, self.end))
        length = b"%d" % (len(body) - len(self.gap))
        return replace(self.plain, prefix=b"".join((self.head, length, self.middle)), suffix=body, n_in=n_in)


def script(client: Client, payload: Payload, name: str, by_text: bool) -> Script:
    """The script of a payload's turn. ``by_text``: the protocol has one text and no messages. Raises HarnessFault."""

    def refuse(why: str) -> HarnessFault:
        return HarnessFault(NO_HISTORY.format(name=name, why=why))

    plain = client.encode(payload)
    said = payload.messages or ({"role": "user", "content": payload.prompt},)
    text, lead = said[-1].get("content"), [one for one in said[:-1] if one["role"] in ("system", "developer")]
    if not isinstance(plain, Prepared) or not isinstance(text, str) or (by_text and len(said) > 1):
        raise refuse(": its requests are no texts over HTTP")
    asks, tells, asks_again = _MARKS
    if by_text:
        made = client.encode(replace(payload, messages=None, prompt="\n".join(_MARKS)))
        alone = client.encode(replace(payload, messages=None, prompt=asks_again))
    else:
        own = [*said[len(lead) : -1], {"role": "user", "content": asks_again}]
        told = [*lead, {"role": "user", "content": asks}, {"role": "assistant", "content": tells}]
        made = client.encode(replace(payload, prompt=None, messages=(*told, *own)))
        alone = client.encode(replace(payload, prompt=None, messages=(*lead, *own)))
    length = _COUNT.search(made.prefix)
    parts = re.split(b"|".join(mark.encode() for mark in _MARKS), _body(made))
    begin, only = parts[0], _body(alone).partition(asks_again.encode())[0]
    if length is None or len(parts) != 4 or not only.startswith(begin) or not begin.endswith(b'"'):
        raise refuse(": its requests have no list of messages in JSON")
    head, middle = made.prefix[: length.start(1)], made.prefix[length.end(1) :]
    gap = made.suffix[: len(made.suffix) - int(length[1])]
    words = quoted(text)
    return Script(plain, head, middle, gap, begin, only[len(begin) :] + words, parts[1], parts[2] + words, parts[3])


def _body(request: Prepared) -> bytes:
    return request.suffix.partition(b"\r\n\r\n" if request.suffix.startswith(b"\r\n\r\n") else b"\r\n")[2]


def quoted(text: str) -> bytes:
    """A text as it stands within a JSON string."""
    return orjson.dumps(text)[1:-1]


def reader(options: Mapping[str, Any], answers: Sequence[str]) -> Callable[[Exchange], str]:
    """Reads the text of an answer as an accuracy run does; "" where a response holds none."""
    return partial(_text, paths_of(options.get("text_path") or answers), str(options.get("framing", "")))


def _text(paths: tuple[Selector, ...], framed: str, exchange: Exchange) -> str:
    quick = None if paths or framed else _of_chunks(bytes(exchange.body))
    if quick is not None:
        return quick
    try:
        found = read_answer(exchange, paths, framed=framed)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return ""
    return found.text or "" if found is not None else ""


def _of_chunks(body: bytes) -> str | None:
    """The same of a stream of OpenAI's chat, read at once: a fifth of the time. None: it is something else."""
    if not body.startswith(b"data: ") or b"\r" in body:
        return None
    parts = body[6:].rstrip().removesuffix(b"\n\ndata: [DONE]").split(b"\n\ndata: ")
    found = []
    try:
        for event in orjson.loads(b"[%b]" % b",".join(parts)):
            for choice in event["choices"][:1]:
                text = choice["delta"].get("content")
                if text:
                    found.append(text)
            if not _ELSEWHERE.isdisjoint(event):
                return None
        return "".join(found)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_over(attributes: bytes) -> bool:
    """Whether a cookie with these attributes is deleted by being set; of both, Max-Age counts (RFC 6265)."""
    pairs = (one.partition(b"=") for one in attributes.lower().split(b";"))
    found = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        if b"max-age" in found:
            return int(found[b"max-age"]) <= 0
        return parsedate_to_datetime(found[b"expires"].decode()).timestamp() <= time.time()
    except (KeyError, ValueError, OverflowError):
        return False


class Affinity:
    """What sends all turns of a session to one place: ``given`` is the scenario's, None for nothing. ``first``: what
    queries begin at on the wire.
    """

    def __init__(self, given: Any, run_id: str, first: int = 0) -> None:
        self._first = first
        self._how = given if isinstance(given, str) else "header" if given else ""
        self._name = given["header"].encode() if isinstance(given, Mapping) else b""
        self._run = run_id.encode()
        self._got: bool | None = None  # anything to send back; None: no answer was looked at

    def marked(self, request: Any, session: int, echoed: bytes) -> Any:
        """The request with this session's mark; ``echoed``: the header line that its last answer asked for."""
        if not self._how:
            return request
        line, rest, others = request.prefix.partition(b"\r\n")
        value = b"%s-%d" % (self._run, self._first + session)
        if self._how == "header":
            echoed = b"%s: %s\r\n" % (self._name, value)
        elif self._how == "url-hash":
            method, url, version = line.split(b" ")
            line = b"%s %s%ssession=%s %s" % (method, url, b"&" if b"?" in url else b"?", value, version)
        return replace(request, prefix=b"".join((line, rest, echoed, others)))

    def echo(self, headers: Sequence[tuple[bytes, bytes]], before: bytes) -> bytes:
        """The header line that the next turn sends back after these headers."""
        line = self._echo(headers, before)
        self._got = bool(self._got or line)
        return line

    def notes(self) -> list[str]:
        """What a reader should know: the endpoint gave nothing that could be sent back."""
        said = (
            f"affinity: no answer to a worker's sessions {_GIVEN.get(self._how)}, so that nothing kept their turns at "
            "one place. Have the server or its router give one, or name a header (affinity: {header: NAME})"
        )
        return [said] if self._got is False and self._how in _GIVEN else []

    def _echo(self, headers: Sequence[tuple[bytes, bytes]], before: bytes) -> bytes:
        if self._how == "token-echo":
            found = [value for name, value in headers if name.lower() == TOKEN]
            return b"%s: %s\r\n" % (TOKEN, found[-1]) if found else before
        if self._how == "cookie":
            jar = dict(one.split(b"=", 1) for one in before[8:-2].split(b"; ") if b"=" in one)
            for _, value in (one for one in headers if one[0].lower() == b"set-cookie"):
                pair, _, attributes = value.partition(b";")
                key, equals, held = pair.strip().partition(b"=")
                if equals and _is_over(attributes):
                    jar.pop(key, None)
                elif equals:
                    jar[key] = held
            return b"cookie: %s\r\n" % b"; ".join(b"=".join(pair) for pair in jar.items()) if jar else b""
        return b""


class Sender(Protocol):
    """An engine, as the turns see it. ``ahead_ns``: so long before it is due it takes a turn, and keeps it."""

    t0_ns: int
    ahead_ns: int

    @property
    def stopped(self) -> bool: ...

    def turn(self, query_id: int, payload_ix: int, due_ns: int, request: Any, cancel_ns: int) -> None: ...


class _Session:
    """One that goes on: what was said, as the protocol writes it, and about how many tokens that was."""

    __slots__ = ("echoed", "n_said", "number", "said")

    def __init__(self, number: int) -> None:
        self.number = number
        self.said = bytearray()
        self.n_said = 0
        self.echoed = b""


@dataclass(frozen=True, slots=True)
class Manners:
    """How sessions behave: ``scripts`` by payload (None: without history), ``answer`` reads a text, and ``goes_on``:
    after a failed turn too. ``calls``: the client, where a session's turns follow each other on one connection.
    """

    affinity: Affinity
    goes_on: bool = False
    scripts: Sequence[Script | None] | None = None
    answer: Callable[[Exchange], str] | None = None
    calls: Any = None


#: Why the sessions of a scenario can't be calls with several turns on one connection.
_NO_CALL = (
    "params.barge_in: protocol {name} with these options holds no spoken conversation on one connection. Use "
    "openai-realtime with mode: conversation and output: audio, or leave barge_in out"
)
_NO_VOICE = (
    "params.barge_in: a user who speaks over an answer needs speech at 1x whose onset is known. Give a source of kind "
    "audio whose clips say where speech begins, and audio.pace: capture"
)


def calls(client: Any, requests: Sequence[Any], params: Mapping[str, Any], name: str) -> Any:
    """The client, where it holds a session's turns on one connection; else None. Raises HarnessFault."""
    held = client if params["history"] == "live" and getattr(client, "converses", False) else None
    if params.get("barge_in") is None:  # recorded sessions have no such parameter
        return held
    if held is None:
        raise HarnessFault(_NO_CALL.format(name=name))
    if client.dialogue.deaf:
        raise HarnessFault(f"params.barge_in: {client.dialogue.deaf}")
    scripts = [one.script for one in requests if one is not None]
    if not all(one.clip is not None and one.clip.onset_ns >= 0 and one.pace in _AT_1X for one in scripts):
        raise HarnessFault(_NO_VOICE)
    return held


class Turns:
    """All turns of one shard's sessions: the first ones as a lane's supply, the later ones by itself."""

    def __init__(
        self, plan: Plan, requests: Sequence[Any], manners: Manners, cancel: IntArray | None, clock: Any
    ) -> None:
        self._requests, self._manners, self._clock = requests, manners, clock
        row_of = {query: row for row, query in enumerate(plan.query_id.tolist())}
        before = [row_of.get(query, -1) for query in plan.after.tolist()]
        self._due, self._payload = plan.due_ns.tolist(), plan.payload_ix.tolist()
        self._ids, self._row_of = plan.query_id.tolist(), row_of
        self._cancel = [-1] * len(before) if cancel is None else cancel.tolist()
        self._next = [-1] * len(before)
        for row, earlier in enumerate(before):
            if earlier >= 0:
                self._next[earlier] = row
        labels = {} if plan.labels is None else plan.labels.columns
        self._cuts = labels["barge_in"].tolist() if "barge_in" in labels else None
        self.hurried = plan.hurried
        #: Of a closed loop the sessions at a time, and where each of the list begins.
        self.slots = plan.max_in_flight or 0 if plan.cyclic else 0
        self._begins = np.flatnonzero(plan.after < 0).tolist() if plan.cyclic else []
        self._taken, self._step, self._stop = plan.first_id, plan.id_step, plan.stop
        self._free, self.sent, self._last_due_ns, self._t0_ns = self.slots, 0, 0, 0
        self._left = 0 if self.slots else sum(row >= 0 for row in before)
        self._lives: dict[int, _Session] = {}
        self._early: set[Exchange] = set()
        self._heap: list[tuple[int, int, Exchange]] = []
        #: The first turns of an open loop, until they are taken.
        self._coming = iter(()) if plan.cyclic else _firsts(plan)
        self.next: Plan | None = next(self._coming, None)
        self._issuer: Sender
        self._settle: Callable[[Exchange], None]

    def begin(self, issuer: Sender) -> None:
        """Before the first turn."""
        self._issuer, self._t0_ns = issuer, issuer.t0_ns
        if self.slots:
            self._clock.wake_at(issuer.t0_ns, self.take_up)

    # -- first turns: a lane's supply ---------------------------------------------------------------------------

    def take(self) -> tuple[Plan, Sequence[Any]] | None:
        """Some of them; their requests are made when a slice of them is."""
        piece, self.next = self.next, next(self._coming, None)
        return None if piece is None else (piece, _First(self, piece.query_id.tolist()))

    def unready(self, late_ns: int, came: bool) -> None:
        """They are always ready."""

    def first(self, query_id: int) -> Any:
        """The request of a session's first turn."""
        row = self._row_of[query_id]
        request = self._manners.affinity.marked(self._requests[self._payload[row]], query_id, b"")
        return self._request(row, None, request)

    def _request(self, row: int, before: Exchange | None, request: Any) -> Any:
        """The request of this row as a turn of its session's connection, where there is such."""
        if self._manners.calls is None:
            return request
        after, cut_ns = self._next[row], -1
        if self._cuts is not None and after >= 0 and self._cuts[after] >= 0:
            onset_ns = self._requests[self._payload[after]].script.clip.onset_ns
            cut_ns = max(0, self._cuts[after] - onset_ns)  # the clip begins before the speech in it
        return self._manners.calls.follow(request, before, cut_ns)

    # -- a closed loop: the next session begins when one is over -------------------------------------------------

    def take_up(self) -> None:
        """As many sessions as slots are free."""
        while self._free and not self._issuer.stopped and not self._over():
            passed, place = divmod(self._taken, len(self._begins))
            self._taken += self._step
            self._free -= 1
            row = self._begins[place]
            query, now_ns = passed * len(self._ids) + row, self._clock.now_ns()
            request = self._manners.affinity.marked(self._requests[self._payload[row]], query, b"")
            self._put(query, row, now_ns, self._request(row, None, request))

    def _over(self) -> bool:
        """No session begins any more."""
        stop, enough = self._stop, self.sent >= max(1, self._stop.min_queries)
        last_ns = min(self._last_due_ns, self._clock.now_ns())  # it may be known and not due
        return self._all_sent() or (enough and last_ns - self._t0_ns >= stop.min_duration_ns)

    def _all_sent(self) -> bool:
        """Of a closed loop: no turn follows any more."""
        most = self._stop.max_queries if self.slots else None
        return most is not None and self.sent >= most

    def _gone(self, last: Exchange) -> None:
        """A session is over. Its slot rests where there was no connection, as any closed loop's."""
        if self._manners.calls is not None:
            self._manners.calls.leave(last)
        if self.slots:
            self._clock.wake_at(self._clock.now_ns() + BACKOFF_NS if last.status == _CONNECT else 0, self._freed)

    def _freed(self) -> None:
        self._free += 1
        self.take_up()

    def _put(self, query: int, row: int, due_ns: int, request: Any) -> None:
        self.sent, self._last_due_ns = self.sent + 1, due_ns
        self._issuer.turn(query, self._payload[row], due_ns, request, self._cancel[row])

    # -- later turns ---------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """No turn comes any more."""
        return self._free == self.slots and self._over() if self.slots else not self._left

    @property
    def next_due_ns(self) -> int:
        """Of the next turn whose answer before it has ended."""
        return self._heap[0][0] if self._heap else _NEVER

    def settling(self, settle: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
        """``settle``, done once only, by whoever needs it first."""
        self._settle = settle

        def once(exchange: Exchange) -> None:
            if exchange in self._early:
                self._early.discard(exchange)
            elif exchange.on_done is self:
                self._answered(exchange)
            else:
                settle(exchange)

        return once

    def ended(self, exchange: Exchange) -> None:
        """Hot: an exchange of the measured load is over; the turn after it has a due time now."""
        before = self._row(exchange.query_id)
        row = self._next[before]
        if row < 0 or self._all_sent():
            self._lives.pop(exchange.query_id, None)
            self._gone(exchange)
            return
        due = exchange.done_ns + self._due[row] - self._due[before]
        exchange.on_done = self  # it is over: this says that a turn waits for it
        heapq.heappush(self._heap, (due, row, exchange))
        self._clock.wake_at(due - self._issuer.ahead_ns, self._tick)

    def _tick(self) -> None:
        while self.step():
            pass

    def step(self) -> bool:
        """Build and send the turn that is due first. False: there is none for now."""
        if self.next_due_ns > self._clock.now_ns() + self._issuer.ahead_ns or self._issuer.stopped:
            return False
        due, row, exchange = heapq.heappop(self._heap)
        if exchange.on_done is self:
            try:
                self._answered(exchange)
                self._early.add(exchange)
            except Exception:  # noqa: BLE001 - the recorder meets it again, and says so
                exchange.status = int(Status.PROTOCOL)
        self._send(row, due, exchange)
        return True

    def _answered(self, exchange: Exchange) -> None:
        """Take an answer apart, and keep of it what the next turn repeats."""
        exchange.on_done = None
        self._settle(exchange)
        query = exchange.query_id
        session = self._lives.get(query)
        if session is None:
            session = self._lives[query] = _Session(query)
        session.echoed = self._manners.affinity.echo(exchange.headers, session.echoed)
        if self._manners.scripts is None or exchange.status != _OK:
            return
        part = self._manners.scripts[exchange.payload_ix]
        assert part is not None
        assert self._manners.answer is not None
        session.said += part.own if session.said else part.first
        session.said += part.reply + quoted(self._manners.answer(exchange))
        known = exchange.n_in >= 0 and exchange.n_out >= 0 and session.n_said >= 0
        session.n_said = exchange.n_in + exchange.n_out if known else -1

    def _send(self, row: int, due_ns: int, before: Exchange) -> None:
        session = self._lives.pop(before.query_id, None)
        if session is None or self._all_sent() or (before.status != _OK and not self._manners.goes_on):
            while row >= 0:  # the rest of the session is never due
                self._left -= 1
                row = self._next[row]
            self._gone(before)
            return
        payload = self._payload[row]
        query = before.query_id + row - self._row(before.query_id) if self.slots else self._ids[row]
        self._lives[query] = session
        request = self._requests[payload]
        if session.said and self._manners.scripts is not None:
            part = self._manners.scripts[payload]
            assert part is not None
            known = session.n_said >= 0 and request.n_in >= 0
            request = part.filled(session.said, session.n_said + request.n_in if known else -1)
        request = self._manners.affinity.marked(request, session.number, session.echoed)
        self._left -= 1
        self._put(query, row, due_ns, self._request(row, before, request))

    def _row(self, query: int) -> int:
        """Its row of the plan; a closed loop's list begins again and again."""
        return query % len(self._ids) if self.slots else self._row_of[query]


def _firsts(plan: Plan) -> Iterator[Plan]:
    rows = np.flatnonzero(plan.after < 0)
    for at in range(0, max(1, len(rows)), PIECE):
        yield plan.select(rows[at : at + PIECE], None)


class _First(Sequence[Any]):
    """Requests of first turns, made when they are asked for."""

    def __init__(self, turns: Turns, queries: list[int]) -> None:
        self._turns, self._queries = turns, queries

    def __len__(self) -> int:
        return len(self._queries)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self._turns.first(query) for query in self._queries[at]]
        return self._turns.first(self._queries[at])

    def __iter__(self) -> Iterator[Any]:
        return (self._turns.first(query) for query in self._queries)
