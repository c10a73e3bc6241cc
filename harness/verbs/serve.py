"""``plimsoll serve``, ``readiness``, ``hook``: an endpoint to try things on, one to wait for, one for controllers."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs import flags as shared
from plimsoll.harness.verbs.flags import Json


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="HTTP port; 0 picks a free one.")] = 8000,
    grpc_port: Annotated[
        int | None, typer.Option(help="gRPC port; 0 picks a free one. Without it: one above the HTTP port.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="llm, scripted, resnet50 and more. Repeatable.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    preset: Annotated[str | None, typer.Option(help="Size of the llm: tiny, small, 125m, 1b or 8b.")] = None,
    weights: Annotated[str | None, typer.Option(metavar="DIR", help="A folder with weights for the llm.")] = None,
    ttft: Annotated[str | None, typer.Option(metavar="D", help="Time to first token (scripted).")] = None,
    itl: Annotated[str | None, typer.Option(metavar="D", help="Time between tokens (scripted).")] = None,
    slots: Annotated[int | None, typer.Option(help="How many answers at a time (scripted).")] = None,
    service: Annotated[
        str | None,
        typer.Option(metavar="constant|exponential|T(B)", help="Times of a request, or of a batch (scripted)."),
    ] = None,
    fault: Annotated[list[str] | None, typer.Option(metavar="NAME[=ARGS]", help="A fault: stall=at:5s,for:2s.")] = None,
    in_flight: Annotated[
        str | None, typer.Option(metavar="N|D", help="Requests at a time, others get 503; D: as p99 allows.")
    ] = None,
    queue_limit: Annotated[int | None, typer.Option(help="How many requests may wait before 503.")] = None,
    max_batch: Annotated[int | None, typer.Option(help="Most sequences in a step, samples in a batch.")] = None,
    max_wait: Annotated[str | None, typer.Option(metavar="D", help="How long a batch waits to fill.")] = None,
    window: Annotated[
        str | None, typer.Option(metavar="D", help="What a batch waits for: none, static, dynamic, adaptive or D.")
    ] = None,
    kv_cache: Annotated[
        str | None, typer.Option(metavar="paged|asked|longest", help="What a sequence keeps room for (llm).")
    ] = None,
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache", help="Reuse the KV blocks of equal prompt beginnings (llm).")
    ] = False,
    batching: Annotated[
        str | None, typer.Option(metavar="continuous|static", help="Whether batches run to their end (llm).")
    ] = None,
    resident: Annotated[int | None, typer.Option(help="Models of fixed outputs in memory at a time.")] = None,
    response_cache: Annotated[int | None, typer.Option(help="Answers to keep for the same request.")] = None,
    image_side: Annotated[int | None, typer.Option(help="Pixels a side that resnet50 computes; 0: as sent.")] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="float32|int8", help="Numbers that resnet50 computes in, on a CPU.")
    ] = None,
    synchronise: Annotated[int | None, typer.Option(help="Each request holds N samples: one batch.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the weights.")] = None,
    version: Annotated[str | None, typer.Option(metavar="V", help="Version that answers name.")] = None,
    replicas: Annotated[int | None, typer.Option(help="So many servers behind a router: a fleet.")] = None,
    route: Annotated[
        str | None,
        typer.Option(help="round-robin, random, least-requests, power-of-two, weighted=3,1, sticky or prefix-hash."),
    ] = None,
    replica: Annotated[
        list[str] | None, typer.Option(metavar="N:FLAGS", help="Flags of one replica: '2:--ttft 200ms'.")
    ] = None,
    admin_port: Annotated[int | None, typer.Option(help="Where /fleet of a fleet answers; default: any.")] = None,
    breaker: Annotated[
        str | None, typer.Option(metavar="N[:D]", help="Leave a replica out for D after N failures in a row.")
    ] = None,
) -> None:
    """Start the bundled reference server, or a fleet of them, and serve until Ctrl-C."""
    import os

    from plimsoll.harness.process import child
    from plimsoll.harness.run.bundled import default_model

    arguments = ["--host", host, "--http-port", str(http_port), "--device", device]
    models = model or [default_model()]
    for name in models:
        arguments += ["--model", name]
    single = {
        "--grpc-port": _grpc_port(http_port, models) if grpc_port is None else grpc_port,
        "--preset": preset,
        "--weights": weights,
        "--ttft": ttft,
        "--itl": itl,
        "--slots": slots,
        "--service": service,
        "--in-flight": in_flight,
        "--queue-limit": queue_limit,
        "--max-batch": max_batch,
        "--max-wait": max_wait,
        "--window": window,
        "--batching": batching,
        "--kv-cache": kv_cache,
        "--image-side": image_side,
        "--precision": precision,
        "--response-cache": response_cache,
        "--resident": resident,
        "--synchronise": synchronise,
        "--version": version,
        "--replicas": replicas,
        "--route": route,
        "--admin-port": admin_port,
        "--breaker": breaker,
    }
    for flag, value in {**single, "--seed": seed}.items():
        if value is not None:
            arguments += [flag, str(value)]
    if prefix_cache:
        arguments.append("--prefix-cache")
    for text in fault or []:
        arguments += ["--fault", text]
    for text in replica or []:
        arguments += ["--replica", text]
    sys.stdout.flush()
    os.execv(sys.executable, child.command("plimsoll.reference_server", *arguments))


def _grpc_port(http_port: int, models: Sequence[str]) -> int | None:
    """Where gRPC is served when nobody said: beside HTTP, if grpcio is installed.

    The scripted model alone is the light server of tests and first tries: it loads no gRPC unasked.
    """
    needed = ("grpc", "grpc_health", "grpc_reflection")
    if set(models) == {"scripted"} or any(importlib.util.find_spec(name) is None for name in needed):
        return None
    return http_port and min(http_port + 1, 65535)


def readiness(
    url: Annotated[str, typer.Argument(help="The endpoint.")],
    timeout: Annotated[str, typer.Option(metavar="D", help="Give up after this.")] = "60s",
    path: Annotated[
        str | None, typer.Option(help="Health route to ask; else /health, /v2/health/ready or /ping.")
    ] = None,
    json_: Json = False,
) -> None:
    """Wait until an endpoint is ready: it accepts connections, and its health route, if it has one, says so.

    Exit 0 when it is ready, 5 when it isn't in time.
    """
    from plimsoll.harness.process import interrupts
    from plimsoll.harness.run.readiness import wait_ready
    from plimsoll.harness.transport.client import Target
    from plimsoll.scenarios.text.fields import parse_duration

    try:
        limit_ns = parse_duration(timeout)
    except ValueError as error:
        raise HarnessFault(f"--timeout: {error}") from None
    if path is not None and not path.startswith("/"):
        raise HarnessFault(f"--path {path}: a route begins with /. Write --path /{path}")
    found = interrupts.run(wait_ready(Target(url, "http"), limit_ns / 1e9, path))
    if json_:
        typer.echo(json.dumps({"url": url, "ready_after_s": found.seconds, "route": found.route}))
    else:
        how = f"{found.route} says so" if found.route else "it accepted a connection"
        typer.echo(f"{url} is ready after {found.seconds:.2f} s: {how}")


def hook(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="What load, with objectives; a file, or a library scenario.")
    ],
    url: shared.Url = None,
    slo: shared.Slo = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8080,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY,...", help="What a call may set: url, model, rate, concurrency, duration, queries."),
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable with the token that calls must bring.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the run directories.")] = Path("runs"),
    exit_map: shared.ExitMap = None,
) -> None:
    """Run the scenario whenever a rollout controller asks, and answer by the verdict: Flagger's webhooks at /flagger,
    Argo Rollouts' web metrics at /argo. Until Ctrl-C.
    """
    from plimsoll.harness.live.place import Place
    from plimsoll.harness.series.rollout import answer

    place = Place(host, port)
    raise typer.Exit(answer(scenario, url, slo or [], allow or [], token_env, place, out, exit_map or {}))
