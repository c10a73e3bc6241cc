"""What servers say of a request: of their own stages and the syntax that they say it in, and of their cache. Pure.

The syntax is that of the Server-Timing header (W3C Server Timing: ``name;dur=MS;desc="..."``, comma-separated), in a
header, in trailing metadata or in a server's last message; what servers say in words of their own is put into it where
a protocol is read. A stage with a dot in its name is a part of the one before the dot (``preprocess.resize``).

What can't be of the request is left out as if nothing had been said: a stage longer than the whole, more cached tokens
than the prompt has. ``slo/verdict/counts.py`` counts such requests, and the report warns of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from plimsoll.slo.records.labels import CACHED
from plimsoll.slo.records.records import BoolArray, IntArray, Records, TokensFrom

#: A name as Server-Timing allows it and an objective can write it.
NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")

_METRIC = re.compile(r"\s*([!#$%&'*+.^_`|~\w-]+)\s*((?:;(?:[^,\"]|\"(?:\\.|[^\"\\])*\")*)?)(?:,|$)")
_DURATION = re.compile(r";\s*dur\s*=\s*\"?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\"?\s*(?:;|$)", re.IGNORECASE)
#: The same where it is plain, which it nearly always is: a third of the time.
_PLAIN = re.compile(r"(?<![\w.-])([\w.-]++);dur=([0-9]++(?:\.[0-9]++)?)(?:, ?|$)", re.ASCII)
_LONGEST_MS = 1e12
#: What rounding may add to a stage: servers tell milliseconds, of clocks that run by themselves.
_ROUNDED_NS, _ROUNDED_SHARE = 1_000_000, 100


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
    """int64[n] by stage: how long each row's server said that it took, in ns; -1 where it said nothing that can be."""
    table = np.full((len(records.timings) + 1, len(names)), -1, np.int64)  # the last line: rows without a word
    for row, text in enumerate(records.timings):
        said = parse(text)
        table[row] = [said.get(name, -1) for name in names]
    found, most_ns = table[records["server_timing"]].T, longest(records)
    return dict(zip(names, np.where(found > most_ns, -1, found), strict=True))


def longest(records: Records) -> IntArray:
    """int64[n]: the most that a stage of each row can have taken, in ns: from sending to the end, rounded up."""
    took, over = records["done_ns"] - records["sent_ns"], (records["done_ns"] == -1) | (records["sent_ns"] == -1)
    return np.where(over, np.iinfo(np.int64).max, took + took // _ROUNDED_SHARE + _ROUNDED_NS)


def beyond(records: Records) -> BoolArray:
    """bool[n]: the row's server says that a stage took longer than the request."""
    most = np.array([*(max(parse(text).values(), default=-1) for text in records.timings), -1])
    return np.asarray(most[records["server_timing"]] > longest(records))


def cached_tokens(records: Records) -> IntArray:
    """int64[n]: tokens of each prompt that a cache had by the server's word; -1: it says nothing that can be."""
    columns = {} if records.labels is None else records.labels.columns
    said = np.asarray(columns.get(CACHED, np.full(len(records), -1)))
    return np.where((said > records["n_in"]) & (records["n_in_from"] == TokensFrom.USAGE), -1, said)
