"""A client with habits, between the issuer and a client that has none: it tries again, hedges, and leaves.

The issuer sends requests and hears of each once, when its outcome is final; what goes over the wire are attempts. Of a
request of several attempts each has a row of its own (phase ``attempt``), in the order of their numbers; the request's
row has the first attempt's ``ready`` and the first ``sent``, and all else of the attempt that answered.

Waits are drawn from the seed by query and attempt. An answer counts as begun with the first byte of its body: nothing
is parsed here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Client
from plimsoll.harness.transport.outcome import NEVER, told_ns
from plimsoll.scenarios.plan.habits import GRPC, ClientSection
from plimsoll.scenarios.plan.seeds import child, mixed
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Phase, Status
from plimsoll.slo.records.trace_ids import again

_OK, _TIMEOUT, _CANCELLED = int(Status.OK), int(Status.TIMEOUT), int(Status.CANCELLED)
_MEASURE, _ATTEMPT = int(Phase.MEASURE), int(Phase.ATTEMPT)
#: A budget holds at most so many retries at once, and has that many at first (of the whole run, not of each worker).
RESERVE = 10
#: A percentile is of at most so many last answers, is known from ``LEAST`` on, and is looked at again after ``EVERY``.
LATEST, LEAST, EVERY = 1024, 100, 16
#: Amplification is that of so many seconds, and is judged from so many attempts in them on.
WINDOW_S, ENOUGH = 10, 100
#: By the number of a gRPC code, the code of HTTP that says the same; the numbers by name.
_SAME = (0, *GRPC.values())
_NUMBERS = {name: number for number, name in enumerate(GRPC, 1)}
LOST = "another attempt of this request answered first"
#: What a request has of the attempt that answered.
_TAKEN = tuple(
    name
    for name in Exchange.__slots__
    if name not in ("query_id", "sample_ix", "payload_ix", "due_ns", "request", "phase", "on_done", "watch", "context")
)
#: What taking that answer apart adds to it.
_SETTLED = (
    *("n_in", "n_in_from", "n_out", "n_asked", "n_chunks", "media_ns", "tokens_from", "status", "error", "code"),
    *("first_token_ns", "first_answer_ns", "last_token_ns", "server_timing"),
)


class Bucket:
    """A budget: each request puts a share of a token in, each further attempt takes one. None: no bound."""

    __slots__ = ("_held", "_share", "denied", "taken")

    def __init__(self, share: float | None, shards: int) -> None:
        self._share, self._held = share, max(1.0, RESERVE / shards)
        self.taken = self.denied = 0

    def fill(self) -> None:
        """A request begins."""
        if self._share is not None:
            self._held = min(self._held + self._share, 10.0 * RESERVE)

    def take(self) -> bool:
        """One more attempt, if there is a token for it."""
        if self._share is not None:
            if self._held < 1:
                self.denied += 1
                return False
            self._held -= 1
        self.taken += 1
        return True


class Latest:
    """A percentile (nearest rank) of the last answers' times."""

    def __init__(self, p: float) -> None:
        self._p = p
        self._times: deque[int] = deque(maxlen=LATEST)
        self._new = 0
        self.value_ns = -1

    def add(self, time_ns: int) -> None:
        self._times.append(time_ns)
        self._new += 1
        if len(self._times) >= LEAST and (self.value_ns < 0 or self._new >= EVERY):
            self._new = 0
            ordered = sorted(self._times)
            self.value_ns = ordered[max(0, -int(-self._p * len(ordered) // 1) - 1)]


class Amplification:
    """Attempts per request over the last seconds."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()

    def count(self, now_ns: int, requests: int) -> None:
        """One more attempt, and a request with it or none."""
        second = now_ns // 1_000_000_000
        seconds = self._seconds
        if not seconds or seconds[-1][0] != second:
            seconds.append([second, 0, 0])
            while seconds[0][0] <= second - WINDOW_S:
                seconds.popleft()
        seconds[-1][1] += requests
        seconds[-1][2] += 1

    def __call__(self) -> float:
        """0.0: too few to tell."""
        requests, attempts = (sum(one[at] for one in self._seconds) for at in (1, 2))
        return attempts / max(1, requests) if attempts >= ENOUGH else 0.0


class Habits:
    """See ``plimsoll.harness.transport.client.Client``. ``on_attempt`` hears of each attempt of a request that had
    several; ``excess(why)`` is called when there are more of them than ``max_amplification`` allows. ``other``: where
    hedges go, if not to the same place.
    """

    def __init__(
        self, client: Client, section: ClientSection, clock: Clock, seed: int, shards: int, other: Client | None = None
    ) -> None:
        self.client, self.section, self.clock = client, section, clock
        self.other = other or client
        self.retry, self.hedge = section.retry, section.hedge
        self._key = child(seed, "client", "backoff")
        self._first_ns, self._most_ns = section.retry.span_ns if section.retry is not None else (0, 0)
        self._on = frozenset(_NUMBERS.get(str(one), one) for one in section.retry.on) if section.retry else frozenset()
        self.retries = Bucket(section.retry.budget if section.retry else None, shards)
        self.hedges = Bucket(section.hedge.budget if section.hedge else None, shards)
        percentile = section.hedge.percentile if section.hedge else None
        self._latest = Latest(percentile) if percentile is not None else None
        self.until_headers = section.hedge is not None and section.hedge.until == "headers"
        self._amplification = Amplification() if section.max_amplification is not None else None
        self._live: dict[Exchange, _Request] = {}
        self.left = self.hedge_wins = 0
        self.ended = False
        self.on_attempt: Callable[[Exchange], None] = lambda exchange: None
        self.excess: Callable[[str], None] = lambda why: None
        #: Of gRPC: what an answer says stands in blocks, which are read as soon as it ends.
        self.judge: Callable[[Exchange], None] = getattr(client, "judge", lambda exchange: None)
        if hasattr(client, "answer"):
            self.answer = client.answer

    # -- as any client ------------------------------------------------------------------------------------------

    def encode(self, payload: Payload) -> Any:
        first = self.client.encode(payload)
        return first if self.other is self.client else (first, self.other.encode(payload))

    async def open(self, connections: int) -> None:
        await self.client.open(connections)
        if self.other is not self.client:
            await self.other.open(1)

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        self.retries.fill()
        self.hedges.fill()
        if self._amplification is not None:
            self._amplification.count(exchange.ready_ns, 1)
        second = exchange.request
        if self.other is not self.client:
            exchange.request, second = exchange.request
        self._live[exchange] = request = _Request(self, exchange, request_id, second)
        request.begin()

    def settle(self, exchange: Exchange) -> None:
        self.client.settle(exchange)

    def cancel(self, exchange: Exchange, status: int, error: str) -> None:
        request = self._live.get(exchange)
        if request is not None:
            request.give_up(status, error)

    async def close(self) -> None:
        await self.client.close()
        if self.other is not self.client:
            await self.other.close()

    def stats(self) -> dict[str, Any]:
        """The client's, and what became of the habits."""
        counts = {"retries": self.retries.taken, "retries_denied": self.retries.denied, "hedges": self.hedges.taken}
        counts |= {"hedges_denied": self.hedges.denied, "hedge_wins": self.hedge_wins, "left": self.left}
        return {**self.client.stats(), "habits": counts}

    def after(
        self, settle: Callable[[Exchange], None], alone: Callable[[Exchange], None]
    ) -> Callable[[Exchange], None]:
        """``settle`` of requests, and ``alone`` of an attempt that is for its own row only. Labels come last."""

        def settle_and_say(exchange: Exchange) -> None:
            request: _Request = exchange.context
            exchange.context = None
            if exchange.phase == _ATTEMPT:
                request.settle_attempt(exchange, alone)
            else:
                settle(exchange)
                request.said = exchange.labels
                exchange.labels = {**(exchange.labels or {}), **request.labels()}

        return settle_and_say

    # -- what a request asks ------------------------------------------------------------------------------------

    def over(self, asked: Exchange) -> None:
        del self._live[asked]

    def began(self, attempt: Exchange) -> bool:
        """A good answer has begun, or was told to."""
        return attempt.code < 400 and (attempt.headers_ns >= 0 if self.until_headers else len(attempt.mark_ns) > 0)

    def told(self, attempt: Exchange) -> None:
        """How long a first attempt took to its answer, or how long it was waited for in vain."""
        if self._latest is not None and attempt.sent_ns >= 0:
            marks = attempt.mark_ns
            came_ns = attempt.headers_ns if self.until_headers else (marks[0] if len(marks) else -1)
            self._latest.add((came_ns if came_ns >= 0 else attempt.done_ns) - attempt.sent_ns)

    def hedge_after_ns(self) -> int:
        """-1: that isn't known yet."""
        assert self.hedge is not None
        return self._latest.value_ns if self._latest is not None else self.hedge.after_ns

    def wait_ns(self, attempt: Exchange, retries: int) -> int:
        """How long to wait before the next attempt after this one; -1: there is none."""
        retry = self.retry
        if retry is None or retries >= retry.max or self.ended or not self._retried(attempt):
            return -1
        told = told_ns(attempt) if retry.honour_retry_after else 0
        if told == NEVER or not self.retries.take():
            return -1
        wait = min(self._first_ns << min(retries, 40), self._most_ns)
        if retry.jitter != "none":
            at = np.array([(attempt.query_id * 1009 + attempt.sample_ix) * 101 + retries], np.int64)
            drawn = int(mixed(self._key, at)[0] >> np.uint64(11)) * 2.0**-53
            wait = int(wait * drawn) if retry.jitter == "full" else int(wait * (0.5 + drawn / 2))
        return wait + max(0, told)

    def _retried(self, attempt: Exchange) -> bool:
        code, on = attempt.code, self._on
        if 0 < code < len(_SAME) and not len(attempt.mark_ns):
            same = _SAME[code]
            late = attempt.status == _TIMEOUT and "timeout" in on
            return late or code in on or same in on or (same >= 500 and "5xx" in on)
        if attempt.status == _OK or code >= 400:
            return code in on or (code >= 500 and "5xx" in on)
        if attempt.status == _CANCELLED:
            return False
        if len(attempt.mark_ns):
            return "cut" in on
        return ("timeout" if attempt.status == _TIMEOUT else "connect") in on

    def again(self, now_ns: int) -> None:
        """One more attempt goes out."""
        if self._amplification is None:
            return
        self._amplification.count(now_ns, 0)
        found, most = self._amplification(), self.section.max_amplification or 0.0
        if found > most and not self.ended:
            self.ended = True
            self.excess(
                f"{found:.2f} attempts were sent per request in the last {WINDOW_S} s (client.max_amplification "
                f"{most:g}): retries had become a load of their own. Give them a budget, such as 10%, or lower the rate"
            )


class _Request:
    """What a user wanted, and its attempts so far. The first is the issuer's own exchange, until the end."""

    __slots__ = (
        "_answer", "_asked", "_closing", "_done", "_flying", "_habits", "_hedged", "_id", "_over", "_second", "_tries",
        "_wasted", "_winner", "said",
    )  # fmt: skip

    def __init__(self, habits: Habits, asked: Exchange, request_id: bytes, second: Any) -> None:
        self._habits, self._asked, self._id, self._second = habits, asked, request_id, second
        self._done = asked.on_done
        self._tries: list[Exchange] = []
        self._hedged: list[int] = []
        self._flying: list[Exchange] = []
        self._winner: Exchange | None = None
        self._over = self._closing = False
        self._wasted = self._answer = 0
        self.said: dict[str, str | int | None] | None = None  # the labels of the answer that the request has

    def begin(self) -> None:
        """The first attempt."""
        habits, asked = self._habits, self._asked
        begun_ns = asked.ready_ns
        self._go(asked, habits.client)
        if self._over:
            return
        if habits.hedge is not None and (after_ns := habits.hedge_after_ns()) >= 0:
            habits.clock.wake_at(begun_ns + after_ns, partial(self._hedge, after_ns))
        if habits.section.patience_ns is not None:
            habits.clock.wake_at(begun_ns + habits.section.patience_ns, self._leave)

    def _go(self, attempt: Exchange, client: Client) -> None:
        attempt.on_done = self._ended
        self._tries.append(attempt)
        self._flying.append(attempt)
        attempt.traceparent = self._asked.traceparent
        if len(self._tries) > 1:
            attempt.traceparent = again(attempt.traceparent, len(self._tries) - 1)
        client.send(attempt, self._id)

    def _more(self, hedge: bool) -> None:
        asked, habits = self._asked, self._habits
        now_ns = habits.clock.now_ns()
        client, request = (habits.other, self._second) if hedge else (habits.client, asked.request)
        attempt = Exchange(asked.query_id, asked.sample_ix, asked.payload_ix, now_ns, request)
        attempt.phase, attempt.ready_ns = asked.phase, now_ns
        if hedge:
            self._hedged.append(len(self._tries))
        habits.again(now_ns)
        self._go(attempt, client)

    def _hedge(self, after_ns: int) -> None:
        habits = self._habits
        if self._over or self._winner or not self._flying or any(map(habits.began, self._flying)) or habits.ended:
            return
        assert habits.hedge is not None
        if not habits.hedges.take():
            return
        self._more(True)
        for attempt in self._flying:
            attempt.watch = self._began
        if len(self._hedged) < habits.hedge.max:
            habits.clock.wake_at(habits.clock.now_ns() + after_ns, partial(self._hedge, after_ns))

    def _began(self, attempt: Exchange) -> None:
        """Bytes came while others fly."""
        if self._winner is None and self._habits.began(attempt):
            self._winner = attempt
            self._drop(_CANCELLED, LOST, attempt)

    def _drop(self, status: int, error: str, but: Exchange | None = None) -> None:
        self._closing = True
        for attempt in [one for one in self._flying if one is not but]:
            place = next(at for at, one in enumerate(self._tries) if one is attempt)
            client = self._habits.other if place in self._hedged else self._habits.client
            client.cancel(attempt, status, error)
        self._closing = False

    def _leave(self) -> None:
        if not self._over and not any(len(one.mark_ns) and one.code < 400 for one in self._flying):
            self._habits.left += 1
            after = (self._habits.section.patience_ns or 0) / 1e9
            self.give_up(_CANCELLED, f"left after {after:g} s without a first token (client.patience)")

    def give_up(self, status: int, error: str) -> None:
        """The whole request."""
        last = self._flying[-1] if self._flying else None
        self._drop(status, error)
        self._finish(last or self._tries[-1], None if last is not None else (status, error))

    def _ended(self, attempt: Exchange) -> None:
        attempt.watch = None
        self._flying.remove(attempt)
        self._habits.judge(attempt)
        good = attempt.status == _OK and attempt.code < 400
        if attempt is self._asked and (good or self._closing):
            self._habits.told(attempt)
        if self._closing:
            return
        if good:
            self._drop(_CANCELLED, LOST)
            self._finish(attempt)
            return
        if self._flying:
            return  # another may still answer
        self._winner = None
        retries = len(self._tries) - 1 - len(self._hedged)
        wait_ns = self._habits.wait_ns(attempt, retries)
        if wait_ns < 0:
            self._finish(attempt)
        else:
            self._habits.clock.wake_at(self._habits.clock.now_ns() + wait_ns, self._again)

    def _again(self) -> None:
        if self._over:
            return
        if self._habits.ended:
            self._finish(self._tries[-1])
        else:
            self._more(False)

    def _finish(self, answered: Exchange, given_up: tuple[int, str] | None = None) -> None:
        """``given_up``: how the request ended between two attempts, of which none answered."""
        self._over = True
        asked, habits, tries = self._asked, self._habits, self._tries
        habits.over(asked)
        self._answer = next(at for at, one in enumerate(tries) if one is answered)
        if self._answer in self._hedged:
            habits.hedge_wins += answered.status == _OK
        own = tries if len(tries) > 1 and asked.phase == _MEASURE else []
        if len(tries) > 1:
            first = tries[0] = _copy(asked)
            if answered is not asked:
                _take(asked, answered)
            asked.ready_ns = first.ready_ns
            asked.sent_ns = min((one.sent_ns for one in tries if one.sent_ns >= 0), default=-1)
        self._winner = tries[self._answer]
        if given_up is not None:
            self._winner = None
            asked.status, asked.error = given_up
            asked.done_ns = habits.clock.now_ns()
        for at, attempt in enumerate(own):
            attempt.phase, attempt.context = _ATTEMPT, self
            attempt.labels = {"attempt": at, "hedge": int(at in self._hedged)}
            if attempt is not self._winner:
                habits.on_attempt(attempt)
        asked.context, asked.on_done = self, self._done
        self._done(asked)
        if own and self._winner is not None:
            self._winner.body = bytearray()  # the request's row takes it apart
            habits.on_attempt(self._winner)

    # -- off the clock ------------------------------------------------------------------------------------------

    def settle_attempt(self, attempt: Exchange, settle: Callable[[Exchange], None]) -> None:
        """What a row of its own needs; the one that answered was taken apart with the request."""
        if attempt is self._winner:
            for name in _SETTLED:
                setattr(attempt, name, getattr(self._asked, name))
            attempt.labels = {**(self.said or {}), **(attempt.labels or {})}
        else:
            settle(attempt)
            self._wasted += max(0, attempt.n_out)

    def labels(self) -> dict[str, str | int | None]:
        """Of the request's row."""
        found: dict[str, str | int | None] = {"attempt": self._answer, "tries": len(self._tries)}
        if self._habits.hedge is not None:
            found["hedge"] = int(self._answer in self._hedged and self._asked.status == _OK)
            found["hedges"] = len(self._hedged)
        if len(self._tries) > 1:
            found["wasted_tokens"] = self._wasted
        return found


def _take(asked: Exchange, answered: Exchange) -> None:
    for name in _TAKEN:
        setattr(asked, name, getattr(answered, name))


def _copy(exchange: Exchange) -> Exchange:
    made = Exchange(exchange.query_id, exchange.sample_ix, exchange.payload_ix, exchange.due_ns, exchange.request)
    _take(made, exchange)
    return made
