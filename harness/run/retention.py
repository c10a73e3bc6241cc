"""What stays of the chunk times and answers of a run once it is judged (``--keep``): all, a part, or nothing.

Nothing is dropped before every figure was made from all of it. The report of that moment, what it was judged by and the
sums of what stays are in ``kept.json``; ``chunks.parquet`` bears that file's SHA-256, so its renaming is the moment at
which the run has dropped something: killed before that, it has everything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.documents import files
from plimsoll.harness.process.writing import whole
from plimsoll.reports.report import Report
from plimsoll.scenarios.plan.seeds import child, mixed
from plimsoll.scenarios.text.fields import sampled
from plimsoll.slo.metrics.indicator import catalogue, extremes, measure
from plimsoll.slo.objectives.objective import Objective, parse
from plimsoll.slo.peers.figures import limits
from plimsoll.slo.promises import Promises
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import CHUNKED, BoolArray, Records
from plimsoll.slo.records.tables import Merged
from plimsoll.slo.validity.accounts import Sums

FILE = "kept.json"
#: The answers that stay, until the others are forgotten.
ANSWERS = "answers.kept"
SCHEMA: Final = "plimsoll.kept/1"
#: Of ``tail``: one request in so many is among the slowest.
_SLOWEST = 100


class Kept(BaseModel, frozen=True, extra="forbid"):
    """``kept.json``: the ``report`` made of everything, ``facts`` and ``promises`` as it was judged by, and per list of
    ``chunks.parquet`` the sum of the hashes of what stayed.
    """

    schema_: Literal["plimsoll.kept/1"] = Field(alias="schema")
    columns: dict[str, str]
    facts: dict[str, Any]
    promises: dict[str, Any]
    report: Report

    def judged_by(self, facts: dict[str, Any]) -> bool:
        """The run is still what was judged. A fact that only another version knows says nothing."""
        now = json.loads(json.dumps(facts))
        return all(now[name] == value for name, value in self.facts.items() if name in now)


def read(path: Path) -> Kept | None:
    """What was kept of a run directory that dropped something; None: it has everything.

    Raises OSError or ValueError for a file that is not the one that was written then.
    """
    mark = tables.kept_mark(path)
    if not mark:
        return None
    data = files.read_bytes(path / FILE)
    if hashlib.sha256(data).hexdigest().encode() != mark:
        raise ValueError(f"{FILE} is not the one that chunks.parquet was left with")
    return Kept.model_validate_json(data)


def rows_to_keep(keep: str, records: Records, promises: Promises, seed: int) -> BoolArray:
    """bool[n]: the rows whose chunk times and answers stay. All but ``none`` keep those of failed requests."""
    measured = records.in_measure
    kept = measured & ~records.ok & (keep != "none")
    if (share := sampled(keep)) is not None:
        drawn = mixed(child(seed, "keep"), records["query_id"]) < np.uint64(share * (1 << 64))
        return kept | (measured & drawn)
    if keep == "tail":
        for limit in _limits(promises):
            if limit.quantile is not None or limit.statistic in (None, "max", "min"):
                worst, found = extremes(catalogue()[limit.indicator], records, limit.operator in ("<=", "<"))
                kept |= measured & found & ~limit.met_by(worst)
        known = records.labels.columns if records.labels is not None else {}
        class_of = np.asarray(known["class"]) if "class" in known else np.zeros(len(records), np.int64)
        for name in ("latency", "ttft"):
            ranked = measure(catalogue()[name], records)
            of_class = class_of[ranked.row]
            for one in np.unique(of_class):
                values, rows = ranked.values[of_class == one], ranked.row[of_class == one]
                kept[rows[np.argsort(-values, kind="stable")[: -(-len(rows) // _SLOWEST)]]] = True
    return kept


def _limits(promises: Promises) -> list[Objective]:
    """The objectives on a metric of requests, in every grammar."""
    known = catalogue()
    every = [*promises.objectives, *(limit for slo in promises.slos for limit in slo.limits)]
    return [one for one in every if one.indicator in known and one.statistic not in ("ratio", "rate", "accuracy")]


def stated(keep: str, records: Records, kept: BoolArray) -> str:
    """What of the chunk times was kept, for people."""
    chunks, rows = np.diff(records.chunk_offsets), records.in_measure
    which = {"tail": ": failed, beyond a limit or the slowest 1 %", "none": ""}.get(keep, ": a sample, and the failed")
    return (
        f"chunk times of {int((kept & rows).sum()):,} of {int(rows.sum()):,} requests (keep {keep}{which}); "
        f"{int(chunks[~kept].sum()):,} of {int(chunks.sum()):,} times were dropped after every figure was made"
    )


def drop(path: Path, records: Records, kept: BoolArray, document: dict[str, Any]) -> None:
    """Leave the chunk times of the ``kept`` rows only, with ``document`` beside them. Raises OSError."""
    counted = Sums()
    for block in _left(records, kept):
        counted.add(block)
    columns = {name: value for name, value in counted.texts().items() if name in CHUNKED}
    data = json.dumps({"schema": SCHEMA, "columns": columns, **document}).encode()
    mark = hashlib.sha256(data).hexdigest().encode()
    try:
        whole(path / FILE, data, sync=True)
        whole(path / "chunks.parquet", partial(tables.write_chunks, _left(records, kept), mark), sync=True)
    except OSError:
        with contextlib.suppress(OSError):
            (path / FILE).unlink(missing_ok=True)
        raise


def forget(*folders: Path) -> None:
    """Once chunk times are dropped: of the answers in each folder only those that stay, and no log of MLPerf's, which
    has all or none. Raises OSError.
    """
    from plimsoll.harness.generator.outputs import FILE as OUTPUTS
    from plimsoll.harness.generator.outputs import MLPERF_FILE

    for path in folders:
        if (path / ANSWERS).is_file():
            (path / MLPERF_FILE).unlink(missing_ok=True)
            (path / ANSWERS).replace(path / OUTPUTS)


def _left(records: Records, kept: BoolArray) -> Iterator[Records]:
    begin = 0
    for block in tables.blocks_of(records):
        yield block.keeping(kept[begin : begin + len(block)])
        begin += len(block)


def lost(objectives: Sequence[Objective], kept: Kept) -> list[str]:
    """An error for each objective that nothing in the run can answer any more."""
    known = catalogue()
    return [
        f"{one}: it needs chunk times or answers that this run dropped ({kept.report.run.kept}). Judge the run by its "
        "own objectives (leave --slo out) or by times of whole requests, or measure again with --keep all"
        for one in objectives
        if one.statistic == "accuracy" or (one.indicator in known and known[one.indicator].chunked)
    ]


def limits_lost(promises: Promises, kept: Kept) -> list[str]:
    """The same of all promises."""
    return lost([*promises.objectives, *(limit for slo in promises.slos for limit in slo.limits)], kept)


def merged(kept: Kept | None) -> Merged | None:
    """The chunks that shared a read, as they were counted when all were there; None: all still are."""
    if kept is None:
        return None
    seen = kept.report.validity.merged_chunks
    return Merged(round(seen.count / seen.share) if seen.count else 0, seen.count, seen.uncertainty_p99_ns)


def completed(fresh: Report, promises: Promises, kept: Kept) -> Report:
    """A run judged again by other promises: what its chunk times and answers said is as it was stored.

    What other tools would have printed depends on some of the promises, and is left out where they are other ones.
    """
    stored, before = kept.report, [parse(text) for text in kept.promises.get("objectives", ())]
    alike = limits(before) == limits(promises.objectives)
    charts = stored.charts
    if charts.timeline is not None and fresh.charts.timeline is not None:  # goodput is of what is promised now
        good = {"good_per_s": fresh.charts.timeline.good_per_s}
        charts = charts.model_copy(update={"timeline": charts.timeline.model_copy(update=good)})
    return fresh.model_copy(
        update={
            "run": fresh.run.model_copy(update={"kept": stored.run.kept}),
            "metrics": {**stored.metrics, **fresh.metrics},
            "histograms": stored.histograms,
            "charts": charts,
            "speech": stored.speech,
            "accuracy": stored.accuracy,
            "peers": stored.peers if alike else {},
        }
    )
