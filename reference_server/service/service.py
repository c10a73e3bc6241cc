"""What all front-ends share: the models, the truth, the faults, the counters, and the requests under way."""

from __future__ import annotations

from dataclasses import dataclass, field

from plimsoll.reference_server.engine.llm import LanguageModel
from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.engine.model_statistics import Statistics
from plimsoll.reference_server.engine.scripted import ScriptedModel
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.misfortune.levers import Levers
from plimsoll.reference_server.seams.answers import Script, TextModel
from plimsoll.reference_server.seams.batch_model import Batched
from plimsoll.reference_server.seams.truth import Truth
from plimsoll.reference_server.service.canary import Canary
from plimsoll.reference_server.speech.seam import Recogniser, Synthesiser
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.startup import Startup
from plimsoll.reference_server.values.timetable import DeadlineWheel


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
    fixed: dict[str, Batched] = field(default_factory=dict)
    canary: Canary | None = None
    recogniser: Recogniser | None = None
    synthesiser: Synthesiser | None = None
    statistics: Statistics = field(default_factory=Statistics)
    read_timeout_s: float = 30.0
    """Longest that a client may take for the head of a request, and for its body."""
    max_connections: int = 8192
    n_in_flight: int = 0
    n_unnamed: int = 0
    levers: Levers = field(init=False)
    """What faults move while they act; models are attached as they start."""

    def __post_init__(self) -> None:
        self.levers = Levers(self.wheel, self.faults)

    @property
    def model_names(self) -> list[str]:
        """Models served, by name."""
        named = (self.llm, self.scripted, self.recogniser, self.synthesiser)
        return [*(model.name for model in named if model is not None), *self.fixed]

    def model(self, name: str, ability: str = "continues text") -> TextModel:
        """The text model of that name. Raises RequestError 404, and 503 while the server starts."""
        for model in (self.llm, self.scripted):
            if model is not None and model.name == name:
                return model
        raise self.unknown(name, ability)

    def batched(self, name: str) -> Batched:
        """The fixed-output model of that name. Raises RequestError 404, and 503 while the server starts."""
        if name in self.fixed:
            return self.fixed[name]
        raise self.unknown(name, "takes tensors")

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
        return RequestError(503, message, kind="server_error", code=code, retry_after_s=1)

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
        if script.needs_timetable and model is not self.scripted:
            raise RequestError(
                400,
                f"plimsoll: model {model.name!r} keeps no timetable. Use model scripted",
                param="plimsoll",
            )
        if n_prompt + n_new > model.max_context:
            raise RequestError(
                400,
                f"prompt of {n_prompt} tokens and max_tokens of {n_new} exceed the context of "
                f"{model.max_context} tokens. Shorten the prompt or lower max_tokens",
                param="max_tokens",
                code="context_length_exceeded",
            )

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
        """The text exposition."""
        return self.metrics.render(self.llm.engine if self.llm is not None else None, self.scripted, self.startup)
