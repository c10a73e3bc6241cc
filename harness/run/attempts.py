"""Whether a run is made again: only where the machine spoiled it, never for what the endpoint or the user did.

A run that is INVALID by the generator alone says nothing of the endpoint, so making it again picks no result. It has the same
seed, hence the same schedule and payloads: the same experiment, not another one. A PASS, a FAIL and an INCONCLUSIVE are
results, and so is an INVALID that the endpoint caused; whoever stopped a run does not want it again. Nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plimsoll.harness.errors import HarnessFault
from plimsoll.reports.report import Report


def spoiled(report: Report) -> bool:
    """INVALID, and nobody but the generator had a part in it (``plimsoll.slo.validity.generator.Check.cause``)."""
    broken = [check for check in report.validity.checks if not check.ok]
    return report.verdict.outcome == "INVALID" and all(check.cause == "generator" for check in broken)


def as_noted(earlier: Sequence[Report]) -> list[dict[str, Any]]:
    """Earlier attempts as the manifest of the next one keeps them; ``plimsoll.reports.sections.attempts`` reads it."""
    return [
        {"number": number, "outcome": report.verdict.outcome, "reasons": list(report.verdict.reasons)}
        for number, report in enumerate(earlier, 1)
    ]


def could_not_begin(fault: HarnessFault | KeyboardInterrupt) -> str:
    """Why a later attempt could not. Faults before the first query say that nothing was sent, but an earlier attempt did send."""
    if isinstance(fault, KeyboardInterrupt):
        return "interrupted"
    claims = (" Nothing was sent.", ": nothing was sent", ". Nothing was sent")
    texts = list(fault.errors)
    for claim in claims:
        texts = [text.replace(claim, "") for text in texts]
    return "; ".join(texts)
