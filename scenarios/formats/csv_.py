"""CSV of your own, whose first line names the columns; ``columns`` says which is which."""

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.rows import Columns, read_csv
from plimsoll.scenarios.samples.traces import Format

OPTIONAL = ("session", "turn", "think_ns", "status", "gave_up_ns", "latency_ns", "ttft_ns", "images", "attempt")


def takes(names: Columns, unit_ns: int) -> dict[str, Take]:
    """What is made of each column that the user named."""
    found = {
        names.time: Take("at_ns", "time", unit_ns, needed=True),
        names.input_tokens: Take("n_in", "count"),
        names.output_tokens: Take("n_out", "count"),
    }
    for to in OPTIONAL:
        name = getattr(names, to.removesuffix("_ns"))
        if name is not None:
            kind = {"session": "key", "status": "status"}.get(to, "span" if to.endswith("_ns") else "count")
            found[name] = Take(to, kind, unit_ns, needed=True, blank=True)  # type: ignore[arg-type]
    return found | {name: Take(f"label:{name}", "text", needed=True) for name in names.labels}


FORMAT = Format(
    name="csv",
    summary="CSV of your own with the columns that you name",
    unit="`time_unit`, or UTC",
    sign="no other format's first line; a column of `columns.time`",
    detect=lambda head: "time" in head.columns,
    read=lambda reading, made: read_csv(reading, made, takes(reading.names, reading.unit_ns)),
    takes=("`columns`",),
    columns=OPTIONAL,
)
