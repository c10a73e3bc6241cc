"""The command that Locust's start button stands for: from the arguments of the shipped locustfile to those of ``plimsoll run``.

Pure: text in, a command line out. What is wrong with a value is for ``plimsoll run`` to say; it says it before any load.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import HarnessFault

PREFIX = "plimsoll_"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the locustfile. ``flag``: of ``plimsoll run`` ("" for its scenario); ``many``: words that each get the flag."""

    name: str
    flag: str
    help: str
    many: bool = False


#: What the locustfile adds to Locust's command line and to its start form.
ARGUMENTS = (
    Argument("scenario", "", "A scenario file on the master, or the name of a library scenario."),
    Argument("url", "--url", "The endpoint (default: Locust's host)."),
    Argument("protocol", "--protocol", "How to talk to it, e.g. openai-chat."),
    Argument("model", "--model", "Model name to ask for."),
    Argument("rate", "--rate", "Queries per second of all agents together."),
    Argument("concurrency", "--concurrency", "Requests in flight of all agents together."),
    Argument("duration", "--duration", "Issue for at least this long: 20s, 5m."),
    Argument("slo", "--slo", "Objectives, separated by semicolons: p99(ttft) <= 500ms; p99(tpot) <= 50ms", many=True),
    Argument("workers", "--workers", "Load-generating processes of all agents together."),
    Argument("out", "--out", "Run directory on the master (default: runs/NAME-TIME)."),
    Argument("flags", "*", "Anything else that `plimsoll run` takes. No secrets: Locust sends it to every worker."),
)


def command(options: Mapping[str, Any], host: str | None, agents: int, pipes: tuple[int, int]) -> list[str]:
    """The arguments of ``python -m harness``. ``options``: Locust's parsed options. Raises HarnessFault."""
    given = {one.name: str(options.get(PREFIX + one.name) or "").strip() for one in ARGUMENTS}
    given["url"] = given["url"] or (host or "").strip()
    try:
        more = shlex.split(given.pop("flags"))
    except ValueError as error:
        raise HarnessFault(f"--plimsoll-flags: {error}. Quote it as a shell would") from None
    words = ["run", *([given["scenario"]] if given["scenario"] else [])]
    for one in ARGUMENTS[1:-1]:
        values = given[one.name].split(";") if one.many else [given[one.name]]
        words += [f"{one.flag}={value}" for value in map(str.strip, values) if value]
    return [*words, *more, f"--locust-master=fd:{pipes[0]},{pipes[1]}", f"--expect-workers={agents}"]
