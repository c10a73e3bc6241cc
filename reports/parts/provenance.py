"""Manifest and scenario to the report's parts ``run`` and ``attempts``: what makes a run repeatable, and nothing
secret.

Reads the keys it knows and ignores the rest. URLs lose user, password, query and fragment; a command line loses the
value of every option whose name says that it is a secret.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Outcome, Run, Scenario, Target, Text, Timer

_URL = re.compile(r"[a-z][a-z0-9+.\-]*://[^\s'\"<>]+", re.IGNORECASE)
_QUERY = re.compile(r"[?#]")
_SECRET = re.compile(r"key|token(?!s)|secret|password|passwd|credential|auth|cookie|header|bearer", re.IGNORECASE)
_HIDDEN = "***"
_LENGTH = 4000
_RANKS = ("p50", "p90", "p99", "max")


def run_part(manifest: Mapping[str, Any], scenario: Mapping[str, Any], open_loop: bool) -> Run:
    """The ``run`` part.

    Of the manifest: run_id, started_at, t0_wall_ns, plimsoll, host, libraries, command, target.url, seed,
    plan_fingerprint, workers, timer, directory. Of the scenario: name, kind, description, target.url, target.protocol,
    seed. What is missing stays empty.
    """
    target = _mapping(scenario.get("target"))
    reached = _mapping(manifest.get("target"))
    return Run(
        id=_text(manifest.get("run_id")),
        started_at=_text(manifest.get("started_at")),
        started_at_epoch_ns=_epoch_ns(manifest),
        plimsoll=_text(manifest.get("plimsoll")),
        host=_flat(_mapping(manifest.get("host"))),
        libraries=_flat(_mapping(manifest.get("libraries"))),
        scenario=Scenario(
            name=_text(scenario.get("name") or manifest.get("scenario_name")),
            kind=_text(scenario.get("kind")),
            description=_text(scenario.get("description")),
        ),
        target=Target(
            url=public_url(_text(reached.get("url") or target.get("url"))), protocol=_text(target.get("protocol"))
        ),
        seed=_whole(manifest.get("seed", scenario.get("seed"))),
        plan_fingerprint=_text(manifest.get("plan_fingerprint")),
        workers=_whole(manifest.get("workers")),
        command=public_command(manifest.get("command")),
        directory=_text(manifest.get("directory")),
        open_loop=open_loop,
        timer=_timer(_mapping(manifest.get("timer"))),
    )


def _timer(found: Mapping[str, Any]) -> Timer | None:
    """The manifest's ``timer``; None of an older run, or a damaged one."""
    late = found.get("late_ns")
    try:
        named = {f"{name}_ns": late[name] for name in _RANKS} if isinstance(late, Mapping) else {}
        return Timer(**named, **{name: found[name] for name in ("sleeps", "spin_ns", "core_share")})
    except (KeyError, ValueError):
        return None


def public_url(url: str) -> str:
    """``url`` without user, password, query and fragment; text that is no URL comes back as it is."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url.partition("?")[0].rpartition("@")[2]
    rest = _QUERY.split(rest, maxsplit=1)[0]  # no parser of URLs: what a server writes need not be one (http://[HOST]/)
    place, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{place.rpartition('@')[2]}{slash}{path}"


def public_text(text: str) -> str:
    """Free text with every URL in it made public."""
    return _URL.sub(lambda found: public_url(found[0]), text)


def public_command(command: object) -> str:
    """A command line, quoted for a shell, with URLs made public and the values of secret options hidden."""
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:
            words = command.split()
    elif isinstance(command, Sequence):
        words = [str(word) for word in command]
    else:
        return ""
    shown: list[str] = []
    hide = False
    for word in words:
        name, equals, _ = word.partition("=")
        option = word.startswith("-") and (bool(_SECRET.search(name)) or name == "-H")
        if hide and not word.startswith("-"):
            shown.append(_HIDDEN)
        elif option and equals:
            shown.append(f"{shlex.quote(name)}={_HIDDEN}")
        else:
            shown.append(shlex.quote(public_text(word)))
        hide = option and not equals
    return " ".join(shown)[:_LENGTH]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return "" if value is None else str(value)[:_LENGTH]


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}_")
        elif isinstance(value, (list, tuple)):
            flat[f"{prefix}{name}"] = ", ".join(_scalar(part) for part in value)
        elif value is not None:
            flat[f"{prefix}{name}"] = _scalar(value)
    return flat


def _scalar(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else _text(value)


def _epoch_ns(manifest: Mapping[str, Any]) -> int | None:
    stamp = _whole(manifest.get("t0_wall_ns"))
    if stamp is not None:
        return stamp
    try:
        return int(datetime.fromisoformat(_text(manifest.get("started_at"))).timestamp()) * 1_000_000_000
    except ValueError:
        return None


class Attempt(BaseModel, frozen=True, extra="forbid"):
    """One time that the load was sent."""

    number: int
    outcome: Outcome
    reasons: list[Text] = Field(default_factory=list)
    directory: Text = Field(
        default="",
        description="below the run directory of the last attempt; . is that one; empty: it is no longer there",
    )


def attempts_part(manifest: Mapping[str, Any], outcome: Outcome, reasons: Sequence[str]) -> list[Attempt]:
    """The earlier attempts and this one; none where the first was the only one."""
    noted = manifest.get("attempts")
    earlier = [one for one in noted if isinstance(one, Mapping)] if isinstance(noted, list) else []
    found = [
        Attempt(
            number=int(one.get("number", number)),
            outcome=one.get("outcome", "INVALID"),
            reasons=[str(text) for text in one.get("reasons", ())],
            directory=f"attempts/{one.get('number', number)}" if one.get("kept", True) else "",
        )
        for number, one in enumerate(earlier, 1)
    ]
    last = Attempt(number=len(found) + 1, outcome=outcome, reasons=list(reasons), directory=".")
    return [*found, last] if found else []


def repeated(attempts: Sequence[Attempt]) -> str:
    """One sentence on what was repeated and why; "" where nothing was."""
    if len(attempts) < 2:
        return ""
    *earlier, last = attempts
    reason = next(iter(earlier[-1].reasons), "no reason given").rstrip(".")
    kept = [one for one in earlier if one.directory]
    if len(earlier) == 1:
        where = f"is kept in {earlier[0].directory}" if kept else "is no longer in the run directory"
        what = f"Attempt 1 was INVALID by the generator alone ({reason}) and {where}"
    else:
        which = "1 and 2" if len(earlier) == 2 else f"1 to {len(earlier)}"
        where = "are kept in attempts" if kept else "are no longer in the run directory"
        if 0 < len(kept) < len(earlier):
            where = f"only {', '.join(one.directory for one in kept)} of them are still kept"
        what = f"Attempts {which} were INVALID by the generator alone (the last of them: {reason}) and {where}"
    return f"{what}; this is attempt {last.number}, of the same schedule."
