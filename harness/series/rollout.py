"""What rollout controllers ask and how a run answers: Flagger's webhooks by the status, Argo Rollouts' web metrics by
the JSON.

A checksum (the controller's name of what is rolled out) has one run: whoever asks for it while that goes on waits for
it, and who asks later gets its result. So a controller may give up waiting and ask again. Each run is a process of
``plimsoll run``, one at a time. A call sets nothing but scalar flags that the user allowed by name; it can't name a
file, a header or a command.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ValidationError

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import OF_OUTCOME, ExitCode
from plimsoll.harness.live.place import Place, private
from plimsoll.harness.live.visitors import Visitors
from plimsoll.harness.process import child
from plimsoll.harness.run.job import check_promised, default_out, errors_beyond, find_scenario, promised
from plimsoll.harness.run.promises import Asked, read_promises
from plimsoll.harness.series.publish import tell
from plimsoll.scenarios.text.document import ScenarioError

SCHEMA = "plimsoll.hook/1"
#: What a call may set, if the user allows it.
KEYS = ("url", "model", "rate", "concurrency", "duration", "queries")
#: Metadata that sets nothing: whether a result that somebody has is to be measured again; the token.
_ABOUT = ("again", "token")
#: A checksum that was measured gets its result again for so long. The same version may be rolled out another day.
KEEP_S = 3600.0
#: The status of what is no verdict, by exit code. A verdict is no 5xx: clients repeat those, and drop the text.
_STATUS: Mapping[int, int] = {ExitCode.USAGE: 400, ExitCode.UNREACHABLE: 502, ExitCode.INTERRUPTED: 503}
_OF_OBJECTIVE = ("objective", "outcome", "observed", "threshold", "unit", "n", "n_needed", "sentence")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run. ``code``: its exit code. ``shown``: what Argo gets of it."""

    code: int
    text: str
    shown: Mapping[str, Any] = field(default_factory=dict)


class Call(BaseModel, extra="forbid"):
    """What a controller sends: Flagger's payload, and Argo's of the same shape. Only the checksum is needed."""

    checksum: str
    name: str = ""
    namespace: str = ""
    phase: str = ""
    metadata: dict[str, str | bool | int | float] = {}

    def sets(self) -> dict[str, str]:
        """The flags that it sets."""
        return {name: str(value) for name, value in sorted(self.metadata.items()) if name in KEYS}

    def key(self) -> object:
        """Calls of one key have one run. The phase is no part of it: it changes while Flagger waits."""
        return self.name, self.namespace, self.checksum, *self.sets().items()


def read(given: Any, allowed: Sequence[str]) -> Call:
    """A call. Raises HarnessFault with every error in it."""
    try:
        call = Call.model_validate(given)
    except ValidationError as error:
        raise HarnessFault(
            [f"{'.'.join(map(str, one['loc'])) or 'the body'}: {one['msg']}" for one in error.errors()]
        ) from None
    may = (*allowed, *_ABOUT)
    errors = [
        f"metadata {name!r:.40}: a call may set {', '.join(may)}" for name in call.metadata if name not in may
    ] + [f"metadata {name}: it has ${{ in it" for name, value in call.sets().items() if "${" in value]
    if not call.checksum:
        errors.append("checksum: empty. Without it the result of another version would answer")
    if errors:
        raise HarnessFault(errors)
    return call


@dataclass(slots=True)
class _Run:
    """A run that goes on or has ended. ``given``: somebody has its result."""

    task: asyncio.Task[Result]
    ended_s: float | None = None
    given: bool = False

    def serves(self, again: bool) -> bool:
        """Whether it answers one more call: nobody has its result yet, or that is a verdict which stands."""
        if not self.task.done() or self.task.exception() is not None:
            return not self.task.done()
        return not self.given or (self.task.result().code in (0, 1, 3) and not again)


class Desk:
    """Which run answers a call. ``measure`` makes one, ``now`` is a clock in seconds."""

    def __init__(self, measure: Callable[[Call], Awaitable[Result]], now: Callable[[], float] = time.monotonic) -> None:
        self._measure, self._now = measure, now
        self._runs: dict[object, _Run] = {}

    def run(self, call: Call) -> _Run | None:
        """The run that answers, begun if there is none; None while another one goes on."""
        since, key = self._now() - KEEP_S, call.key()
        self._runs = {name: one for name, one in self._runs.items() if one.ended_s is None or one.ended_s > since}
        found = self._runs.get(key)
        if found is not None and found.serves(str(call.metadata.get("again")).lower() == "true"):
            return found
        if self.going_on():
            return None
        made = self._runs[key] = _Run(asyncio.ensure_future(self._measure(call)))
        made.task.add_done_callback(lambda _: setattr(made, "ended_s", self._now()))
        return made

    def going_on(self) -> list[asyncio.Task[Result]]:
        """Of what has not ended."""
        return [one.task for one in self._runs.values() if not one.task.done()]


@dataclass(slots=True)
class Runs:
    """Makes the runs, a process each: ``words`` begin their command lines, ``name`` and the checksum name their
    folders below ``out``.
    """

    words: Sequence[str]
    name: str
    out: Path
    _process: asyncio.subprocess.Process | None = None

    async def measure(self, call: Call) -> Result:
        """Send the load, judge it, and say what came of it. Its progress goes to our stderr."""
        folder = default_out(f"{self.name}-{call.checksum[:40]}", self.out)
        sets = [f"--{name}={value}" for name, value in call.sets().items()]
        words = child.command("plimsoll", *self.words, *sets, f"--out={folder}", "--quiet")
        pipe = asyncio.subprocess.PIPE
        process = self._process = await child.begin(
            words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        )
        tell(f"{folder.name}: begins")
        said, told = await asyncio.gather(_all(process.stdout, loud=False), _all(process.stderr, loud=True))
        result = _result(await process.wait(), said.strip(), told, folder)
        tell(f"{folder.name}: {result.text}")
        return result

    def interrupt(self) -> None:
        """End the run that goes on as Ctrl-C does: what was measured is kept."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)


async def _all(stream: asyncio.StreamReader | None, loud: bool) -> str:
    """What a run says; its end, if that is long. ``loud``: our stderr has it at once."""
    text = ""
    while stream is not None and (piece := (await stream.read(4096)).decode(errors="replace")):
        text = (text + piece)[-8000:]
        if loud:
            print(piece, end="", file=sys.stderr, flush=True)
    return text


def _result(code: int, said: str, told: str, folder: Path) -> Result:
    report = folder / "report.json"
    run = str(folder) if report.is_file() else None
    if run is None or code not in OF_OUTCOME.values():
        errors = [line for line in told.splitlines() if line.startswith("error: ")]
        return Result(code, "\n".join(errors) or said or told, {"verdict": "NONE", "run": run})
    verdict = json.loads(report.read_bytes())["verdict"]
    objectives = [{key: one[key] for key in _OF_OBJECTIVE} for one in verdict["objectives"]]
    shown = {"verdict": verdict["outcome"], "run": run, "reasons": verdict["reasons"], "objectives": objectives}
    return Result(code, said, shown)


class Hook:
    """The server: ``/flagger`` and ``/argo`` ask the desk, ``/healthz`` says that it is there."""

    def __init__(self, runs: Runs, allowed: Sequence[str], token: str | None, exit_map: Mapping[int, int]) -> None:
        self._runs, self._desk = runs, Desk(runs.measure)
        self._allowed, self._token, self._exit_map = allowed, token, exit_map
        self._visitors: Visitors | None = None

    async def serve(self, place: Place) -> int:
        """Until Ctrl-C or SIGTERM, which ends the run that goes on too: whoever waits for it is told. The exit code.

        Raises HarnessFault if it can't listen.
        """
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            stop.set()
            self._runs.interrupt()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        # A controller is no browser. Where only this host can ask, a page that its browser shows must not.
        self._visitors = Visitors(place.host) if private(place.host) else None
        app = web.Application(client_max_size=2**16)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_post("/flagger", self._asked)
        app.router.add_route("*", "/argo", self._asked)
        quiet = logging.Logger("hook", logging.CRITICAL + 1)
        runner = web.AppRunner(app, access_log=None, logger=quiet, shutdown_timeout=5)
        await runner.setup()
        try:
            await web.TCPSite(runner, place.host, place.port).start()
            url = place.url(runner.addresses[0][1])
            print(json.dumps({"flagger": f"{url}flagger", "argo": f"{url}argo"}), flush=True)
            await stop.wait()
            cut = self._desk.going_on()
            await asyncio.gather(*cut, return_exceptions=True)
        except OSError as error:
            raise HarnessFault(
                f"--port {place.port}: cannot listen at {place.host} ({error.strerror}). Name a free port, or 0"
            ) from None
        finally:
            await runner.cleanup()
        return ExitCode.INTERRUPTED if cut else ExitCode.PASS

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _asked(self, request: web.Request) -> web.Response:
        """A call is answered when its run has ended. To Flagger 200 means go on, and anything else halts, with the text
        in its events; to Argo 200 is every verdict, of which the metric's conditions make what they will.
        """
        if self._visitors is not None and (refusal := self._visitors.refusal(request.headers.get)) is not None:
            return web.Response(status=403, text=refusal)
        try:
            given = await _body(request)
            self._admit(request, given)
            run = self._desk.run(read(given, self._allowed))
            if run is None:
                text = "another run goes on, and one at a time is sent. Ask again\n"
                return web.Response(status=429, text=text, headers={"Retry-After": "30"})
            result = await asyncio.shield(run.task)
        except PermissionError as refused:
            return web.Response(status=401, text=f"{refused}\n")
        except HarnessFault as fault:
            return web.Response(status=400, text="".join(f"error: {one}\n" for one in fault.errors))
        run.given = run.given or (request.transport is not None and not request.transport.is_closing())
        code = self._exit_map.get(result.code, result.code)
        argo, verdict = request.path == "/argo", "objectives" in result.shown
        status = (200 if argo or not code else 412) if verdict else _STATUS.get(result.code, 500)
        if argo:
            shown = {"schema": SCHEMA, **result.shown, "exit_code": code, "text": result.text}
            return web.json_response(shown, status=status)
        return web.Response(status=status, text=f"{result.text}\n")

    def _admit(self, request: web.Request, given: Any) -> None:
        """Raises PermissionError for a call without the token."""
        metadata = given.get("metadata") if isinstance(given, dict) else None
        inside = metadata.get("token") if isinstance(metadata, dict) else None
        token = request.headers.get("Authorization", "").removeprefix("Bearer ") or str(inside)
        if self._token is not None and not hmac.compare_digest(token.encode(), self._token.encode()):
            raise PermissionError("a token is needed: Authorization: Bearer TOKEN, or metadata token")


async def _body(request: web.Request) -> Any:
    """What a call says; of a GET its query, as a body would have it."""
    if request.method == "GET":
        metadata = dict(request.query)
        return {name: metadata.pop(name) for name in [*metadata] if name in Call.model_fields} | {"metadata": metadata}
    try:
        return json.loads(await request.read())
    except ValueError as error:
        raise HarnessFault(f"the body is no JSON: {error}") from None


def answer(
    name: str, url: str | None, slo: Sequence[str], allow: Sequence[str], token_env: str | None,
    place: Place, out: Path, exit_map: Mapping[int, int],
) -> int:  # fmt: skip
    """Check everything, then answer until Ctrl-C. Raises HarnessFault with every error found."""
    allowed = [key.strip() for text in allow for key in text.split(",")]
    errors = [f"--allow {key}: not one of {', '.join(KEYS)}. Leave it out" for key in allowed if key not in KEYS]
    token = os.environ.get(token_env) if token_env is not None else None
    if token_env is not None and not token:
        errors.append(f"--token-env: the environment variable {token_env} is not set, or empty. Export {token_env}=...")
    if "url" in allowed and token is None and not private(place.host):
        errors.append(
            f"--allow url: whoever reaches {place.host} could send this load, and its API key, anywhere. Add "
            "--token-env NAME, or leave url out"
        )
    asked = Asked(slo)
    promises, problems = read_promises(asked)
    errors += problems
    flags = {"url": url} | ({"objectives": promises.texts} if asked.any_objective else {})
    called = ""
    try:
        scenario = find_scenario(name, flags)
        called = scenario.name
        errors += check_promised(scenario, name, flags, asked, promises)[1]
        if not asked.any_objective and not promised(scenario):
            errors.append(f"{name}: no objective, so that every rollout would pass. Add objectives, or --slo")
    except ScenarioError as error:
        errors += [*error.errors, *errors_beyond(name, asked.any_objective)]
    if errors:
        raise HarnessFault(list(dict.fromkeys(errors)))
    if token is None and not private(place.host):
        tell(f"warning: whoever reaches {place.host} can have this load sent. Add --token-env NAME")
    words = ["run", name, *([f"--url={url}"] if url else []), *(f"--slo={one}" for one in slo)]
    return asyncio.run(Hook(Runs(words, called, out), allowed, token, exit_map).serve(place))
