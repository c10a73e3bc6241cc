"""How an answer is published: files, stdout, exit code. And the flags of it that need reading.

A file that can't be written is told, and costs neither the result on stdout nor another file.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import RenderableType

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.process import outlet, writing
from plimsoll.harness.process.outlet import say
from plimsoll.harness.process.writing import Output
from plimsoll.scenarios.text.fields import parse_duration
from plimsoll.slo.records.foreign import printable

Reported = TypeVar("Reported", bound=BaseModel)
Formats = Mapping[str, Callable[[Any], bytes]]


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
    written = [fault is None, *(writing.result(one.path, partial(one.render, report), remedy) for one in outputs)]
    written += [writing.result(path, partial(known[name], report), remedy) for path, name in own.items()]
    report = as_written(report, written)
    if as_json:
        say(known["json"](report).decode())
    else:
        show(lambda width: draw(report, width), outputs, [*own][-1] if own and written[-1] else None)
    for text in fault.errors if fault is not None else ():
        print(f"error: {printable(text)}", file=sys.stderr)
    return int(getattr(report, "exit_code", 0))


def show(draw: Callable[[int], RenderableType], outputs: Sequence[Output], page: Path | None) -> None:
    """The result drawn on stdout, unless a file is written there, and where its page is."""
    if any(output.path == writing.STDOUT for output in outputs):
        return
    outlet.draw(draw)
    if page is not None:
        say(f"\nReport: {page}\n")


def as_written(report: Reported, written: Sequence[bool]) -> Reported:
    """The result as it is said: its exit code is 2 where it would be 0 and a file is missing."""
    missing = not all(written) and not getattr(report, "exit_code", 0)
    return report.model_copy(update={"exit_code": int(ExitCode.USAGE)}) if missing else report


def tell(text: str) -> None:
    """Say to whoever watches how it goes."""
    print(printable(text), file=sys.stderr, flush=True)
