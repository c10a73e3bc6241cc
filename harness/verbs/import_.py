"""``plimsoll import``: a recording in our own format, with nothing of its prompts in it. Sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plimsoll.harness.verbs import flags as shared


def import_(
    recording: Annotated[str, typer.Argument(metavar="FILE", help="A recording in any format, or a run directory.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The trace to write; an existing file is replaced.")],
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Hide ids of blocks with this key (16 bytes or more): two imports agree. Default: a random key.",
        ),
    ] = None,
    trace_format: shared.TraceFormat = None,
    time_unit: shared.TimeUnit = None,
    column: shared.Column = None,
    part: shared.Part = None,
) -> None:
    """Write a recording as one small documented format: times, lengths, outcomes, recorded latencies, hidden blocks."""
    from plimsoll.harness.outlook.recorded import write_trace
    from plimsoll.harness.process.outlet import say
    from plimsoll.harness.verbs.run import read_as

    reading = {**read_as(trace_format, time_unit, column), "part": part}
    say(f"{write_trace(recording, reading, out, key_file)}\n")
