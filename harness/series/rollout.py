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
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import OF_OUTCOME, ExitCode
from plimsoll.harness.live.place import Place, private
from plimsoll.harness.live.visitors import Visitors
from plimsoll.harness.outlook import outlook
from plimsoll.harness.process import child, writing
from plimsoll.harness.run.job import default_out, target_of
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.series.publish import tell

SCHEMA = "plimsoll.hook/1"
#: What a call may set, if the user allows it.
KEYS = ("url", "model", "rate", "concurrency", "duration", "queries")
#: Metadata that sets nothing: whether a result that somebody has is to be measured again; the token.
_ABOUT = ("again", "token")
#: A checksum that was measured gets its result again for so long. The same version may be rolled out another day.
KEEP_S = 3600.0
#: The status of what is no verdict, by exit code. A verdict is no 5xx: clients repeat those, and drop the text.
_STATUS: Mapping[int, int] = {ExitCode.USAGE: 400, ExitCode.UNREACHABLE: 502, ExitCode.INTERRUPTED: 503}


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run. ``code``: its exit code. ``shown``: what Argo gets of it."""

    code: int
    text: str
    shown: Mapping[str, Any]


class Call(BaseModel, extra="forbid"):
    """What a controller sends: Flagger's payload, and Argo's of the same shape. Only the checksum is needed."""

    checksum: str = Field(min_length=1)
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
    ] + [
        f"metadata {name}: it has ${{, or a character that nobody can see, in it"
        for name, value in call.sets().items()
        if "${" in value or not value.isprintable()
    ]
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
class Hook:
    """The server: ``/flagger`` and ``/argo`` ask the desk, ``/healthz`` says that it is there.

    Each run is a process: ``words`` begin its command line, the scenario's ``name`` its folder below ``out``.
    """

    words: Sequence[str]
    name: str
    out: Path
    allowed: Sequence[str]
    token: str | None
    exit_map: Mapping[int, int]
    _process: asyncio.subprocess.Process | None = None

    async def serve(self, place: Place) -> int:
        """Until Ctrl-C or SIGTERM, which ends the run that goes on too: whoever waits for it is told. The exit code.

        Raises HarnessFault if it can't listen.
        """
        loop, stop, desk = asyncio.get_running_loop(), asyncio.Event(), Desk(self._measure)
        # A controller is no browser. Where only this host can ask, a page that its browser shows must not.
        visitors = Visitors(place.host) if private(place.host) else None
        asked = partial(self._asked, desk, visitors)

        async def healthy(request: web.Request) -> web.Response:
            return web.Response(text="ok\n")

        def end() -> None:
            stop.set()
            if self._process is not None and self._process.returncode is None:
                self._process.send_signal(signal.SIGINT)  # its records are sealed

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        app = web.Application(client_max_size=2**16)
        app.add_routes([web.get("/healthz", healthy), web.post("/flagger", asked), web.route("*", "/argo", asked)])
        runner = web.AppRunner(app, access_log=None, logger=logging.Logger("hook", 99), shutdown_timeout=5)
        await runner.setup()
        try:
            await web.TCPSite(runner, place.host, place.port).start()
            url = place.url(runner.addresses[0][1])
            print(json.dumps({"flagger": f"{url}flagger", "argo": f"{url}argo"}), flush=True)
            await stop.wait()
            cut = desk.going_on()
            await asyncio.gather(*cut, return_exceptions=True)
        except OSError as error:
            raise HarnessFault(
                f"--port {place.port}: cannot listen at {place.host} ({error.strerror}). Name a free port, or 0"
            ) from None
        finally:
            await runner.cleanup()
        return ExitCode.INTERRUPTED if cut else ExitCode.PASS

    async def _asked(self, desk: Desk, visitors: Visitors | None, request: web.Request) -> web.Response:
        """A call is answered when its run has ended. To Flagger 200 means go on, and anything else halts, with the text
        in its events; to Argo 200 is every verdict, of which the metric's conditions make what they will.
        """
        if visitors is not None and (refusal := visitors.refusal(request.headers.get)) is not None:
            return web.Response(status=403, text=refusal)
        try:
            call = read(await _body(request), self.allowed)
            token = request.headers.get("Authorization", "").removeprefix("Bearer ") or str(call.metadata.get("token"))
            if self.token is not None and not hmac.compare_digest(*map(_bytes, (token, self.token))):
                return web.Response(status=401, text="no token: send Authorization: Bearer TOKEN, or metadata token\n")
            if (run := desk.run(call)) is None:
                return web.Response(status=429, text="another run goes on. Ask again\n", headers={"Retry-After": "30"})
            result = await asyncio.shield(run.task)
        except HarnessFault as fault:
            return web.Response(status=400, text="".join(f"error: {one}\n" for one in fault.errors))
        run.given = run.given or (request.transport is not None and not request.transport.is_closing())
        code = self.exit_map.get(result.code, result.code)
        argo, verdict = request.path == "/argo", "objectives" in result.shown
        status = (200 if argo or not code else 412) if verdict else _STATUS.get(result.code, 500)
        if argo:
            shown = {"schema": SCHEMA, **result.shown, "exit_code": code, "text": result.text}
            return web.json_response(shown, status=status)
        return web.Response(status=status, text=f"{result.text}\n")

    async def _measure(self, call: Call) -> Result:
        """Send the load, judge it, and say what came of it."""
        folder = default_out(f"{self.name}-{call.checksum[:40]}", self.out)
        sets = [f"--{name}={value}" for name, value in call.sets().items()]
        words = child.command("plimsoll", *self.words, *sets, f"--out={folder}", "--quiet")
        tell(f"{folder.name}: begins")
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await child.begin(words, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True)
        self._process = process
        said, told = (text.decode(errors="replace").strip() for text in await process.communicate())
        result = _result(process.returncode or 0, said, told, folder)
        tell("\n".join(f"{folder.name}: {line}" for line in f"{told}\n{said}".strip().splitlines()))
        return result


def _result(code: int, said: str, told: str, folder: Path) -> Result:
    report = folder / "report.json"
    run = str(folder) if report.is_file() else None
    if run is None or code not in OF_OUTCOME.values():
        errors = [line for line in told.splitlines() if line.startswith("error: ")]
        return Result(code, "\n".join(errors) or said or told[-2000:], {"verdict": "NONE", "run": run})
    verdict = json.loads(report.read_bytes())["verdict"]
    parts = {key: verdict[key] for key in ("reasons", "objectives")}
    return Result(code, said, {"verdict": verdict["outcome"], "run": run, **parts})


def _bytes(token: str) -> bytes:
    """Of any that a header or JSON can hold: half a surrogate pair, too."""
    return token.encode(errors="surrogatepass")


async def _body(request: web.Request) -> Any:
    """What a call says; of a GET its query, as a body would have it."""
    if request.method == "GET":
        metadata = dict(request.query)
        return {name: metadata.pop(name) for name in [*metadata] if name in Call.model_fields} | {"metadata": metadata}
    try:
        return json.loads(await request.read())
    except (ValueError, RecursionError) as error:
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
    open_to_all = token is None and not private(place.host)
    if "url" in allowed and open_to_all:
        errors.append(
            f"--allow url: whoever reaches {place.host} could send this load, and its API key, anywhere. Add "
            "--token-env NAME, or leave url out"
        )
    try:
        scenario = outlook.read(name, {"url": url}, Asked(slo), outlook.Guesses()).scenario
        for one in scenario.classes.values():
            if one.target.url or "url" not in allowed:  # else each call says where
                target_of(one)
    except HarnessFault as fault:
        raise HarnessFault([*errors, *fault.errors]) from None
    if errors:
        raise HarnessFault(errors)
    try:
        out.mkdir(parents=True, exist_ok=True)
        writing.check(out / "run")
    except OSError as error:
        told = f"--out: cannot write in {out} ({error.strerror}). Name a folder that you may write"
        raise HarnessFault(told) from None
    if open_to_all:
        tell(f"warning: whoever reaches {place.host} can have this load sent. Add --token-env NAME")
    words = ["run", name, *([f"--url={url}"] if url else []), *(f"--slo={one}" for one in slo)]
    return asyncio.run(Hook(words, scenario.name, out, allowed, token, exit_map).serve(place))
