"""Access logs of Envoy and Istio, in their default lines or as JSON. A line's time is the request's start. Lengths are
of bytes only; flags say what became of it: DC is a client that left, UT a time-out, UO overload, UF and UC no
connection.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plimsoll.scenarios.samples.recording import CANCELLED, CONNECT, REFUSED, TIMEOUT, Recording
from plimsoll.scenarios.samples.rows import MS, Reading, Row, S, http_status, keep, opened, span, time_of
from plimsoll.scenarios.samples.traces import Format

_TEXT = r'"(?:[^"\\]|\\.)*"'
_LINE = re.compile(
    r"\[(?P<start_time>[^\]]+)\] \"(?P<method>\S+) (?P<path>\S+) (?P<protocol>[^\"]*)\" (?P<response_code>\d+) "
    rf"(?P<response_flags>\S+) (?:\S+ \S+ {_TEXT} )?(?P<bytes_received>\d+) (?P<bytes_sent>\d+) (?P<duration>\d+|-) "
    rf"\S+ {_TEXT} {_TEXT} {_TEXT} \"(?P<authority>[^\"]*)\" {_TEXT}.*"
)
_FLAGS = {
    **dict.fromkeys(("DC", "DPE", "DR"), CANCELLED),
    **dict.fromkeys(("UT", "SI", "DT", "UMSDR"), TIMEOUT),
    **dict.fromkeys(("UO", "RL", "UH", "OM"), REFUSED),
    **dict.fromkeys(("UF", "UC", "UR", "LR"), CONNECT),
}
_NEEDED = ("start_time", "response_code", "response_flags")
_TAKES = (*_NEEDED, "method", "path", "authority", "bytes_received", "bytes_sent", "duration", "attempt_count")


def _read(reading: Reading, made: Recording) -> None:
    with opened(reading.path) as file:
        lines = file.read(1) == b"["
    keep(reading, _counted(reading.texts(_line) if lines else reading.lines(_row), made), made)


def _counted(rows: Iterable[tuple[int, Row]], made: Recording) -> Iterator[tuple[int, Row]]:
    """A line is all attempts at once: those after the first are counted, one where a flag alone tells of some."""
    for line, row in rows:
        made.resent += max(row["attempt"], int("URX" in row["label:flags"].split(",")), 0)
        yield line, row


def _line(text: str) -> Row:
    found = _LINE.fullmatch(text)
    if found is None:
        raise ValueError("not a line of Envoy's or Istio's default. Log in that format, or as JSON.")
    return _row(found.groupdict())


def _row(entry: Mapping[str, Any]) -> Row:
    """Of a line's parts or an object's keys; ``-`` is nothing. Raises ValueError."""
    known = {key: None if value == "-" else value for key, value in entry.items()}
    code = known.get("response_code")
    if not str(code).isascii() or not str(code).isdigit():
        raise ValueError(f"response_code is {code!r:.40}. Give a number of HTTP's, 0 for none.")
    flags = [flag for flag in str(known.get("response_flags") or "").split(",") if flag]
    row: Row = {
        "at_ns": time_of(known, "start_time", S),
        "latency_ns": span(known.get("duration"), "duration", MS),
        "bytes_in": span(known.get("bytes_received"), "bytes_received", 1),
        "bytes_out": span(known.get("bytes_sent"), "bytes_sent", 1),
        "label:method": known.get("method"),
        "label:path": str(known.get("path") or "").partition("?")[0],
        "label:host": known.get("authority"),
        "label:flags": ",".join(flags),
        "status": next((_FLAGS[flag] for flag in flags if flag in _FLAGS), None),
    }
    attempts = span(known.get("attempt_count"), "attempt_count", 1)
    row["attempt"] = attempts - 1 if attempts > 0 else -1
    if row["status"] is None:
        row["status"] = http_status(int(str(code))) if int(str(code)) else CANCELLED
    if row["status"] == CANCELLED:
        row["gave_up_ns"] = row["latency_ns"]
    return row


FORMAT = Format(
    name="envoy",
    summary="Access logs of Envoy and Istio: default lines, or JSON",
    unit="UTC, the request's start",
    sign="a line that begins with [TIME] and a request, or start_time, response_code, response_flags",
    detect=lambda head: {*_NEEDED} <= head.entry.keys() or _LINE.fullmatch(head.first) is not None,
    read=_read,
    takes=_TAKES,
    leaves=("queries of paths", "addresses", "user agents", "ids", "other keys"),
    columns=("status", "gave_up_ns", "latency_ns", "attempt", "bytes_in", "bytes_out"),
    labels=("method", "path", "host", "flags"),
)
