"""Flags that several verbs take, declared once, and how all verbs say what is wrong with theirs."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
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
        help="An objective such as 'p99(ttft) <= 200ms', or a YAML file of them. Repeatable; replaces the scenario's.",
    ),
]
FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="F=PATH",
        help=f"Write the report in format F too: {', '.join(REPORT_FORMATS)}. PATH - is stdout. Repeatable.",
    ),
]
ComparisonFormat = Annotated[
    list[str] | None,
    typer.Option(
        "--format", metavar="F=PATH", help="Also: annotations, html, json, junit, markdown or text. Repeatable."
    ),
]
SweepFormat = Annotated[
    list[str] | None,
    typer.Option(
        "--format", metavar="F=PATH", help="Also: annotations, csv, html, json, junit, markdown or text. Repeatable."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the verdict on one line: outcome, what decides it, run.")]
Goodput = Annotated[
    str | None,
    typer.Option(metavar="'ttft:200 tpot:50'", help="What a good request keeps, in ms, as vLLM's bench writes it."),
]
PresetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--preset", metavar="NAME", help="A published set of limits: `plimsoll slo presets` lists them. Repeatable."
    ),
]
Confidence = Annotated[
    str | None, typer.Option(metavar="C", help="How sure each bound must be. Default: 0.95, or the preset's.")
]
ProductionRate = Annotated[
    float | None, typer.Option(metavar="R", help="Requests per second in production, for budgets that count events.")
]
#: The target and the load.
Url = Annotated[
    str | None, typer.Option(metavar="URL", help="The endpoint. Default: the bundled server, started and stopped.")
]
Protocol = Annotated[
    str | None, typer.Option(metavar="NAME", help="How to talk to it: kserve-v2, http, ... Default: openai-chat.")
]
Model = Annotated[
    str | None, typer.Option(metavar="NAME", help="The model to ask for. Default: the server's only or first one.")
]
Arrival = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="poisson, constant, gamma or loadgen, of kind server. Default: poisson."),
]
PromptTokens = Annotated[int | None, typer.Option(metavar="N", help="Length of the prompts. Default: 200.")]
OutputTokens = Annotated[int | None, typer.Option(metavar="N", help="Length of the answers to ask for. Default: 64.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Everything random comes from it. Default: 42.")]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", help="Processes that send. Default: as many as the calibration asks for, else 1."),
]
Retries = Annotated[
    int | None,
    typer.Option(metavar="N", help="Repeat a run that is INVALID by the generator alone, at most N times. Default: 0."),
]
Warmup = Annotated[
    str | None,
    typer.Option(metavar="D", help="Send load for this long before each run, and do not judge it. Default: 0s."),
]
Timeout = Annotated[str | None, typer.Option(metavar="D", help="Give a request up after this. Default: 1m.")]
ConnectTimeout = Annotated[str | None, typer.Option(metavar="D", help="Give a connection up after this. Default: 10s.")]
Header = Annotated[
    list[str] | None,
    typer.Option(metavar="'NAME: VALUE'", help="An extra header; ${env:NAME} is filled in. Repeatable."),
]
ApiKeyEnv = Annotated[
    str | None, typer.Option(metavar="NAME", help="The variable that holds the API key. Default: PLIMSOLL_API_KEY.")
]
ApiKeyFile = Annotated[str | None, typer.Option(metavar="PATH", help="A file that holds the API key.")]
ProtocolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="K=V",
        help="An option of the protocol (V is YAML; audio.frame=20ms reaches inside). Repeatable.",
    ),
]
Pace = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How to send live audio: as a microphone gives it (capture), eager, burst, or 2x. Default: capture.",
    ),
]
Cancel = Annotated[
    str | None,
    typer.Option(metavar="SHARE:AFTER", help="Drop a share of the queries after a delay: 10%:500ms. Default: none."),
]
CaFile = Annotated[str | None, typer.Option(metavar="PATH", help="More certificate authorities (PEM).")]
Live = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT", help="Serve a page of charts while a run goes on (0: a free port). Default: no page."
    ),
]
#: Who sends the load of a session, and where it goes on.
LocustMaster = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:PORT]", help="Agents send the load, and Locust's master listens here. Default: *:5557."
    ),
]
ExpectWorkers = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="How many agents to wait for. Default: 1.", show_default=False)
]
LocustWait = Annotated[str | None, typer.Option(metavar="D", help="Wait for them no longer than this. Default: 2m.")]
LocustWeb = Annotated[
    str | None, typer.Option(metavar="[HOST:PORT]", help="Serve Locust's page too. Default: 127.0.0.1:8089.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what --out holds; finished runs are not repeated.")]
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
    """A command that tells every flag it can't read at once, and what is wrong in the files that it can, not only the first flag.

    A long one groups its flags (``help.py``) and knows ``--help-all``.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As typer does, in groups."""
        from plimsoll.harness.verbs.help import EXAMPLES, is_long, lay_out

        if is_long(self.params):
            hidden = lay_out(ctx.info_name, self.get_params(ctx), ctx.meta.get("help-all", False))
            more = [f"{hidden} more flags: plimsoll {ctx.info_name} --help-all"] if hidden else []
            self.epilog = "\n\n".join([*EXAMPLES.get(ctx.info_name, ()), *more])
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does. Raises HarnessFault with every error."""
        if "--help-all" in args:
            ctx.meta["help-all"], args = True, ["--help"]
        errors: list[str] = []
        missing: list[BadParameter] = []
        read: list[Any] = self.get_params(ctx)
        args = addressed(args, {name for param in read for name in param.opts})
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


#: Flags with or without an address, which the parser itself does not know.
_ADDRESSES = {"--locust-master": "*:5557", "--locust-web": "127.0.0.1:8089", "--live": "0"}


def addressed(words: Sequence[str], known: Container[str] = _ADDRESSES) -> list[str]:
    """The words of a command line, with the addresses of those flags among the ``known`` joined to them.

    Without ``=``, the next word is the address only if it ends in a port: no scenario's name does.
    """
    found: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word in _ADDRESSES and word in known:
            follows = left and re.fullmatch(r"(\S*:)?\d+", left[0])
            word = f"{word}={left.pop(0) if follows else _ADDRESSES[word]}"
        found.append(word)
    return found


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
