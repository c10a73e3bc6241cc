"""Sessions: users who come when they come, and ask again once they have read the answer.

Sessions arrive in an open process; ``rate`` counts them, not their turns. A turn after the first is due when the answer
before it has ended and the user has thought: how many turns a second that makes is an outcome. In the plan such a turn
waits for the one before it (``Plan.after``), its due time there is what it would be if every answer took no time at
all, so that the think time is the difference of the two. A query is a turn: ``stop`` counts turns, and no session
begins after its minima are met. With ``concurrency`` it is a closed loop instead: so many sessions at any moment, the
next begins when one is over, and a slow endpoint is asked less.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Discriminator, Field, PrivateAttr, Tag, model_validator

from plimsoll.scenarios.loops import MIN_ROWS, before_t0, closed_plan, open_plan, sessions_plan
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.arrival import Arrival, Rate, due_blocks, expected_queries, process, profile
from plimsoll.scenarios.plan.habits import Share
from plimsoll.scenarios.plan.lengths import Length, draw_lengths
from plimsoll.scenarios.plan.plan import IntArray, Plan, QueryLabels, Stop
from plimsoll.scenarios.plan.sampling import Order, choose, require_samples
from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.plan.think import Think, draw_think
from plimsoll.scenarios.plugins import OF_SESSIONS, Kind, Warmup
from plimsoll.scenarios.samples.conversations import Conversations, conversations
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT


class AffinityHeader(BaseModel):
    """A header with the session's own value."""

    model_config = STRICT
    header: str = Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", description="Its name.")


def _affinity_tag(value: Any) -> str:
    return "<header>" if isinstance(value, dict | AffinityHeader) else "<name>"


Affinity = Annotated[
    Annotated[AffinityHeader, Tag("<header>")] | Annotated[Literal["cookie", "token-echo", "url-hash"], Tag("<name>")],
    Discriminator(_affinity_tag),
]


def _turns_tag(value: Any) -> str:
    return "<data>" if value == "data" else "<length>"


Turns = Annotated[
    Annotated[Literal["data"], Tag("<data>")] | Annotated[Length, Tag("<length>")], Discriminator(_turns_tag)
]


class BargeIn(BaseModel):
    """A ``share`` of the turns after the first: the user speaks while the answer before is still heard."""

    model_config = STRICT
    share: Share = Field(le=1, description="Of the turns after the first, each drawn by itself: 30% or 0.3.")
    after: cancellation.Delay = Field(description="From the answer's first sound to the user's: a time or {dist: ...}.")


class SessionsParams(BaseModel):
    """How often sessions begin, how long they go on, and what they carry from turn to turn."""

    model_config = STRICT
    rate: Rate = Field(default=1.0, description="Sessions per second: a number, {ramp: ...} or {steps: [...]}.")
    arrival: Arrival = Field(default="poisson", description="poisson, constant, or {process: gamma, ...}.")
    concurrency: int | None = Field(
        default=None, ge=1, le=100_000, description="Closed loop: so many sessions at a time, at no rate; null: open."
    )
    turns: Turns = Field(
        default=3, description="Turns of a session: a number, {dist: ...}, or data (the source has them)."
    )
    think_ns: Think = Field(
        default=1_000_000_000,
        alias="think",
        description="From an answer's end to the next turn: 200ms, {dist: ...}, recorded, none.",
    )
    history: Literal["live", "recorded", "none"] = Field(
        default="live", description="What a turn repeats: the answers that came, those of the data, or nothing."
    )
    affinity: Affinity | None = Field(
        default=None, description="{header: NAME}, cookie, token-echo (x-session-token) or url-hash; null: none."
    )
    on_failure: Literal["end", "retry", "continue"] = Field(
        default="end",
        description="After a failed turn: the session is abandoned; the turn is tried again first (client.retry); or "
        "the session goes on without it.",
    )
    barge_in: BargeIn | None = Field(
        default=None,
        description="Voice: {share: 30%, after: 400ms} of turns speak over the answer before; null: none.",
    )
    order: Order = Field(default="random", description="random: with replacement; permutation: equal use of samples.")

    _held: Conversations | None = PrivateAttr(default=None)

    def _given(self) -> set[str]:
        """What differs from its default: a file that was written out names everything."""
        return {name for name, item in type(self).model_fields.items() if getattr(self, name) != item.default}

    @model_validator(mode="after")
    def _has_data(self) -> Self:
        if self.concurrency is not None and {"rate", "arrival"} & self._given():
            raise ValueError(
                "concurrency and rate or arrival are both given. Keep one: sessions come, or they are there"
            )
        if process(self.arrival)[0] == "loadgen":
            raise ValueError("LoadGen knows no sessions. Give arrival: poisson")
        for name, value in (("history", self.history), ("think", self.think_ns)):
            if value == "recorded" and self.turns != "data":
                raise ValueError(f"{name}: recorded needs turns: data, of a source that has conversations")
        if self.barge_in is not None and (self.history != "live" or self.turns == 1):
            raise ValueError("barge_in needs turns above 1 and history: live, which is one conversation. Give both")
        return self


def _sourced(params: SessionsParams, source: PayloadSource) -> PayloadSource:
    """The same source by turns, where it has them."""
    if params.turns != "data":
        return source
    try:
        return conversations(source, params.history == "recorded", params.history == "live")
    except ValueError as error:
        raise ScenarioError([f"{error}."]) from None


def _settled(params: SessionsParams, source: Callable[[], PayloadSource]) -> SessionsParams:
    """The params that know the conversations, where they decide how many turns there are."""
    if params.turns != "data":
        return params
    made, found = params.model_copy(), source()
    made._held = found if isinstance(found, Conversations) else None
    return made


#: What ``_drawn`` gives.
_Drawn = tuple[IntArray, IntArray, IntArray, dict[str, IntArray]]
#: Turns of one plan: who waits for whom is held in memory.
MOST = 50_000_000


def _blocks(params: SessionsParams, stop: Stop, n_samples: int, seed: int) -> Iterator[Plan]:
    require_samples(n_samples)
    if _size(params, stop) > MOST:
        raise ValueError(f"stop: more than {MOST:,} turns, and a plan of sessions is held whole. Send several runs")
    held = params._held
    wanted = max(1, -(-stop.min_queries // _mean_turns(params, held)))
    if params.concurrency is not None:
        drawn = _drawn(params, held, n_samples, seed, max(wanted, params.concurrency, MIN_ROWS))
        yield _listed(drawn, stop, seed, params.concurrency)
        return
    while True:
        begins = _arrivals(params, stop, seed, wanted)
        drawn = _drawn(params, held, n_samples, seed, len(begins))
        n = len(drawn[1])
        if n >= stop.min_queries:
            break
        wanted = len(begins) + max(1, (stop.min_queries - n) // 2)
    turns, payload, think, over = drawn
    yield sessions_plan(begins, turns, payload, think, stop, seed, over)


def _arrivals(params: SessionsParams, stop: Stop, seed: int, wanted: int) -> IntArray:
    name, burstiness = process(params.arrival)
    least = max(1, wanted)
    made = due_blocks(
        name,
        profile(params.rate),
        child(seed, "arrival"),
        min_queries=least,
        min_duration_ns=stop.min_duration_ns,
        burstiness=burstiness,
    )
    return np.concatenate([*made])


def _mean_turns(params: SessionsParams, held: Conversations | None) -> int:
    if held is not None:
        return max(1, len(held) // held.count)
    return 1 if params.turns == "data" else max(1, int(draw_lengths(params.turns, 0, 64).mean()))


def _drawn(params: SessionsParams, held: Conversations | None, n_samples: int, seed: int, n: int) -> _Drawn:
    """Of ``n`` sessions: how many turns each has; of all turns, session by session: payload, think time before, and
    label.
    """
    if held is not None:
        which = choose(params.order, seed, n, held.count)
        turns = np.diff(held.starts)[which]
        place = np.arange(turns.sum()) - np.repeat(np.cumsum(turns) - turns, turns)
        payload = np.repeat(held.starts[which], turns) + place
        recorded = held.think_ns[payload] if params.think_ns == "recorded" else None
        payload = payload % n_samples  # of one sample: somebody asks for times alone
    else:
        length = 1 if params.turns == "data" else params.turns
        turns, recorded = draw_lengths(length, child(seed, "turns"), n), None
        payload = choose(params.order, seed, int(turns.sum()), n_samples)
    think = recorded if recorded is not None else draw_think(params.think_ns, child(seed, "think"), len(payload))
    return turns, payload, think, _over(params, turns, think, seed)


def _over(params: SessionsParams, turns: IntArray, think: IntArray, seed: int) -> dict[str, IntArray]:
    """The label of turns that speak over the answer before: how long after its first sound. They don't think."""
    if params.barge_in is None:
        return {}
    after = cancellation.drawn(params.barge_in.share, params.barge_in.after, seed, "barge-in", np.arange(len(think)))
    after[np.cumsum(turns) - turns] = -1
    think[after >= 0] = 0
    return {"barge_in": after}


def _listed(drawn: _Drawn, stop: Stop, seed: int, slots: int) -> Plan:
    """An endless list, one session after another: a slot takes up the next when it comes free."""
    turns, payload, think, over = drawn
    first, n = np.cumsum(turns) - turns, len(payload)
    after, waits = np.arange(-1, n - 1), think.copy()
    after[first], waits[first] = -1, 0
    session = np.repeat(first, turns)
    labels = QueryLabels({"session": session, "turn": np.arange(n) - session + 1, **over}, {})
    plan = closed_plan(payload, stop, seed, slots=slots)
    return replace(plan, due_ns=np.cumsum(waits), after=after, labels=labels)


def _warmup(params: SessionsParams, warmup: Warmup) -> Plan | None:
    """First turns alone, at the rate that the profile starts with times the turns of a session; or so many at once."""
    if params.concurrency is not None:
        chosen = choose("random", warmup.seed, MIN_ROWS, warmup.n_samples)
        return before_t0(
            closed_plan(chosen, Stop(1, warmup.duration_ns), warmup.seed, slots=params.concurrency), warmup
        )
    n = max(1, round(profile(params.rate).initial * _mean_turns(params, None) * warmup.duration_ns / 1e9))
    due = np.arange(n) * warmup.duration_ns // n - warmup.duration_ns
    return open_plan(due, choose("random", warmup.seed, n, warmup.n_samples), Stop(n, 0), warmup.seed)


def _size(params: SessionsParams, stop: Stop) -> int:
    mean = _mean_turns(params, None)
    if params.concurrency is not None:
        return max(stop.min_queries, MIN_ROWS * mean, params.concurrency * mean)
    sessions = expected_queries(profile(params.rate), -(-stop.min_queries // mean), stop.min_duration_ns)
    return sessions * mean if stop.max_queries is None else min(sessions * mean, stop.max_queries)


KIND = Kind(
    name="sessions",
    summary="Open loop of sessions: each asks again when an answer has ended and a think time is over.",
    headline="the highest rate of sessions that still meets the objectives",
    params=SessionsParams,
    open_loop=lambda params: params.concurrency is None,
    blocks=_blocks,
    warmup=_warmup,
    slots=lambda params: params.concurrency,
    size=_size,
    labels=lambda params: (*OF_SESSIONS, *(["barge_in"] if params.barge_in else [])),
    sourced=_sourced,
    settled=_settled,
    again=lambda params: params.on_failure == "retry",
)
