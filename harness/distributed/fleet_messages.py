"""What the master of a distributed run and its agents say to each other: one JSON object a line, at most ``LIMIT`` bytes.

Three processes take part. The **fleet** (``harness/distributed/fleet.py``) is the workforce of the master's coordinator. The
**site** (``python -m plimsoll.harness.distributed.site``) is a clean process on the agent's host that starts that host's workers. Between
them is a transport that knows none of these messages but one: its master's end talks to the fleet in **envelopes**, and its agent's end
(the **relay**) passes messages to the site's stdin and lines of the site's stdout back. The transport is Locust's in
``locust_.py`` and plain pipes in the tests. Nothing here sends, and nothing here holds a secret: keys and headers are resolved on each
agent from its own environment and files.

Envelopes. From the fleet to the transport: ``{"to": AGENT, "message": {...}}`` (``AGENT`` is the transport's own name of the agent,
``"*"`` is everybody). From the transport to the fleet::

    {"from": AGENT, "message": {...}, "at_ns": N}   at_ns, where given: when it arrived, on this host's monotonic clock
    {"event": "joined", "agent": AGENT}             the transport has a new agent; the fleet waits for its hello
    {"event": "lost", "agent": AGENT, "reason": "..."}   it left, or its transport says nothing any more
    {"event": "stop", "reason": "..."}              the user pressed stop: no more queries, answers in flight are waited for

The relay's duties, all of them:

1. Start the site (stdin and stdout are pipes, stderr is the agent's own) and pass its lines on as they are. Its first line is
   ``hello``; send that when the master can be reached.
2. Answer ``ping`` itself, at once, with ``plimsoll.harness.distributed.clocks.pong``. Pings never reach the site.
3. Pass every other message to the site's stdin, in order.
4. Close the site's stdin when the master is gone: the site stops its workers and keeps their rows on its disk. ``orphaned`` (with a ``reason``), from a
   master that has given the agent up, means the same; the relay may pass it on or close stdin.
5. Say ``ended`` when the site has ended, whatever the reason.

The master's end of the transport may set ``sent_ns`` of a ``ping`` anew as it sends it: the later the stamp, the tighter the bound.

A run, in order (> master to agent, < agent to master)::

    < hello        > ping  < pong (answered by the relay)   > accepted | refused
    > plan         < ready | fault
    > ping  < pong, many times; the same again after the last worker
    > go           < workers, piece, intervals ... ;  > taken, again, stop, drop, kill, orphaned
    < finished     > bye          < ended
    < alive        once a second, from hello to the end
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypedDict

from plimsoll.harness.generator.recorder import FRESH
from plimsoll.slo.records.records import MOST_WORKERS

#: The longest line of either direction, in bytes. Segments and histograms are cut to fit (``PIECE``).
LIMIT = 256 * 1024
#: Raw bytes of a segment in one ``piece``: base64 makes four of three, and the rest of the line has 16 KiB.
PIECE = 180 * 1024
#: Pieces of one agent that may be on their way unanswered: what bounds memory on the whole path.
WINDOW = 4
#: The site says ``alive`` this often; the fleet takes an agent for lost that says nothing for ``SILENCE_S``.
ALIVE_S = 1.0
SILENCE_S = 15.0
#: To everybody.
ALL = "*"
#: Locust's name for messages with rows of streaming users (``streaming_session.py``).
ROWS = "plimsoll-rows"


class Bridge(Protocol):
    """The transport's end at the master: envelopes, as above."""

    async def hear(self) -> Mapping[str, Any] | None:
        """The next envelope; None when the transport is gone."""
        ...

    def say(self, line: Mapping[str, Any]) -> None:
        """Send one envelope, in order. Never raises."""
        ...


class Hello(TypedDict):
    """The site's first line. ``name``: unique in the run; ``code``: digest of the source tree (``identity.code_digest``);
    ``workers``: how many the agent offers (None: as many as the scenario says); ``host``: ``manifest.host_facts``.
    """

    type: Literal["hello"]
    name: str
    version: str
    code: str
    workers: int | None
    host: dict[str, Any]


class Refused(TypedDict):
    """Why the agent is not part of this run, and what to do; the site says it on stderr and ends. (``accepted`` has no fields.)

    ``late``: nothing is wrong with it, and the next run may have it.
    """

    type: Literal["refused"]
    reason: str
    late: bool


class Ping(TypedDict):
    """``sent_ns``: the master's monotonic clock. Answered by the relay."""

    type: Literal["ping"]
    number: int
    sent_ns: int


class Pong(TypedDict):
    """``number`` and ``sent_ns`` of the ping; ``got_ns`` and ``wall_ns``: the agent's monotonic and wall clock as it came."""

    type: Literal["pong"]
    number: int
    sent_ns: int
    got_ns: int
    wall_ns: int


class Plan(TypedDict):
    """Everything that a site needs, and no secret. ``scenario``: as in ``plimsoll.scenarios.spec``, with references to secrets unresolved and the
    master's URL and model in its target; ``shards``: of the whole run, and how they are dealt (``plimsoll.scenarios.plan.plan.Dealing``); ``mine``: this
    site's; ``status_ns``: how often to send ``workers``.
    """

    type: Literal["plan"]
    scenario: dict[str, Any]
    where: str
    run_id: str
    shards: int
    dealing: str
    mine: list[int]
    status_ns: int


class Ready(TypedDict):
    """Every worker of the site has prepared its shard. ``fingerprints``: by shard (as text); ``payloads``: digest of the data
    (``identity.payload_digest``); ``folder``: where segments are on the agent's disk until the master has them.
    """

    type: Literal["ready"]
    fingerprints: dict[str, str]
    payloads: str
    folder: str


class Fault(TypedDict):
    """Why the site can't take part; nothing was sent from there. ``code``: an exit code (5: the endpoint is unreachable from there)."""

    type: Literal["fault"]
    errors: list[str]
    code: int


class Go(TypedDict):
    """``t0_ns``: on the agent's own monotonic clock."""

    type: Literal["go"]
    t0_ns: int


class Workers(TypedDict):
    """News of the site's workers: (shard, its ``status`` message; see ``plimsoll.harness.run.watcher.Watcher.heard``). Counters are cumulative;
    histograms hold everything since the line before, merged.
    """

    type: Literal["workers"]
    lines: list[tuple[int, dict[str, Any]]]


class Piece(TypedDict):
    """Part ``piece`` (from 0) of ``pieces`` of one sealed file of the site; ``sha256`` and ``bytes`` are the whole file's; ``data`` is base64."""

    type: Literal["piece"]
    file: str
    piece: int
    pieces: int
    bytes: int
    sha256: str
    data: str


class Taken(TypedDict):
    """The master has this piece: the next may come. ``whole``: it is done with the file (where the last piece is not followed by
    ``again``); ``good``: and has kept it.
    """

    type: Literal["taken"]
    file: str
    piece: int
    whole: bool
    good: bool


class Again(TypedDict):
    """The file did not have its digest: send all of it once more. Said once a file, instead of the ``taken`` of its last piece."""

    type: Literal["again"]
    file: str


class Intervals(TypedDict):
    """Increments of HDR histograms: (second after t0, metric, indices of counts, counts), layout ``plimsoll.slo.statistics.distribution.DEFAULT_HDR``."""

    type: Literal["intervals"]
    rows: list[tuple[int, str, list[int], list[int]]]


class Kill(TypedDict):
    """End the workers now. (``stop`` and ``drop`` are passed to the workers as they are: see ``harness/generator/worker.py``.)"""

    type: Literal["kill"]


class Finished(TypedDict):
    """Every worker is done or dead, and the master has every file. ``done``: by shard, the worker's last message or None;
    ``deaths``: by shard, of those that died, and ``died_ns``, when after t0 that was noticed; ``cpu_s``: processor time of the site itself since ``go``, without its workers.
    """

    type: Literal["finished"]
    done: dict[str, dict[str, Any] | None]
    deaths: dict[str, str]
    died_ns: dict[str, int]
    cpu_s: float


class Ended(TypedDict):
    """Said by the relay: its site is gone. ``code``: as ``subprocess`` has it, negative for a signal."""

    type: Literal["ended"]
    code: int


def line(message: Mapping[str, Any]) -> bytes:
    """One message as it travels."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


# -- what the master takes from agents ------------------------------------------------------------------------------


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_whole(one) for one in value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _number(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else _whole(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _table(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) and of(one) for key, one in value.items())


def _count(value: Any) -> bool:
    return _whole(value) and value >= 0


def _spread(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and _BIN.fullmatch(key) and _count(n) for key, n in value.items()
    )


def _status(value: Any) -> bool:
    """A worker's status line: watchers add it to those of all others, so one that does not fit would spoil them."""
    return (
        isinstance(value, dict)
        and all(_count(value.get(name)) for name in COUNTS)
        and all(_spread(value.get(name)) for name in FRESH)
    )


def _status_lines(value: Any) -> bool:
    pairs = isinstance(value, list) and all(isinstance(one, list | tuple) and len(one) == 2 for one in value)
    return pairs and all(_whole(shard) and _status(line) for shard, line in value)


def _increments(value: Any) -> bool:
    rows = isinstance(value, list) and all(isinstance(one, list | tuple) and len(one) == 4 for one in value)
    return rows and all(
        _whole(second) and 0 <= second < LONGEST_S and _text(metric) and _numbers(at) and _numbers(counts)
        for second, metric, at, counts in value
    )


#: What a worker's status line counts (``harness/generator/worker.py``), besides a histogram for each of ``FRESH``, whose bins are 32 an octave: none is
#: above that of 2**63 ns.
COUNTS = ("sent", "done", "failed", "measured", "bad", "in_flight")
_BIN = re.compile(r"1?[0-9]{1,3}|20[01][0-9]", re.ASCII)
#: A month, in seconds: no run's intervals are later.
LONGEST_S = 31 * 86_400
#: type -> its fields. Of ``hello`` the roster judges: one that can't be read may come from another version, and is told so.
_FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "hello": {},
    "pong": dict.fromkeys(("number", "sent_ns", "got_ns", "wall_ns"), _whole),
    "ready": {"fingerprints": lambda one: _table(one, _text), "payloads": _text, "folder": _text},
    "fault": {"errors": _texts, "code": _whole},
    "workers": {"lines": _status_lines},
    "piece": {
        **dict.fromkeys(("file", "sha256", "data"), _text),
        **dict.fromkeys(("piece", "pieces", "bytes"), _whole),
    },
    "intervals": {"rows": _increments},
    "finished": {
        "done": lambda one: _table(one, lambda done: done is None or isinstance(done, dict)),
        "deaths": lambda one: _table(one, _text),
        "died_ns": lambda one: _table(one, _whole),
        "cpu_s": lambda one: isinstance(one, float) or _whole(one),  # whatever it is: without it the run would not end
    },
    "ended": {"code": _whole},
    "alive": {},
    "leaving": {"reason": _text},
}


#: What Locust's master takes from processes with streaming users (``streaming_rows.Kept``): in each message, in each piece, in the last.
_OF_ROWS: Mapping[str, Callable[[Any], bool]] = {
    "index": lambda one: _whole(one) and 0 <= one < MOST_WORKERS,
    "t0_wall_ns": _whole,
}
_OF_PIECE: Mapping[str, Callable[[Any], bool]] = {
    "number": lambda one: _whole(one) and one >= 0,
    "piece": lambda one: isinstance(one, bytes),
}
_PARTS: Mapping[str, set[str]] = {
    "stalls": {"p99_ns", "max_ns", "total_ns", "count"},
    "gc": {"max_ns", "total_ns", "count"},
}
_OF_LAST: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("sent", "rows"), lambda one: _whole(one) and one >= 0),
    "vitals": lambda one: (
        isinstance(one, dict)
        and all(_table(one.get(part), _whole) and one[part].keys() >= names for part, names in _PARTS.items())
        and all(_number(one.get(name)) for name in ("cpu", "core_wanted", "watched_ns"))
    ),
}


def rows_problem(message: Any) -> str | None:
    """The same of a message with rows of streaming users."""
    if not isinstance(message, dict):
        return "not of ours"
    fields = {**_OF_ROWS, **(_OF_PIECE if "piece" in message else {}), **(_OF_LAST if "vitals" in message else {})}
    wrong = [name for name, fits in fields.items() if name not in message or not fits(message[name])]
    return f"a wrong {wrong[0]}" if wrong else None


def problem(message: Any) -> str | None:
    """Why this is no message of an agent's, in a few words; None: it is one. Fields that nobody reads may be anything."""
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        return "not of ours"
    fields = _FIELDS.get(message["type"])
    if fields is None:
        return "of a type that no agent sends"
    wrong = [name for name, fits in fields.items() if name not in message or not fits(message[name])]
    return f"{message['type']} with a wrong {wrong[0]}" if wrong else None
