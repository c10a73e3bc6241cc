"""Flags that several verbs take, how every verb says what is wrong with its own, and how its help is laid out.

A long help shows flags in groups, the common ones on one screen and all of them by ``--help-all``. A flag that stands
in no group is the verb's own and always shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer import BadParameter
from typer.core import TyperCommand

from plimsoll.harness.errors import HarnessFault
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.slo.metrics.plugin import PluginError

#: What ``plimsoll.reports.format.formats()`` finds; not asked here, for that loads every renderer.
REPORT_FORMATS = (
    *("annotations", "csv", "hdrlog", "html", "json", "junit", "markdown", "mlperf", "mlperf-detail", "openmetrics"),
    *("perfetto", "text"),
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
        "--format", metavar="F=PATH", help="Also: annotations, csv, html, json, junit, markdown or text. Repeatable."
    ),
]
SweepFormat = ComparisonFormat
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="F=PATH",
        help="Also: annotations, csv, html, json, junit, markdown or text. Repeatable.",
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
By = Annotated[
    str | None,
    typer.Option(
        metavar="LABEL,...",
        help="Tell the rows apart by these labels too: class, turn, slice, prompt_tokens, a label of yours.",
    ),
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
Keep = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="Chunk times and answers that stay after the verdict: all, tail, sample:1% or none. Default: all.",
    ),
]
KeepAnswers = Annotated[
    bool, typer.Option("--keep-answers", help="Keep the answers, to hold another run's against them.")
]
Compare = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="How: exact, tokens[:P], json[:FIELD,...], numbers[:P], wer[:P] or top1. Default: exact.",
    ),
]
Differs = Annotated[str | None, typer.Option(metavar="P", help="The share of answers that may differ. Default: 1%.")]
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
    typer.Option(
        metavar="SHARE:AFTER",
        help="Drop a share of the queries after a delay: 10%:500ms; recorded: as they were. Default: none.",
    ),
]
Prehistory = Annotated[
    str | None,
    typer.Option(metavar="D", help="Send what came so long before its first request first, and do not judge it."),
]
Spread = Annotated[
    bool,
    typer.Option("--spread", help="Put the requests of one tick of a coarse clock at random times until the next."),
]
Load = Annotated[
    float | None,
    typer.Option(metavar="X", help="3: thrice as much traffic, whole sessions again; 0.5: half of the sessions."),
]
ShareDepth = Annotated[
    int | None,
    typer.Option(metavar="N", help="Tokens that a copied prompt shares with the recorded one. Default: 512."),
]
Part = Annotated[
    str | None, typer.Option("--class", metavar="NAME", help="Of a run of several classes (mix): this one alone.")
]
Sessions = Annotated[
    str | None,
    typer.Option(
        metavar="times|turns",
        help="turns: a session's later turns wait for the answer before them and think as long as recorded. Default: "
        "times, or turns where a recording has no others.",
    ),
]
TraceFormat = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The recording's format, where it is not plain. Default: by what is in it."),
]
TimeUnit = Annotated[
    str | None, typer.Option(metavar="UNIT", help="Of times that are numbers, of csv and jsonl: s, ms, us, ns.")
]
Column = Annotated[
    list[str] | None,
    typer.Option(metavar="K=NAME", help="What a column of csv or jsonl is called: latency=took_s. Repeatable."),
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
LocustWait = Annotated[
    str | None, typer.Option(metavar="D", help="Wait no longer than this for the agents. Default: 2m.")
]
LocustWeb = Annotated[
    str | None, typer.Option(metavar="[HOST:PORT]", help="Serve Locust's page too. Default: 127.0.0.1:8089.")
]
LeaveRows = Annotated[
    bool,
    typer.Option(
        "--leave-rows", help="Each agent seals its own rows on its host, and the verdict comes of what it answers."
    ),
]
#: What the server says of itself.
ServerMetrics = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]URL",
        help="Read the server's own metrics during the run: a page, or auto for those of the target. Repeatable.",
    ),
]
ServerPid = Annotated[
    list[int] | None,
    typer.Option(
        metavar="PID",
        help="The server's process on this host: its memory and time, and the host's GPUs. Repeatable. Default: "
        "that of the bundled server.",
    ),
]
AllowCommands = Annotated[
    bool, typer.Option("--allow-commands", help="Run the commands of events that a run directory's scenario holds.")
]
CalibrateTokens = Annotated[
    bool,
    typer.Option(
        "--calibrate-tokens",
        help="Ask the endpoint first how it counts, so that prompts have the planned lengths in its own tokens.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what --out holds; finished runs are not repeated.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Don't check the server's certificate.")]


def exit_map(text: str) -> dict[int, int]:
    """``3=0,4=1``, ``argo`` (both 1: nothing is promoted without evidence) or ``argo:3=0``: code -> code to leave with.

    Only where no verdict was reached another code may be chosen; a FAIL stays one. Raises BadParameter.
    """
    argo = re.match("argo(:|$)", text)
    found: dict[int, int] = {}
    pairs = text[argo.end() :] if argo else text
    for pair in pairs.split(",") if pairs or not argo else ():
        said = re.fullmatch(r"\s*([34])=([0-9]{1,3})\s*", pair)
        if said is None or int(said[2]) > 255 or int(said[1]) in found:
            raise BadParameter(
                "not argo, argo:3=0 or 3=0,4=1, of 3 (INCONCLUSIVE) and 4 (INVALID), each once, and 0 to 255"
            )
        found[int(said[1])] = int(said[2])
    return {3: 1, 4: 1, **found} if argo else found


ExitMap = Annotated[
    dict[int, int] | None,
    typer.Option(
        "--exit-map",
        metavar="argo|3=C,4=C",
        parser=exit_map,
        help="Leave with C instead of 3 (INCONCLUSIVE) or 4 (INVALID). argo: with 1; argo:3=0 changes one.",
    ),
]


def leave(code: int, mapped: Mapping[int, int] | None) -> typer.Exit:
    """The end of the process, by ``--exit-map``; where that changes the code, stderr says so."""
    left = (mapped or {}).get(code, code)
    if left != code:
        typer.echo(f"exit code {left} by --exit-map; the verdict's own is {code}", err=True)
    return typer.Exit(left)


@contextmanager
def errors_too(as_json: bool) -> Iterator[None]:
    """What is wrong goes to stdout as JSON as well, where JSON was asked for: a program reads no stderr."""
    try:
        yield
    except (HarnessFault, ScenarioError, PluginError) as wrong:
        if as_json:
            typer.echo(json.dumps({"errors": list(wrong.errors)}, indent=1))
        raise


class Verb(TyperCommand):
    """A command that tells every flag it can't read at once, and what is wrong in the files that it can, not only the
    first flag.

    A long one groups its flags and knows ``--help-all``.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As typer does, in groups, every value by a word and none by its type."""
        for one in self.get_params(ctx):
            if one.param_type_name == "argument":
                setattr(one, "display_type_rich", lambda ctx: None)  # noqa: B010
            else:
                one.metavar = value_of(one)
        more = []
        if is_long(self.params):
            hidden = lay_out(ctx.info_name, self.get_params(ctx), ctx.meta.get("help-all", False))
            more = [f"{hidden} more flags: plimsoll {ctx.info_name} --help-all"] if hidden else []
        self.epilog = "\n\n".join([*EXAMPLES.get(ctx.info_name, ()), *more]) or None
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does. Raises HarnessFault with every error."""
        if "--help-all" in args:
            ctx.meta["help-all"], args = True, ["--help"]
        errors: list[str] = []
        missing: list[BadParameter] = []
        read: list[Any] = self.get_params(ctx)
        known = {name for param in read for name in param.opts}
        args = addressed(args, known)
        if "--leave-rows" in args and "--locust-master" in known and "--leave-rows" not in known:
            args = [word for word in args if word != "--leave-rows"]
            what = "needs the rows here; only `plimsoll run` can do without them. Leave it out"
            errors.append(f"--leave-rows: {ctx.info_name} {what}")
        for param in read:
            # The parser's loop ends at the first that fails; this is its only hook for each.
            kept = _kept(type(param).handle_parse_result.__get__(param), param, errors, missing)
            setattr(param, "handle_parse_result", kept)  # noqa: B010
        left = super().parse_args(ctx, args)
        if missing and not errors:
            raise missing[0]
        if errors:
            lacking = [f"{one.format_message().rstrip('.')}. Add it" for one in missing]
            raise HarnessFault([*errors, *lacking, *_in_files(ctx.params, ctx.info_name in _SHOWS_GOOD)])
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


#: Verbs that show or compare how many are good, whether or not anything is promised of that.
_SHOWS_GOOD = ("compare", "sweep")


def _in_files(given: dict[str, Any], limits_alone: bool) -> list[str]:
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
    asked = Asked(slo=texts if isinstance(texts, list | tuple) else (), limits_alone=limits_alone)
    return errors + read_promises(asked)[1]


#: A verb of more flags than this groups them.
FEW = 20
#: group -> its flags, by the name of the parameter. ``--help`` shows these.
COMMON: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Target": ("url", "protocol", "model", "api_key_env"),
        "Load": ("kind", "rate", "concurrency", "duration", "queries", "prompt_tokens", "output_tokens"),
        "Objectives": ("slo", "preset"),
        "Result": ("live", "out", "resume", "format", "json_", "help"),
    }
)
#: The same; only ``--help-all`` shows these.
RARE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "More about the load": (
            *("mode", "reference", "arrival", "trace", "speed", "window", "cancel", "max_duration", "seed", "workers"),
            *(
                "prehistory",
                "spread",
                "load",
                "share_depth",
                "sessions",
                "trace_format",
                "time_unit",
                "column",
                "retries",
                "warmup",
                "keep",
                "keep_answers",
            ),
        ),
        "More about objectives": ("goodput", "confidence", "production_rate", "exit_map"),
        "Connection": (
            *("timeout", "connect_timeout", "header", "api_key_file", "option", "pace", "ca_file", "insecure"),
        ),
        "The server": ("server_metrics", "server_pid"),
        "Several hosts": ("locust_master", "expect_workers", "locust_wait", "locust_web", "leave_rows"),
    }
)
#: What a flag without a word for its value shows: by its name, else by its type.
_WORDS: Mapping[str, str] = MappingProxyType(
    {
        **{"url": "URL", "kind": "KIND", "rate": "R", "path": "ROUTE", "host": "HOST"},
        **dict.fromkeys(("protocol", "model", "arrival", "over", "preset", "device", "name", "currency"), "NAME"),
    }
)
_TYPES: Mapping[str, str] = MappingProxyType({"str": "TEXT", "int": "N", "float": "X", "Path": "PATH"})
_GROUP = {name: group for groups in (COMMON, RARE) for group, names in groups.items() for name in names}
#: verb -> command lines to begin with.
EXAMPLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "run": (
            "plimsoll run demo",
            "plimsoll run --url http://127.0.0.1:8000 --rate 20 --duration 1m --slo 'p99(ttft) <= 200ms'",
            "plimsoll run chat.yaml --url http://127.0.0.1:8000 --slo slo.yaml --out run --format junit=slo.xml",
        ),
        "search": ("plimsoll search chat.yaml --url http://127.0.0.1:8000 --slo 'p99(ttft) <= 200ms' --out line",),
        "plan": ("plimsoll plan chat.yaml --slo 'p99(ttft) <= 200ms'",),
        "replay": (
            "plimsoll replay runs/mine --speed 2 --url http://127.0.0.1:8000",
            "plimsoll replay trace.jsonl --describe",
            "plimsoll replay trace.jsonl --window 10m..20m --prehistory 5m --url http://127.0.0.1:8000",
        ),
        "import": ("plimsoll import azure.csv --out trace.jsonl",),
        "gate": ("plimsoll gate runs/mine --slo 'p99(ttft) <= 200ms' --format junit=slo.xml",),
        "report": ("plimsoll report runs/mine --format markdown=-",),
        "capacity": ("plimsoll capacity line --target-rate 200 --price 4.10 --growth 30%",),
        "bakeoff": ("plimsoll bakeoff endpoints.yaml --init", "plimsoll bakeoff endpoints.yaml --out ranked"),
        "sweep": ("plimsoll sweep chat.yaml --url http://127.0.0.1:8000 --vary rate=2..64*2 --out curves",),
        "compare": (
            "plimsoll compare 'runs/main-*' 'runs/new-*'",
            "plimsoll compare --interleave chat.yaml --arm base=http://127.0.0.1:8000 --arm "
            "new=http://127.0.0.1:8001 --out ab",
        ),
        "canary": (
            "plimsoll canary chat.yaml --url http://old:8000 --canary http://new:8000 --steps 5%,25%,50% "
            "--step-time 5m --abort './rollback.sh'",
        ),
        "shadow": (
            "plimsoll shadow chat.yaml --url http://old:8000 --shadow http://new:8000 --compare tokens --differs 1%",
        ),
        "coldstart": (
            "plimsoll coldstart --start 'vllm serve m --port 8000' --url http://127.0.0.1:8000 --slo 'ready <= 60s'",
        ),
    }
)


def is_long(parameters: Iterable[Any]) -> bool:
    """Whether a verb of these has groups at all."""
    return len(list(parameters)) > FEW


def groups(verb: str, parameters: Iterable[Any]) -> dict[str, list[Any]]:
    """The flags of a long verb by group: its own (arguments too), then the common groups, then the others."""
    found: dict[str, list[Any]] = {name: [] for name in (verb.capitalize(), *COMMON, *RARE)}
    for one in parameters:
        found[_GROUP.get(one.name, verb.capitalize())].append(one)
    return {name: own for name, own in found.items() if own}


def value_of(option: Any) -> str:
    """The word that stands for a flag's value in the help; empty for a flag that takes none."""
    if option.metavar is not None or option.is_flag:
        return option.metavar or ""
    kind = option.bare_type().removeprefix("list[").removesuffix("]")
    return _WORDS.get(option.name) or _TYPES.get(kind, "VALUE")


def lay_out(verb: str, parameters: Iterable[Any], everything: bool) -> int:
    """Name each flag's panel, and hide what stands in a rare panel unless all is asked for.

    Returns how many are hidden.
    """
    hidden = 0
    for name, own in groups(verb, [one for one in parameters if one.param_type_name == "option"]).items():
        for one in own:
            one.rich_help_panel = name
            one.hidden = name in RARE and not everything
            hidden += one.hidden
    return hidden
