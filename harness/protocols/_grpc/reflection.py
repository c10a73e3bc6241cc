"""Server reflection: a service's schema from the server itself, asked for once, before any load.

``grpc.reflection.v1`` is tried first, then ``v1alpha``, which has the same messages. A server may leave out files that it
sent already, or send imports or not: what is still missing is asked for by name until nothing is. It goes over our own
transport, takes at most the target's connect timeout, and never runs while something is measured.
"""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.protocols._grpc.descriptors import Schema, choices, missing_imports, shipped
from plimsoll.harness.protocols._grpc.protobuf_json import encode
from plimsoll.harness.secrecy.redaction import cut
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.rpc.call import Metadata, messages_of
from plimsoll.harness.transport.rpc.rpc_question import Questions

_VERSIONS = ("v1", "v1alpha")
_UNIMPLEMENTED, _UNAVAILABLE = 12, 14
#: More rounds of imports than this is a server that makes them up.
_MAX_ROUNDS = 64
_MAX_FILES = 4096
_NEXT = "Give descriptor_set or proto"


class _Reflection:
    """One conversation with a server."""

    def __init__(self, target: Target, metadata: Metadata) -> None:
        schema = shipped("reflection")
        self._request = schema.message("grpc.reflection.v1.ServerReflectionRequest")
        self._response = schema.message("grpc.reflection.v1.ServerReflectionResponse")
        self._target = target
        self._questions = Questions(target, metadata)
        self._version = ""

    async def open(self) -> None:
        await self._questions.open()

    async def close(self) -> None:
        await self._questions.close()

    async def ask(self, *questions: dict[str, str]) -> list[Any]:
        """The answers, in order. Raises HarnessFault if the server doesn't reflect or can't be reached."""
        exchange: Exchange | None = None
        for version in (self._version,) if self._version else _VERSIONS:
            path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
            messages = [encode(self._request, question) for question in questions]
            exchange = await self._questions.ask(path, messages, streams=True)
            if exchange.code != _UNIMPLEMENTED:
                self._version = version
                break
        assert exchange is not None
        if exchange.code == _UNIMPLEMENTED:
            raise HarnessFault(
                f"target.options.method: {self._target.url} has no server reflection (neither v1 nor v1alpha). {_NEXT}"
            )
        if exchange.code < 0:
            raise HarnessFault(f"target.url: no answer to server reflection: {exchange.error}", ExitCode.UNREACHABLE)
        if exchange.code != 0:
            raise HarnessFault(
                f"target.options.method: server reflection failed: {exchange.error or 'no status'}. {_NEXT}",
                ExitCode.UNREACHABLE if exchange.code == _UNAVAILABLE else ExitCode.USAGE,
            )
        try:
            answers = [self._response.FromString(bytes(data)) for data in messages_of(exchange)]
        except DecodeError:
            raise HarnessFault(f"target.options.method: the server's reflection can't be read. {_NEXT}") from None
        if len(answers) != len(questions):
            raise HarnessFault(
                f"target.options.method: server reflection gave {len(answers)} answers to {len(questions)} questions. {_NEXT}"
            )
        return answers


async def reflect(target: Target, service: str, metadata: Metadata = ()) -> Schema:
    """The schema of one service, complete. ``service`` is its full name.

    Raises HarnessFault: no reflection, no such service (with those that there are), unreadable files; exit 5 if there is no
    connection.
    """
    reflection = _Reflection(target, metadata)
    try:
        async with asyncio.timeout(target.connect_timeout_ns / 1e9):
            await reflection.open()
            return await _collect(reflection, service)
    except TimeoutError:
        seconds = target.connect_timeout_ns / 1e9
        raise HarnessFault(
            f"target.options.method: server reflection took more than {seconds:g} s (connect timeout). {_NEXT}",
            ExitCode.UNREACHABLE,
        ) from None
    finally:
        await reflection.close()


async def _collect(reflection: _Reflection, service: str) -> Schema:
    listed, found = await reflection.ask({"list_services": "*"}, {"file_containing_symbol": service})
    names = [one.name for one in listed.list_services_response.service]
    if found.WhichOneof("message_response") != "file_descriptor_response":
        known = [name for name in names if not name.startswith("grpc.reflection.")]
        said = "" if service not in names else f" (it says: {cut(found.error_response.error_message, 200)})"
        raise HarnessFault(
            f"target.options.method: the server has no service {service!r}{said}. {choices(service, known, 'service')}"
        )
    try:
        return Schema((await _with_imports(reflection, service, found)).values())
    except ValueError as error:
        raise HarnessFault(f"target.options.method: the server's schema can't be used: {error}. {_NEXT}") from None


async def _with_imports(reflection: _Reflection, service: str, found: Any) -> dict[str, Any]:
    """The files of an answer by name, and everything that they import. Raises ValueError and HarnessFault."""
    files = {file.name: file for file in _files(found)}
    for _ in range(_MAX_ROUNDS):
        missing = missing_imports(files.values())
        if not missing or len(files) > _MAX_FILES:
            break
        answers = await reflection.ask(*({"file_by_filename": name} for name in missing))
        for name, answer in zip(missing, answers, strict=True):
            files.update({file.name: file for file in _files(answer)})
            if name not in files:
                raise HarnessFault(
                    f"target.options.method: the server reflects {service} but not {name}, which it imports. {_NEXT}"
                )
    return files


def _files(answer: Any) -> list[Any]:
    try:
        return [
            descriptor_pb2.FileDescriptorProto.FromString(data)
            for data in answer.file_descriptor_response.file_descriptor_proto
        ]
    except DecodeError:
        raise HarnessFault(f"target.options.method: the server's reflection can't be read. {_NEXT}") from None
