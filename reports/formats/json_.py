"""JSON: the whole report with its public keys, for programs. An infinite number is null; there is no NaN."""

import json

from plimsoll.reports.format import Format
from plimsoll.reports.report import Report


def render(report: Report) -> bytes:
    """``report.json``: UTF-8, keys in the order of the schema, short lists of numbers not broken over lines."""
    return (json.dumps(report.document(), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n").encode()


FORMAT = Format("json", ".json", "every number of the report, versioned, for programs", render)
