"""The options that every gRPC protocol shares (how many connections, which transport), and the client they make.

A dialect has its own pydantic model; ``grpc_problems`` and ``grpc_accept`` check both models against one mapping, so
that a user sees one flat list of options. The transports are imported only when a client is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, create_model

from harness.client import Client, Target
from harness.errors import HarnessFault
from harness.grpc_call import GrpcDialect
from harness.options import STRICT, accept, problems

_Model = TypeVar("_Model", bound=BaseModel)


class GrpcOptions(BaseModel):
    """Options of every gRPC protocol.

    ``channels`` is the number of connections that the calls share (one, as gRPC clients have it); a call goes to the
    one with the fewest calls. With ``own_connection`` each call in flight has a connection to itself, kept for the next
    one. ``max_message`` is the largest response message in bytes. ``authority`` is sent as ``:authority`` instead of
    the URL's host and port. ``transport`` is ``stamped`` (ours, with the kernel's arrival times) or ``grpcio``.
    """

    model_config = STRICT
    channels: int = Field(default=1, ge=1, le=4096)
    own_connection: bool = False
    max_message: int = Field(default=64 << 20, ge=1, le=256 << 20)
    authority: str | None = Field(default=None, pattern=r"^[\x21-\x7e]+$")
    transport: Literal["stamped", "grpcio"] = "stamped"


def grpc_problems(model: type[BaseModel], options: Mapping[str, Any]) -> list[str]:
    """Every error in a gRPC protocol's options: those of ``model`` and the shared ones."""
    own, rest, unknown = _split(model, options)
    found = [*problems(GrpcOptions, own), *problems(model, rest)]
    if unknown:
        names: dict[str, Any] = dict.fromkeys([*model.model_fields, *GrpcOptions.model_fields], (Any, None))
        found += problems(create_model("Known", __config__=STRICT, **names), unknown)
    if own.get("own_connection") is True and own.get("channels", 1) != 1:
        found.append("target.options.channels: own_connection opens one for each call. Give one of the two")
    return found


def grpc_accept(model: type[_Model], options: Mapping[str, Any]) -> _Model:
    """The dialect's own options. Raises HarnessFault with every error, those in the shared options too."""
    errors = grpc_problems(model, options)
    if errors:
        raise HarnessFault(errors)
    return accept(model, _split(model, options)[1])


def shared_options(options: Mapping[str, Any]) -> GrpcOptions:
    """The shared options among a protocol's. Raises HarnessFault."""
    return accept(GrpcOptions, {name: options[name] for name in GrpcOptions.model_fields if name in options})


def grpc_client(target: Target, clock: Any, dialect: GrpcDialect) -> Client:
    """The client of the transport that the options ask for. Raises HarnessFault (grpcio is not installed)."""
    options = shared_options(target.options)
    if options.transport == "grpcio":
        from harness.grpc_official import OfficialClient

        return OfficialClient(target, clock, dialect, options)
    from harness.grpc_pool import GrpcClient

    return GrpcClient(target, clock, dialect, options)


def _split(model: type[BaseModel], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(shared, the dialect's, unknown) options."""
    own = {name: value for name, value in options.items() if name in GrpcOptions.model_fields}
    rest = {name: value for name, value in options.items() if name in model.model_fields}
    return own, rest, {name: value for name, value in options.items() if name not in own and name not in rest}
