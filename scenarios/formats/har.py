"""HAR 1.2, what a browser recorded. It holds cookies, tokens and bodies: times, sizes, methods and hosts are taken."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import CANCELLED, Recording
from plimsoll.scenarios.samples.rows import MS, Head, Reading, Row, S, documents, http_status, keep, span, value_of
from plimsoll.scenarios.samples.traces import Format


def _detect(head: Head) -> bool:
    begin = head.text.lstrip()[:4096]
    return begin.startswith("{") and begin[1:].lstrip().startswith('"log"')


def _read(reading: Reading, made: Recording) -> None:
    def rows() -> Iterator[tuple[int, Row]]:
        for _, one in documents(reading):
            log = one.get("log")
            entries = log.get("entries") if isinstance(log, dict) else None
            if not isinstance(entries, list):
                raise ValueError("log.entries is not a list. Give a HAR file that is whole.")
            for number, entry in enumerate(entries):
                try:
                    yield number, _row(entry if isinstance(entry, dict) else {})
                except ValueError as error:
                    reading.say(number, error, "log.entries ")

    keep(reading, rows(), made)


def _row(entry: dict[str, Any]) -> Row:
    request, response, timings = (_part(entry, key) for key in ("request", "response", "timings"))
    code = response.get("status")
    row: Row = {
        "at_ns": value_of(entry, "startedDateTime", Take("at_ns", "time", S, needed=True)),
        "latency_ns": span(entry.get("time"), "time", MS),
        "bytes_in": _size(request),
        "bytes_out": _size(response),
        "status": http_status(code) if type(code) is int and code > 0 else CANCELLED,
        "label:method": request.get("method"),
        "label:host": urlsplit(str(request.get("url"))).hostname,
    }
    wait = timings.get("wait")
    if isinstance(wait, int | float) and wait >= 0:
        before = [timings.get(key) for key in ("blocked", "dns", "connect", "send")]
        row["ttft_ns"] = span(sum(x for x in before if isinstance(x, int | float) and x > 0) + wait, "wait", MS)
    if row["status"] == CANCELLED:
        row["gave_up_ns"] = row["latency_ns"]
    return row


def _part(entry: dict[str, Any], key: str) -> dict[str, Any]:
    found = entry.get(key)
    return found if isinstance(found, dict) else {}


def _size(message: dict[str, Any]) -> int:
    size = message.get("bodySize")
    return size if type(size) is int and size >= 0 else -1


FORMAT = Format(
    name="har",
    summary="HAR 1.2, what a browser recorded: times and sizes, nothing secret",
    unit="UTC",
    sign="an object that begins with log",
    detect=_detect,
    read=_read,
    takes=(
        *("startedDateTime", "time", "timings", "request.method", "request.url (its host)"),
        *("response.status", "bodySize"),
    ),
    leaves=("cookies", "headers", "queries", "bodies", "paths"),
    columns=("status", "gave_up_ns", "latency_ns", "ttft_ns", "bytes_in", "bytes_out"),
    labels=("method", "host"),
)
