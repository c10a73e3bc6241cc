"""Flags that several verbs take, declared once, and how all verbs say what is wrong with theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer import BadParameter
from typer.core import TyperCommand

from plimsoll.harness.errors import HarnessFault
from plimsoll.scenarios.text.errors import ScenarioError

#: What ``plimsoll.reports.format.formats()`` finds; not asked here, for that loads every renderer.
REPORT_FORMATS = (
    *("annotations", "csv", "hdrlog", "html", "json", "junit", "markdown", "mlperf", "mlperf-detail", "openmetrics"),
    "text",
)
Slo = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        metavar="EXPR_OR_FILE",
        help="An objective such as 'p99(ttft) <= 200ms', or a YAML file of objectives. Repeatable; replaces the file's.",
    ),
]
FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="F=PATH",
        help=f"Also write the report in format F: {', '.join(REPORT_FORMATS)}. PATH - is stdout. Repeatable.",
    ),
]
ComparisonFormat = Annotated[
    list[str] | None,
    typer.Option(
        "--format", metavar="F=PATH", help="Also write it as html, json, junit, markdown or text. Repeatable."
    ),
]
SweepFormat = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="F=PATH", help="Also write it as csv, html, json, markdown or text. Repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict on one line: outcome, what decides it, run.")]
Goodput = Annotated[
    str | None,
    typer.Option(metavar="'ttft:200 tpot:50'", help="Limits of a good request, as vLLM's bench takes them (ms)."),
]
PresetOption = Annotated[
    list[str] | None,
    typer.Option("--preset", metavar="NAME", help="A published set of limits; see `plimsoll slo presets`. Repeatable."),
]
Confidence = Annotated[
    str | None, typer.Option(metavar="C", help="How sure each bound must be (default 0.95, or the preset's).")
]
ProductionRate = Annotated[
    float | None, typer.Option(metavar="R", help="Requests per second in production: for budgets by events.")
]
#: The target and the load.
Url = Annotated[
    str | None, typer.Option(help="The endpoint. Without it the bundled reference server is started and stopped.")
]
Protocol = Annotated[str | None, typer.Option(help="How to talk to it, e.g. openai-chat, kserve-v2, http.")]
Model = Annotated[str | None, typer.Option(help="Model name to ask for.")]
Arrival = Annotated[str | None, typer.Option(help="poisson, constant, gamma or loadgen (server).")]
PromptTokens = Annotated[int | None, typer.Option(metavar="N", help="Prompt length.")]
OutputTokens = Annotated[int | None, typer.Option(metavar="N", help="Answer length asked for.")]
Seed = Annotated[int | None, typer.Option(help="Everything random comes from it.")]
Workers = Annotated[int | None, typer.Option(metavar="N", help="Load-generating processes.")]
Retries = Annotated[
    int | None,
    typer.Option(metavar="N", help="Repeat a run that is INVALID by the generator alone, at most N times (0)."),
]
Warmup = Annotated[str | None, typer.Option(metavar="D", help="Load before each measured run, not judged.")]
Timeout = Annotated[str | None, typer.Option(metavar="D", help="Give a request up after this.")]
ConnectTimeout = Annotated[str | None, typer.Option(metavar="D", help="Give a connection up after this.")]
Header = Annotated[
    list[str] | None,
    typer.Option(metavar="'NAME: VALUE'", help="Extra header; ${env:NAME} is filled in. Repeatable."),
]
ApiKeyEnv = Annotated[str | None, typer.Option(metavar="NAME", help="Variable that holds the API key.")]
ApiKeyFile = Annotated[str | None, typer.Option(metavar="PATH", help="File that holds the API key.")]
ProtocolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="K=V", help="A protocol option (V is YAML; audio.frame=20ms reaches inside). Repeatable."
    ),
]
Pace = Annotated[
    str | None,
    typer.Option(
        help="How live audio is sent: capture (as a microphone gives it), eager, burst, or a speed such as 2x."
    ),
]
Cancel = Annotated[
    str | None, typer.Option(metavar="SHARE:AFTER", help="Drop a share of the queries after a delay: 10%:500ms.")
]
CaFile = Annotated[str | None, typer.Option(metavar="PATH", help="Extra certificate authorities (PEM).")]
Live = Annotated[
    str | None,
    typer.Option(metavar="[HOST:]PORT", help="Serve a page of charts while a run goes on (0: a free port)."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Don't check the server's certificate.")]


@contextmanager
def errors_too(as_json: bool) -> Iterator[None]:
    """What is wrong goes to stdout as JSON as well, where JSON was asked for: a program reads no stderr."""
    try:
        yield
    except (HarnessFault, ScenarioError) as wrong:
        if as_json:
            typer.echo(json.dumps({"errors": list(wrong.errors)}, indent=1))
        raise


class Verb(TyperCommand):
    """A command that tells every flag it can't read at once, and what is wrong in the files that it can, not only the first flag."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does. Raises HarnessFault with every error."""
        errors: list[str] = []
        missing: list[BadParameter] = []
        read: list[Any] = self.get_params(ctx)
        for param in read:
            # The parser's loop ends at the first that fails; this is its only hook for each.
            kept = _kept(type(param).handle_parse_result.__get__(param), param, errors, missing)
            setattr(param, "handle_parse_result", kept)  # noqa: B010
        left = super().parse_args(ctx, args)
        if missing and not errors:
            raise missing[0]
        if errors:
            lacking = [f"{one.format_message().rstrip('.')}. Add it" for one in missing]
            raise HarnessFault([*errors, *lacking, *_in_files(ctx.params)])
        return left


def _kept(parse: Any, param: Any, errors: list[str], missing: list[BadParameter]) -> Any:
    def parsed(ctx: Any, options: dict[str, Any], args: list[str]) -> tuple[Any, list[str]]:
        try:
            found: tuple[Any, list[str]] = parse(ctx, options, args)
        except BadParameter as error:
            ctx.params[param.name] = None
            if type(error).__name__ == "MissingParameter":  # a kind of BadParameter that typer does not export
                missing.append(error)
                return None, args
            name = next((opt for opt in param.opts if opt.startswith("--")), (param.metavar or param.name).upper())
            given = options.get(param.name)
            wanted = next((words for said, words in _NUMBERS.items() if said in error.message), None)
            if not isinstance(given, str):
                what = f"{error.message}. Correct it"
            else:
                what = f"{given!r:.60} is not {wanted}" if wanted else f"{given!r:.60}: {error.message}. Correct it"
            errors.append(f"{name}: {what}")
            return None, args
        return found

    return parsed


_NUMBERS = {"valid number": "a number. Write for example 2.5", "valid integer": "a whole number. Write for example 4"}


def _in_files(given: dict[str, Any]) -> list[str]:
    """What is wrong with the scenario and the objectives that stand beside flags that are."""
    from plimsoll.harness.run.job import check_file
    from plimsoll.harness.run.promises import Asked, read_promises

    errors: list[str] = []
    name = given.get("scenario")
    if isinstance(name, str):
        try:
            check_file(name, encode=False)
        except HarnessFault as fault:
            errors += fault.errors
    texts = given.get("slo")
    return errors + (read_promises(Asked(slo=texts))[1] if isinstance(texts, list | tuple) else [])
