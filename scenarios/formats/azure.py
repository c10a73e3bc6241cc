"""Azure's LLM inference traces of 2023 and 2024. Times have seven digits of a second, lines may end with CR LF; the one
of 2024 is a week of millions of rows.
"""

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.rows import S, read_csv
from plimsoll.scenarios.samples.traces import Format

TAKES = {
    "TIMESTAMP": Take("at_ns", "time", S, needed=True),
    "ContextTokens": Take("n_in", "count", needed=True),
    "GeneratedTokens": Take("n_out", "count", needed=True),
}


FORMAT = Format(
    name="azure",
    summary="Azure's LLM inference traces of 2023 and 2024: CSV",
    unit="UTC, 7 digits of a second",
    sign="a first line with TIMESTAMP, ContextTokens, GeneratedTokens, without NumImages",
    detect=lambda head: TAKES.keys() <= {*head.columns} and "NumImages" not in head.columns,
    read=lambda reading, made: read_csv(reading, made, TAKES),
    takes=(*TAKES,),
)
