"""The command line in this process, built as ``plimsoll`` builds it: of the one verb that its first word names."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer.main
from typer.testing import CliRunner, Result

from plimsoll.harness.verbs.cli import command_line


def invoke(*words: str, **how: Any) -> Result:
    """Run a command line to its end; ``how`` is CliRunner's."""
    return CliRunner().invoke(command_line(words[0] if words else None), words, **how)


@cache
def verbs() -> Any:
    """The whole command line, to look at."""
    return typer.main.get_command(command_line())
