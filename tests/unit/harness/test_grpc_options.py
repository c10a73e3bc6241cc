"""The options that all gRPC protocols share, beside a protocol's own."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, Field

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import STRICT
from plimsoll.harness.transport.rpc.rpc_options import grpc_accept, grpc_problems, shared_options


class Mine(BaseModel):
    model_config = STRICT
    method: str = Field(min_length=1)


def test_both_models_are_checked_and_every_error_is_said_once() -> None:
    said = grpc_problems(Mine, {"method": "", "channels": 0, "chanels": 2, "transport": "quic"})
    assert [text.split(":")[0] for text in said] == [
        "target.options.channels",
        "target.options.transport",
        "target.options.method",
        "target.options.chanels",
    ]
    assert "Did you mean channels?" in said[3]
    assert "method" in said[3].split("Known ones:")[1]


def test_each_gets_its_own_options() -> None:
    options = {"method": "/a.B/C", "channels": 4}
    assert grpc_accept(Mine, options).method == "/a.B/C"
    assert shared_options(options).channels == 4
    assert grpc_problems(Mine, options) == []
    with pytest.raises(HarnessFault, match="channels"):
        grpc_accept(Mine, {"method": "x", "channels": "4"})


def test_own_connections_and_channels_exclude_each_other() -> None:
    assert "Give one of the two" in grpc_problems(Mine, {"method": "x", "channels": 2, "own_connection": True})[0]
    shared = grpc_problems(Mine, {"method": "x", "own_connection": True, "transport": "grpcio"})
    assert [text.split(":")[0] for text in shared] == ["target.options.own_connection"]
