"""One request's account, over whichever front-end it came: its row of the truth, its share of the faults, its end.

How a request is refused, and how its answer breaks off, is the front-end's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass

from plimsoll.reference_server.misfortune.fault import Break, Misfortune, refusal
from plimsoll.reference_server.seams.models import Script
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError

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

    def draw(self) -> Misfortune:
        """What the faults have in store for it. Raises RequestError where they, or the server, refuse it."""
        if self.closed is not None:
            raise self.closed
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
        service.truth.close(row, account.outcome, time.monotonic_ns())
        service.metrics.request(row.model, row.status, row.outcome)


def obey(script: Script) -> None:
    """Raise the status that a request asks for itself, if it does."""
    if script.status is not None:
        raise refusal(script.status, "status", 1)


def in_time(
    deadline_ns: int, missed: Callable[[], None], limit: str, *, param: str | None = None
) -> AbstractAsyncContextManager[None]:
    """Whatever the block waits for, it ends at that instant of ``time.monotonic_ns()``; -1 for never.

    Raises RequestError 504 then, after calling ``missed``; ``limit`` is how the client gave it, ``param`` where.
    """
    return nullcontext() if deadline_ns < 0 else _in_time(deadline_ns, missed, limit, param)


@asynccontextmanager
async def _in_time(deadline_ns: int, missed: Callable[[], None], limit: str, param: str | None) -> AsyncIterator[None]:
    try:
        # The loop's clock is the monotonic clock that deadlines are told in.
        async with asyncio.timeout_at(deadline_ns / 1e9):
            yield
    except TimeoutError:
        missed()
        message = f"the answer was not whole {limit}. Allow more time, or ask for less"
        raise RequestError(504, message, kind="server_error", param=param, code="deadline_exceeded") from None
