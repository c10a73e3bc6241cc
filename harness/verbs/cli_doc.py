"""What docs/ generates from code, so that it can't drift: the command line's page and the JSON schemas.

``--write`` makes the files, ``--check`` compares them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer.main

from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.verbs.cli import app
from plimsoll.reports import report
from plimsoll.reports.comparison import comparison_document as comparison
from plimsoll.scenarios.spec import json_schema

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

_TYPES = {str: "TEXT", int: "N", float: "X", Path: "PATH"}

_EXITS = {
    ExitCode.PASS: "every objective holds, or none was given and the run is valid",
    ExitCode.FAIL: "an objective failed",
    ExitCode.USAGE: "usage or configuration; nothing was sent",
    ExitCode.INCONCLUSIVE: "too little data to say; the report says how much is needed",
    ExitCode.INVALID: "the generator broke its promise: the numbers mean nothing",
    ExitCode.UNREACHABLE: "the endpoint could not be reached before the run",
    ExitCode.INTERRUPTED: "interrupted; what was measured is on disk and reportable",
}


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        value = parameter.metavar or _TYPES.get(parameter.bare_type(), "VALUE")
        name = f"`{', '.join(parameter.opts)}`" if parameter.is_flag else f"`{', '.join(parameter.opts)} {value}`"
    return f"| {name} | {(parameter.help or '').replace('|', chr(92) + '|')} |"


def _command(path: str, command: Any) -> list[str]:
    lines = [f"## {path}", "", (command.help or "").strip(), ""]
    parameters = [p for p in command.params if p.name not in ("help", "install_completion", "show_completion")]
    if parameters:
        lines += ["| argument | what it does |", "|---|---|", *map(_parameter, parameters), ""]
    return lines


def _walk(path: str, command: Any) -> list[str]:
    children = getattr(command, "commands", None)
    if not children:
        return _command(path, command)
    return [line for name in sorted(children) for line in _walk(f"{path} {name}", children[name])]


def render() -> str:
    """The whole page."""
    lines = [
        "# Command line",
        "",
        "Generated from the code by `make docs`; `make check` fails when it is out of date.",
        "stdout is the result, stderr is progress. Every verb that renders takes `--format F=PATH` and `--json`.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {int(code)} | {text} |" for code, text in _EXITS.items()),
        "",
        *_walk("plimsoll", typer.main.get_command(app)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[Path, str]:
    """Every generated file and what it must hold."""
    return {
        PAGE: render(),
        PAGE.parent / "scenario.schema.json": json.dumps(json_schema(), indent=1) + "\n",
        PAGE.parent / "comparison.schema.json": json.dumps(comparison.json_schema(), indent=1) + "\n",
        PAGE.parent / "report.schema.json": json.dumps(report.json_schema(), indent=1) + "\n",
    }


def main() -> int:
    """``--write`` or ``--check``."""
    stale = {path: text for path, text in pages().items() if not path.is_file() or path.read_text("utf-8") != text}
    if "--write" in sys.argv:
        for path, text in stale.items():
            path.write_text(text, encoding="utf-8")
        return 0
    for path in stale:
        print(f"docs/{path.name} is out of date: run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
