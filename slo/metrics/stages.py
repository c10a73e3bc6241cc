"""What servers say of their own stages, and the syntax that they say it in. Pure.

The syntax is that of the Server-Timing header (W3C Server Timing: ``name;dur=MS;desc="..."``, comma-separated), in a
header, in trailing metadata or in a server's last message; what servers say in words of their own is put into it where
a protocol is read. A stage with a dot in its name is a part of the one before the dot (``preprocess.resize``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from plimsoll.slo.records.records import IntArray, Records

#: A name as Server-Timing allows it and an objective can write it.
NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")

_METRIC = re.compile(r"\s*([!#$%&'*+.^_`|~\w-]+)\s*((?:;(?:[^,\"]|\"(?:\\.|[^\"\\])*\")*)?)(?:,|$)")
_DURATION = re.compile(r";\s*dur\s*=\s*\"?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\"?\s*(?:;|$)", re.IGNORECASE)
#: The same where it is plain, which it nearly always is: a third of the time.
_PLAIN = re.compile(r"([\w.-]+);dur=([0-9]+(?:\.[0-9]+)?)(?:, ?|$)", re.ASCII)
_LONGEST_MS = 1e12


def parse(text: str) -> dict[str, int]:
    """Nanoseconds by stage, in order; metrics without a duration are no stages, one named twice adds up.

    Never raises.
    """
    found: dict[str, int] = {}
    for name, ms in _plainly(text) or _carefully(text):
        if float(ms) <= _LONGEST_MS:
            found[name] = found.get(name, 0) + round(float(ms) * 1e6)
    return found


def _plainly(text: str) -> list[tuple[str, str]] | None:
    found = _PLAIN.findall(text)
    return None if _PLAIN.sub("", text) else found


def _carefully(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        metric = _METRIC.match(text, at)
        if metric is None:
            following = text.find(",", at)
            at = following + 1 if following >= 0 else len(text)
            continue
        at = max(metric.end(), at + 1)
        duration = _DURATION.search(metric[2])
        if duration is not None:
            yield metric[1], duration[1]


def parent(stage: str) -> str:
    """The stage that a dotted name is a part of; "" for a whole one."""
    return stage.rpartition(".")[0]


def durations(records: Records, names: Sequence[str]) -> Mapping[str, IntArray]:
    """int64[n] by stage: how long each row's server said that it took, in ns; -1 where it said nothing of it."""
    table = np.full((len(records.timings) + 1, len(names)), -1, np.int64)  # the last line: rows without a word
    for row, text in enumerate(records.timings):
        said = parse(text)
        table[row] = [said.get(name, -1) for name in names]
    return dict(zip(names, table[records["server_timing"]].T, strict=True))
