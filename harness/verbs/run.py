"""``plimsoll run``: send load by a scenario, measure, judge, and leave a run directory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs import flags as shared
from plimsoll.harness.verbs.flags import Confidence, FormatOption, Goodput, Json, PresetOption, ProductionRate, Slo

if TYPE_CHECKING:
    from plimsoll.harness.run.watcher import Watcher
    from plimsoll.harness.run.workforce import Workforce


def run(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO]", help="A scenario file, or the name of a library scenario."),
    ] = None,
    url: shared.Url = None,
    protocol: shared.Protocol = None,
    model: shared.Model = None,
    kind: Annotated[
        str | None, typer.Option(help="single_stream, multi_stream, server, offline, concurrency or replay.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="performance, or accuracy: each sample once, answers kept and compared.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Expected answers of an accuracy run: JSON Lines of id, expected."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Queries per second (server).")] = None,
    arrival: shared.Arrival = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests kept in flight (concurrency).")] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="A recording whose times and lengths are repeated (replay).")
    ] = None,
    speed: Annotated[float | None, typer.Option(help="So many times as fast as it was recorded (replay).")] = None,
    window: Annotated[str | None, typer.Option(metavar="A..B", help="Only this part of it: 10m..20m (replay).")] = None,
    cancel: shared.Cancel = None,
    duration: Annotated[str | None, typer.Option(metavar="D", help="Issue for at least this long: 20s, 5m.")] = None,
    queries: Annotated[int | None, typer.Option(metavar="N", help="Issue at least this many queries.")] = None,
    max_duration: Annotated[str | None, typer.Option(metavar="D", help="Stop issuing after this, whatever.")] = None,
    prompt_tokens: shared.PromptTokens = None,
    output_tokens: shared.OutputTokens = None,
    seed: shared.Seed = None,
    workers: shared.Workers = None,
    retries: shared.Retries = None,
    slo: Slo = None,
    goodput: Goodput = None,
    preset: PresetOption = None,
    confidence: Confidence = None,
    production_rate: ProductionRate = None,
    warmup: shared.Warmup = None,
    timeout: shared.Timeout = None,
    connect_timeout: shared.ConnectTimeout = None,
    header: shared.Header = None,
    api_key_env: shared.ApiKeyEnv = None,
    api_key_file: shared.ApiKeyFile = None,
    option: shared.ProtocolOption = None,
    pace: shared.Pace = None,
    ca_file: shared.CaFile = None,
    insecure: shared.Insecure = False,
    locust_master: Annotated[
        str | None,
        typer.Option(metavar="[HOST:PORT]", help="Agents send the load; Locust's master listens here (*:5557)."),
    ] = None,
    expect_workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Agents to wait for (1).", show_default=False)
    ] = None,
    locust_wait: Annotated[
        str | None, typer.Option(metavar="D", help="Wait for them no longer than this (2m).")
    ] = None,
    locust_web: Annotated[
        str | None, typer.Option(metavar="[HOST:PORT]", help="Serve Locust's page too (127.0.0.1:8089).")
    ] = None,
    live: shared.Live = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run directory (default: runs/NAME-TIME).")] = None,
    format: FormatOption = None,
    json_: Json = False,
) -> None:
    """Send load by a scenario, measure, judge, and leave a run directory with report.html."""
    from plimsoll.harness.live.place import where
    from plimsoll.harness.live.series import Series
    from plimsoll.harness.run.job import one_on_stdout, prepare
    from plimsoll.harness.run.promises import Asked
    from plimsoll.harness.series.one_run import run_job

    flags: dict[str, Any] = {
        "url": url, "protocol": protocol, "model": model, "kind": kind, "mode": mode, "reference": reference,
        "rate": rate, "arrival": arrival, "trace": trace, "speed": speed, "window": window, "cancel": cancel,
        "concurrency": concurrency, "duration": duration, "queries": queries, "max_duration": max_duration,
        "prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "seed": seed, "workers": workers,
        "retries": retries,
        "warmup": warmup, "timeout": timeout, "connect_timeout": connect_timeout, "api_key_env": api_key_env,
        "api_key_file": api_key_file, "ca_file": ca_file, "tls_verify": False if insecure else None,
        "headers": pairs(header or [], ":", "--header") or None,
        "options": paced(yaml_values(pairs(option or [], "=", "--option")), pace) or None,
    }  # fmt: skip
    asked = Asked(slo or [], goodput, preset or [], confidence, production_rate)
    if problems := one_on_stdout(format or [], json_):
        raise HarnessFault(problems)
    workforce, watchers = fleet(locust_master, expect_workers, locust_wait, locust_web)
    place = where(live)
    prepared = prepare(scenario, flags, asked, format or [], out)  # type: ignore[arg-type]
    live_page = Series(place)
    raise typer.Exit(run_job(prepared, as_json=json_, watchers=watchers, workforce=workforce, live=live_page))


def fleet(
    master: str | None, expected: int | None, wait: str | None, web: str | None
) -> tuple[Workforce | None, list[Watcher]]:
    """Who sends, and who keeps the way to them open: (None, []) is processes of this host. Raises HarnessFault."""
    given = {"--expect-workers": expected, "--locust-wait": wait, "--locust-web": web}
    if master is None:
        if alone := [flag for flag, value in given.items() if value is not None]:
            raise HarnessFault(f"{', '.join(alone)}: only with --locust-master. Add it, or leave these out")
        return None, []
    from plimsoll.harness.distributed.bridge import Bridge
    from plimsoll.harness.distributed.fleet import PATIENCE_S, Fleet
    from plimsoll.scenarios.text.durations import parse_duration

    try:
        patience_s = PATIENCE_S if wait is None else parse_duration(wait) / 1e9
    except ValueError as error:
        raise HarnessFault(f"--locust-wait: {error}") from None
    bridge = Bridge(master, web)
    return Fleet(bridge, expected or 1, patience_s), [bridge]


class Command(shared.Verb):
    """``--live``, ``--locust-master`` and ``--locust-web`` with or without their address, which the parser itself does not know.

    Without ``=``, the next word is the address only if it ends in a port: no scenario's name does.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give those that have no address theirs."""
        return super().parse_args(ctx, addressed(args))


def addressed(words: Sequence[str]) -> list[str]:
    """The words of a command line with the addresses of those three joined to them."""
    defaults = {"--locust-master": "*:5557", "--locust-web": "127.0.0.1:8089", "--live": "0"}
    found: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word in defaults:
            follows = left and re.fullmatch(r"(\S*:)?\d+", left[0])
            word = f"{word}={left.pop(0) if follows else defaults[word]}"
        found.append(word)
    return found


def pairs(texts: list[str], separator: str, flag: str) -> dict[str, str]:
    """``NAME: VALUE`` or ``K=V`` texts of a repeatable flag. Raises HarnessFault."""
    wrong = [text for text in texts if separator not in text]
    if wrong:
        shape = "'NAME: VALUE'" if separator == ":" else "K=V"
        # The value may be a secret that was mistyped, so it is not repeated.
        raise HarnessFault(
            f"{flag}: {len(wrong)} of {len(texts)} not written as {shape}. Put a {separator!r} between the two"
        )
    return {name.strip(): value.strip() for name, _, value in (text.partition(separator) for text in texts)}


def yaml_values(given: dict[str, str]) -> dict[str, Any]:
    """Options by name; ``audio.frame=20ms`` is ``frame`` inside ``audio``. Raises HarnessFault."""
    from plimsoll.documents.text import plain

    found: dict[str, Any] = {}
    try:
        for name, text in given.items():
            *rooms, last = name.split(".")
            place = found
            for room in rooms:
                inner = place.setdefault(room, {})
                if not isinstance(inner, dict):
                    raise HarnessFault(f"--option {name}: {room} is given a value too. Keep one of the two")
                place = inner
            place[last] = plain(text)
    except ValueError as error:
        raise HarnessFault(f"--option: a value is {error}. Quote it") from None
    return found


def paced(options: dict[str, Any], pace: str | None) -> dict[str, Any]:
    """The options with ``--pace`` among them. Raises HarnessFault where they say something else already."""
    if pace is None:
        return options
    audio = options.setdefault("audio", {})
    if not isinstance(audio, dict) or audio.setdefault("pace", pace) != pace:
        raise HarnessFault("--pace and --option audio.pace differ. Keep one of the two")
    return options


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command(cls=Command)(run)
