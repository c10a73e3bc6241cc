"""What an outside package can do wrong, each under a name that an entry point may point to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from plimsoll.harness.protocols.null import PROTOCOLS as NULL
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.format import Format
from plimsoll.slo.indicators.ttft import INDICATOR as TTFT
from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.records.records import BoolArray, FloatArray, Records
from tests.outside.metric.outside_metric import INDICATOR as HEADERS

NUMBER = 3


def _raises(*_: Any) -> Any:
    raise ZeroDivisionError("one of\nmany")


def _done(records: Records) -> tuple[FloatArray, BoolArray]:
    return (records["done_ns"] - records["due_ns"]).astype(float), records["done_ns"] != -1


def _raises_late(records: Records) -> tuple[FloatArray, BoolArray]:
    return _raises() if len(records) > 9 else _done(records)  # type: ignore[no-any-return]


METRIC: Indicator = HEADERS
SECOND_TTFT = TTFT
STRANGE_GROUP = replace(HEADERS, group="nonsense")  # type: ignore[arg-type]
RAISES = replace(HEADERS, name="raises", compute=_raises)
RAISES_LATE = replace(HEADERS, name="raises", compute=_raises_late)
SHORT = replace(HEADERS, name="short", compute=lambda records: (_done(records)[0][1:], _done(records)[1]))
WAITED = replace(HEADERS, name="waited", title="Time waited", needs=("due_ns", "done_ns"), compute=_done)

SHOUT = Format("shout", ".txt", "loud", lambda report: f"{report.verdict.outcome}!".encode())
RENDER_RAISES = Format("shout", ".txt", "loud", _raises, _raises)
RENDER_TEXT = Format("shout", ".txt", "loud", lambda report: "not bytes", lambda document: "no")  # type: ignore[arg-type, return-value]

ACME = replace(NULL[0], name="acme")
SECOND_CHAT = replace(NULL[0], name="openai-chat")

PART_RAISES = ReportSection("broken", 125, _raises, _raises, BaseModel)
