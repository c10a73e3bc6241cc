"""What a server said about itself during a run, as arrays, and ``server.parquet``, in which a run directory keeps it.

One row is one sample of one series, with its labels and with the times at which we asked, had the first byte, and had
the last; the column ``canonical`` has the name that its family is part of. A newer schema is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from plimsoll.slo.records.records import FloatArray, IntArray, RecordsError

SCHEMA = "plimsoll.server/1"
#: The row that every sample has of itself: its bytes.
SCRAPE = "server.scrape"
_KEY = b"plimsoll.server"
_STAMPS = ("sent_ns", "first_ns", "end_ns")
_TEXTS = ("source", "family", "labels", "canonical")
#: Rows that are held at once.
_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Gap:
    """``count`` scrapes one after another that failed for one reason."""

    start_ns: int
    end_ns: int
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where samples came from. ``period_ns``: that was asked for; ``slowed_ns``: the longest that it came to.
    ``declared``: counters that it has even where nothing was counted, and so no series is. ``unwritten``: samples that
    no disk took, a gap; ``left_out``: of one sample the most series that were too many to keep.
    """

    name: str
    where: str
    period_ns: int
    slowed_ns: int
    cpu_ns: int
    gaps: tuple[Gap, ...] = ()
    declared: tuple[str, ...] = ()
    unwritten: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Track:
    """One series: ``at`` are the places of its samples among those of its source."""

    source: str
    family: str
    labels: Mapping[str, str]
    name: str
    at: IntArray
    values: FloatArray


@dataclass(frozen=True, slots=True)
class Asked:
    """The samples of one source: times, ascending, and bytes of each."""

    origin: Origin
    sent_ns: IntArray
    first_ns: IntArray
    end_ns: IntArray
    n_bytes: FloatArray


@dataclass(frozen=True, slots=True)
class Served:
    """Every series that means something, and where it came from, by the name of the source."""

    sources: Mapping[str, Asked]
    tracks: tuple[Track, ...]


#: A series as it is written: its source, family, labels as JSON, and canonical name.
Series = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Block:
    """One sample of all series of a source: their numbers, values, and when."""

    series: IntArray
    values: FloatArray
    stamps: tuple[int, int, int]


def write(
    file: IO[bytes], blocks: Iterable[Block], series: Sequence[Series], origins: Callable[[], Sequence[Origin]]
) -> None:
    """Write the rows of all blocks, whose ``series`` become known as they are read, as the ``origins`` do."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = [(name, pa.dictionary(pa.int32(), pa.string())) for name in _TEXTS]
    schema = pa.schema([*kinds, ("value", pa.float64()), *((name, pa.int64()) for name in _STAMPS)])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        held: list[Block] = []

        def put() -> None:
            numbers = np.concatenate([block.series for block in held])
            lengths = [len(block.series) for block in held]
            columns = [pa.array([one[place] for one in series]).dictionary_encode().take(numbers) for place in range(4)]
            columns.append(pa.array(np.concatenate([block.values for block in held])))
            columns += [pa.array(np.repeat([block.stamps[place] for block in held], lengths)) for place in range(3)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            held.clear()

        for block in blocks:
            held.append(block)
            if sum(len(one.series) for one in held) > _ROWS:
                put()
        if held:
            put()
        said = {"schema": SCHEMA, "sources": [_plain(one) for one in origins()]}
        writer.add_key_value_metadata({_KEY: json.dumps(said).encode()})


def _plain(origin: Origin) -> dict[str, Any]:
    gaps = [[one.start_ns, one.end_ns, one.count, one.reason] for one in origin.gaps]
    names = ("name", "where", "period_ns", "slowed_ns", "cpu_ns", "declared", "unwritten", "left_out")
    return {name: getattr(origin, name) for name in names} | {"gaps": gaps}


def load(path: Path) -> Served:
    """Read what means something. Raises RecordsError for a file of another schema, OSError, and ValueError."""
    import pyarrow.parquet as pq

    said = json.loads((pq.read_metadata(path).metadata or {}).get(_KEY, b"{}"))
    if said.get("schema") != SCHEMA:
        raise RecordsError(
            f"{path}: its schema is {said.get('schema')!r:.60}, not {SCHEMA}. Read it with its own version"
        )
    table = pq.read_table(path, filters=[("canonical", "!=", "")]).combine_chunks()
    keys = [table[name].combine_chunks().dictionary_decode().dictionary_encode() for name in _TEXTS]
    places = np.stack([np.asarray(key.indices) for key in keys], axis=1) if len(table) else np.empty((0, 4), np.int32)
    words = [key.dictionary.to_pylist() for key in keys]
    value = np.asarray(table["value"])
    stamps = [np.asarray(table[name]) for name in _STAMPS]
    found, of = np.unique(places, axis=0, return_inverse=True)
    rows = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of, minlength=len(found)))[:-1])
    texts = [tuple(words[column][one[column]] for column in range(4)) for one in found]
    asked: dict[str, Asked] = {}
    origins = {
        one["name"]: Origin(
            **{**one, "declared": tuple(one["declared"]), "gaps": tuple(Gap(*gap) for gap in one["gaps"])}
        )
        for one in said["sources"]
    }
    none = np.empty(0, np.int64)
    for name, origin in origins.items():
        mine = next(
            (row for text, row in zip(texts, rows, strict=False) if text[0] == name and text[3] == SCRAPE), none
        )
        sent, first, end = (column[mine] for column in stamps)
        asked[name] = Asked(origin, sent, first, end, value[mine])
    tracks = [
        Track(
            text[0],
            text[1],
            json.loads(text[2]),
            text[3],
            np.searchsorted(asked[text[0]].sent_ns, stamps[0][row]),
            value[row],
        )
        for text, row in zip(texts, rows, strict=False)
        if text[3] != SCRAPE
    ]
    return Served(asked, tuple(tracks))
