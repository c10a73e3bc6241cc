"""Publish a comparison: the result on stdout, comparison.json and .html in its folder, every format asked for.

A file that can't be written is told and costs neither the result on stdout nor another file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from harness import outlet, writing
from harness.comparison.judging import Answer
from harness.errors import HarnessFault
from harness.manifest import package_version
from reports.comparison import document as documents
from reports.comparison.formats import FORMATS
from reports.comparison.parts import ComparisonReport
from reports.comparison.text import render_terminal
from slo.comparison.false_alarm import FalseAlarms


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
    if as_json:
        say(FORMATS["json"](result).decode())
    elif not any(str(output.path) == "-" for output in outputs):
        say_drawn(lambda width: render_terminal(result, width))
        if out is not None and all(whole):
            say(f"\nReport: {out / 'comparison.html'}\n")
    return result.exit_code if all(whole) or result.exit_code else 2


def write_pair(result: ComparisonReport, out: Path, stem: str) -> list[bool]:
    """``STEM.json`` and ``STEM.html`` in a folder: whether each was written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarnessFault(f"--out: cannot make {out} ({error.strerror}). Name a folder that you may write") from None
    return [write(out / f"{stem}.{name}", FORMATS[name](result)) for name in ("json", "html")]


def write(path: Path, data: bytes) -> bool:
    """Whole or not at all; False, and a warning, if it can't be."""
    return writing.result(path, data, "make room and compare again")


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
