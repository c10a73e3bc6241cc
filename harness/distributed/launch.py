"""The command that Locust's start button stands for: from the arguments of the shipped locustfile to those of ``plimsoll run``.

Pure: text in, a command line out. What is wrong with a value is for ``plimsoll run`` to say; it says it before any load. What comes from
the start form in a browser, and not from the command line, is held to ``FORM`` here: anybody's page may have filled it in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.slo.objectives import objective

PREFIX = "plimsoll_"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the locustfile. ``flag``: of ``plimsoll run`` ("" for its scenario); ``many``: words that each get the flag;
    ``form``: a field of the start form too.
    """

    name: str
    flag: str
    help: str
    many: bool = False
    form: bool = False


#: What the locustfile adds to Locust's command line; some also to its start form.
ARGUMENTS = (
    Argument("scenario", "", "A scenario file on the master, or the name of a library scenario."),
    Argument("url", "--url", "The endpoint (default: Locust's host)."),
    Argument("protocol", "--protocol", "How to talk to it, e.g. openai-chat."),
    Argument("model", "--model", "Model name to ask for."),
    Argument("rate", "--rate", "Queries per second of all agents together.", form=True),
    Argument("concurrency", "--concurrency", "Requests in flight of all agents together.", form=True),
    Argument("duration", "--duration", "Issue for at least this long: 20s, 5m.", form=True),
    Argument(
        "slo",
        "--slo",
        "Objectives, separated by semicolons: p99(ttft) <= 500ms; p99(tpot) <= 50ms",
        many=True,
        form=True,
    ),
    Argument("workers", "--workers", "Load-generating processes of all agents together."),
    Argument("out", "--out", "Run directory on the master (default: runs/NAME-TIME)."),
    Argument("flags", "*", "Anything else that `plimsoll run` takes. No secrets: Locust sends it to every worker."),
)


_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?\s?(?:ns|us|ms|s|m|h|d)?\s?){1,4}")
#: What a browser may say: Locust's own fields, which load nothing, and ours, each with its shape.
FORM = {
    "user_count": re.compile(r"0*\d{1,4}"),
    "spawn_rate": _NUMBER,
    "run_time": _DURATION,
    f"{PREFIX}rate": _NUMBER,
    f"{PREFIX}concurrency": re.compile(r"\d{1,9}"),
    f"{PREFIX}duration": _DURATION,
    f"{PREFIX}slo": re.compile(r"[^\x00-\x1f]{0,4000}"),
}


def of_form(fields: Mapping[str, str], given: Mapping[str, Any], host: str) -> dict[str, str]:
    """The named fields of a start form; others, which Locust's own page sends too, are left out. ``given`` and ``host`` are the command
    line's, and may be repeated. Raises HarnessFault for one of ours that only the command line has, for another host than its, and for what
    has not the shape of its field.
    """
    faults = []
    kept = {}
    for name, text in fields.items():
        value = text.strip()
        known = name.startswith(PREFIX) and value == str(given.get(name) or "").strip()
        if name == "host":
            if value and value.rstrip("/") != host.rstrip("/"):
                faults.append("the host is the command line's: start Locust with --host URL")
        elif name in FORM:
            kept[name] = value
            if value and not known and not _fits(name, value):
                faults.append(f"{name.removeprefix(PREFIX)}: {value[:60]!r} is nothing that the start form takes")
        elif name.startswith(PREFIX) and not known:
            faults.append(f"{name.removeprefix(PREFIX)} is the command line's: start Locust with {_spelt(name)}")
    if faults:
        raise HarnessFault(faults)
    return kept


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _fits(name: str, value: str) -> bool:
    if not FORM[name].fullmatch(value):
        return False
    wanted = [text for text in map(str.strip, value.split(";")) if text] if name == f"{PREFIX}slo" else []
    return not objective.parse_all(wanted)[1]


def chosen(given: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a start: the command line's (``given``), with what its form changed since (``now``), of the form's fields only.

    Raises HarnessFault as ``of_form`` does.
    """
    changed = {name: str(now.get(name) or "") for name in FORM if name.startswith(PREFIX) and name in now}
    return {**given, **of_form(changed, given, "")}


def command(options: Mapping[str, Any], host: str | None, agents: int, pipes: tuple[int, int]) -> list[str]:
    """The arguments of ``python -m plimsoll.harness``. ``options``: Locust's parsed options. Raises HarnessFault."""
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
