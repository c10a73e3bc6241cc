"""What docs/ generates from code: the command line's page, the JSON schemas, the tables of protocols' options.

``--write`` makes the files, ``--check`` compares them.
"""

import json
import re
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel

from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.protocols._discovery import named, protocol
from plimsoll.harness.protocols._speech.sending import AudioOptions
from plimsoll.harness.transport.rpc.call import GrpcOptions
from plimsoll.harness.verbs.cli import command_line
from plimsoll.harness.verbs.flags import EXAMPLES, groups, is_long, value_of
from plimsoll.reports import report
from plimsoll.reports.documents import drift
from plimsoll.reports.models import comparison_parts as comparison
from plimsoll.scenarios.samples.traces import formats
from plimsoll.scenarios.spec import json_schema
from plimsoll.scenarios.text.fields import format_duration

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"

#: Tables of options that several protocols share, by the heading that they stand under.
SHARED: dict[str, type[BaseModel]] = {"How it connects": GrpcOptions, "Live audio": AudioOptions}
_HEAD = "| option | default | meaning |\n|---|---|---|\n"
_FORMATS = "| format | what it is | known by | times | takes | leaves out | fills |\n|---|---|---|---|---|---|---|\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)+")

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
        word = parameter.metavar or parameter.name.upper()
        name = f"`{word}`" if parameter.required else f"`[{word}]`"
    else:
        name = f"`{' '.join([', '.join(parameter.opts), value_of(parameter)]).rstrip()}`"
    return f"| {name} | {(parameter.help or '').replace('|', chr(92) + '|')} |"


def _command(path: str, command: Any) -> list[str]:
    lines = [f"## {path}", "", (command.help or "").strip(), ""]
    parameters = [p for p in command.params if p.name not in ("help", "install_completion", "show_completion")]
    if path.split()[-1] in EXAMPLES:
        lines += ["```sh", *EXAMPLES[path.split()[-1]], "```", ""]
    if not is_long(command.params):
        return lines + (_table(parameters) if parameters else [])
    for group, own in groups(path.split()[-1], parameters).items():
        lines += [f"**{group}**", "", *_table(own)]
    return lines


def _table(parameters: list[Any]) -> list[str]:
    return ["| argument | what it does |", "|---|---|", *map(_parameter, parameters), ""]


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
        "`--help` of a long verb shows the common flags, `--help-all` every flag. A flag replaces what the scenario "
        "file says;",
        "the defaults here are those without a file.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {int(code)} | {text} |" for code, text in _EXITS.items()),
        "",
        *_walk("plimsoll", typer.main.get_command(command_line())),
    ]
    return "\n".join(lines).rstrip() + "\n"


def option_tables(text: str) -> str:
    """A page of protocols with each table of options as the code has them.

    What an option means is the page's own word, and is kept.
    """
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return "".join(_TABLE.sub(partial(_options, _model(section)), section, count=1) for section in sections)


def _model(section: str) -> type[BaseModel] | None:
    """The options that a section's table is about."""
    heading = section.partition("\n")[0].removeprefix("## ")
    module = named().get(heading.split(" and ")[0])
    return SHARED.get(heading) if module is None else protocol(heading.split(" and ")[0]).options


def _options(model: type[BaseModel] | None, found: re.Match[str]) -> str:
    if model is None:
        return found[0]
    meanings = dict(re.findall(r"^\| `([^`]+)` \| .*? \| (.*) \|$", found[0], re.MULTILINE))
    shared = GrpcOptions.model_fields if issubclass(model, GrpcOptions) and model is not GrpcOptions else ()
    rows = ""
    for name, field in model.model_fields.items():
        if name not in shared:
            key = field.alias or name
            rows += f"| `{key}` | {shown(name, field)} | {meanings.get(key, '')} |\n"
    return f"{_HEAD}{rows}"


def format_table(text: str) -> str:
    """The page of recordings, with its table of formats made anew."""
    rows = ""
    for name, one in formats().items():
        more = f"; blocks of {one.block_tokens} tokens" if one.block_tokens and name != "plimsoll" else ""
        more += "; a turn's length contains those before it" if one.cumulative else ""
        fills = [column for column in one.columns if column != "parent"] + [f"label {label}" for label in one.labels]
        cells = one.summary + more, one.sign, one.unit, _listed(one.takes), _listed(one.leaves), _listed(fills)
        rows += f"| `{name}` | {' | '.join(cells)} |\n"
    return re.sub(re.escape(_FORMATS) + r"(?:\|.*\n)*", lambda _: _FORMATS + rows, text)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "-"


def shown(name: str, field: Any) -> str:
    """A field's default as the tables write it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "`{}`"  # its own keys have a table of their own
    if value is None or isinstance(value, bool):
        return {None: "`null`", True: "`true`", False: "`false`"}[value]
    if name.endswith("_ns") or "parse_duration" in repr(field):
        return f"`{format_duration(value)}`"
    empty = {"": '""', (): "[]"}.get(value) if isinstance(value, (str, tuple)) else None
    return f"`{empty or value}`"


def pages() -> dict[Path, str]:
    """Every generated file and what it must hold."""
    return {
        PAGE: render(),
        **{path: option_tables(path.read_text("utf-8")) for path in sorted(PAGE.parent.glob("protocols*.md"))},
        PAGE.parent / "recordings.md": format_table((PAGE.parent / "recordings.md").read_text("utf-8")),
        PAGE.parent / "scenario.schema.json": json.dumps(json_schema(), indent=1) + "\n",
        PAGE.parent / "comparison.schema.json": json.dumps(comparison.json_schema(), indent=1) + "\n",
        PAGE.parent / "drift.schema.json": json.dumps(drift.json_schema(), indent=1) + "\n",
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
        print(f"docs/reference/{path.name} is out of date: run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
