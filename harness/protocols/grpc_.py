"""Any gRPC method, unary or streaming either way, with no generated code: options ``method`` and ``message``.

The schema comes from a descriptor set, from .proto files, or from the server's reflection, asked once before any load
(``grpc.reflection.v1``, then ``v1alpha``, within the target's connect timeout); workers are given what it said. A
server may leave out files that it sent already: what is missing is asked for by name until nothing is.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._grpc.descriptors import Schema, choices, missing_imports, parsed, shipped, split_method
from plimsoll.harness.protocols._grpc.grpc_template import INLINE, Bound, TemplateDialect, TemplateOptions, schema_of
from plimsoll.harness.protocols._grpc.protobuf_json import encode, read
from plimsoll.harness.secrecy.redaction import cut
from plimsoll.harness.transport.client import Client, ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import Metadata, messages_of, metadata_of


def method_of(target: Target, options: TemplateOptions) -> str:
    """The method that is meant: the option, or else the URL's path. Raises HarnessFault if neither names one."""
    url = target.url if "://" in target.url else f"grpc://{target.url}"
    name = options.method or urlsplit(url).path.strip("/")
    if not name:
        raise HarnessFault("target.options.method: no method is given. Write it as package.Service/Method")
    try:
        return "/".join(split_method(name))
    except ValueError as error:
        where = "target.options.method" if options.method else "target.url: its path"
        raise HarnessFault(f"{where}: {error}") from None


async def _prepare(target: Target) -> Target:
    """The target with its schema, asked for if no option names one. Raises HarnessFault with every mistake."""
    options = accept(TemplateOptions, target.options)
    name = method_of(target, options)
    schema = schema_of(options)
    if schema is None:
        schema = await reflect(target, name.rpartition("/")[0], metadata_of(target, options.metadata))
    Bound(options, schema, name)
    kept = {key: value for key, value in target.options.items() if key not in ("proto", "proto_path")}
    return replace(target, options={**kept, "method": name, "descriptor_set": INLINE + b64encode(schema.data).decode()})


class _Build:
    repeats = True

    def __call__(self, target: Target, clock: Any) -> Client:
        options = accept(TemplateOptions, target.options)
        schema = schema_of(options)
        if schema is None and clock is not None:
            raise HarnessFault(
                "target.options.descriptor_set: the server was not asked for its schema. Give a descriptor set"
            )
        name = method_of(target, options) if schema is not None else ""
        return over_grpc(lambda it: TemplateDialect(it, schema, name))(target, clock)


# -- server reflection ------------------------------------------------------------------------------------------------

_VERSIONS = ("v1", "v1alpha")
_UNIMPLEMENTED, _UNAVAILABLE = 12, 14
#: More rounds of imports than this is a server that makes them up.
_MAX_ROUNDS = 64
_MAX_FILES = 4096
_NEXT = "Give descriptor_set or proto"


class _Reflection:
    """One conversation with a server."""

    def __init__(self, target: Target, metadata: Metadata) -> None:
        from plimsoll.harness.transport.rpc.rpc_question import Questions

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
        answers = [read(self._response, data) for data in messages_of(exchange)]
        if None in answers:
            raise HarnessFault(f"target.options.method: the server's reflection can't be read. {_NEXT}")
        if len(answers) != len(questions):
            raise HarnessFault(
                f"target.options.method: server reflection gave {len(answers)} answers to {len(questions)} questions. "
                f"{_NEXT}"
            )
        return answers


async def reflect(target: Target, service: str, metadata: Metadata = ()) -> Schema:
    """The schema of one service, complete. ``service`` is its full name.

    Raises HarnessFault: no reflection, no such service (with those that there are), unreadable files; exit 5 if there
    is no connection.
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
        return parsed(answer.file_descriptor_response.file_descriptor_proto)
    except ValueError:
        raise HarnessFault(f"target.options.method: the server's reflection can't be read. {_NEXT}") from None


PROTOCOLS = (
    ProtocolSpec(
        "grpc",
        "any gRPC method by reflection, descriptor set or .proto: JSON template, paths into messages",
        _Build(),
        TemplateOptions,
        bundled=True,
        grpc=True,
        prepare=_prepare,
    ),
)
