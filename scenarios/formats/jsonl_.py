"""JSON Lines of your own: an object a request; ``columns`` says which key is which."""

from typing import Any

from plimsoll.scenarios.formats.csv_ import OPTIONAL, takes
from plimsoll.scenarios.samples.recording import Recording
from plimsoll.scenarios.samples.rows import Reading, Row, keep, taken
from plimsoll.scenarios.samples.traces import Format


def _read(reading: Reading, made: Recording) -> None:
    named = takes(reading.names, reading.unit_ns)

    def row(entry: dict[str, Any]) -> Row:
        reading.require(entry, named)
        return taken(entry, named)

    keep(reading, reading.lines(row), made)


FORMAT = Format(
    name="jsonl",
    summary="JSON Lines of your own with the keys that you name",
    unit="`time_unit`, or UTC",
    sign="no other format's first line; a key of `columns.time`",
    detect=lambda head: "time" in head.entry,
    read=_read,
    takes=("`columns`",),
    columns=OPTIONAL,
)
