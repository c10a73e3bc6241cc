"""Publish a search: the result on stdout, ``search.json`` and ``search.html`` in its folder, every format asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.live.place import where
from plimsoll.harness.live.series import Series
from plimsoll.harness.run.job import one_on_stdout
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.series.comparison.comparison_output import (
    as_written,
    formats_of,
    say,
    say_drawn,
    tell_faults,
    write,
)
from plimsoll.harness.series.comparison.comparison_session import default_out
from plimsoll.harness.series.search.question import Texts, read
from plimsoll.harness.series.search.search_session import Stopped, search
from plimsoll.reports.search.search_formats import FORMATS
from plimsoll.reports.search.search_text import render_terminal


def search_and_say(
    scenario: str | None,
    flags: Mapping[str, Any],
    asked: Asked,
    texts: Texts,
    out: Path | None,
    format_texts: Sequence[str],
    *,
    resume: bool,
    as_json: bool,
    live: str | None = None,
) -> int:
    """Check everything, search, publish. Returns the exit code; raises HarnessFault with every error."""
    outputs, errors = formats_of(format_texts, FORMATS, "a search")
    errors += one_on_stdout(format_texts, as_json)
    if resume and out is None:
        errors.append("--resume: of which search? Give its --out")
    question, place = None, None
    try:
        place = where(live)
    except HarnessFault as fault:
        errors += fault.errors
    try:
        question = read(scenario, flags, asked, texts)
    except HarnessFault as fault:
        errors += fault.errors
    if errors or question is None:
        raise HarnessFault(errors)
    folder = out or default_out(f"search-{question.name}")
    stopped = None
    try:
        report = search(question, folder, resume=resume, live=Series(place))
    except Stopped as early:
        report, stopped = early.report, early
    remedy = "make room; the same command with --resume writes it"
    written = [stopped is None, *(write(output.path, output.render(report), remedy) for output in outputs)]
    written.append(write(folder / "search.html", FORMATS["html"](report), remedy))
    report = as_written(report, written)
    if as_json:
        say(FORMATS["json"](report).decode())
    elif not any(str(output.path) == "-" for output in outputs):
        say_drawn(lambda width: render_terminal(report))
        if written[-1]:
            say(f"\nReport: {folder / 'search.html'}\n")
    tell_faults(stopped)
    return report.exit_code
