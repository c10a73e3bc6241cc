"""``plimsoll serve`` hands its flags on to the bundled server, and offers gRPC where it can be had and was not meant to
be left out.
"""

from __future__ import annotations

import importlib.util
import os
from itertools import pairwise

import pytest

from tests.command import invoke


def handed_on(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """The arguments of the server that ``plimsoll serve`` would become."""
    seen: list[str] = []

    def become(_path: str, command: list[str]) -> None:
        seen.extend(command[3:])

    monkeypatch.setattr(os, "execv", become)
    done = invoke("serve", *arguments)
    assert done.exit_code == 0, done.output
    return seen


def value(arguments: list[str], flag: str) -> str | None:
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def test_every_flag_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--grpc-port", "9", "--weights", "w", "--max-wait", "5ms", "--synchronise", "4", "--max-batch", "8"]
    arguments = handed_on(monkeypatch, "--model", "llm", "--model", "dlrm", *given)
    assert [value(arguments, flag) for flag in given[::2]] == given[1::2]
    assert [b for a, b in pairwise(arguments) if a == "--model"] == ["llm", "dlrm"]


@pytest.mark.parametrize(
    ("given", "port"),
    [
        (["--model", "llm"], "8001"),
        (["--model", "scripted", "--model", "llm", "--http-port", "9000"], "9001"),
        (["--model", "llm", "--http-port", "0"], "0"),
        (["--model", "llm", "--grpc-port", "7000"], "7000"),
        (["--model", "scripted"], None),
        (["--model", "scripted", "--grpc-port", "7000"], "7000"),
    ],
)
def test_grpc_is_beside_http_unless_only_the_scripted_model_is_served(
    monkeypatch: pytest.MonkeyPatch, given: list[str], port: str | None
) -> None:
    assert value(handed_on(monkeypatch, *given), "--grpc-port") == port


def test_without_grpcio_it_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else find(name))
    assert value(handed_on(monkeypatch, "--model", "llm"), "--grpc-port") is None
