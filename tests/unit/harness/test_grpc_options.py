"""The options that all gRPC protocols share, beside a protocol's own."""

from __future__ import annotations

import pytest
from pydantic import Field

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import accept, problems
from plimsoll.harness.transport.rpc.call import GrpcOptions, shared_options


class Mine(GrpcOptions):
    method: str = Field(min_length=1)


def test_both_kinds_of_options_are_checked_and_every_error_is_said_once() -> None:
    said = problems(Mine, {"method": "", "channels": 0, "max_message": "1", "chanels": 2})
    assert [text.split(":")[0] for text in said] == [
        "target.options.channels",
        "target.options.max_message",
        "target.options.method",
        "target.options.chanels",
    ]
    assert "Did you mean channels?" in said[3]
    assert "method" in said[3].split("Known ones:")[1]


def test_each_gets_its_own_options() -> None:
    options = {"method": "/a.B/C", "channels": 4}
    assert accept(Mine, options).method == "/a.B/C"
    assert shared_options(options).channels == 4
    assert problems(Mine, options) == []
    with pytest.raises(HarnessFault, match="channels"):
        accept(Mine, {"method": "x", "channels": "4"})


def test_own_connections_and_channels_exclude_each_other() -> None:
    (said,) = problems(Mine, {"method": "x", "channels": 2, "own_connection": True})
    assert said == "target.options.channels: own_connection opens one for each call. Give one of the two"
    assert problems(Mine, {"method": "x", "channels": 1, "own_connection": True}) == []
