"""How every gRPC protocol connects, as a model. What else a protocol can be told is its own."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from plimsoll.harness.options import STRICT


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
