"""How an answer is published: files, stdout, exit code. And the flags of it that need reading.

A file that can't be written is told, and costs neither the result on stdout nor another file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import RenderableType

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process import outlet, writing
from plimsoll.scenarios.text.durations import parse_duration

Reported = TypeVar("Reported", bound=BaseModel)
Formats = Mapping[str, Callable[[Any], bytes]]


@dataclass(frozen=True, slots=True)
class Output:
    """One ``--format F=PATH``; ``-`` is stdout."""

    render: Callable[[Any], bytes]
    path: Path


def formats_of(texts: Sequence[str], known: Formats, of: str) -> tuple[tuple[Output, ...], list[str]]:
    """``F=PATH`` pairs, and every error in them. Each file is tried now, so that a bad path fails before the runs.

    ``known``: the formats of the document in question, which is ``of`` in words.
    """
    found: list[Output] = []
    errors: list[str] = []
    for text in texts:
        name, _, path = text.partition("=")
        if name not in known or not path:
            what = f"{name!r} is no format of {of}" if name not in known else "no file name"
            errors.append(f"--format {text}: {what}. Write F=PATH, with F one of {', '.join(sorted(known))}")
            continue
        try:
            if Path(path) != writing.STDOUT:
                writing.check(Path(path))
        except OSError as error:
            errors.append(f"--format {text}: {path} cannot be written ({error.strerror}). Name another file")
            continue
        found.append(Output(known[name], Path(path)))
    return tuple(found), errors


def duration(flag: str, text: str, errors: list[str], otherwise: int = 0) -> int:
    """A flag that is a duration, in ns; what is wrong with it goes to ``errors``."""
    try:
        return parse_duration(text)
    except ValueError as error:
        errors.append(f"{flag}: {error}")
        return otherwise


def publish(
    report: Reported,
    known: Formats,
    draw: Callable[[Reported, int], RenderableType],
    outputs: Sequence[Output],
    own: Mapping[Path, str],
    remedy: str,
    *,
    as_json: bool,
    fault: HarnessFault | None = None,
) -> int:
    """Write every file, print the result. Returns the exit code, which is 2 where it would be 0 and something is
    missing.

    ``own``: the session's own files and the format of each, its page last; ``fault``: what ended it early.
    """
    written = [fault is None, *(writing.result(one.path, one.render(report), remedy) for one in outputs)]
    written += [writing.result(path, known[name](report), remedy) for path, name in own.items()]
    report = as_written(report, written)
    if as_json:
        say(known["json"](report).decode())
    else:
        show(lambda width: draw(report, width), outputs, [*own][-1] if own and written[-1] else None)
    for text in fault.errors if fault is not None else ():
        print(f"error: {text}", file=sys.stderr)
    return int(getattr(report, "exit_code", 0))


def show(draw: Callable[[int], RenderableType], outputs: Sequence[Output], page: Path | None) -> None:
    """The result drawn on stdout, unless a file is written there, and where its page is."""
    if any(output.path == writing.STDOUT for output in outputs):
        return
    console = outlet.console()
    with console.capture() as printed:
        console.print(draw(console.width))
    say(printed.get())
    if page is not None:
        say(f"\nReport: {page}\n")


def as_written(report: Reported, written: Sequence[bool]) -> Reported:
    """The result as it is said: its exit code is 2 where it would be 0 and a file is missing."""
    missing = not all(written) and not getattr(report, "exit_code", 0)
    return report.model_copy(update={"exit_code": int(ExitCode.USAGE)}) if missing else report


def say(text: str) -> None:
    """Print it on stdout now."""
    sys.stdout.write(text)
    sys.stdout.flush()


def tell(text: str) -> None:
    """Say to whoever watches how it goes."""
    print(text, file=sys.stderr, flush=True)
