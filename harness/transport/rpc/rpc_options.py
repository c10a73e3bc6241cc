"""The options that every gRPC protocol shares (how many connections, which transport), and the client they make.

A dialect has its own pydantic model; ``grpc_problems`` and ``grpc_accept`` check both models against one mapping, so
that a user sees one flat list of options. The transports are imported only when a client is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, create_model

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import STRICT, accept, problems
from plimsoll.harness.transport.client import Client, Target
from plimsoll.harness.transport.rpc.call import GrpcDialect
from plimsoll.harness.transport.rpc.settings import GrpcOptions

_Model = TypeVar("_Model", bound=BaseModel)


def grpc_problems(model: type[BaseModel], options: Mapping[str, Any]) -> list[str]:
    """Every error in a gRPC protocol's options: those of ``model`` and the shared ones."""
    own, rest, unknown = _split(model, options)
    found = [*problems(GrpcOptions, own), *problems(model, rest)]
    if unknown:
        names: dict[str, Any] = dict.fromkeys([*model.model_fields, *GrpcOptions.model_fields], (Any, None))
        found += problems(create_model("Known", __config__=STRICT, **names), unknown)
    if own.get("own_connection") is True and own.get("channels", 1) != 1:
        found.append("target.options.channels: own_connection opens one for each call. Give one of the two")
    if own.get("own_connection") is True and own.get("transport") == "grpcio":
        found.append(
            "target.options.own_connection: grpcio shares its connections. Leave transport out, or give channels"
        )
    return found


def grpc_accept(model: type[_Model], options: Mapping[str, Any]) -> _Model:
    """The dialect's own options. Raises HarnessFault with every error, those in the shared options too."""
    errors = grpc_problems(model, options)
    if errors:
        raise HarnessFault(errors)
    return accept(model, _split(model, options)[1])


def grpc_checked(
    model: type[_Model], more: Callable[[_Model], list[str]] = lambda given: []
) -> Callable[[Mapping[str, Any]], list[str]]:
    """A protocol's ``check``: every error against both models, else what ``more`` finds in the dialect's own options."""

    def check(options: Mapping[str, Any]) -> list[str]:
        return grpc_problems(model, options) or more(grpc_accept(model, options))

    return check


def shared_options(options: Mapping[str, Any]) -> GrpcOptions:
    """The shared options among a protocol's. Raises HarnessFault."""
    return accept(GrpcOptions, {name: options[name] for name in GrpcOptions.model_fields if name in options})


def grpc_client(target: Target, clock: Any, dialect: GrpcDialect) -> Client:
    """The client of the transport that the options ask for. Raises HarnessFault (grpcio is not installed)."""
    options = shared_options(target.options)
    if options.transport == "grpcio":
        from plimsoll.harness.transport.rpc.official import OfficialClient

        return OfficialClient(target, clock, dialect, options)
    from plimsoll.harness.transport.rpc.rpc_pool import GrpcClient

    return GrpcClient(target, clock, dialect, options)


def grpc_built(dialect: Callable[[Target], GrpcDialect]) -> Callable[[Target, Any], Client]:
    """A protocol's ``build``, from what makes its dialect."""

    def build(target: Target, clock: Any) -> Client:
        return grpc_client(target, clock, dialect(target))

    return build


def _split(model: type[BaseModel], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(shared, the dialect's, unknown) options."""
    own = {name: value for name, value in options.items() if name in GrpcOptions.model_fields}
    rest = {name: value for name, value in options.items() if name in model.model_fields}
    return own, rest, {name: value for name, value in options.items() if name not in own and name not in rest}
