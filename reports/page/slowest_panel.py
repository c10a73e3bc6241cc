"""The page's slowest requests: a waterfall of stages, and the same stamps as a table."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from plimsoll.reports.report import Report
from plimsoll.reports.sections.slowest import STAGES, SlowRequest
from plimsoll.reports.svg.plot import Chart, Key, Picture
from plimsoll.reports.svg.waterfall import Bar, between, canvas_for, describe, waterfall
from plimsoll.reports.wording import units

#: The stages that are drawn, by the stamp each ends with. The end of the headers is in the table only.
DRAWN = ("ready", "sent", "first_byte", "first_token", "first_answer", "last_token", "done")
_NAMES = MappingProxyType(
    {
        "ready": "generator late",
        "sent": "waits for a connection",
        "first_byte": "waits for the first byte",
        "first_token": "to the first token",
        "first_answer": "reasons",
        "last_token": "tokens",
        "done": "to the end",
    }
)
_TITLES = MappingProxyType({"ttft": "Slowest to their first token", "latency": "Slowest to their end"})
_WIDE, _NARROW = 1080.0, 420.0
#: A stage of less than this share of the longest bar is no more than a hair line: the legend leaves it out.
_VISIBLE = 0.003


def slowest_groups(report: Report) -> list[dict[str, Any]]:
    """By time to first token and by latency: a chart and a table each; empty when too little was measured."""
    groups = [(name, getattr(report.slowest, name)) for name in _TITLES]
    return [_group(name, requests) for name, requests in groups if len(requests) > 1]


def slowest_note(report: Report) -> str:
    """What is not among them."""
    lost = report.slowest.failed
    ids = (
        "Ids are the x-request-id of each request" if report.slowest.ids_sent else "Ids were not sent with the requests"
    )
    failed = (
        f" {units.many(lost, 'failed request')} rank{'s' if lost == 1 else ''} as slower than all of these."
        if lost
        else ""
    )
    return f"Stages from when a request was due. {ids}; rows of requests.parquet have them too.{failed}"


def _group(name: str, requests: Sequence[SlowRequest]) -> dict[str, Any]:
    bars = [Bar(_label(request), _stages(request)) for request in requests]
    short = [Bar(_label(request, short=True), _stages(request)) for request in requests]
    words = describe(bars, _TITLES[name])
    longest = max(end for bar in bars for _, _, end in bar.stages)
    used = {stage for bar in bars for stage, begin, end in bar.stages if end - begin > _VISIBLE * longest}
    legend = [Key(_NAMES[stage], f"to-{stage}", "bar") for stage in DRAWN if f"to-{stage}" in used]
    wide, narrow = canvas_for(_WIDE, len(bars)), canvas_for(_NARROW, len(bars))
    drawn = Chart(
        _TITLES[name],
        "",
        legend,
        Picture(waterfall(bars, words, wide)),
        Picture(waterfall(short, words, narrow)),
    )
    return {
        "chart": drawn,
        "stages": [stage.replace("_", " ") for stage in STAGES],
        "rows": [_row(r) for r in requests],
    }


def _stages(request: SlowRequest) -> list[tuple[str, int, int]]:
    stamps: list[tuple[str, int | None]] = [(stage, getattr(request.stages_ns, stage)) for stage in DRAWN]
    return between(stamps)


def _label(request: SlowRequest, short: bool = False) -> str:
    parts = [request.request_id, units.duration(request.value_ns), f"due {units.duration(request.due_ns, 4)}"]
    if request.n_out is not None:
        whose = "planned " if request.n_in_planned else ""
        told = f"{units.count(request.n_in)} {whose}in, " if request.n_in is not None else ""
        parts.append(f"{told}{units.count(request.n_out)} out")
    if not short:
        parts += [request.server_timing] if request.server_timing else []
    return "  ·  ".join(parts)


def _row(request: SlowRequest) -> dict[str, Any]:
    stamps = [getattr(request.stages_ns, stage) for stage in STAGES]
    return {
        "id": request.request_id,
        "due": units.duration(request.due_ns, 6) if request.due_ns else "0 s",
        "stamps": [units.NOTHING if at is None else units.duration(at) for at in stamps],
        "more": _more(request),
    }


def _more(request: SlowRequest) -> str:
    parts = [f"{request.status} {request.code}" if request.code is not None else request.status]
    parts += [f"worker {request.worker}"] if request.worker is not None else []
    parts.append(f"{request.stamp} stamps")
    if request.connect_ns is not None:
        parts.append(f"opened its connection in {units.duration(request.connect_ns)}")
    parts += [request.server_timing] if request.server_timing else []
    return " · ".join(parts)
