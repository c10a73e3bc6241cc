"""What all front-ends share: the models, the truth, the faults, the counters, and the requests under way."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from reference_server.answers import Script, TextModel
from reference_server.batch_model import Batched
from reference_server.errors import RequestError
from reference_server.faults import Faults
from reference_server.llm import LanguageModel
from reference_server.metrics import Metrics
from reference_server.scripted import ScriptedModel
from reference_server.speech.seam import Recogniser, Synthesiser
from reference_server.startup import Startup
from reference_server.timetable import DeadlineWheel, Fire
from reference_server.truth import Truth


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
    recogniser: Recogniser | None = None
    synthesiser: Synthesiser | None = None
    n_in_flight: int = 0
    n_unnamed: int = 0

    @property
    def model_names(self) -> list[str]:
        """Models served, by name."""
        named = (self.llm, self.scripted, self.recogniser, self.synthesiser)
        return [*(model.name for model in named if model is not None), *self.fixed]

    def model(self, name: str) -> TextModel:
        """The text model of that name. Raises RequestError 404, and 503 while the server starts."""
        for model in (self.llm, self.scripted):
            if model is not None and model.name == name:
                return model
        raise self.unknown(name, "continues text")

    def batched(self, name: str) -> Batched:
        """The fixed-output model of that name. Raises RequestError 404, and 503 while the server starts."""
        if name in self.fixed:
            return self.fixed[name]
        raise self.unknown(name, "takes tensors")

    def unknown(self, name: str, ability: str) -> RequestError:
        """Why there is no model of that name that is able to do that."""
        if not self.startup.ready:
            return RequestError(
                503, "the server is starting. Ask /health", kind="server_error", code="starting", retry_after_s=1
            )
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
        if not self.faults.first(now_ns):
            return
        for fault in self.faults.named("stall"):
            for_ns, every_ns = fault.duration_ns("for"), fault.duration_ns("every")
            at_ns = now_ns + fault.duration_ns("at")
            self.wheel.at(at_ns, _freezer(self.wheel, at_ns, for_ns, every_ns))

    async def stop(self) -> None:
        """End every model; whoever still waits is told."""
        running = [self.llm.engine if self.llm is not None else None, *self.fixed.values()]
        for model in (*running, self.recogniser, self.synthesiser):
            if model is not None:
                await model.stop()

    def render_metrics(self) -> bytes:
        """The text exposition."""
        return self.metrics.render(self.llm.engine if self.llm is not None else None, self.scripted)


def _freezer(wheel: DeadlineWheel, at_ns: int, for_ns: int, every_ns: int) -> Fire:
    """Stop the whole event loop for a while: nothing is read, nothing written, and all timetables move on by
    it.
    """

    def fire(due_ns: int) -> int | None:
        nonlocal at_ns
        while (left_ns := due_ns + for_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        wheel.postpone(for_ns)
        at_ns += every_ns
        return at_ns if every_ns > 0 else None

    return fire
