"""From the probes and the answer that follows from them to the document: outcome, exit code, and what the answer is
worth.

A search that was given a highest load and was not stopped by any below it has found what it was asked for: it says so
with an interval that has no upper end. Without that it is OPEN, which is no success.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from plimsoll.documents import files
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.series.search.question import Question
from plimsoll.reports.models.search_parts import (
    AnswerPart,
    MlperfPart,
    ProbePart,
    RangePart,
    SearchOutcome,
    SearchReport,
)
from plimsoll.reports.report import Report
from plimsoll.slo.search.probe import Answer

EXIT_CODES = MappingProxyType(
    {
        "FOUND": ExitCode.PASS,
        "NONE": ExitCode.FAIL,
        "OPEN": ExitCode.INCONCLUSIVE,
        "INCONCLUSIVE": ExitCode.INCONCLUSIVE,
        "INVALID": ExitCode.INVALID,
        "UNREACHABLE": ExitCode.UNREACHABLE,
        "INTERRUPTED": ExitCode.INTERRUPTED,
    }
)
#: How ``plimsoll.slo.search.book`` says that time ran out, without knowing for what.
_RAN_OUT = "time ran out"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a search stands. ``interrupted``: it is not over; ``out_of_time``: the budget ended it; ``why_short``: for
    what there was no time ("": there was, or the search is not over)."""

    answer: Answer
    interrupted: bool = False
    out_of_time: bool = False
    why_short: str = ""


def document(
    question: Question, probes: Sequence[ProbePart], ended: Ended, out: Path, spent_ns: int, started_at: str
) -> SearchReport:
    """The whole search as it is written down."""
    answer, settings = ended.answer, question.settings
    outcome, reasons = _outcome(question, ended)
    found = RangePart(
        best=answer.best, interval=(answer.low if answer.best is not None else None, _finite(answer.high))
    )
    return SearchReport(
        name=question.name,
        variable=settings.variable,
        outcome=outcome,
        reasons=reasons,
        **{"rate_per_s" if settings.variable == "rate" else "concurrency": found},  # type: ignore[arg-type]
        confidence=1 - settings.alpha,
        interval_confidence=answer.confidence,
        objectives=[*question.promises.texts, *(f"slo({slo.name})" for slo in question.promises.slos)],
        answer=None if ended.interrupted else _worth(question, probes, answer, out),
        probes=list(probes),
        exit_code=int(EXIT_CODES[outcome]),
        out_of_time=ended.out_of_time,
        hurried=answer.hurried,
        question=dict(question.identity),
        spent_ns=spent_ns,
        budget_ns=question.budget_ns,
        started_at=started_at,
        plimsoll=package_version(),
        command=" ".join(question.job.command),
    )


def _outcome(question: Question, ended: Ended) -> tuple[SearchOutcome, list[str]]:
    answer = ended.answer
    if ended.interrupted:
        return "INTERRUPTED", [text for text in answer.reasons if not text.startswith(_RAN_OUT)]
    reasons = list(answer.reasons)
    if ended.why_short:
        reasons = [ended.why_short, *(text for text in reasons if not text.startswith(_RAN_OUT))]
    highest = question.settings.highest
    if answer.outcome == "OPEN" and highest is not None and answer.best == highest:
        return "FOUND", reasons
    return answer.outcome, reasons


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _worth(question: Question, probes: Sequence[ProbePart], answer: Answer, out: Path) -> AnswerPart | None:
    """What the run at the answer measured; None without an answer, or where its report is gone."""
    if answer.best is None:
        return None
    at_best = [part for part in probes if part.load == answer.best and part.outcome == "PASS"]
    confirming = [part for part in probes if part.number == answer.confirmed_by]
    chosen = (confirming or at_best)[-1:]
    report = _report(out, chosen[0]) if chosen else None
    if report is None:
        return None
    seen, gpus = report.throughput, question.gpus
    per_gpu = seen.goodput_per_s / gpus if gpus and seen.goodput_per_s is not None else None
    return AnswerPart(
        run=chosen[0].run,
        confirmed=bool(confirming),
        requests_per_s=seen.requests_per_s,
        goodput_per_s=seen.goodput_per_s,
        good_fraction=seen.good_fraction,
        output_tokens_per_s=seen.output_tokens_per_s,
        gpus=gpus,
        goodput_per_s_per_gpu=per_gpu,
        best_rate_per_gpu=answer.best / gpus if gpus and question.settings.variable == "rate" else None,
        mlperf_server=_mlperf(question, report, answer.best),
    )


def _report(out: Path, part: ProbePart) -> Report | None:
    try:
        return Report.model_validate_json(files.read_bytes(out / part.run / "report.json"))
    except (OSError, ValueError):  # somebody tidied up: the answer stands without it
        return None


def _mlperf(question: Question, report: Report, best: float) -> MlperfPart | None:
    """LoadGen's own answer, where the search was asked in MLPerf's terms: its limits, or its arrivals."""
    part = report.mlperf
    params: dict[str, Any] = question.job.scenario.params.model_dump()
    asked = (
        any(one.name.startswith("mlperf") for one in question.promises.presets) or params.get("arrival") == "loadgen"
    )
    if part is None or not asked or question.settings.variable != "rate":
        return None
    return MlperfPart(
        valid=part.valid,
        target_per_s=best,
        completed_per_s=part.rates.get("completed_samples"),
        tokens_per_s=part.rates.get("completed_tokens"),
        # A run that LoadGen calls valid may still be too short for the benchmark's name.
        reasons=[*part.invalid_reasons, *_too_short_for_the_name(report)],
    )


def _too_short_for_the_name(report: Report) -> list[str]:
    return [text.replace("give --duration", "give --probe") for text in report.warnings if text.startswith("preset ")]
