"""Access logs of nginx and Apache, combined, with ``$request_time`` behind. A line's time is the request's end and
whole seconds: it came when it ended less what it took. Lengths are of bytes only; 499 is a client that left.
"""

import re
from datetime import datetime
from functools import lru_cache

from plimsoll.scenarios.samples.recording import CANCELLED
from plimsoll.scenarios.samples.rows import Row, S, http_status, keep, span
from plimsoll.scenarios.samples.traces import Format

_TEXT = r'"(?:[^"\\]|\\.)*"'
_COMBINED = re.compile(
    r"\S+ \S+ \S+ \[(?P<end>[^\]]+)\] \"(?:(?P<method>[A-Z]+) (?P<path>\S+) [^\"]*|(?:[^\"\\]|\\.)*)\" (?P<code>\d{3}) "
    rf"(?P<bytes>\d+|-) {_TEXT} {_TEXT}(?P<more>.*)"
)


def _row(text: str) -> Row:
    found = _COMBINED.fullmatch(text)
    if found is None:
        raise ValueError("not a line of the combined format. Log in that, with $request_time behind.")
    took = found["more"].split()
    if not took or re.fullmatch(r"\d+\.\d+", took[0]) is None:
        raise ValueError(
            f"{(took or ['nothing'])[0]!r:.40} follows the agent, no seconds with decimals, and ends alone don't say "
            "when requests came. Log $request_time there."
        )
    ended_ns = _moment(found["end"])
    row: Row = {
        "latency_ns": span(took[0], "request_time", S),
        "bytes_out": span(found["bytes"].replace("-", ""), "bytes", 1),
        "status": http_status(int(found["code"])),
        "label:method": found["method"],
        "label:path": (found["path"] or "").partition("?")[0],
    }
    if row["status"] == CANCELLED:
        row["gave_up_ns"] = row["latency_ns"]
    return row | {"at_ns": ended_ns - row["latency_ns"]}


@lru_cache(maxsize=16)
def _moment(text: str) -> int:
    try:
        return round(datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp()) * S
    except ValueError:
        raise ValueError(f"{text!r:.40} is no time such as 31/Jan/2026:12:00:00 +0000.") from None


FORMAT = Format(
    name="nginx",
    summary="Access logs of nginx and Apache: combined, with $request_time behind",
    unit="s, the request's end",
    sign="a line of the combined format",
    detect=lambda head: _COMBINED.fullmatch(head.first) is not None,
    read=lambda reading, made: keep(reading, reading.texts(_row), made),
    takes=("time", "request", "status", "bytes", "$request_time"),
    leaves=("queries of paths", "addresses", "users", "referers", "user agents", "what follows $request_time"),
    columns=("status", "gave_up_ns", "latency_ns", "bytes_out"),
    labels=("method", "path"),
)
