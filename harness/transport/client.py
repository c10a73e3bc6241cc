"""This module is the seam between the issuer and the world: ``Client``, ``Target``, ``ProtocolSpec``. No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.secrecy.secrets import learn_target
from plimsoll.scenarios.samples.payload import Payload

#: With more requests than this in flight at once an open-loop run is given up as hopeless.
MAX_OUTSTANDING = 100_000
#: What may send: the compiled engine where it can and Python elsewhere, or one of them in any case.
ENGINES = ("auto", "native", "python")
#: Where arrival times come from: the kernel where it gives them, or this process in any case (to see the difference).
STAMPS = ("kernel", "user")
#: The longest wait for a due time that may be spent awake.
MAX_SPIN_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send, resolved: ``headers`` and ``secrets`` (what references in them stood for) are never written
    anywhere. A process that has a Target knows its secrets: ``plimsoll.harness.secrecy.redaction`` keeps them out of
    what it says.

    ``url`` is the origin plus optional base path as the user gave it. ``options`` are the protocol's own, already
    validated by ``ProtocolSpec.check``. ``engine`` is one of ``ENGINES``, ``stamps`` of
    ``STAMPS``; ``spin_ns`` before each due time the native engine stays awake (None: as long as costs little).
    ``fresh``: each attempt has a connection of its own. ``traceparent``: the share of requests that ask servers to
    record their trace (None: requests carry no trace context). ``impair``: what a bad network does to what is sent
    (``plimsoll.harness.transport.uplink``).
    """

    url: str
    protocol: str
    model: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_ns: int = 60_000_000_000
    connect_timeout_ns: int = 10_000_000_000
    tls_verify: bool = True
    ca_file: str | None = None
    max_connections: int | None = None
    send_request_id: bool = True
    traceparent: float | None = None
    max_outstanding: int = MAX_OUTSTANDING
    engine: str = "auto"
    stamps: str = "kernel"
    spin_ns: int | None = None
    fresh: bool = False
    impair: Mapping[str, Any] | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        learn_target(self.headers, self.options, self.url, self.secrets, (self.model, self.protocol))


#: Connections that one worker opens at once, ahead of t0: fewer than any accept queue holds, so that none is lost and
#: asked for again.
OPENING = 64
#: A closed loop's slot rests this long after a connection that could not be made.
BACKOFF_NS = 10_000_000


class Client(Protocol):
    """Sends exchanges. One per worker. All calls come from the loop's own thread."""

    def encode(self, payload: Payload) -> Any:
        """The request as this client wants it, ready to write. Cold: never called on the clock. Raises
        ``HarnessFault``.
        """
        ...

    async def open(self, connections: int) -> None:
        """Open up to ``connections`` connections ahead of t0, ``OPENING`` at a time.

        Failures are not errors: ``send`` will try again.
        """
        ...

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        """Send now and return at once. Stamps the exchange and calls ``exchange.on_done(exchange)`` exactly once.

        Hot. Must not call ``on_done`` before it has returned, except when it fails at once.
        """
        ...

    def settle(self, exchange: Exchange) -> None:
        """Take the finished response apart (JSON, tokens, usage). Off the clock; fills token fields and status."""
        ...

    def cancel(self, exchange: Exchange, status: int, error: str) -> None:
        """Give an exchange up: close its connection, set status and error, call ``on_done``."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...

    def stats(self) -> dict[str, Any]:
        """Counters for ``generator.json`` (``clock_steps`` among them); no secrets."""
        ...


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """One protocol by name, which is written out where the spec is made (``harness/protocols/_discovery.py`` looks for
    it there).

    ``options`` is the model of its options (None: it has none). ``bundled``: the bundled server speaks it, so that it
    can be tried without a URL; ``any_route``: it has no route of its own there, one must be named. ``bundled_model`` is
    what that server is started with where no model is named (None: a language model). ``grpc``: it is spoken on a gRPC
    port, that server's too. ``prepare(target)``, if there is one, asks the endpoint once, before any worker starts, for
    what all of them need (a schema, say), and returns the target with it; it raises HarnessFault. ``lists_models``:
    where no model is named, the first that the endpoint's ``/v1/models`` lists is asked for. ``source`` is the
    kind of payload source that feeds it where no scenario names one. ``answers``: where the text (or the list of
    numbers) of an answer is, for accuracy runs: selectors (``plimsoll.harness.wire.pointer``) into an event or a whole
    answer, the first that leads somewhere; none: the usual places. ``servers``: servers and services that speak it, in
    small letters, for whoever gives such a name for a protocol's; names that the protocol's begins with go without
    saying. ``sessions``: its rows tell of a session (when it opened, how long the sound is), though it is fed no audio.
    ``history``: what a request repeats of a session, ``messages`` or one ``text``; "": nothing. ``carries``: which of
    ``Payload.fields`` its requests have. ``speaks(options)``: the bundled server needs a voice beside the model.
    """

    name: str
    summary: str
    build: Callable[[Target, Any], Client]  # (target, clock) -> client
    options: type[Options] | None = None
    streaming: bool = True
    needs_url: bool = True
    bundled: bool = False
    bundled_model: str | None = None
    grpc: bool = False
    lists_models: bool = False
    any_route: bool = False
    source: str = "synthetic_text"
    prepare: Callable[[Target], Awaitable[Target]] | None = None
    answers: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    sessions: bool = False
    history: Literal["messages", "text", ""] = ""
    speaks: Callable[[Mapping[str, Any]], bool] = lambda _: False
    carries: tuple[str, ...] = ()

    def lacking(self, source: Any) -> str | None:
        """Why its requests can't hold what a source's payloads have; None: they can."""
        able = {*self.carries, "messages" if self.history == "messages" else ""}
        names = sorted(getattr(source, "carries", frozenset()) - able)
        if not names:
            return None
        return (
            f"source: its requests have {' and '.join(names)}, and protocol {self.name} has no place for them. Use "
            f"openai-chat, or leave them out: columns: {{ignore: [{', '.join(names)}]}}, or --column "
            f"'ignore=[{', '.join(names)}]'"
        )

    @property
    def says(self) -> tuple[str, ...]:
        """Where in an answer a label may stand; nowhere of one that comes over no network."""
        return getattr(self.build, "says", ("header", "trailer", "body")) if self.needs_url else ()

    @property
    def repeats(self) -> bool:
        """A request may be sent again, or be dropped beside another: it is one exchange of HTTP, or a call of gRPC that
        is sent whole.
        """
        return getattr(self.build, "repeats", False)

    def streams(self, options: Mapping[str, Any]) -> bool:
        """Answers come as streams, as far as ``options`` tell."""
        fields = self.options.model_fields if self.options is not None else {}
        framing = options.get("framing", fields["framing"].default if "framing" in fields else "sse")
        return self.streaming and framing != "none" and options.get("stream", True) is not False

    def check(self, options: Mapping[str, Any]) -> list[str]:
        """Every mistake in ``options`` as text, found before any load; none: they are fine."""
        if self.options is None:
            return [f"target.options.{name}: the {self.name} protocol has no options. Remove it" for name in options]
        try:
            return accept(self.options, options).mistakes()
        except HarnessFault as fault:
            return list(fault.errors)
