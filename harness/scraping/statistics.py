"""Triton's statistics over gRPC: ``grpc://HOST:PORT`` is asked for its ModelStatistics, which are those of
``GET v2/models/stats``.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._grpc.descriptors import shipped
from plimsoll.harness.protocols._grpc.protobuf_json import read
from plimsoll.harness.scraping.sources import MOST_BYTES, Sample, Unread, authorization, of_json
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.rpc.call import messages_of
from plimsoll.harness.transport.rpc.rpc_question import Questions
from plimsoll.slo.records.foreign import NAME, one_line

_METHOD = "/inference.GRPCInferenceService/ModelStatistics"


class Statistics:
    """One channel that is kept, on an event loop of its own. ``where``: the address without what may be secret."""

    def __init__(self, url: str, where: str, ca_file: str | None = None, verify: bool = True) -> None:
        parts = urlsplit(url)
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))
        self.where, self._auth = where, tuple(authorization(parts).items())
        self._target = Target(
            bare, "grpc", options={"max_message": MOST_BYTES}, tls_verify=verify, ca_file=ca_file, max_connections=1
        )
        self._answer = shipped("triton_statistics").message("inference.ModelStatisticsResponse")
        self._runner = asyncio.Runner()
        self._held: Questions | None = None

    def close(self) -> None:
        self._runner.run(self._drop())
        self._runner.close()

    def read(self, timeout_s: float) -> Sample:
        return self._runner.run(self._read(timeout_s))

    async def _drop(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.close()

    async def _read(self, timeout_s: float) -> Sample:
        try:
            async with asyncio.timeout(timeout_s):
                if self._held is None:
                    self._held = Questions(self._target, tuple((name.lower(), text) for name, text in self._auth))
                    await self._held.open()
                call = await self._held.ask(_METHOD, (b"",))
        except TimeoutError:
            await self._drop()
            raise Unread(f"no whole answer within {timeout_s:g} s") from None
        except HarnessFault as fault:
            await self._drop()
            raise Unread(one_line(str(fault), NAME)) from None
        body = b"".join(messages_of(call))
        found = read(self._answer, body) if call.code == 0 else None
        if found is None:
            await self._drop()
            raise Unread(one_line(call.error or "its answer can't be read", NAME))
        values = of_json(_plain(found))
        return Sample(call.sent_ns, call.headers_ns, call.done_ns, len(body), values)


def _plain(message: Any) -> dict[str, Any]:
    """What JSON has of it over HTTP: numbers as numbers, also those that are 0."""
    found = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        below = field.message_type is not None
        many = below and not hasattr(value, "DESCRIPTOR")
        found[field.name] = [_plain(one) for one in value] if many else _plain(value) if below else value
    return found
