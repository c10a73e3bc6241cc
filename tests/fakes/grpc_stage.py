"""What every fake of a gRPC service shares: messages by name, a script of how answers go, a log of when it wrote what,
a way to run.

Message types come from the descriptor sets that are shipped (data, no code of ours); that those are right is shown by
the vendors' own clients. What a fake recognises is driven by the audio time that it was sent, plus scripted wall
delays, so that tests are exact whatever the pace. ``Log.said`` has ``time.monotonic_ns`` read just before each message
was written. A fake is started as ``python -m tests.fakes.NAME --port 0`` and prints one JSON line when it is ready.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SETS = Path(__file__).parent.parent.parent / "harness" / "protocols" / "_grpc" / "sets"


@dataclass(frozen=True)
class Knobs:
    """What is scripted. Times in ms; ``fault`` is ``NAME[=VALUE]`` and strikes before answer number ``fault_at``.

    Word i of ``words`` ends at ``first_ms + i * word_ms`` of audio. Faults: ``status=CODE`` (the call fails so),
    ``error`` (the service's own error inside a message, where it has one), ``garbage`` (a message that is none),
    ``hang`` (no answer any more).
    """

    words: tuple[str, ...] = ("one", "two", "three")
    first_ms: float = 200.0
    word_ms: float = 100.0
    partial_delay_ms: float = 5.0
    final_delay_ms: float = 20.0
    endpoint_ms: float = 200.0  # of silence after the last word, in audio time
    ttfa_ms: float = 20.0
    audio_per_word_ms: float = 100.0
    chunk_ms: float = 50.0
    chunk_every_ms: float = 10.0
    leading_silence_ms: float = 30.0
    answer_ms: float = 10.0
    pieces: int = 5
    fault: str = ""
    fault_at: int = 1


@dataclass
class Log:
    """What the fake saw and did: one entry a call."""

    calls: list[CallLog] = field(default_factory=list)
    path: Path | None = None

    def begin(self, context: Any) -> CallLog:
        call = CallLog(dict(context.invocation_metadata()), time.monotonic_ns())
        self.calls.append(call)
        return call

    def end(self, call: CallLog) -> None:
        if self.path is not None:
            with self.path.open("a") as out:
                out.write(json.dumps({**vars(call), "metadata": {k: str(v) for k, v in call.metadata.items()}}) + "\n")


@dataclass
class CallLog:
    """One call: its metadata, what of it was wrong, when audio came (ns, bytes) and when messages went out (ns,
    what).
    """

    metadata: Mapping[str, Any]
    begun_ns: int
    config: str = ""
    problem: str = ""
    heard: list[tuple[int, int]] = field(default_factory=list)
    closed_ns: int = -1
    said: list[tuple[int, str]] = field(default_factory=list)

    def times(self, kind: str) -> list[int]:
        return [t_ns for t_ns, what in self.said if what == kind]


class Messages:
    """Message classes of one descriptor set by their full names."""

    def __init__(self, name: str) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString((_SETS / f"{name}.binpb").read_bytes()).file:
            self._pool.AddSerializedFile(file.SerializeToString())

    def __getitem__(self, name: str) -> Any:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))


class Refusal(Exception):
    """The call fails with a status."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def invalid(text: str) -> Refusal:
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, text)


class Stage:
    """One call under way: reads, writes and strikes as scripted."""

    def __init__(self, knobs: Knobs, log: CallLog, context: Any) -> None:
        self.knobs, self.log, self._context = knobs, log, context
        self._answers = 0

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.log.metadata

    async def read(self) -> bytes | None:
        """The next message, None at the half-close."""
        data = await self._context.read()
        if isinstance(data, bytes):
            return data
        self.log.closed_ns = time.monotonic_ns()
        return None

    async def say(self, message: Any, what: str, error: Callable[[], Any] | None = None) -> None:
        """Write a message, unless the fault is due: ``error`` makes the service's own error message."""
        name, _, value = self.knobs.fault.partition("=")
        if name and self._answers >= self.knobs.fault_at:
            if name == "status":
                raise Refusal(getattr(grpc.StatusCode, value), "scripted failure")
            if name == "hang":
                await asyncio.sleep(3600)
            message = error() if name == "error" and error is not None else b"\xff\xff\xff"
        self._answers += 1
        data = message if isinstance(message, bytes) else message.SerializeToString()
        self.log.said.append((time.monotonic_ns(), what))
        await self._context.write(data)


Player = Callable[[Stage], Awaitable[None]]
Services = Mapping[str, Mapping[str, Player]]


@dataclass(frozen=True)
class Heard:
    """Something to say: ``what`` is partial, final or endpoint; ``reached_ms`` how far into the audio it goes."""

    what: str
    text: str
    reached_ms: float
    delay_ms: float


class Ear:
    """Words by audio time: silence after the last one ends the utterance, once."""

    def __init__(self, knobs: Knobs, bytes_per_ms: float, interim: bool, endpoints: bool) -> None:
        self._knobs, self._bytes_per_ms, self._interim, self._endpoints = knobs, bytes_per_ms, interim, endpoints
        self._bytes = self._n = 0
        self._final = False

    @property
    def ms(self) -> float:
        return self._bytes / self._bytes_per_ms

    def feed(self, data: bytes) -> Iterator[Heard]:
        self._bytes += len(data)
        knobs = self._knobs
        while self._n < len(knobs.words) and self.ms >= knobs.first_ms + self._n * knobs.word_ms:
            self._n += 1
            if self._interim:
                yield Heard("partial", " ".join(knobs.words[: self._n]), self.ms, knobs.partial_delay_ms)
        last_ms = knobs.first_ms + (len(knobs.words) - 1) * knobs.word_ms
        if not self._final and self._endpoints and self.ms >= last_ms + knobs.endpoint_ms:
            self._final = True
            yield Heard("endpoint", "", self.ms, 0.0)
            yield Heard("final", " ".join(knobs.words), self.ms, knobs.final_delay_ms)

    def finish(self) -> Iterator[Heard]:
        if not self._final and self._n:
            self._final = True
            yield Heard("final", " ".join(self._knobs.words[: self._n]), self.ms, self._knobs.final_delay_ms)


async def listen(
    stage: Stage,
    ear: Ear,
    audio_of: Callable[[bytes], bytes],
    render: Callable[[Heard], Any],
    error: Callable[[], Any] | None = None,
) -> None:
    """Audio until the half-close, and what is heard of it. ``render`` gives None for what the service doesn't say."""

    async def tell(news: Iterator[Heard]) -> None:
        for heard in news:
            message = render(heard)
            if message is not None:
                await asyncio.sleep(heard.delay_ms / 1000)
                await stage.say(message, heard.what, error)

    while (data := await stage.read()) is not None:
        audio = audio_of(data)
        stage.log.heard.append((time.monotonic_ns(), len(audio)))
        await tell(ear.feed(audio))
    await tell(ear.finish())


def tone(knobs: Knobs, text: str, rate: int) -> list[bytes]:
    """PCM16 for a text, in chunks: silence, then 400 Hz, so long a word."""
    n = round(len(text.split()) * knobs.audio_per_word_ms * rate / 1000)
    quiet = round(knobs.leading_silence_ms * rate / 1000)
    samples = [0 if i < quiet else round(8000 * math.sin(2 * math.pi * 400 * i / rate)) for i in range(n)]
    size = round(knobs.chunk_ms * rate / 1000)
    return [struct.pack(f"<{len(part)}h", *part) for at in range(0, n, size) if (part := samples[at : at + size])]


async def speak(stage: Stage, chunks: Sequence[bytes], render: Callable[[bytes], Any]) -> None:
    """Chunks of audio, the first after ``ttfa_ms``."""
    begun = asyncio.get_running_loop().time()
    for i, chunk in enumerate(chunks):
        due = begun + (stage.knobs.ttfa_ms + i * stage.knobs.chunk_every_ms) / 1000
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        await stage.say(render(chunk), "audio")


# -- running ----------------------------------------------------------------------------------------------------------


@dataclass
class Fake:
    """A running fake. ``url`` is ``grpc://host:port``."""

    log: Log
    url: str = ""


def _handler(fake: Fake, knobs: Knobs, play: Player) -> Any:
    async def handle(_requests: Any, context: Any) -> None:
        call = fake.log.begin(context)
        try:
            await play(Stage(knobs, call, context))
        except Refusal as refusal:
            call.problem = refusal.text
            await context.abort(refusal.code, refusal.text)
        finally:
            fake.log.end(call)

    return grpc.stream_stream_rpc_method_handler(handle)  # on the wire every kind of call is this one


async def run(
    fake: Fake, services: Services, knobs: Knobs, port: int, ready: Callable[[], None], stop: asyncio.Event
) -> None:
    """Serve until ``stop``; ``fake.url`` is set when ``ready`` is called."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    for name, methods in services.items():
        handlers = {method: _handler(fake, knobs, play) for method, play in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    fake.url = f"grpc://127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    await server.start()
    try:
        ready()
        await stop.wait()
    finally:
        await server.stop(0)


@contextmanager
def serving(services: Services, **knobs: Any) -> Iterator[Fake]:
    """Serve in a thread for the time of a block."""
    fake, loop = Fake(Log()), asyncio.new_event_loop()
    stop, ready = asyncio.Event(), threading.Event()
    work = run(fake, services, Knobs(**knobs), 0, ready.set, stop)
    thread = threading.Thread(target=loop.run_until_complete, args=[work])
    thread.start()
    try:
        assert ready.wait(10), "the fake did not start"
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def main(services: Services, description: str) -> None:
    """The command line: serve until interrupted, after one line of JSON with the address."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, help="append each call to this file, as JSON")
    for one in fields(Knobs):
        kind = {"words": lambda text: tuple(text.split()), "fault": str, "fault_at": int, "pieces": int}
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=kind.get(one.name, float), default=one.default)
    given = vars(parser.parse_args())
    port, log = given.pop("port"), given.pop("log")
    fake = Fake(Log(path=log))

    def ready() -> None:
        print(json.dumps({"ready": True, "url": fake.url, "target": fake.url.removeprefix("grpc://")}), flush=True)

    try:
        asyncio.run(run(fake, services, Knobs(**given), port, ready, asyncio.Event()))
    except KeyboardInterrupt:
        return
