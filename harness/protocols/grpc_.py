"""Any gRPC method, unary or streaming either way, with no generated code: options ``method`` and ``message``.

The schema comes from a descriptor set, from .proto files, or from the server's reflection, which the coordinator asks once,
before any load; the workers are given what it said.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._grpc.grpc_template import INLINE, Bound, TemplateDialect, TemplateOptions, schema_of
from plimsoll.harness.transport.client import Client, ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import metadata_of


def method_of(target: Target, options: TemplateOptions) -> str:
    """The method that is meant: the option, or else the URL's path. Raises HarnessFault if neither names one."""
    url = target.url if "://" in target.url else f"grpc://{target.url}"
    name = options.method or urlsplit(url).path.strip("/")
    if not name:
        raise HarnessFault("target.options.method: no method is given. Write it as package.Service/Method")
    from plimsoll.harness.protocols._grpc.descriptors import split_method

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
        from plimsoll.harness.protocols._grpc.reflection import reflect

        schema = await reflect(target, name.rpartition("/")[0], metadata_of(target, options.metadata))
    Bound(options, schema, name)
    kept = {key: value for key, value in target.options.items() if key not in ("proto", "proto_path")}
    return replace(target, options={**kept, "method": name, "descriptor_set": INLINE + b64encode(schema.data).decode()})


def _build(target: Target, clock: Any) -> Client:
    options = accept(TemplateOptions, target.options)
    schema = schema_of(options)
    if schema is None and clock is not None:
        raise HarnessFault(
            "target.options.descriptor_set: the server was not asked for its schema. Give a descriptor set"
        )
    name = method_of(target, options) if schema is not None else ""
    return over_grpc(lambda it: TemplateDialect(it, schema, name))(target, clock)


def _mistakes(given: TemplateOptions) -> list[str]:
    schema = schema_of(given)
    if schema is not None and given.method is not None:
        Bound(given, schema, given.method)
    return []


PROTOCOLS = (
    ProtocolSpec(
        "grpc",
        "any gRPC method by reflection, descriptor set or .proto: JSON template, paths into messages",
        _build,
        TemplateOptions,
        mistakes=_mistakes,
        bundled=True,
        grpc=True,
        prepare=_prepare,
    ),
)
