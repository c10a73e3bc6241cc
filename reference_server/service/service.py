"""What all front-ends share: the models, the truth, the faults, the counters, and the account of each request.

How a request is refused, and how its answer breaks off, is the front-end's.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field

from plimsoll.reference_server.engine.batcher import Batcher
from plimsoll.reference_server.engine.llm import LanguageModel
from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.engine.scripted import ScriptedModel
from plimsoll.reference_server.engine.shelf import Shelf
from plimsoll.reference_server.misfortune.fault import Break, Fault, Misfortune, refusal
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.misfortune.levers import Levers
from plimsoll.reference_server.seams.models import Script, TextModel
from plimsoll.reference_server.seams.truth import Statistics, Truth, TruthRow
from plimsoll.reference_server.service.limit import Limit
from plimsoll.reference_server.speech.listening import Recogniser
from plimsoll.reference_server.speech.speaking import Synthesiser
from plimsoll.reference_server.values.durations import Startup
from plimsoll.reference_server.values.errors import ConfigError, RequestError, too_long, unavailable
from plimsoll.reference_server.values.timetable import DeadlineWheel


class Canary:
    """The copy, once there is one, and who goes there."""

    def __init__(self, faults: Faults, build: Callable[[Fault], Awaitable[LanguageModel]]) -> None:
        """``build`` makes and starts the copy that a fault describes; it raises ConfigError where there can be none."""
        self._faults = faults
        self._build = build
        self._copy: LanguageModel | None = None
        self._preparing = False

    async def start(self) -> None:
        """Have the copy ready that a fault given at start wants. Raises ConfigError when there are two."""
        wanted = self._faults.named("quality")
        if len(wanted) > 1:
            raise ConfigError("--fault quality: given twice. Give it once")
        for fault in wanted:
            self._copy = await self._build(fault)

    async def prepare(self, fault: Fault) -> None:
        """Have the copy ready before the fault is placed. Raises ConfigError while another one is in force."""
        if self._preparing or self._faults.named("quality"):
            raise ConfigError("--fault quality: one is in force already. Take it away first")
        self._preparing = True
        try:
            copy = await self._build(fault)
            await self.stop()
            self._copy = copy
        finally:
            self._preparing = False

    def model_for(self, prompt: Sequence[int]) -> LanguageModel | None:
        """The copy, for a prompt of the slice while the fault acts; else None."""
        for placed in self._faults.acting("quality", time.monotonic_ns()):
            if self._copy is not None and placed.marks(",".join(map(str, prompt)), "slice"):
                placed.hit()
                return self._copy
        return None

    async def stop(self) -> None:
        """End the copy's engine."""
        if self._copy is not None:
            await self._copy.engine.stop()
            self._copy = None


@dataclass(slots=True, eq=False)
class Service:
    """One server's state. Lives on one event loop."""

    wheel: DeadlineWheel
    faults: Faults
    truth: Truth
    metrics: Metrics
    max_body_bytes: int
    startup: Startup = field(default_factory=Startup)
    scripted: ScriptedModel | None = None
    llm: LanguageModel | None = None
    fixed: dict[str, Batcher] = field(default_factory=dict)
    canary: Canary | None = None
    recogniser: Recogniser | None = None
    synthesiser: Synthesiser | None = None
    statistics: Statistics = field(default_factory=Statistics)
    read_timeout_s: float = 30.0
    """Longest that a client may take for the head of a request, and for its body."""
    max_connections: int = 8192
    version: str = "1"
    """Of the models, as answers say it."""
    served_by: str = ""
    """The server's name in a fleet."""
    response_cache: int = 0
    """So many whole answers are kept, ..."""
    kept: OrderedDict[bytes, tuple[str, dict[str, str], bytes]] = field(default_factory=OrderedDict)
    """... model, headers of the body and body, by request; the one asked for longest ago is first."""
    shelf: Shelf = field(default_factory=Shelf)
    """Where the models of fixed outputs are."""
    limit: Limit | None = None
    """Of requests under way; sessions over WebSocket are none."""
    n_in_flight: int = 0
    n_unnamed: int = 0
    levers: Levers = field(init=False)
    """What faults move while they act; models are attached as they start."""

    def __post_init__(self) -> None:
        self.levers = Levers(self.wheel, self.faults)
        if (limit := self.limit) is not None:
            self.metrics.limit(lambda: limit.most)

    def identity(self) -> dict[str, str]:
        """What every answer says of who gave it: nothing, unless the server has a name."""
        return {"x-served-by": self.served_by, "x-version": self.version} if self.served_by else {}

    @property
    def model_names(self) -> list[str]:
        named = (self.llm, self.scripted, self.recogniser, self.synthesiser)
        return [*(model.name for model in named if model is not None), *self.fixed]

    def model(self, name: str, ability: str = "continues text") -> TextModel:
        """The text model of that name. Raises RequestError 404, and 503 while the server starts."""
        for model in (self.llm, self.scripted):
            if model is not None and model.name == name:
                return model
        raise self.unknown(name, ability)

    def batched(self, name: str) -> Batcher:
        """The fixed-output model of that name. Raises RequestError 404, and 503 while the server starts."""
        if name in self.fixed:
            return self.fixed[name]
        raise self.unknown(name, "takes tensors")

    def listening(self, name: str = "") -> Recogniser:
        """The recogniser, whose name may be left out. Raises as ``model`` does."""
        if self.recogniser is None or name not in ("", self.recogniser.name):
            raise self.unknown(name or "recogniser", "listens")
        return self.recogniser

    def speaking(self, name: str = "") -> Synthesiser:
        """The synthesiser, whose name may be left out. Raises as ``model`` does."""
        if self.synthesiser is None or name not in ("", self.synthesiser.name):
            raise self.unknown(name or "synthesiser", "speaks")
        return self.synthesiser

    @property
    def ready(self) -> bool:
        """Are requests answered?"""
        return self.closed() is None

    def has(self, name: str) -> bool:
        """Are requests to that model answered?"""
        return self.ready and not (name in self.shelf.models and self.shelf.models[name].unloaded)

    def closed(self) -> RequestError | None:
        """Why no request is taken now, if none is: the server is starting or draining, or its engine has failed."""
        if self.startup.draining:
            message, code = "the server is draining: it finishes what it has and takes nothing new", "draining"
        elif not self.startup.ready:
            message, code = "the server is starting. Ask /health", "starting"
        elif self.llm is not None and self.llm.engine.failure:
            message, code = f"{self.llm.engine.failure}. The server must be started again", "failed"
        else:
            return None
        return unavailable(message, code)

    def unknown(self, name: str, ability: str) -> RequestError:
        """Why there is no model of that name that is able to do that."""
        closed = self.closed()
        if closed is not None:
            return closed
        if name in self.model_names:
            return RequestError(400, f"model {name!r} is no model that {ability}", param="model", code="wrong_model")
        served = ", ".join(self.model_names)
        return RequestError(
            404, f"model {name!r} does not exist. Served here: {served}", param="model", code="model_not_found"
        )

    def check(self, model: TextModel, n_prompt: int, n_new: int, script: Script) -> None:
        """Raises RequestError 400 when the model can't do what is asked."""
        self.check_script(model.name, script)
        if n_prompt + n_new > model.max_context:
            raise too_long(n_prompt, n_new, model.max_context)

    def check_script(self, model: str, script: Script) -> None:
        """Raises RequestError 400 when the script is of times and the model keeps none."""
        if script.needs_timetable and (self.scripted is None or model != self.scripted.name):
            message = f"plimsoll: model {model!r} keeps no timetable. Use model scripted"
            raise RequestError(400, message, param="plimsoll")

    def in_time(
        self, model: str, deadline_ns: int, limit: str = "before the deadline", param: str | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Whatever the block waits for, it ends at that instant of ``time.monotonic_ns()``; -1 for never.

        Raises RequestError 504 then, which is counted; ``limit`` is how the client gave it, ``param`` where.
        """
        return nullcontext() if deadline_ns < 0 else self._in_time(model, deadline_ns, limit, param)

    @asynccontextmanager
    async def _in_time(self, model: str, deadline_ns: int, limit: str, param: str | None) -> AsyncIterator[None]:
        try:
            # The loop's clock is the monotonic clock that deadlines are told in.
            async with asyncio.timeout_at(deadline_ns / 1e9):
                yield
        except TimeoutError:
            self.metrics.deadline_missed(model)
            message = f"the answer was not whole {limit}. Allow more time, or ask for less"
            raise RequestError(504, message, kind="server_error", param=param, code="deadline_exceeded") from None

    def begin(self, now_ns: int) -> None:
        """Note that an inference request came; the first one starts the clock of the faults."""
        self.n_in_flight += 1
        if self.faults.first(now_ns):
            self.levers.changed(now_ns)

    async def stop(self) -> None:
        """End every model; whoever still waits is told."""
        running = [self.llm.engine if self.llm is not None else None, *self.fixed.values()]
        for model in (*running, self.canary, self.recogniser, self.synthesiser):
            if model is not None:
                await model.stop()

    def render_metrics(self) -> bytes:
        return self.metrics.render(self.llm.engine if self.llm is not None else None, self.scripted, self.startup)


UNTOUCHED = Misfortune()


@dataclass(slots=True, eq=False)
class Account:
    """One request under way."""

    service: Service
    row: TruthRow
    closed: RequestError | None = None
    """Why the server takes no request now, if it takes none."""
    misfortune: Misfortune = UNTOUCHED
    own_cut: bool = False
    """The request itself said where its answer is cut."""
    outcome: str = "error"
    """``ok``, ``cut``, ``cancelled`` or ``error``: the front-end says what it came to."""
    taken: bool = False
    """It counts towards the limit."""

    def draw(self, *, session: bool = False) -> Misfortune:
        """What the faults have in store for it. Raises RequestError where they, or the server, refuse it."""
        if self.closed is not None:
            raise self.closed
        if (limit := self.service.limit) is not None and not session:
            self.taken = limit.take()
            if not self.taken:
                message = f"{limit.n_taken} requests are under way, which is the limit now. Come back later"
                raise unavailable(message, "overloaded")
        if self.service.faults.present:
            self.misfortune = self.service.faults.draw(self.row.received_ns, in_flight=self.service.n_in_flight)
        return self.misfortune

    def limits(self, script: Script) -> tuple[int, int]:
        """Token positions at which the answer fails or is cut: the request's own wish before the server's faults."""
        error_at = script.error_at if script.error_at >= 0 else self.misfortune.error_at
        if script.cut_at < 0:
            return error_at, self.misfortune.cut_at
        self.own_cut = True
        return error_at, script.cut_at

    @property
    def break_by(self) -> Break:
        return Break.CLOSE if self.own_cut else self.misfortune.break_by

    async def hold(self) -> None:
        """Wait as long as the faults say before the first byte."""
        if self.misfortune.delay_ns > 0:
            await self.service.wheel.sleep_until(self.row.received_ns + self.misfortune.delay_ns)

    def refused(self, error: RequestError) -> None:
        """Count a refusal for want of room. The batchers of models with fixed outputs count their own."""
        if error.status in (429, 503) and self.row.model not in self.service.fixed:
            self.service.metrics.rejected(self.row.model, error.code or "unnamed")


@contextmanager
def accounted(service: Service, request_id: str, received_ns: int, closed: RequestError | None) -> Iterator[Account]:
    """Keep the account of one request for as long as the block lasts. ``closed``: why it isn't taken, if it isn't."""
    account = Account(service, service.truth.open(request_id, "", received_ns), closed)
    if closed is None:
        service.begin(received_ns)
    else:  # the clock of the faults starts with a request that is served
        service.n_in_flight += 1
    try:
        yield account
    finally:
        row = account.row
        service.n_in_flight -= 1
        if account.taken and service.limit is not None:
            service.limit.give(received_ns, time.monotonic_ns())
        service.truth.close(row, account.outcome, time.monotonic_ns())
        service.metrics.request(row.model, row.status, row.outcome)


def obey(script: Script) -> None:
    """Raise the status that a request asks for itself, if it does."""
    if script.status is not None:
        raise refusal(script.status, "status", 1)
