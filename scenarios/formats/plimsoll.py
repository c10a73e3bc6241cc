"""Our own: what ``plimsoll import`` writes of any recording. The first line is an object with ``plimsoll_trace``: 1;
each other one a request, with what is known of it; docs/reference/recordings.md has the keys.
"""

import json
from collections.abc import Callable
from typing import IO, Any

from plimsoll.scenarios.samples.csv_blocks import Take
from plimsoll.scenarios.samples.recording import OPTIONAL, STATUSES, STEP, Recording
from plimsoll.scenarios.samples.rows import MOST, Reading, Row, blocks_of, keep, taken
from plimsoll.scenarios.samples.traces import Format

_VERSION = 1
_COLUMNS = tuple(name for name in OPTIONAL if name != "parent")
_TAKES = {
    "at_ns": Take("at_ns", "time", 1, needed=True),
    "n_in": Take("n_in", "count"),
    "n_out": Take("n_out", "count"),
    **{name: Take(name, "span" if name.endswith("_ns") else "count") for name in _COLUMNS},
    "session": Take("session", "key"),
    "bytes_in": Take("bytes_in", "span"),
    "bytes_out": Take("bytes_out", "span"),
    "status": Take("status", "status"),
}


def _read(reading: Reading, made: Recording) -> None:
    begun = wrong = False
    known, wanted = {*_TAKES, "blocks", "labels"}, reading.wanted(_TAKES)

    def row(entry: dict[str, Any]) -> Row | None:
        nonlocal begun, wrong
        if not begun:
            begun = wrong = True
            _begin(reading, made, entry)
            wrong = False
            return None
        if wrong:
            return None
        reading.require(entry, known)
        found = taken(entry, wanted)
        labels = entry.get("labels", {})
        if not isinstance(labels, dict) or not labels.keys() <= made.texts.keys():
            raise ValueError(f"labels is {labels!r:.60}. Give an object of those that the first line names.")
        ids = blocks_of(entry, "blocks", found.get("n_in", -1), 0)
        return found | {"ids": ids} | {f"label:{name}": text for name, text in labels.items()}

    keep(reading, reading.lines(row), made)


def _begin(reading: Reading, made: Recording, head: dict[str, Any]) -> None:
    """What the first line says of all the others. Raises ValueError."""
    reading.require(head, ("plimsoll_trace", "block_tokens", "cumulative", "timed", "waits", "labels", "from"))
    tokens, labels = head.get("block_tokens", made.block_tokens), head.get("labels", [])
    if head.get("plimsoll_trace") != _VERSION:
        raise ValueError(
            f"plimsoll_trace is {head.get('plimsoll_trace')!r:.40}. This reads {_VERSION}: import it again."
        )
    if type(tokens) is not int or not 1 <= tokens <= MOST:
        raise ValueError(f"block_tokens is {tokens!r:.40}. Give a whole number from 1 up.")
    if not isinstance(labels, list) or not all(isinstance(name, str) for name in labels):
        raise ValueError(f"labels is {labels!r:.60}. Give a list of names.")
    made.label(labels)
    made.block_tokens, made.timed = tokens, head.get("timed") is not False
    made.waits = head.get("waits") is True
    made.cumulative = head.get("cumulative") is True if reading.names.cumulative is None else made.cumulative


def write(recording: Recording, file: IO[bytes], hide: Callable[[int], int] | None = None) -> None:
    """The recording in this format, ``STEP`` rows in memory at a time; ``hide`` makes another number of a block's id.

    Raises ValueError for a run of ours whose queries have several samples, which are no requests of their own.
    """
    head = {"plimsoll_trace": _VERSION, "from": recording.form, "timed": recording.timed}
    head |= {"cumulative": recording.cumulative, "block_tokens": recording.block_tokens}
    head |= {"waits": True} if recording.waits else {}
    file.write(json.dumps(head | {"labels": [*recording.texts]}).encode() + b"\n")
    for begin in range(0, len(recording), STEP):
        rows = recording.rows(begin, begin + STEP)
        if (rows.query[1:] == rows.query[:-1]).any():
            raise ValueError("its queries have several samples. Replay the run directory itself.")
        known = {name: getattr(rows, name) for name in ("at_ns", "n_in", "n_out", *_COLUMNS)}
        columns = {name: values.tolist() for name, values in known.items() if values is not None}
        for k in range(len(rows)):
            row: dict[str, Any] = {
                name: values[k] for name, values in columns.items() if values[k] != -1 or name == "at_ns"
            }
            if "status" in row:
                row["status"] = STATUSES[row["status"]]
            if rows.blocks is not None and rows.blocks[k]:
                row["blocks"] = [*map(hide, rows.blocks[k])] if hide is not None else rows.blocks[k]
            labels = {name: texts[codes[k]] for name, (codes, texts) in rows.labels.items() if codes[k] >= 0}
            file.write(json.dumps(row | ({"labels": labels} if labels else {}), separators=(",", ":")).encode() + b"\n")


FORMAT = Format(
    name="plimsoll",
    summary="Our own, which `plimsoll import` writes of any of these: JSON Lines",
    unit="ns",
    sign="plimsoll_trace in the first line",
    detect=lambda head: "plimsoll_trace" in head.entry,
    read=_read,
    takes=(*_TAKES, "blocks", "labels"),
    columns=_COLUMNS,
    block_tokens=512,
)
