"""OpenTelemetry spans as the stages of requests: those of a trace become what a Server-Timing header would have said.

Read is OTLP's JSON, one document or one a line, as a collector's file exporter writes it, packed by gzip or not. Only
lengths are taken, so the servers' clocks need not agree with ours. A span that was exported twice counts once. The
outermost span of a trace is the whole request and no stage; a span within another one is a part of it
(``route.lookup``). A span that tells its stages in attributes, as vLLM's does, stands for those instead. One that
begins after the outermost has ended is work that no answer waited for, and no stage of its request.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np

from plimsoll.slo.records.foreign import NAME, one_line
from plimsoll.slo.records.records import Records
from plimsoll.slo.records.trace_ids import TraceIds

#: Attributes that hold the length of a stage, in seconds, and the stage.
ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "gen_ai.latency.time_in_queue": "queue",
        "gen_ai.latency.time_in_model_prefill": "prefill",
        "gen_ai.latency.time_in_model_decode": "decode",
    }
)
#: As many stages as a row keeps of a header.
MOST = 32
#: So many bytes are unpacked at most.
MOST_BYTES = 1 << 30
#: No request takes longer: whatever does is no length.
_LONGEST_NS = 10**18
_DEEP = "it is nested too deep"
_TRACE = re.compile(r"[0-9a-f]{32}")
_NO_NAME = re.compile(r"[^\w!#$%&'*+^`|~-]+", re.ASCII)


class SpansError(ValueError):
    """A file that holds no spans; the text ends with a next step."""


@dataclass(frozen=True, slots=True)
class Span:
    """One of a trace. ``told``: what its attributes say of stages, in ns."""

    id: str
    parent: str
    name: str
    begin_ns: int
    took_ns: int
    told: Mapping[str, int]


def read(data: bytes) -> dict[str, list[Span]]:
    """The spans of each trace by its id. Raises SpansError."""
    found: dict[str, list[Span]] = defaultdict(list)
    data = _unpacked(data)
    try:
        documents = [(1, json.loads(data))]
    except RecursionError:
        raise SpansError(f"{_DEEP}. Give OTLP traces in JSON, one document a line") from None
    except ValueError:
        lines = enumerate(data.splitlines(), 1)
        documents = [(number, _document(line, number)) for number, line in lines if line.strip()]
    for number, document in documents:
        try:
            for resource in document["resourceSpans"]:
                for scope in resource.get("scopeSpans", ()):
                    for span in scope.get("spans", ()):
                        found[str(span["traceId"]).lower()].append(_span(span))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise SpansError(
                f"line {number}: no OTLP traces in JSON ({type(error).__name__} {one_line(error, NAME)}). Give what an "
                "OpenTelemetry collector's file exporter wrote"
            ) from None
    if wrong := next((trace for trace in found if not _TRACE.fullmatch(trace)), None):
        raise SpansError(f"the trace id {wrong[:40]!r} is not 32 hexadecimal digits. Write OTLP's JSON, not protobuf's")
    return dict(found)


def _unpacked(data: bytes) -> bytes:
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        raise SpansError("it is packed by zstd, which is not read here. Unpack it, or pack it with gzip")
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        found = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SpansError(f"gzip can't unpack it ({error}). Get it anew") from None
    if len(found) > MOST_BYTES:
        raise SpansError(f"it holds more than {MOST_BYTES >> 20:,} MiB. Give the spans of the run's time only")
    return found


def _document(line: bytes, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else _DEEP
        raise SpansError(f"line {number}: no JSON ({why}). Give OTLP traces in JSON, one document a line") from None


def _span(span: Mapping[str, Any]) -> Span:
    begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    told = {}
    for attribute in span.get("attributes", ()):
        stage, value = ATTRIBUTES.get(attribute["key"]), attribute["value"]
        if stage is not None and value:
            told[stage] = round(float(value.get("doubleValue", value.get("intValue", -1))) * 1e9)
    told = {stage: took for stage, took in told.items() if 0 <= took < _LONGEST_NS}
    parent, name = str(span.get("parentSpanId") or ""), _NO_NAME.sub("_", str(span["name"])[:NAME]) or "_"
    return Span(str(span["spanId"]).lower(), parent.lower(), name, begin, min(max(0, end - begin), _LONGEST_NS), told)


def stages(spans: Sequence[Span]) -> tuple[str, int]:
    """The spans of one trace as a Server-Timing header says stages, by their beginnings; and how many are none."""
    spans = list({(one.id, one.parent, one.name, one.begin_ns, one.took_ns): one for one in spans}.values())
    known = {span.id for span in spans}
    outermost = (span for span in spans if span.parent not in known or span.parent == span.id)
    end_ns = max((span.begin_ns + span.took_ns for span in outermost), default=1 << 100)
    within_it = [span for span in spans if span.begin_ns <= end_ns]
    inner: dict[str, list[Span]] = defaultdict(list)
    for span in sorted(within_it, key=lambda span: span.begin_ns):
        inner[span.parent if span.parent in known and span.parent != span.id else ""].append(span)

    def within(span: Span, path: str, outer: frozenset[str]) -> Iterator[tuple[str, int]]:
        if span.told:
            yield from span.told.items()
            return
        for one in inner[span.id] if span.id not in outer else ():
            name = f"{path}.{one.name}" if path else one.name
            if not one.told:
                yield name, one.took_ns
            yield from within(one, name, outer | {span.id})

    found: list[tuple[str, int]] = []
    for root in inner[""]:
        told = list(islice(within(root, "", frozenset()), MOST))  # ids that stand there twice have no end
        found += told or [(root.name, root.took_ns)]
    return ", ".join(f"{name};dur={took / 1e6:.6f}" for name, took in found[:MOST]), len(spans) - len(within_it)


def joined(records: Records, ids: TraceIds, traces: Mapping[str, Sequence[Span]]) -> tuple[Records, int, int]:
    """The records, of which the requests that have a trace here tell its stages; how many; and spans that are none."""
    high, low = ids.halves(records)
    there = np.array([int(trace[:16], 16) for trace in traces], np.uint64)
    rows = np.flatnonzero(np.isin(high, there) & records.planned)
    names = [f"{one:016x}{other:016x}" for one, other in zip(high[rows].tolist(), low[rows].tolist(), strict=True)]
    pairs = [(row, stages(traces[name])) for row, name in zip(rows.tolist(), names, strict=True) if name in traces]
    late = sum(number for _, (_, number) in pairs)
    timings = list(records.timings)
    column = records["server_timing"].copy()
    places = {text: place for place, text in enumerate(timings)}
    for row, (text, _) in pairs:
        column[row] = places.setdefault(text, len(places))
    told = Records(
        {**records.columns, "server_timing": column.astype("i4")}, None, None, records.errors, tuple(places),
        records.session, records.chunks, records.labels,
    )  # fmt: skip
    return told, len(pairs), late
