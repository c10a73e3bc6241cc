"""Publish a comparison: the result on stdout, comparison.json and .html in its folder, every format asked for.

A file that can't be written is told and costs neither the result on stdout nor another file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import RenderableType

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.process import outlet, writing
from plimsoll.harness.series.comparison.judging import Answer
from plimsoll.reports.comparison import comparison_document as documents
from plimsoll.reports.comparison.comparison_formats import FORMATS
from plimsoll.reports.comparison.comparison_parts import ComparisonReport
from plimsoll.reports.comparison.comparison_text import render_terminal
from plimsoll.slo.comparison.false_alarm import FalseAlarms

Reported = TypeVar("Reported", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Output:
    """One ``--format F=PATH``; ``-`` is stdout."""

    render: Callable[[Any], bytes]
    path: Path


def formats_of(
    texts: Sequence[str], known: Mapping[str, Callable[[Any], bytes]] = FORMATS, of: str = "a comparison"
) -> tuple[tuple[Output, ...], list[str]]:
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


def document(
    answer: Answer, command: Sequence[str], false_alarms: FalseAlarms | None = None, title: str = ""
) -> ComparisonReport:
    """The comparison as a renderer takes it. ``command``: without secrets."""
    arms = [side.arm for side in answer.sides]
    starts = [start for side in answer.sides for start in side.started_ns if start]
    return documents.build(
        answer.comparison,
        arms[0],
        arms[1:],
        title=title,
        warnings=answer.warnings,
        false_alarms=false_alarms,
        plimsoll=package_version(),
        command=" ".join(command),
        started_at=datetime.fromtimestamp(min(starts) / 1e9, UTC).isoformat(timespec="seconds") if starts else "",
    )


def publish(result: ComparisonReport, outputs: Sequence[Output], out: Path | None, *, as_json: bool) -> int:
    """Write every file, print the result. Returns the exit code, or 2 where it is 0 and a file could not be written."""
    whole = [write(output.path, output.render(result)) for output in outputs]
    if out is not None:
        whole += write_pair(result, out, "comparison")
    result = as_written(result, whole)
    if as_json:
        say(FORMATS["json"](result).decode())
    elif not any(str(output.path) == "-" for output in outputs):
        say_drawn(lambda width: render_terminal(result, width))
        if out is not None and all(whole):
            say(f"\nReport: {out / 'comparison.html'}\n")
    return result.exit_code


def as_written(report: Reported, whole: Sequence[bool]) -> Reported:
    """The result as it is said: its exit code is 2 where it would be 0 and a file is missing."""
    missing = not all(whole) and not getattr(report, "exit_code", 0)
    return report.model_copy(update={"exit_code": int(ExitCode.USAGE)}) if missing else report


def tell_faults(fault: HarnessFault | None) -> None:
    """What ended it early, to whoever watches: after the result, which it did not cost."""
    for text in fault.errors if fault is not None else ():
        print(f"error: {text}", file=sys.stderr)


def write_pair(result: ComparisonReport, out: Path, stem: str) -> list[bool]:
    """``STEM.json`` and ``STEM.html`` in a folder: whether each was written."""
    with suppress(OSError):  # said of each file that is to lie in it
        out.mkdir(parents=True, exist_ok=True)
    return [write(out / f"{stem}.{name}", FORMATS[name](result)) for name in ("json", "html")]


def write(path: Path, data: bytes, remedy: str = "make room and compare again") -> bool:
    """Whole or not at all; False, and a warning that ends with ``remedy``, if it can't be."""
    return writing.result(path, data, remedy)


def say_drawn(draw: Callable[[int], RenderableType]) -> None:
    """Something drawn by ``rich`` on stdout."""
    console = outlet.console()
    with console.capture() as printed:
        console.print(draw(console.width))
    say(printed.get())


def say(text: str) -> None:
    """Print it now."""
    sys.stdout.write(text)
    sys.stdout.flush()
