"""The page's drill-down into failures: one block a kind, with everything needed to find it in a server's log."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from plimsoll.reports.report import Report
from plimsoll.reports.sections.failures import FailureKind, Failures
from plimsoll.reports.sentences import words
from plimsoll.reports.svg.ink import element, join, line
from plimsoll.reports.svg.plot import Canvas, svg
from plimsoll.reports.wording import units

_SPARK = Canvas(240, 34, left=0, right=0)


def failure_blocks(report: Report) -> list[dict[str, Any]]:
    """What the template places for each kind."""
    return [_block(kind, report) for kind in report.failures.kinds]


def _block(kind: FailureKind, report: Report) -> dict[str, Any]:
    return {
        "name": words.kind_name(kind),
        "text": kind.text or "no error text",
        "variants": words.variants(kind),
        "count": units.count(kind.count),
        "share": units.percent(kind.share, 3),
        "spark": _spark(kind, report.failures),
        "facts": _facts(kind, report.slowest.ids_sent),
    }


def _facts(kind: FailureKind, ids_sent: bool) -> list[tuple[str, str]]:
    first, last = _moment(kind.first_ns), _moment(kind.last_ns)
    facts = [("When", f"at {first}" if kind.count == 1 else f"{first} to {last}")]
    if kind.until_ns is not None:
        wait = kind.until_ns
        spread = units.duration(wait.p50)
        if kind.count > 1:
            spread = f"median {spread}, {units.duration(wait.min)} to {units.duration(wait.max)}"
        facts.append(("Failed after", f"{spread} since due"))
    else:
        facts.append(("Failed after", "never sent"))
    if kind.answered:
        facts.append(("After the first token", f"{units.count(kind.answered)} of {units.count(kind.count)}"))
    if kind.n_workers:
        more = f" and {kind.n_workers - len(kind.workers)} more" if kind.n_workers > len(kind.workers) else ""
        facts.append(("Workers", ", ".join(str(worker) for worker in kind.workers) + more))
    if kind.request_ids:
        facts.append(("Request ids" if ids_sent else "Rows (ids were not sent)", ", ".join(kind.request_ids)))
    return facts


def _moment(at_ns: int) -> str:
    return units.duration(at_ns, 4) if at_ns else "0 s"


def _spark(kind: FailureKind, failures: Failures) -> Markup | None:
    """Failures of the kind over the run's time, as bars."""
    if not any(kind.steps):
        return None
    high, width = max(kind.steps), _SPARK.width / len(kind.steps)
    base = _SPARK.height - 3
    bars = [
        element(
            "rect", x=i * width, y=base - max(n / high * 28, 2.5), width=max(width - 1, 1.5),
            height=max(n / high * 28, 2.5), class_="s-error bar",
        )
        for i, n in enumerate(kind.steps)
        if n
    ]  # fmt: skip
    length = units.duration(failures.step_ns * len(kind.steps))
    label = f"{units.count(kind.count)} failures over {length}, at most {units.count(high)} in {units.duration(failures.step_ns)}"
    return svg(_SPARK, join([line(0, base + 0.5, _SPARK.width, base + 0.5, "base"), *bars]), label)
